//! What becomes of the value that a call gives to a parameter: used, refused, handed back, or dropped.
//!
//! A walk over definitions and uses inside one function, and from there into the functions that the value is handed to.
//! Branches that the assumed architecture or the assumed parameters exclude do not count. Whatever is not followed (a
//! callee that is not known, an attribute, a nested function) counts as a use: only what certainly goes nowhere is dropped.

use super::flow::Flow;
use super::{Const, FnRef, Linker, Truth, Value};
use crate::python::Symbol;
use crate::python::ir::{ExprId, ExprKind, Function, GuardKind, Module, StmtKind};

/// How deep a value is followed from function to function.
const DEPTH: usize = 10;

/// What becomes of a value, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Nothing that the function does or returns depends on it.
    Dropped,
    /// What the function returns depends on it, nothing else.
    Returned,
    /// The function may raise because of it, or says that it does without.
    Refused,
    /// It reaches something that is not followed further.
    Used,
}

/// Where a dropped value was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The function that takes it.
    pub function: FnRef,
    /// The parameter.
    pub parameter: Symbol,
    /// The calls that handed it there, from the first function on.
    pub through: Vec<(FnRef, ExprId)>,
}

/// Follows values under what a linker assumes.
pub struct Follower<'l, 'p> {
    pub(super) linker: &'l Linker<'p>,
    active: Vec<(FnRef, Symbol)>,
    pub(super) calls: Vec<(FnRef, ExprId)>,
    /// Where the value was dropped, as far as it was followed.
    pub ends: Vec<End>,
    /// The value reached a call that is not followed: a kernel, as far as anyone can tell.
    pub launched: bool,
}

impl<'l, 'p> Follower<'l, 'p> {
    /// Follows values under what `linker` assumes.
    pub fn new(linker: &'l Linker<'p>) -> Follower<'l, 'p> {
        Follower { linker, active: Vec::new(), calls: Vec::new(), ends: Vec::new(), launched: false }
    }

    /// What becomes of a value, neither None nor false, that a call gives to `parameter` of `f`, while other parameters
    /// have the values in `assumed`.
    pub fn follow(&mut self, f: FnRef, parameter: Symbol, mut assumed: Vec<(Symbol, Const)>) -> Fate {
        if self.active.contains(&(f, parameter)) {
            return Fate::Dropped;
        }
        if self.active.len() >= DEPTH {
            return Fate::Used;
        }
        let linker = self.linker;
        self.active.push((f, parameter));
        let before = self.ends.len();
        assumed.push((parameter, Const::Object));
        let fate = linker.assuming(f, assumed, || match Flow::new(self, f, parameter) {
            Some(flow) => flow.run(),
            None => Fate::Used,
        });
        self.active.pop();
        match fate {
            Fate::Dropped if self.ends.len() == before => {
                self.ends.push(End { function: f, parameter, through: self.calls.clone() });
            }
            Fate::Dropped => {}
            _ => self.ends.truncate(before),
        }
        fate
    }
}

/// Whether a raise has this condition as its nearest.
pub(super) fn is_raised_under(module: &Module, function: &Function, condition: GuardKind) -> bool {
    module.own_statements(&function.body, function.scope).any(|(_, stmt)| {
        matches!(stmt.kind, StmtKind::Raise(_)) && module.conditions(stmt.guard).next() == Some(condition)
    })
}

/// Whether calling the function ends in an exception whatever is passed: an assert that fails here, or a raise.
pub(super) fn is_closed(linker: &Linker<'_>, f: FnRef, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let program = linker.program;
    if !program.packs.is_audited(&program.node(f.module).name) {
        return false;
    }
    let module = linker.module(f.module);
    let function = &module[f.function];
    // What an earlier assert or raise lets pass comes here, if anything does.
    let passed = |kind: GuardKind| match kind {
        GuardKind::Test { test, holds } => {
            is_raised_under(module, function, GuardKind::Test { test, holds: !holds })
                || module
                    .own_statements(&function.body, function.scope)
                    .any(|(_, stmt)| matches!(stmt.kind, StmtKind::Assert(asserted, _) if asserted == test))
        }
        _ => false,
    };
    let certain = |guard, offset| {
        let conditions = module.conditions(guard).take_while(|kind| !is_body(*kind));
        conditions.into_iter().all(|kind| linker.truth_of_kind(f.module, kind, offset) == Truth::Yes || passed(kind))
    };
    let raises = module.own_statements(&function.body, function.scope).any(|(_, stmt)| match stmt.kind {
        StmtKind::Raise(_) => certain(stmt.guard, stmt.span.start),
        StmtKind::Assert(test, _) => {
            linker.truth(f.module, test) == Some(false) && certain(stmt.guard, stmt.span.start)
        }
        _ => false,
    });
    raises
        || function.exprs.clone().map(ExprId).any(|expr| {
            let data = &module[expr];
            let ExprKind::Call(call) = &data.kind else { return false };
            data.scope == function.scope
                && certain(data.guard, data.span.start)
                && match linker.eval(f.module, call.callee).single() {
                    Some(Value::Function(g) | Value::Bound(g)) if *g != f => is_closed(linker, *g, depth),
                    _ => false,
                }
        })
}

/// The condition that a body is the body of its function: no condition at all.
pub(super) fn is_body(kind: GuardKind) -> bool {
    matches!(kind, GuardKind::Body(_))
}
