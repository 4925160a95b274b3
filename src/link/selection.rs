//! Which implementation sources choose on an assumed device: predicates that say whether one is supported, and functions
//! that pick one by a number.

use super::{Const, FnRef, Linker, ModId, Truth, Value};
use crate::python::Symbol;
use crate::python::ir::{
    ArgumentKind, BindingKind, Call, Constant, ExprId, ExprKind, GuardId, GuardKind, Span, StmtKind,
};

/// How deep predicates are followed into each other.
const DEPTH: u32 = 4;

/// What a function picks when it is asked for nothing in particular.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The number.
    pub value: i64,
    /// The assignment that settles it.
    pub module: ModId,
    /// Its place.
    pub span: Span,
}

/// Why an implementation is not supported: the return that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Where.
    pub module: ModId,
    /// Its place.
    pub span: Span,
    /// What it says.
    pub reason: Option<Symbol>,
}

/// Backends in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Where the list stands.
    pub module: ModId,
    /// Its place.
    pub span: Span,
    /// What could be read of it.
    pub backends: Vec<Backend>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// As the list calls it.
    pub name: Symbol,
    /// Whether it runs on the device, if its class says so.
    pub runs: Option<bool>,
}

impl Linker<'_> {
    /// Why the number `value` is not supported, if a return says so.
    pub fn refusal(&self, value: i64) -> Option<Refusal> {
        let predicate = self.program.packs.selection.supported.iter().find_map(|path| self.function_at(path))?;
        let parameter = self.module(predicate.module)[predicate.function].parameters.first()?.name;
        self.assuming(predicate, vec![(parameter, Const::Int(value))], || self.refusing_return(predicate, DEPTH))
    }

    fn refusing_return(&self, f: FnRef, depth: u32) -> Option<Refusal> {
        let depth = depth.checked_sub(1)?;
        let module = self.module(f.module);
        let function = &module[f.function];
        let returns = module.own_statements(&function.body, function.scope).filter_map(|(_, stmt)| match stmt.kind {
            StmtKind::Return(Some(value)) => Some((value, self.truth_of_guard(f.module, stmt.guard, stmt.span.start))),
            _ => None,
        });
        let mut live: Vec<_> = returns.filter(|(_, truth)| *truth != Truth::No).collect();
        // The one that is certain to be reached, before those that are only possible.
        live.sort_by_key(|(_, truth)| *truth != Truth::Yes);
        live.into_iter().rev().find_map(|(value, _)| self.refusing_value(f.module, value, depth))
    }

    fn refusing_value(&self, id: ModId, value: ExprId, depth: u32) -> Option<Refusal> {
        let module = self.module(id);
        match &module[value].kind {
            ExprKind::Subscript(inner, _) => self.refusing_value(id, *inner, depth),
            ExprKind::Call(call) => match *self.eval(id, call.callee).single()? {
                Value::Function(f) | Value::Bound(f) => self.refusing_return(f, depth),
                _ => None,
            },
            ExprKind::Tuple(items) if self.truth(id, *items.first()?) == Some(false) => {
                let reason = match self.constant(id, *items.get(1)?) {
                    Some(Const::Str(reason)) => Some(reason),
                    _ => None,
                };
                Some(Refusal { module: id, span: module[value].span, reason })
            }
            _ => (self.truth(id, value) == Some(false)).then(|| Refusal {
                module: id,
                span: module[value].span,
                reason: None,
            }),
        }
    }

    /// The backends that are tried, in their order, when nothing in particular is asked for.
    pub fn tried(&self, mla: bool) -> Option<Order> {
        let selection = &self.program.packs.selection;
        let f = selection.priorities.iter().find_map(|path| self.function_at(path))?;
        let function = &self.module(f.module)[f.function];
        let mut assumed: Vec<(Symbol, Const)> = function
            .parameters
            .iter()
            .filter_map(|parameter| Some((parameter.name, self.constant(f.module, parameter.default?)?)))
            .collect();
        assumed.extend(selection.mla_argument.iter().map(|name| (Symbol::new(name), Const::Bool(mla))));
        self.assuming(f, assumed, || {
            let module = self.module(f.module);
            let mut lists =
                module.own_statements(&function.body, function.scope).filter_map(|(_, stmt)| match stmt.kind {
                    StmtKind::Return(Some(value)) => {
                        (self.truth_of_guard(f.module, stmt.guard, stmt.span.start) != Truth::No).then_some(value)
                    }
                    _ => None,
                });
            let list = lists.next()?;
            if lists.next().is_some() {
                return None;
            }
            let backends = self.backends(f.module, list)?;
            Some(Order { module: f.module, span: module[list].span, backends })
        })
    }

    /// The items of a list of backends, starred ones spread out.
    fn backends(&self, id: ModId, list: ExprId) -> Option<Vec<Backend>> {
        let module = self.module(id);
        match &module[list].kind {
            ExprKind::List(items) => {
                let each = items.iter().map(|&item| match module[item].kind {
                    ExprKind::Starred(inner) => self.backends(id, inner),
                    _ => Some(vec![self.backend(id, item)?]),
                });
                Some(each.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
            }
            ExprKind::If(parts) => {
                let part = if self.truth(id, parts[0])? { parts[1] } else { parts[2] };
                self.backends(id, part)
            }
            ExprKind::Name(name) => {
                let made = self.backends(id, self.local_value(id, list, *name)?)?;
                self.lengthened(id, list, *name, made)
            }
            _ => None,
        }
    }

    /// A local list after the calls of its `append` and `insert` before `read`.
    fn lengthened(&self, id: ModId, read: ExprId, name: Symbol, mut list: Vec<Backend>) -> Option<Vec<Backend>> {
        let module = self.module(id);
        let (scope, before) = (module[read].scope, module[read].span.start);
        for expr in module.exprs.iter().filter(|expr| expr.scope == scope && expr.span.start < before) {
            let ExprKind::Call(call) = &expr.kind else { continue };
            let ExprKind::Attribute(object, method) = module[call.callee].kind else { continue };
            if !matches!(module[object].kind, ExprKind::Name(other) if other == name) {
                continue;
            }
            match self.truth_of_guard(id, expr.guard, expr.span.start) {
                Truth::No => continue,
                // The body of the function is itself a condition; nothing else may be.
                _ if !self.certainly_runs(id, expr.guard) => return None,
                _ => {}
            }
            let (at, added) = match (method.as_str(), &call.arguments[..]) {
                ("append", [added]) => (list.len(), added.value),
                ("insert", [at, added]) => match self.constant(id, at.value)? {
                    Const::Int(at) => (usize::try_from(at).ok()?.min(list.len()), added.value),
                    _ => return None,
                },
                _ => return None,
            };
            list.insert(at, self.backend(id, added)?);
        }
        Some(list)
    }

    fn certainly_runs(&self, id: ModId, guard: GuardId) -> bool {
        let module = self.module(id);
        let mut conditions = module.conditions(guard).take_while(|kind| !matches!(kind, GuardKind::Body(_)));
        conditions.all(|kind| self.truth_of_kind(id, kind, 0) == Truth::Yes)
    }

    /// A member of the enumeration of backends, itself or through a local name.
    fn backend(&self, id: ModId, item: ExprId) -> Option<Backend> {
        let module = self.module(id);
        match module[item].kind {
            ExprKind::Attribute(_, name) => Some(Backend { name, runs: self.backend_runs(id, item) }),
            ExprKind::Name(name) => self.backend(id, self.local_value(id, item, name)?),
            _ => None,
        }
    }

    /// What the only assignment that reaches a name gives it.
    fn local_value(&self, id: ModId, read: ExprId, name: Symbol) -> Option<ExprId> {
        let module = self.module(id);
        let scope = self.binding_scope(module, module[read].scope, name)?;
        match self.candidates(id, scope, name, Some(self.place(id, read)))[..] {
            [only] => match module[only].kind {
                BindingKind::Value(value) if value != read => Some(value),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the class that a backend's entry names by its dotted path runs on the device.
    fn backend_runs(&self, id: ModId, entry: ExprId) -> Option<bool> {
        let Value::Constant(Constant::Str(path)) = *self.eval(id, entry).single()? else { return None };
        let (module, class) = path.rsplit_once('.')?;
        let super::Located::Module(owner) = self.program.locate(module) else { return None };
        self.program.module(owner)?;
        let Value::Class(class) = *self.module_member(owner, Symbol::new(class)).single()? else { return None };
        let predicate = self.program.packs.selection.device_predicate.as_deref()?;
        match *self.class_member(class, Symbol::new(predicate)).single()? {
            Value::Function(f) => Some(self.may_hold(f, Vec::new())),
            _ => None,
        }
    }

    /// Whether a predicate, with these values of its parameters, can come out true. Its answer is a truth value, or a
    /// tuple that starts with one.
    pub fn may_hold(&self, f: FnRef, assumed: Vec<(Symbol, Const)>) -> bool {
        self.assuming(f, assumed, || self.may_answer(f, DEPTH))
    }

    fn may_answer(&self, f: FnRef, depth: u32) -> bool {
        let module = self.module(f.module);
        let function = &module[f.function];
        let mut returns =
            module.own_statements(&function.body, function.scope).filter_map(|(_, stmt)| match stmt.kind {
                StmtKind::Return(value) if self.truth_of_guard(f.module, stmt.guard, stmt.span.start) != Truth::No => {
                    Some(value)
                }
                _ => None,
            });
        returns.any(|value| value.is_some_and(|value| self.may_be_true(f.module, value, depth)))
    }

    fn may_be_true(&self, id: ModId, value: ExprId, depth: u32) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return true };
        let module = self.module(id);
        match &module[value].kind {
            ExprKind::Tuple(items) => items.first().is_none_or(|&first| self.may_be_true(id, first, depth)),
            ExprKind::Subscript(inner, index)
                if matches!(module[*index].kind, ExprKind::Constant(Constant::Int(0))) =>
            {
                match &module[*inner].kind {
                    ExprKind::Call(call) => self.may_call_answer(id, call, depth),
                    _ => self.may_be_true(id, *inner, depth),
                }
            }
            ExprKind::Call(call) if self.truth(id, value).is_none() => self.may_call_answer(id, call, depth),
            _ => self.truth(id, value) != Some(false),
        }
    }

    fn may_call_answer(&self, id: ModId, call: &Call, depth: u32) -> bool {
        match self.eval(id, call.callee).single() {
            Some(&(Value::Function(f) | Value::Bound(f))) => self.may_answer(f, depth),
            _ => true,
        }
    }

    /// Whether one of the predicates that packs name supports the number `value`, if one is installed.
    pub fn is_supported(&self, value: i64) -> Option<bool> {
        let predicate = self.program.packs.selection.supported.iter().find_map(|path| self.function_at(path))?;
        Some(self.supports(predicate, value))
    }

    fn supports(&self, predicate: FnRef, value: i64) -> bool {
        let parameter = self.module(predicate.module)[predicate.function].parameters.first().map(|p| p.name);
        let assumed = parameter.map(|name| (name, Const::Int(value))).into_iter().collect();
        self.may_hold(predicate, assumed)
    }

    /// The number that the function named in packs picks when it is asked for nothing in particular.
    pub fn chosen(&self) -> Option<Choice> {
        let path = self.program.packs.selection.chosen_by.iter();
        path.into_iter().find_map(|path| self.choice(self.function_at(path)?))
    }

    /// The function that a dotted path names.
    pub fn function_at(&self, path: &str) -> Option<FnRef> {
        let (module, name) = path.rsplit_once('.')?;
        let super::Located::Module(id) = self.program.locate(module) else { return None };
        self.program.module(id)?;
        match *self.module_member(id, Symbol::new(name)).single()? {
            Value::Function(f) => Some(f),
            _ => None,
        }
    }

    /// Runs through the assignments to what `f` returns, in order, with every parameter left at its default. A test that
    /// nothing decides (a setting, an environment variable) does not hold.
    fn choice(&self, f: FnRef) -> Option<Choice> {
        let module = self.module(f.module);
        let function = &module[f.function];
        let scope = &module[function.scope];
        let defaults: Vec<(Symbol, Const)> = function
            .parameters
            .iter()
            .filter_map(|parameter| Some((parameter.name, self.constant(f.module, parameter.default?)?)))
            .collect();
        let returned = module.own_statements(&function.body, function.scope).filter_map(|(_, stmt)| match stmt.kind {
            StmtKind::Return(Some(value)) => match module[value].kind {
                ExprKind::Name(name) => Some(name),
                _ => None,
            },
            _ => None,
        });
        let name = returned.last()?;
        let mut bindings: Vec<_> = scope.names.get(&name)?.iter().map(|&binding| &module[binding]).collect();
        bindings.sort_by_key(|binding| binding.span);
        let mut chosen: Option<Choice> = None;
        for binding in bindings {
            let BindingKind::Value(value) = binding.kind else { return None };
            let mut assumed = defaults.clone();
            assumed.extend(chosen.as_ref().map(|choice| (name, Const::Int(choice.value))));
            let next = self.assuming(f, assumed, || {
                let conditions =
                    module.conditions(binding.guard).take_while(|kind| !matches!(kind, GuardKind::Body(_)));
                let runs = conditions.into_iter().all(|kind| match kind {
                    GuardKind::Test { test, holds } => self.likely(f.module, test).unwrap_or(false) == holds,
                    GuardKind::Handler(..) | GuardKind::Unreachable | GuardKind::Case | GuardKind::Loop => false,
                    _ => true,
                });
                if runs { Some(self.picked(f.module, value)) } else { None }
            });
            match next {
                Some(Some(value)) => chosen = Some(Choice { value, module: f.module, span: binding.span }),
                // A value that is not known: so is the choice.
                Some(None) => chosen = None,
                None => {}
            }
        }
        chosen
    }

    /// An integer, or one of two that a test decides.
    fn picked(&self, id: ModId, value: ExprId) -> Option<i64> {
        if let ExprKind::If(parts) = &self.module(id)[value].kind {
            let part = if self.likely(id, parts[0])? { parts[1] } else { parts[2] };
            return self.picked(id, part);
        }
        match self.constant(id, value)? {
            Const::Int(value) => Some(value),
            _ => None,
        }
    }

    /// The truth of a test, where what can be supported is supported: that its libraries load is for other rules.
    fn likely(&self, id: ModId, test: ExprId) -> Option<bool> {
        let module = self.module(id);
        match &module[test].kind {
            ExprKind::Not(inner) => self.likely(id, *inner).map(|known| !known),
            ExprKind::And(items) | ExprKind::Or(items) => {
                let settles = matches!(module[test].kind, ExprKind::Or(_));
                let known: Vec<Option<bool>> = items.iter().map(|&item| self.likely(id, item)).collect();
                if known.contains(&Some(settles)) {
                    return Some(settles);
                }
                known.iter().all(Option::is_some).then_some(!settles)
            }
            ExprKind::Call(call) => self.truth(id, test).or_else(|| self.likely_supported(id, call)),
            _ => self.truth(id, test),
        }
    }

    fn likely_supported(&self, id: ModId, call: &Call) -> Option<bool> {
        let [argument] = &call.arguments[..] else { return None };
        if argument.kind != ArgumentKind::Positional {
            return None;
        }
        let Const::Int(value) = self.constant(id, argument.value)? else { return None };
        let callee = self.eval(id, call.callee);
        let path = self.path_of(callee.single()?)?;
        let known = self.program.packs.selection.supported.contains(&path);
        known.then(|| self.function_at(&path)).flatten().map(|predicate| self.supports(predicate, value))
    }
}
