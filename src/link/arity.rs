//! How many values a call returns, on every path that it can take.

use super::{Const, FnRef, Linker, ModId, Resolution, Truth, Value};
use crate::python::Symbol;
use crate::python::ir::{ArgumentKind, Call, ExprId, ExprKind, ParameterKind, StmtKind};

/// The numbers of values that a call may return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arity {
    /// Sorted, without repetitions, never empty.
    pub counts: Vec<usize>,
    /// The function that returns them.
    pub callee: FnRef,
    /// Its dotted path.
    pub path: String,
    /// Offset of the first return that counts, in the callee's module.
    pub shown_at: Option<u32>,
}

impl Linker<'_> {
    /// The arity of a call; `None` if some path is not known, returns one value, or returns nothing at all.
    pub fn arity(&self, id: ModId, expr: ExprId) -> Option<Arity> {
        let module = self.module(id);
        let (inner, awaited) = match module[expr].kind {
            ExprKind::Await(inner) => (inner, true),
            _ => (expr, false),
        };
        let ExprKind::Call(call) = &module[inner].kind else { return None };
        let behind = self.behind_adapter(id, call);
        let call = behind.as_ref().unwrap_or(call);
        let Resolution::Found(values) = self.eval(id, call.callee) else { return None };
        let mut all: Option<Arity> = None;
        for value in &values {
            let (Value::Function(f) | Value::Bound(f)) = value else { return None };
            let bound = matches!(value, Value::Bound(_));
            if self.module(f.module)[f.function].is_async != awaited {
                return None;
            }
            let (counts, shown_at) = self.counts_of_call(id, call, *f, bound)?;
            match &mut all {
                Some(all) => all.counts.extend(counts),
                None => {
                    let path = self.path_of(&Value::Function(*f))?;
                    all = Some(Arity { counts, callee: *f, path, shown_at });
                }
            }
        }
        let mut all = all?;
        all.counts.sort_unstable();
        all.counts.dedup();
        Some(all)
    }

    /// The call that the compatibility adapter makes: what it returns is returned.
    fn behind_adapter(&self, id: ModId, call: &Call) -> Option<Call> {
        let is_adapter =
            matches!(self.module(id)[call.callee].kind, ExprKind::Name(name) if name == super::ADAPTER_CALL);
        let (first, rest) = call.arguments.split_first()?;
        (is_adapter && first.kind == ArgumentKind::Positional).then(|| Call {
            callee: first.value,
            arguments: rest.into(),
            parentheses: call.parentheses,
        })
    }

    fn counts_of_call(&self, id: ModId, call: &Call, f: FnRef, bound: bool) -> Option<(Vec<usize>, Option<u32>)> {
        let known = self.known_arguments(id, call, f, bound);
        self.guarded((f.module, 7, f.function.0), None, || self.assuming(f, known, || self.counts(f)))
    }

    /// The number of values of every return that can run.
    fn counts(&self, f: FnRef) -> Option<(Vec<usize>, Option<u32>)> {
        let module = self.module(f.module);
        let function = &module[f.function];
        if function.is_generator || function.falls_through || !self.keeps_result(f) {
            return None;
        }
        let mut counts = Vec::new();
        let mut shown_at = None;
        for (_, stmt) in module.own_statements(&function.body, function.scope) {
            let StmtKind::Return(value) = stmt.kind else { continue };
            if self.truth_of_guard(f.module, stmt.guard, stmt.span.start) == Truth::No {
                continue;
            }
            counts.extend(self.counts_of_value(f.module, value?)?);
            shown_at = shown_at.or(Some(stmt.span.start));
        }
        (!counts.is_empty()).then_some((counts, shown_at))
    }

    fn counts_of_value(&self, id: ModId, value: ExprId) -> Option<Vec<usize>> {
        let module = self.module(id);
        match &module[value].kind {
            ExprKind::Tuple(items) => {
                let starred = items.iter().any(|&item| matches!(module[item].kind, ExprKind::Starred(_)));
                (!starred).then(|| vec![items.len()])
            }
            ExprKind::If(parts) => match self.truth(id, parts[0]) {
                Some(true) => self.counts_of_value(id, parts[1]),
                Some(false) => self.counts_of_value(id, parts[2]),
                None => {
                    let mut counts = self.counts_of_value(id, parts[1])?;
                    counts.extend(self.counts_of_value(id, parts[2])?);
                    Some(counts)
                }
            },
            ExprKind::Call(call) => match self.eval(id, call.callee).single()? {
                Value::Function(f) | Value::Bound(f) if self.module(f.module)[f.function].is_async => None,
                Value::Function(f) => Some(self.counts_of_call(id, call, *f, false)?.0),
                Value::Bound(f) => Some(self.counts_of_call(id, call, *f, true)?.0),
                Value::Class(class) => {
                    let named_tuple = self.is_named_tuple(*class);
                    named_tuple.then(|| self.fields(*class)?.map(|fields| vec![fields.len()]))?
                }
                _ => None,
            },
            ExprKind::Name(_) => match self.eval(id, value).single()? {
                Value::Sequence(at) => match &self.module(at.module)[at.expr].kind {
                    ExprKind::Tuple(items) => {
                        let owner = self.module(at.module);
                        let starred = items.iter().any(|&item| matches!(owner[item].kind, ExprKind::Starred(_)));
                        (!starred).then(|| vec![items.len()])
                    }
                    // A list may have grown since.
                    _ => None,
                },
                Value::Instance(class, _) if self.is_named_tuple(*class) => {
                    self.fields(*class)?.map(|fields| vec![fields.len()])
                }
                _ => None,
            },
            ExprKind::List(_) | ExprKind::Binary(..) => match self.length(id, value)? {
                (count, true) => Some(vec![count]),
                _ => None,
            },
            _ => None,
        }
    }

    /// The parameters whose value this call decides: constants passed, and constant defaults of what is not passed.
    pub(super) fn known_arguments(&self, id: ModId, call: &Call, f: FnRef, bound: bool) -> Vec<(Symbol, Const)> {
        let module = self.module(f.module);
        let function = &module[f.function];
        let arguments = self.arguments(id, &call.arguments);
        let parameters = function.parameters.iter().skip(usize::from(bound));
        let mut known = Vec::new();
        for (position, parameter) in parameters.enumerate() {
            let by_position = matches!(parameter.kind, ParameterKind::PositionalOnly | ParameterKind::Normal)
                && position < arguments.positional.len();
            let by_keyword = arguments.keywords.iter().find(|(name, _)| *name == parameter.name);
            let index = if by_position { arguments.positional[position] } else { by_keyword.and_then(|(_, i)| *i) };
            let open = arguments.more_keywords || arguments.more_positional;
            let rebound = self.is_rebound(module, f.function, parameter.name);
            let value = match (index, parameter.default) {
                _ if rebound => None,
                (Some(index), _) if call.arguments[index].kind == crate::python::ir::ArgumentKind::Star => None,
                (Some(index), _) => self.constant(id, call.arguments[index].value),
                (None, Some(default)) if !open && by_keyword.is_none() => self.constant(f.module, default),
                _ => None,
            };
            if let Some(value) = value {
                known.push((parameter.name, value));
            }
        }
        known
    }
}
