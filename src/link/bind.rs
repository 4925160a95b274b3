//! Binding the arguments of a call to a signature, as `inspect.Signature.bind` does.

use rustc_hash::FxHashMap;

use super::signature::{Signature, SignatureParameter};
use super::{Linker, ModId, Partial, Value};
use crate::python::ir::{Argument, ArgumentKind, BindingKind, ExprId, ExprKind, ParameterKind, Stmt, StmtKind, Usage};
use crate::python::{Module, Symbol};

/// The arguments of a call, starred ones counted where they can be.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    /// Arguments by position, with the index of the argument in the call; a starred one stands for each of its items.
    pub positional: Vec<Option<usize>>,
    /// More positional arguments may follow: a starred argument whose length is not known.
    pub more_positional: bool,
    /// Keywords, with the index of the argument in the call.
    pub keywords: Vec<(Symbol, Option<usize>)>,
    /// More keywords may follow: `**d` that is not a literal.
    pub more_keywords: bool,
}

/// Why a call does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// No parameter takes this keyword.
    UnexpectedKeyword(Symbol, Option<usize>),
    /// The parameter is positional-only.
    PositionalOnly(Symbol, Option<usize>),
    /// A parameter gets two values.
    Multiple(Symbol, Option<usize>),
    /// More positional arguments than parameters: how many are taken, how many are given, and the first surplus one.
    Surplus {
        /// Most positional arguments that fit.
        takes: usize,
        /// Fewest that fit.
        needs: usize,
        /// Given.
        given: usize,
        /// The first that does not fit.
        argument: Option<usize>,
    },
    /// Parameters without a value: positional ones.
    MissingPositional(Vec<Symbol>),
    /// Parameters without a value: keyword-only ones.
    MissingKeyword(Vec<Symbol>),
}

/// Binds arguments to a signature. What may or may not be there never fails. Python stops at the first mismatch; every
/// keyword that is not accepted is a defect of its own, so all of them are given.
pub fn bind(signature: &Signature, arguments: &Arguments) -> Result<(), Vec<Mismatch>> {
    let parameters = &signature.parameters;
    let by_position: Vec<&SignatureParameter> =
        parameters.iter().filter(|p| matches!(p.kind, ParameterKind::PositionalOnly | ParameterKind::Normal)).collect();
    let takes_more = parameters.iter().any(|p| p.kind == ParameterKind::VarArgs);
    let takes_keywords = parameters.iter().any(|p| p.kind == ParameterKind::KwArgs);
    let given = arguments.positional.len();
    let mut filled = vec![false; parameters.len()];
    let mut mismatches = Vec::new();
    let index_of = |name: Symbol| {
        parameters
            .iter()
            .position(|p| p.name == name && matches!(p.kind, ParameterKind::Normal | ParameterKind::KeywordOnly))
    };
    for &(name, argument) in &arguments.keywords {
        match index_of(name) {
            Some(index) => {
                let position = by_position.iter().position(|p| p.name == name);
                if position.is_some_and(|position| position < given) || filled[index] {
                    mismatches.push(Mismatch::Multiple(name, argument));
                }
                filled[index] = true;
            }
            None if takes_keywords => {}
            None if by_position.iter().any(|p| p.name == name) => {
                mismatches.push(Mismatch::PositionalOnly(name, argument));
            }
            None => mismatches.push(Mismatch::UnexpectedKeyword(name, argument)),
        }
    }
    if !mismatches.is_empty() {
        return Err(mismatches);
    }
    if given > by_position.len() && !takes_more {
        return Err(vec![Mismatch::Surplus {
            takes: by_position.len(),
            needs: by_position.iter().filter(|p| !p.has_default).count(),
            given,
            argument: arguments.positional[by_position.len()],
        }]);
    }
    let unfilled = |p: &SignatureParameter| !p.has_default && !index_of(p.name).is_some_and(|index| filled[index]);
    if !arguments.more_positional && !arguments.more_keywords {
        let missing: Vec<Symbol> = by_position.iter().skip(given).filter(|p| unfilled(p)).map(|p| p.name).collect();
        if !missing.is_empty() {
            return Err(vec![Mismatch::MissingPositional(missing)]);
        }
    }
    if !arguments.more_keywords {
        let keyword_only = parameters.iter().filter(|p| p.kind == ParameterKind::KeywordOnly);
        let missing: Vec<Symbol> = keyword_only.filter(|p| unfilled(p)).map(|p| p.name).collect();
        if !missing.is_empty() {
            return Err(vec![Mismatch::MissingKeyword(missing)]);
        }
    }
    Ok(())
}

