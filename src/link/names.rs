//! What a name means at a place, and what an attribute of a module is.

use std::sync::PoisonError;

use super::ClassRef;
use super::guards::{Protection, Truth};
use super::tables::All;
use super::{FnRef, Linker, Located, ModId, NodeKind, Resolution, Value, absolute};
use crate::python::ir::{
    BindingId, BindingKind, ExprKind, GuardId, GuardKind, ImportFrom, ParameterKind, ScopeId, ScopeKind, StmtId,
    StmtKind,
};
use crate::python::{Module, Symbol, builtins};

/// Where a question is asked: what is bound later, or under excluded conditions, does not count.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The scope.
    pub scope: ScopeId,
    /// Offset in the text.
    pub offset: u32,
    /// The conditions that hold.
    pub guard: GuardId,
}

impl<'p> Linker<'p> {
    /// The scope that binds `name` for code in `scope`, by Python's rules; `None` if only the module, star imports or
    /// builtins can.
    pub fn binding_scope(&self, module: &Module, scope: ScopeId, name: Symbol) -> Option<ScopeId> {
        let mut at = scope;
        let mut innermost = true;
        loop {
            let data = &module[at];
            if at == Module::SCOPE {
                return data.names.contains_key(&name).then_some(at);
            }
            let visible = innermost || !matches!(data.kind, ScopeKind::Class(_));
            if visible {
                if data.globals.contains(&name) {
                    return module[Module::SCOPE].names.contains_key(&name).then_some(Module::SCOPE);
                }
                if data.names.contains_key(&name) && !data.nonlocals.contains(&name) {
                    return Some(at);
                }
            }
            // A comprehension or type-parameter scope directly in a class body sees the class's names.
            innermost = innermost && matches!(data.kind, ScopeKind::TypeParams);
            at = data.parent;
        }
    }

    /// What `name` means at `place`.
    pub fn name(&self, id: ModId, name: Symbol, place: Place) -> Resolution {
        let module = self.module(id);
        match self.binding_scope(module, place.scope, name) {
            Some(Module::SCOPE) if place.scope == Module::SCOPE => {
                // Module code sees what is bound so far; failing that, what is bound in the end (a loop, say).
                match self.bound(id, Module::SCOPE, name, Some(place)) {
                    Resolution::Missing => self.module_member(id, name),
                    found => found,
                }
            }
            None | Some(Module::SCOPE) => self.global(id, name),
            Some(scope) if matches!(module[scope].kind, ScopeKind::Class(_)) => {
                match self.bound(id, scope, name, Some(place)) {
                    Resolution::Missing => self.global(id, name),
                    found => found,
                }
            }
            Some(scope) => {
                let here =
                    (module.enclosing_function(place.scope) == module.enclosing_function(scope)).then_some(place);
                match self.bound(id, scope, name, here) {
                    Resolution::Missing => Resolution::Unknown("a local name that is not bound on every path"),
                    found => found,
                }
            }
        }
    }

    fn global(&self, id: ModId, name: Symbol) -> Resolution {
        match self.module_member(id, name) {
            Resolution::Missing if builtins::is_builtin(&name, self.program.environment.python) => {
                Resolution::one(Value::External(name))
            }
            other => other,
        }
    }

    /// What importing `name` from the module gives, or reading it as an attribute: a submodule counts, since something
    /// has usually imported it.
    pub fn module_attribute(&self, id: ModId, name: Symbol) -> Resolution {
        let node = self.program.node(id);
        let own = match &node.kind {
            NodeKind::Source(_) => match self.program.module(id) {
                Some(module) => match self.module_member(id, name) {
                    Resolution::Missing if module[Module::SCOPE].names.contains_key(&Symbol::new("__getattr__")) => {
                        Resolution::Unknown("the module has a __getattr__")
                    }
                    found => found,
                },
                None => Resolution::Unknown("a module that cannot be read"),
            },
            NodeKind::Namespace => Resolution::Missing,
            NodeKind::Extension => Resolution::Unknown("an extension module"),
        };
        if own != Resolution::Missing {
            return own;
        }
        if builtins::is_module_attribute(&name) || builtins::is_object_attribute(&name) {
            return Resolution::Unknown("an attribute of every module");
        }
        match self.program.locate(&format!("{}.{name}", node.name)) {
            Located::Module(child) => Resolution::one(Value::Module(child)),
            Located::Unknown => Resolution::Unknown("a module that is made when the package is built"),
            Located::Missing | Located::Outside if self.program.stores().attributes.contains(&name) => {
                Resolution::Unknown("assigned from outside")
            }
            Located::Missing | Located::Outside => Resolution::Missing,
        }
    }

