//! Who assigns which attribute, read off the syntax alone: what methods store on and read from their first parameter,
//! and what code anywhere stores on other objects.

use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{ClassRef, Linker, ModId, Program, Value};
use crate::python::Symbol;
use crate::python::ir::{
    ArgumentKind, BindingKind, ClassId, Constant, Expr, ExprId, ExprKind, FunctionId, Module, ScopeKind, StmtKind,
    Usage,
};

/// A store of an attribute on `self`.
#[derive(Debug, Clone, Copy)]
pub struct Store {
    /// The target.
    pub target: ExprId,
    /// What is stored, where one expression says it.
    pub value: Option<ExprId>,
    /// The method.
    pub function: FunctionId,
    /// `self.x += ..`: reads what must be there before.
    pub augmented: bool,
}

/// A read of an attribute of `self`.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// The attribute expression.
    pub expr: ExprId,
    /// The method.
    pub function: FunctionId,
}

/// What the methods of one class do with their first parameter.
#[derive(Debug, Default)]
pub struct SelfUse {
    /// By attribute.
    pub stores: FxHashMap<Symbol, Vec<Store>>,
    /// In source order.
    pub reads: Vec<Read>,
    /// Attributes appear that no statement names (`self.__dict__.update(..)`, setattr of a computed name).
    pub open: bool,
}

/// What the methods do with their first parameter, for every class of a module.
#[derive(Debug, Default)]
pub struct SelfIndex {
    /// By class.
    pub classes: FxHashMap<ClassId, SelfUse>,
}

/// What audited code stores on objects other than its own `self`.
#[derive(Debug, Default)]
pub struct Stores {
    /// Attribute names, whatever the object.
    pub attributes: FxHashSet<Symbol>,
    /// Modules with a setattr of a name that is not known, on something other than `self`.
    pub dynamic: FxHashSet<ModId>,
    /// Names of classes that become the `__class__` of an existing object.
    pub swapped: FxHashSet<Symbol>,
    /// By attribute, the objects that an import may have bound: `module.f = ..` replaces a function.
    pub imported: FxHashMap<Symbol, Vec<(ModId, ExprId)>>,
}

/// The method and class whose first parameter `name` is at `scope`, if it is one and is never rebound.
fn self_of(module: &Module, scope: crate::python::ir::ScopeId, name: Symbol) -> Option<(ClassId, FunctionId)> {
    let mut at = scope;
    loop {
        let data = &module[at];
        if let Some(bindings) = data.names.get(&name) {
            let ScopeKind::Function(function) = data.kind else { return None };
            let [only] = bindings.as_slice() else { return None };
            let is_first = module[*only].kind == BindingKind::Parameter(function, 0);
            let class = module[function].class?;
            let plain = !module[function]
                .decorators
                .iter()
                .any(|&decorator| matches!(module.dotted(decorator).as_deref(), Some("staticmethod" | "classmethod")));
            let is_class_method =
                ["__new__", "__init_subclass__", "__class_getitem__"].contains(&module[function].name.as_str());
            return (is_first && plain && !is_class_method).then_some((class, function));
        }
        if at == Module::SCOPE {
            return None;
        }
        at = data.parent;
    }
}

impl SelfIndex {
    fn build(linker: &Linker<'_>, id: ModId) -> SelfIndex {
        let module = linker.module(id);
        let mut index = SelfIndex::default();
        let mut values: FxHashMap<ExprId, ExprId> = FxHashMap::default();
        let mut augmented: FxHashSet<ExprId> = FxHashSet::default();
        for stmt in &module.stmts {
            match &stmt.kind {
                StmtKind::Assign(targets, value) => {
                    for &target in targets {
                        pair(module, target, *value, &mut values);
                    }
                }
                StmtKind::AnnAssign(target, _, Some(value)) => {
                    values.insert(*target, *value);
                }
                StmtKind::AugAssign(target, ..) => {
                    augmented.insert(*target);
                }
                _ => {}
            }
        }
        for (at, expr) in module.exprs.iter().enumerate() {
            let at = ExprId(at as u32);
            match &expr.kind {
                ExprKind::Attribute(value, attr) => {
                    let ExprKind::Name(name) = module[*value].kind else { continue };
                    let Some((class, function)) = self_of(module, expr.scope, name) else { continue };
                    let entry = index.classes.entry(class).or_default();
                    match expr.usage {
                        Usage::Load | Usage::Del => entry.reads.push(Read { expr: at, function }),
                        // `self.x: int` declares an attribute that something else fills in.
                        Usage::Store => {
                            let augmented = augmented.contains(&at);
                            if augmented {
                                entry.reads.push(Read { expr: at, function });
                            }
                            let value = values.get(&at).copied();
                            let store = Store { target: at, value, function, augmented };
                            entry.stores.entry(*attr).or_default().push(store);
                        }
                    }
                }
                ExprKind::Call(call) => {
                    if let Some((object, key, value)) = setattr(module, call)
                        && let ExprKind::Name(name) = module[object].kind
                        && let Some((class, function)) = self_of(module, expr.scope, name)
                    {
                        let names = linker.strings(id, key);
                        let entry = index.classes.entry(class).or_default();
                        match names {
                            Some(names) => {
                                let single = names.len() == 1;
                                for attr in names {
                                    let value = value.filter(|_| single);
                                    let store = Store { target: at, value, function, augmented: false };
                                    entry.stores.entry(attr).or_default().push(store);
                                }
                            }
                            None => entry.open = true,
                        }
                    }
                    // self.__dict__.update(..), vars(self).update(..)
                    if let ExprKind::Attribute(dict, method) = module[call.callee].kind
                        && ["update", "setdefault", "__setitem__"].contains(&method.as_str())
                        && let Some(name) = namespace_of(module, dict)
                        && let Some((class, _)) = self_of(module, expr.scope, name)
                    {
                        index.classes.entry(class).or_default().open = true;
                    }
                }
                ExprKind::Subscript(dict, _) if expr.usage == Usage::Store => {
                    if let Some(name) = namespace_of(module, *dict)
                        && let Some((class, _)) = self_of(module, expr.scope, name)
                    {
                        index.classes.entry(class).or_default().open = true;
                    }
                }
                _ => {}
            }
        }
        index
    }
}