impl Linker<'_> {
    /// The arguments of a call in module `id`.
    pub fn arguments(&self, id: ModId, list: &[Argument]) -> Arguments {
        let mut arguments = Arguments::default();
        for (index, argument) in list.iter().enumerate() {
            self.add_argument(id, argument.kind, argument.value, Some(index), &mut arguments);
        }
        arguments
    }

    fn add_argument(&self, id: ModId, kind: ArgumentKind, value: ExprId, index: Option<usize>, out: &mut Arguments) {
        match kind {
            // After a star of unknown length the position is not known any more.
            ArgumentKind::Positional if out.more_positional => {}
            ArgumentKind::Positional => out.positional.push(index),
            ArgumentKind::Star => match self.length(id, value) {
                Some((least, exact)) if !out.more_positional => {
                    out.positional.extend(std::iter::repeat_n(index, least));
                    out.more_positional |= !exact;
                }
                _ => out.more_positional = true,
            },
            ArgumentKind::Keyword(name) => out.keywords.push((name, index)),
            ArgumentKind::DoubleStar => match self.keys(id, value) {
                Some(names) => out.keywords.extend(names.into_iter().map(|name| (name, index))),
                None => out.more_keywords = true,
            },
        }
    }

    /// What a partial and the call of it pass together.
    pub fn partial_arguments(&self, partial: &Partial, rest: &Arguments) -> Arguments {
        let mut all = Arguments::default();
        for argument in &partial.arguments {
            self.add_argument(partial.module, argument.kind, argument.value, None, &mut all);
        }
        if !all.more_positional {
            all.positional.extend(&rest.positional);
        }
        all.more_positional |= rest.more_positional;
        // A keyword of the call replaces one that the partial binds.
        all.keywords.retain(|(name, _)| !rest.keywords.iter().any(|(other, _)| other == name));
        all.keywords.extend(&rest.keywords);
        all.more_keywords |= rest.more_keywords;
        all
    }

    /// Number of items of an iterable: the least, and whether that is all. `None` if nothing is known.
    pub(super) fn length(&self, id: ModId, expr: ExprId) -> Option<(usize, bool)> {
        self.guarded((id, 6, expr.0), None, || self.search_length(id, expr))
    }

    fn search_length(&self, id: ModId, expr: ExprId) -> Option<(usize, bool)> {
        let module = self.module(id);
        match &module[expr].kind {
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                let (mut least, mut exact) = (0, true);
                for &item in items {
                    match module[item].kind {
                        ExprKind::Starred(inner) => match self.length(id, inner) {
                            Some((more, known)) => {
                                least += more;
                                exact &= known;
                            }
                            None => exact = false,
                        },
                        _ => least += 1,
                    }
                }
                Some((least, exact))
            }
            ExprKind::If(parts) => {
                let (a, b) = (self.length(id, parts[1])?, self.length(id, parts[2])?);
                Some((a.0.min(b.0), a == b && a.1))
            }
            ExprKind::Binary(crate::python::ir::Operator::Add, left, right) => {
                let (a, b) = (self.length(id, *left)?, self.length(id, *right)?);
                Some((a.0 + b.0, a.1 && b.1))
            }
            ExprKind::Name(name) => self.built_length(id, expr, *name),
            ExprKind::Call(call) => match (module.dotted(call.callee).as_deref(), &call.arguments[..]) {
                (Some("tuple" | "list" | "reversed" | "sorted"), [only]) if only.kind == ArgumentKind::Positional => {
                    self.length(id, only.value)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The length of a local that one display makes and `append`, `insert`, `extend` and `+=` may lengthen.
    fn built_length(&self, id: ModId, expr: ExprId, name: Symbol) -> Option<(usize, bool)> {
        let module = self.module(id);
        let scope = self.binding_scope(module, module[expr].scope, name)?;
        let bindings = &module[scope].names[&name];
        let mut source = None;
        for &binding in bindings {
            match module[binding].kind {
                BindingKind::Value(value) if source.is_none() => source = Some((value, module[binding].guard)),
                BindingKind::Augmented => {}
                _ => return None,
            }
        }
        let (value, made) = source?;
        let (mut least, mut exact) = self.length(id, value)?;
        if matches!(module[value].kind, ExprKind::Tuple(_)) && bindings.len() == 1 {
            return Some((least, exact));
        }
        let here = module[expr].span.start;
        for (index, other) in module.exprs.iter().enumerate() {
            let ExprKind::Name(mentioned) = other.kind else { continue };
            if mentioned != name
                || other.span.start == here
                || self.binding_scope(module, other.scope, name) != Some(scope)
            {
                continue;
            }
            if other.usage == Usage::Store {
                continue;
            }
            match self.growth(id, ExprId(index as u32)) {
                Some((more, known)) if other.span.start < here => {
                    let certain = other.guard == made;
                    if certain {
                        least += more;
                        exact &= known;
                    } else {
                        exact = false;
                    }
                }
                Some(_) => {}
                None => return None,
            }
        }
        for stmt in &module.stmts {
            if let StmtKind::AugAssign(target, _, added) = stmt.kind
                && matches!(module[target].kind, ExprKind::Name(n) if n == name)
                && self.binding_scope(module, stmt.scope, name) == Some(scope)
                && stmt.span.start < here
            {
                match self.length(id, added) {
                    Some((more, known)) if stmt.guard == made => {
                        least += more;
                        exact &= known;
                    }
                    _ => exact = false,
                }
            }
        }
        Some((least, exact))
    }

    /// How many items a mention of a list adds: the call around it, or a harmless read. `None` if that is not known:
    /// whoever is handed the list may change it.
    fn growth(&self, id: ModId, mention: ExprId) -> Option<(usize, bool)> {
        let module = self.module(id);
        let call = module.exprs.iter().find_map(|expr| match &expr.kind {
            ExprKind::Call(call) => match module[call.callee].kind {
                ExprKind::Attribute(list, method) if list == mention => Some((method, call)),
                _ => None,
            },
            _ => None,
        });
        match call {
            Some((method, call)) => match (method.as_str(), &call.arguments[..]) {
                ("append", [_]) | ("insert", [_, _]) => Some((1, true)),
                ("extend", [only]) => self.length(id, only.value).or(Some((0, false))),
                ("index" | "count" | "copy" | "reverse" | "sort", _) => Some((0, true)),
                _ => None,
            },
            None => is_only_read(module, mention).then_some((0, true)),
        }
    }

    /// The keys of a mapping that is spread over a call; `None` unless a display shows them all.
    fn keys(&self, id: ModId, expr: ExprId) -> Option<Vec<Symbol>> {
        let module = self.module(id);
        match &module[expr].kind {
            ExprKind::Dict(items) => {
                let mut names = Vec::new();
                for &(key, value) in items {
                    match key {
                        Some(key) => match self.constant(id, key)? {
                            super::Const::Str(name) => names.push(name),
                            _ => return None,
                        },
                        None => names.extend(self.keys(id, value)?),
                    }
                }
                Some(names)
            }
            ExprKind::Name(name) => {
                let scope = self.binding_scope(module, module[expr].scope, *name)?;
                let [only] = module[scope].names[name].as_slice() else { return None };
                let BindingKind::Value(value) = module[*only].kind else { return None };
                if !matches!(module[value].kind, ExprKind::Dict(_)) {
                    return None;
                }
                // A dict that is mentioned anywhere but in a spread may have been changed.
                let here = module[expr].span;
                let spread = |at: u32| {
                    module.exprs.iter().any(|other| match &other.kind {
                        ExprKind::Call(call) => call.arguments.iter().any(|argument| {
                            argument.kind == ArgumentKind::DoubleStar && module[argument.value].span.start == at
                        }),
                        _ => false,
                    })
                };
                let changed = module.exprs.iter().any(|other| {
                    matches!(other.kind, ExprKind::Name(n) if n == *name)
                        && other.span != here
                        && other.usage == Usage::Load
                        && self.binding_scope(module, other.scope, *name) == Some(scope)
                        && !spread(other.span.start)
                });
                if changed { None } else { self.keys(id, value) }
            }
            _ => None,
        }
    }

    /// Which argument of a call each parameter gets, where that is certain; `taken` parameters are filled before.
    pub fn given(
        &self,
        arguments: &Arguments,
        parameters: &[SignatureParameter],
        taken: usize,
    ) -> FxHashMap<Symbol, Option<usize>> {
        let by_position = parameters
            .iter()
            .filter(|p| matches!(p.kind, ParameterKind::Normal | ParameterKind::PositionalOnly))
            .map(|p| p.name)
            .skip(taken);
        let mut given: FxHashMap<Symbol, Option<usize>> =
            by_position.zip(arguments.positional.iter().copied()).collect();
        let named = |name| parameters.iter().any(|p| p.name == name && p.kind != ParameterKind::KwArgs);
        given.extend(arguments.keywords.iter().copied().filter(|(name, _)| named(*name)));
        given
    }

    /// The callable that a value comes down to, with the arguments of partials in front.
    pub fn flatten<'v>(&self, value: &'v Value, arguments: &Arguments) -> (&'v Value, Arguments) {
        let (mut value, mut arguments) = (value, arguments.clone());
        while let Value::Partial(partial) = value {
            arguments = self.partial_arguments(partial, &arguments);
            value = &partial.callee;
        }
        (value, arguments)
    }
}

/// `f(*list)`, `len(list)`, `list[i]`, `list[i] = x`, `for x in list`, `list + other`: the list keeps its length.
fn is_only_read(module: &Module, mention: ExprId) -> bool {
    const READERS: &[&str] = &[
        "len",
        "list",
        "tuple",
        "sorted",
        "sum",
        "min",
        "max",
        "any",
        "all",
        "zip",
        "enumerate",
        "isinstance",
        "print",
    ];
    let iterated = |stmt: &Stmt| matches!(stmt.kind, StmtKind::For(_, iter) if iter == mention);
    module.stmts.iter().any(iterated)
        || module.exprs.iter().any(|expr| match &expr.kind {
            ExprKind::Call(call) => call.arguments.iter().any(|argument| {
                let reader = || module.dotted(call.callee).is_some_and(|path| READERS.contains(&path.as_str()));
                argument.value == mention && (argument.kind == ArgumentKind::Star || reader())
            }),
            ExprKind::Subscript(list, index) if *list == mention => match expr.usage {
                Usage::Load => true,
                Usage::Store => !matches!(module[*index].kind, ExprKind::Other),
                Usage::Del => false,
            },
            ExprKind::Starred(list) | ExprKind::Not(list) => *list == mention,
            ExprKind::Binary(_, left, right) => *left == mention || *right == mention,
            ExprKind::Compare(left, rest) => *left == mention || rest.iter().any(|(_, right)| *right == mention),
            ExprKind::Comprehension(of) => of.generators.iter().any(|(_, iter)| *iter == mention),
            _ => false,
        })
        || module.stmts.iter().any(|stmt| match stmt.kind {
            StmtKind::If(test) | StmtKind::While(test) => test == mention,
            StmtKind::Return(value) => value == Some(mention),
            _ => false,
        })
}