    /// What a name of the module's own namespace is once the module has run.
    pub fn module_member(&self, id: ModId, name: Symbol) -> Resolution {
        let known = self.program.module_names.read().unwrap_or_else(PoisonError::into_inner).get(&(id, name)).cloned();
        if let Some(known) = known {
            return known;
        }
        let cuts = self.cuts.get();
        let key = (id, u32::MAX, name.as_str().as_ptr() as usize as u32);
        let answer = self.guarded(key, Resolution::Unknown("an import cycle"), || self.search_member(id, name));
        if self.cuts.get() == cuts && self.assumes_nothing() {
            let mut cache = self.program.module_names.write().unwrap_or_else(PoisonError::into_inner);
            cache.insert((id, name), answer.clone());
        }
        answer
    }

    fn search_member(&self, id: ModId, name: Symbol) -> Resolution {
        let module = self.module(id);
        let scope = &module[Module::SCOPE];
        if self.is_replaced(id, name) {
            return Resolution::Unknown("assigned from outside");
        }
        let bindings = scope.names.get(&name).map(|bindings| bindings.as_slice()).unwrap_or_default();
        let last = bindings.iter().map(|&b| module[b].span.start).max();
        // A star import further down takes the name over.
        for &star in scope.stars.iter().rev().filter(|&&star| last.is_some_and(|last| module[star].span.start > last)) {
            match (
                self.star_member(id, star, name),
                self.truth_of_guard(id, module[star].guard, module[star].span.start),
            ) {
                (Resolution::Missing, _) => {}
                (found, Truth::Yes) => return found,
                _ => return Resolution::Unknown("a star import that may take the name over"),
            }
        }
        let bound = self.bound(id, Module::SCOPE, name, None);
        if bound != Resolution::Missing {
            return bound;
        }
        if !module.errors.is_empty() {
            return Resolution::Unknown("a module that does not parse");
        }
        if bindings.iter().any(|&b| self.is_for_another_environment(id, b)) {
            return Resolution::Unknown("bound on another platform, or when something else is installed");
        }
        for &star in &scope.stars {
            match self.star_member(id, star, name) {
                Resolution::Missing => {}
                found => return found,
            }
        }
        if scope.dynamic {
            return Resolution::Unknown("the module makes names at run time");
        }
        if scope.computed.iter().any(|&key| self.may_produce(id, key, name)) {
            return Resolution::Unknown("bound through globals()");
        }
        Resolution::Missing
    }

    /// A binding that this environment does not run, though others do: who reads the name may not run here either. One
    /// under TYPE_CHECKING runs nowhere.
    fn is_for_another_environment(&self, id: ModId, binding: BindingId) -> bool {
        let module = self.module(id);
        let data = &module[binding];
        if self.truth_of_guard(id, data.guard, data.span.start) != Truth::No {
            return false;
        }
        let unbinding = matches!(data.kind, BindingKind::Deletion | BindingKind::Declaration(_));
        let nowhere = module.conditions(data.guard).any(|kind| match kind {
            GuardKind::Test { test, .. } => module.slice(module[test].span).contains("TYPE_CHECKING"),
            GuardKind::Unreachable => true,
            _ => false,
        });
        !unbinding && !nowhere
    }