/// Pairs the targets of an assignment with what each is given.
fn pair(module: &Module, target: ExprId, value: ExprId, values: &mut FxHashMap<ExprId, ExprId>) {
    match (&module[target].kind, &module[value].kind) {
        (ExprKind::Tuple(targets) | ExprKind::List(targets), ExprKind::Tuple(items) | ExprKind::List(items))
            if targets.len() == items.len() =>
        {
            for (&target, &item) in targets.iter().zip(items) {
                pair(module, target, item, values);
            }
        }
        (ExprKind::Tuple(_) | ExprKind::List(_), _) => {}
        _ => {
            values.insert(target, value);
        }
    }
}

/// `x` of `x.__dict__` or `vars(x)`.
fn namespace_of(module: &Module, expr: ExprId) -> Option<Symbol> {
    let object = match &module[expr].kind {
        ExprKind::Attribute(object, attr) if attr == "__dict__" => *object,
        ExprKind::Call(call) if module.dotted(call.callee).as_deref() == Some("vars") => call.arguments.first()?.value,
        _ => return None,
    };
    match module[object].kind {
        ExprKind::Name(name) => Some(name),
        _ => None,
    }
}

/// Object, name and value of `setattr(o, n, v)`, `object.__setattr__(o, n, v)` and `o.__setattr__(n, v)`.
pub(super) fn setattr(module: &Module, call: &crate::python::ir::Call) -> Option<(ExprId, ExprId, Option<ExprId>)> {
    let is_setattr = match module[call.callee].kind {
        ExprKind::Name(name) => &name == "setattr",
        ExprKind::Attribute(_, attr) => &attr == "__setattr__",
        _ => false,
    };
    match (&call.arguments[..], &module[call.callee].kind) {
        ([name, value], ExprKind::Attribute(object, _)) if is_setattr && value.kind == ArgumentKind::Positional => {
            Some((*object, name.value, Some(value.value)))
        }
        // `setattr(o, *pair)` names nothing that can be read off.
        ([object, name, rest @ ..], _) if is_setattr && rest.len() <= 1 => {
            Some((object.value, name.value, rest.first().map(|argument| argument.value)))
        }
        _ => None,
    }
}

impl Stores {
    pub(super) fn build(program: &Program<'_>) -> Stores {
        let modules: Vec<ModId> = program.audited.iter().chain(&program.importers).copied().collect();
        modules.into_par_iter().map(|id| Stores::of(program, id)).reduce(Stores::default, |mut all, part| {
            all.attributes.extend(part.attributes);
            all.dynamic.extend(part.dynamic);
            all.swapped.extend(part.swapped);
            for (attribute, objects) in part.imported {
                all.imported.entry(attribute).or_default().extend(objects);
            }
            all
        })
    }

    /// The stores of one module.
    pub fn of(program: &Program<'_>, id: ModId) -> Stores {
        let mut stores = Stores::default();
        if let Some(module) = program.module(id) {
            for stmt in &module.stmts {
                if let StmtKind::Assign(targets, value) = &stmt.kind {
                    let swaps = targets
                        .iter()
                        .any(|&t| matches!(module[t].kind, ExprKind::Attribute(_, attr) if &attr == "__class__"));
                    if swaps {
                        stores.swap(module, *value);
                    }
                }
            }
            for expr in &module.exprs {
                stores.note(module, id, expr);
            }
        }
        stores
    }