    fn star_member(&self, id: ModId, star: StmtId, name: Symbol) -> Resolution {
        let module = self.module(id);
        let StmtKind::ImportFrom(import) = &module[star].kind else { return Resolution::Missing };
        if self.truth_of_guard(id, module[star].guard, module[star].span.start) == Truth::No {
            return Resolution::Missing;
        }
        let Some(source) = absolute(module, import.level, &import.module) else {
            return Resolution::Unknown("a relative import beyond the package");
        };
        match self.program.locate(&source) {
            Located::Module(from) => match self.exported(from, name) {
                Some(false) => Resolution::Missing,
                Some(true) => self.module_attribute(from, name),
                None => match self.module_attribute(from, name) {
                    Resolution::Missing => Resolution::Missing,
                    _ => Resolution::Unknown("a star import whose __all__ is not known"),
                },
            },
            // Without it the module does not import at all, which is not for the names to say; a guarded one may be missed.
            Located::Missing if self.is_protected(id, module[star].guard, Protection::Import) => Resolution::Missing,
            Located::Missing => Resolution::Unknown("a star import that fails"),
            Located::Outside if is_closed_standard_module(&source) => Resolution::Missing,
            Located::Outside | Located::Unknown => Resolution::Unknown("a star import of a module that is not here"),
        }
    }

    /// Whether `from module import *` takes `name`; `None` if `__all__` is not understood.
    fn exported(&self, id: ModId, name: Symbol) -> Option<bool> {
        match self.all(id) {
            All::Absent => Some(!name.starts_with('_')),
            All::Names(names) => Some(names.contains(&name)),
            All::Unknown => None,
        }
    }

    /// Everything that a name may be bound to in a scope: at `place`, or once the scope has run.
    pub fn bound(&self, id: ModId, scope: ScopeId, name: Symbol, place: Option<Place>) -> Resolution {
        let candidates = self.candidates(id, scope, name, place);
        Resolution::union(candidates.into_iter().map(|binding| self.binding(id, binding)))
    }

    /// The bindings that can be in force, the latest first: back to the last one that certainly ran.
    pub fn candidates(&self, id: ModId, scope: ScopeId, name: Symbol, place: Option<Place>) -> Vec<BindingId> {
        let module = self.module(id);
        let Some(bindings) = module[scope].names.get(&name) else { return Vec::new() };
        let mut live = Vec::new();
        for &binding in bindings.iter().rev() {
            let data = &module[binding];
            let later = place.is_some_and(|place| data.span.start >= place.offset);
            if later && !place.is_some_and(|place| share_loop(module, place.guard, data.guard)) {
                continue;
            }
            if matches!(data.kind, BindingKind::Declaration(_)) {
                continue;
            }
            if place.is_some_and(|place| excluded(module, place.guard, data.guard)) {
                continue;
            }
            let truth = self.truth_of_guard(id, data.guard, data.span.start);
            if truth == Truth::No {
                continue;
            }
            let certain = truth == Truth::Yes
                || place.is_some_and(|place| self.dominates(id, data.guard, place.guard, data.span.start));
            if data.kind == BindingKind::Deletion {
                if certain && !later {
                    break;
                }
                continue;
            }
            live.push(binding);
            if certain && !later {
                break;
            }
        }
        live
    }

    /// Every condition of `inner` certainly holds, or holds at `outer` as well.
    fn dominates(&self, id: ModId, inner: GuardId, outer: GuardId, offset: u32) -> bool {
        let module = self.module(id);
        let mut at = inner;
        while at.0 != 0 {
            if is_ancestor(module, at, outer) {
                return true;
            }
            if self.truth_of_kind(id, module[at].kind, offset) != Truth::Yes {
                return false;
            }
            at = module[at].parent;
        }
        true
    }

    /// What one binding gives.
    pub fn binding(&self, id: ModId, binding: BindingId) -> Resolution {
        let module = self.module(id);
        let data = &module[binding];
        match data.kind {
            BindingKind::Function(function) => self.function_value(FnRef { module: id, function }),
            BindingKind::Class(class) => Resolution::one(Value::Class(ClassRef { module: id, class })),
            BindingKind::Value(value)
                if module.mutated.contains(&data.name)
                    && matches!(module[value].kind, ExprKind::List(_) | ExprKind::Set(_) | ExprKind::Dict(_)) =>
            {
                Resolution::Unknown("a table that changes")
            }
            BindingKind::Value(value) => self.eval(id, value),
            BindingKind::Element { value, index } => self.element(id, value, index),
            BindingKind::Import(stmt) => self.import(id, stmt),
            BindingKind::ImportFrom(stmt) => {
                let StmtKind::ImportFrom(import) = &module[stmt].kind else {
                    return Resolution::Unknown("not an import");
                };
                // What is imported only if the right version is there is not used with another one.
                if data.scope == Module::SCOPE && self.is_behind_version_question(id, data.guard) {
                    return Resolution::Unknown("imported if the right thing is installed");
                }
                match self.import_from(id, import) {
                    // An import that fails is a finding at the import, not at every use.
                    Resolution::Missing => Resolution::Unknown("an import that fails"),
                    found => found,
                }
            }
            BindingKind::Parameter(function, index) => self.parameter(id, function, index),
            BindingKind::Declaration(_) | BindingKind::Deletion => Resolution::Missing,
            BindingKind::Augmented => Resolution::Unknown("an augmented assignment"),
            BindingKind::Iteration { .. } => Resolution::Unknown("a loop variable"),
            BindingKind::Context(_) => Resolution::Unknown("what a context manager gives"),
            BindingKind::Exception | BindingKind::Pattern | BindingKind::TypeParameter => {
                Resolution::Unknown("bound to a value that is not followed")
            }
        }
    }

    fn parameter(&self, id: ModId, function: crate::python::ir::FunctionId, index: u32) -> Resolution {
        let module = self.module(id);
        let data = &module[function];
        let first =
            index == 0 && matches!(data.parameters[0].kind, ParameterKind::Normal | ParameterKind::PositionalOnly);
        if let (Some(class), true) = (data.class, first) {
            let class = ClassRef { module: id, class };
            match self.method_kind(FnRef { module: id, function }) {
                super::signature::MethodKind::Instance => return Resolution::one(Value::SelfOf(class)),
                super::signature::MethodKind::Class => return Resolution::one(Value::ClassOf(class)),
                super::signature::MethodKind::Static => {}
            }
        }
        Resolution::Unknown("a parameter")
    }

    /// What `import a.b` binds: `a`, or with an alias `a.b`.
    fn import(&self, id: ModId, stmt: StmtId) -> Resolution {
        let StmtKind::Import(import) = &self.module(id)[stmt].kind else {
            return Resolution::Unknown("not an import");
        };
        let name = match import.alias {
            Some(_) => import.module.as_str(),
            None => import.module.split('.').next().unwrap_or_default(),
        };
        match self.program.locate(name) {
            Located::Module(module) => Resolution::one(Value::Module(module)),
            Located::Outside => Resolution::one(Value::External(Symbol::new(name))),
            Located::Missing => Resolution::Unknown("an import that fails"),
            Located::Unknown => Resolution::Unknown("a module that is made when the package is built"),
        }
    }

    /// What `from a import b` binds.
    pub fn import_from(&self, id: ModId, import: &ImportFrom) -> Resolution {
        let Some(source) = absolute(self.module(id), import.level, &import.module) else {
            return Resolution::Unknown("a relative import beyond the package");
        };
        match self.program.locate(&source) {
            Located::Module(from) if from == id => match self.program.locate(&format!("{source}.{}", import.name)) {
                Located::Module(child) => Resolution::one(Value::Module(child)),
                _ => self.module_attribute(from, import.name),
            },
            Located::Module(from) => self.module_attribute(from, import.name),
            Located::Outside => Resolution::one(Value::External(Symbol::new(&format!("{source}.{}", import.name)))),
            Located::Missing => Resolution::Missing,
            Located::Unknown => Resolution::Unknown("a module that is made when the package is built"),
        }
    }
}