    /// What one expression stores on an object that is not its own `self`.
    fn note(&mut self, module: &Module, id: ModId, expr: &Expr) {
        let is_self = |name: Symbol| self_of(module, expr.scope, name).is_some();
        let own = |object: ExprId| matches!(module[object].kind, ExprKind::Name(name) if is_self(name));
        let is_foreign = |dict: ExprId| namespace_of(module, dict).is_some_and(|name| !is_self(name));
        match &expr.kind {
            ExprKind::Attribute(object, attr) if expr.usage == Usage::Store && !own(*object) => {
                self.attributes.insert(*attr);
                self.note_imported(module, id, *object, *attr);
            }
            // `o.__dict__[key] = ..`
            ExprKind::Subscript(dict, key) if expr.usage == Usage::Store && is_foreign(*dict) => {
                match module[*key].kind {
                    ExprKind::Constant(Constant::Str(name)) => self.attributes.insert(name),
                    _ => self.dynamic.insert(id),
                };
            }
            ExprKind::Call(call) => {
                // `vars(o).update(..)`
                if let ExprKind::Attribute(dict, method) = module[call.callee].kind
                    && ["update", "setdefault", "__setitem__"].contains(&method.as_str())
                    && is_foreign(dict)
                {
                    self.dynamic.insert(id);
                }
                let Some((object, key, value)) = setattr(module, call) else { return };
                // What a `__setattr__` hands to its base is what some statement stores.
                let handed_on = || {
                    matches!(module[object].kind, ExprKind::Call(_))
                        && module
                            .enclosing_function(expr.scope)
                            .is_some_and(|function| &module[function].name == "__setattr__")
                };
                let literal = match module[key].kind {
                    ExprKind::Constant(Constant::Str(name)) => Some(name),
                    _ => None,
                };
                match (literal, value) {
                    (Some(name), Some(value)) if &name == "__class__" => self.swap(module, value),
                    (Some(name), _) => {
                        self.attributes.insert(name);
                        self.note_imported(module, id, object, name);
                    }
                    (None, _) if !own(object) && !handed_on() => {
                        self.dynamic.insert(id);
                    }
                    (None, _) => {}
                }
            }
            _ => {}
        }
    }

    fn note_imported(&mut self, module: &Module, id: ModId, object: ExprId, attr: Symbol) {
        let mut root = object;
        while let ExprKind::Attribute(value, _) = module[root].kind {
            root = value;
        }
        let ExprKind::Name(name) = module[root].kind else { return };
        let is_import = |kind: &BindingKind| matches!(kind, BindingKind::Import(_) | BindingKind::ImportFrom(_));
        if module.bindings.iter().any(|binding| binding.name == name && is_import(&binding.kind)) {
            self.imported.entry(attr).or_default().push((id, object));
        }
    }

    fn swap(&mut self, module: &Module, value: ExprId) {
        match module[value].kind {
            ExprKind::Name(name) | ExprKind::Attribute(_, name) => {
                self.swapped.insert(name);
            }
            _ => {}
        }
    }
}

impl Linker<'_> {
    /// What the methods of a module's classes do with their first parameter.
    pub fn self_index(&self, id: ModId) -> Arc<SelfIndex> {
        if let Some(known) =
            self.program.self_indexes.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(&id)
        {
            return Arc::clone(known);
        }
        let index = Arc::new(SelfIndex::build(self, id));
        let mut cache = self.program.self_indexes.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(cache.entry(id).or_insert(index))
    }

    /// The stores of `attr` on `self` in the methods of exactly this class.
    pub fn own_stores(&self, class: ClassRef, attr: Symbol) -> Vec<Store> {
        let index = self.self_index(class.module);
        index.classes.get(&class.class).and_then(|used| used.stores.get(&attr)).cloned().unwrap_or_default()
    }

    /// Whether code elsewhere puts something else under a name of a module: `module.f = patched`.
    pub(super) fn is_replaced(&self, id: ModId, name: Symbol) -> bool {
        let stores = self.program.stores().imported.get(&name).into_iter().flatten();
        stores
            .into_iter()
            .any(|&(at, object)| matches!(self.eval(at, object).single(), Some(Value::Module(target)) if *target == id))
    }

    /// Whether some code that knows of the module sets attributes by names that are computed.
    pub fn is_set_by_name(&self, id: ModId) -> bool {
        let name = self.program.node(id).name;
        let knows = |other: &ModId| {
            *other == id
                || super::imports(self.module(*other)).any(|import| {
                    import.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                })
        };
        self.program.stores().dynamic.iter().any(knows)
    }

    /// Whether code somewhere adds a name to Python's builtins.
    pub fn is_made_builtin(&self, name: Symbol) -> bool {
        let stores = self.program.stores().imported.get(&name).into_iter().flatten();
        stores.into_iter().any(
            |&(at, object)| matches!(self.eval(at, object).single(), Some(Value::External(path)) if path == "builtins"),
        )
    }

    /// What any method of the module stores under `attr` on its first parameter.
    pub(super) fn stores_in(&self, id: ModId, attr: Symbol) -> Vec<ExprId> {
        let index = self.self_index(id);
        let stores = index.classes.values().filter_map(|used| used.stores.get(&attr)).flatten();
        stores.filter_map(|store| store.value).collect()
    }
}