/// Star imports of these bring only names that no attention module leans on by accident; every other module outside
/// the environment may bring anything.
fn is_closed_standard_module(name: &str) -> bool {
    matches!(name, "__future__")
}

/// Whether `outer` has `inner` among its conditions.
pub fn is_ancestor(module: &Module, inner: GuardId, outer: GuardId) -> bool {
    let mut at = outer;
    loop {
        if at == inner {
            return true;
        }
        if at.0 == 0 {
            return false;
        }
        at = module[at].parent;
    }
}

/// The two places are in one loop, so that a later binding can reach an earlier read.
fn share_loop(module: &Module, read: GuardId, bound: GuardId) -> bool {
    let mut at = bound;
    while at.0 != 0 {
        if module[at].kind == GuardKind::Loop && is_ancestor(module, at, read) {
            return true;
        }
        at = module[at].parent;
    }
    false
}

/// The two places are on opposite branches of one test.
fn excluded(module: &Module, read: GuardId, bound: GuardId) -> bool {
    let reads: Vec<GuardKind> = module.conditions(read).collect();
    module.conditions(bound).any(|kind| match kind {
        GuardKind::Test { test, holds } => reads.contains(&GuardKind::Test { test, holds: !holds }),
        _ => false,
    }) && !share_loop(module, read, bound)
}

impl Linker<'_> {
    /// The dotted path that an expression spells through its imports, before re-exports are followed:
    /// `cute.jit` is `cutlass.cute.jit` whatever defines it.
    pub fn spelled(&self, id: ModId, expr: crate::python::ir::ExprId) -> Option<String> {
        let module = self.module(id);
        match module[expr].kind {
            ExprKind::Attribute(value, attr) => match self.eval(id, value).single()? {
                Value::Module(base) => Some(format!("{}.{attr}", self.program.node(*base).name)),
                Value::External(base) => Some(format!("{base}.{attr}")),
                _ => Some(format!("{}.{attr}", self.spelled(id, value)?)),
            },
            ExprKind::Name(name) => {
                let scope = self.binding_scope(module, module[expr].scope, name);
                let Some(scope) = scope else {
                    return builtins::is_builtin(&name, None).then(|| name.to_string());
                };
                let binding =
                    module[scope].names[&name].iter().rev().map(|&b| &module[b]).find_map(|b| match b.kind {
                        BindingKind::ImportFrom(stmt) | BindingKind::Import(stmt) => Some(stmt),
                        _ => None,
                    })?;
                match &module[binding].kind {
                    StmtKind::ImportFrom(import) => {
                        let source = absolute(module, import.level, &import.module)?;
                        Some(format!("{source}.{}", import.name))
                    }
                    StmtKind::Import(import) => match import.alias {
                        Some(_) => Some(import.module.to_string()),
                        None => import.module.split('.').next().map(str::to_owned),
                    },
                    _ => None,
                }
            }
            ExprKind::Call(ref call) => self.spelled(id, call.callee),
            _ => None,
        }
    }

    /// The dotted path of a value as it is defined.
    pub fn path_of(&self, value: &Value) -> Option<String> {
        let qualified = |module: &Module, scope, name: Symbol| match module.qualified(scope).as_str() {
            "<module>" => format!("{}.{name}", module.name),
            outer => format!("{}.{outer}.{name}", module.name),
        };
        match value {
            Value::Function(f) | Value::Bound(f) => {
                let module = self.module(f.module);
                let function = &module[f.function];
                Some(qualified(module, function.outer, function.name))
            }
            Value::Class(c) | Value::Instance(c, _) | Value::SelfOf(c) | Value::ClassOf(c) => {
                let module = self.module(c.module);
                let class = &module[c.class];
                Some(qualified(module, class.outer, class.name))
            }
            Value::Module(id) => Some(self.program.node(*id).name.to_string()),
            Value::External(path) => Some(path.to_string()),
            _ => None,
        }
    }
}
