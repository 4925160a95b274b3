//! What an expression denotes.

use std::sync::Arc;

use super::names::Place;
use super::signature::MethodKind;
use super::value::BoundArgument;
use super::{ClassRef, Const, ExprRef, FnRef, Linker, Located, ModId, Partial, Resolution, Truth, Value};
use crate::packs::Decorator;
use crate::python::Symbol;
use crate::python::ir::{ArgumentKind, BindingKind, Call, ExprId, ExprKind, StmtKind};

impl Linker<'_> {
    /// The place of an expression.
    pub fn place(&self, id: ModId, expr: ExprId) -> Place {
        let data = &self.module(id)[expr];
        Place { scope: data.scope, offset: data.span.start, guard: data.guard }
    }

    /// Everything that an expression may denote.
    pub fn eval(&self, id: ModId, expr: ExprId) -> Resolution {
        self.kept_value((id, expr), || self.search_value(id, expr))
    }

    fn search_value(&self, id: ModId, expr: ExprId) -> Resolution {
        let module = self.module(id);
        match &module[expr].kind {
            ExprKind::Name(name) => self.name(id, *name, self.place(id, expr)),
            ExprKind::Attribute(value, attr) => self.attribute_at(&self.eval(id, *value), *attr, Some((id, expr))),
            ExprKind::Call(call) => self.call_value(id, expr, call),
            ExprKind::Constant(constant) => Resolution::one(Value::Constant(*constant)),
            ExprKind::Tuple(_) | ExprKind::List(_) => Resolution::one(Value::Sequence(ExprRef { module: id, expr })),
            ExprKind::Dict(_) => Resolution::one(Value::Mapping(ExprRef { module: id, expr })),
            ExprKind::Lambda(function) => Resolution::one(Value::Function(FnRef { module: id, function: *function })),
            ExprKind::If(parts) => match self.truth(id, parts[0]) {
                Some(true) => self.eval(id, parts[1]),
                Some(false) => self.eval(id, parts[2]),
                None => Resolution::union([self.eval(id, parts[1]), self.eval(id, parts[2])]),
            },
            ExprKind::Or(parts) => {
                for &part in &parts[..parts.len() - 1] {
                    match self.truth(id, part) {
                        Some(true) => return self.eval(id, part),
                        Some(false) => {}
                        None => return Resolution::union(parts.iter().map(|&part| self.eval(id, part))),
                    }
                }
                self.eval(id, parts[parts.len() - 1])
            }
            ExprKind::Named(_, value) => self.eval(id, *value),
            ExprKind::Subscript(value, index) => self.subscript(id, *value, *index),
            _ => Resolution::Unknown("an expression that is not followed"),
        }
    }

    /// What `value.attr` denotes, for every value.
    pub fn attribute(&self, base: &Resolution, attr: Symbol) -> Resolution {
        self.attribute_at(base, attr, None)
    }

    /// The same, read at a known place: `self` there is only what runs the method around it.
    fn attribute_at(&self, base: &Resolution, attr: Symbol, site: Option<(ModId, ExprId)>) -> Resolution {
        match base {
            Resolution::Unknown(reason) => Resolution::Unknown(reason),
            Resolution::Missing => Resolution::Unknown("an attribute of something that is missing"),
            Resolution::Found(values) => {
                Resolution::union(values.iter().map(|value| match self.value_attribute(value, attr, site) {
                    // Only modules are closed enough to say that an attribute is missing.
                    Resolution::Missing if values.len() > 1 => Resolution::Unknown("missing in one of several values"),
                    other => other,
                }))
            }
        }
    }

    fn value_attribute(&self, value: &Value, attr: Symbol, site: Option<(ModId, ExprId)>) -> Resolution {
        match value {
            Value::Module(id) => self.module_attribute(*id, attr),
            Value::External(path) => Resolution::one(Value::External(Symbol::new(&format!("{path}.{attr}")))),
            Value::Class(class) => self.on_class(*class, attr),
            Value::ClassOf(class) => self.over_subclasses(*class, site, |concrete| self.on_class(concrete, attr)),
            Value::Instance(class, _) => self.on_instance(*class, attr),
            Value::SelfOf(class) => match self.self_class.get() {
                Some(concrete) => self.on_instance(concrete, attr),
                None => self.over_subclasses(*class, site, |concrete| self.on_instance(concrete, attr)),
            },
            Value::Super(class) => self.on_super(*class, attr),
            Value::Partial(partial) if &attr == "func" => Resolution::one(partial.callee.clone()),
            _ => Resolution::Unknown("an attribute of a value that is not followed"),
        }
    }

    /// The union over the class and everything known to derive from it: whatever `self` may be at a place.
    fn over_subclasses(
        &self,
        class: ClassRef,
        site: Option<(ModId, ExprId)>,
        question: impl Fn(ClassRef) -> Resolution,
    ) -> Resolution {
        if self.is_flat() {
            return Resolution::Unknown("a hierarchy that is still being read");
        }
        let table = self.program.class_table();
        let mut concrete: Vec<ClassRef> = table.descendants(class).filter(|&c| table.is_leaf(c)).collect();
        if !concrete.is_empty()
            && let Some(method) = site.and_then(|(id, expr)| self.method_around(id, self.module(id)[expr].scope))
        {
            concrete.retain(|&concrete| self.runs_method(concrete, method));
        }
        if table.is_constructed(class) || concrete.is_empty() || self.is_complete(&question(class)) {
            concrete.push(class);
        }
        Resolution::union(concrete.into_iter().map(|concrete| match question(concrete) {
            Resolution::Missing => Resolution::Unknown("missing in a class"),
            other => other,
        }))
    }

    /// A method that does its work in the class itself: objects of that class may well be made where no source shows it.
    fn is_complete(&self, member: &Resolution) -> bool {
        match member {
            Resolution::Found(values) => values.iter().all(|value| match value {
                Value::Function(f) | Value::Bound(f) => !self.is_stub(*f),
                _ => false,
            }),
            _ => false,
        }
    }

    /// Whether objects of a class run this definition of a method: they have no other of its name, or theirs goes on to it.
    fn runs_method(&self, class: ClassRef, method: FnRef) -> bool {
        let Some(mro) = self.mro(class) else { return true };
        let name = self.module(method.module)[method.function].name;
        let Some(owner) = self.method_class(method.module, method.function) else { return true };
        let above = mro.classes.iter().take_while(|&&c| c != owner);
        let overriding: Vec<ClassRef> =
            above.copied().filter(|&c| self.own_member(c, name) != Resolution::Missing).collect();
        overriding.is_empty()
            || overriding.into_iter().any(|class| {
                // super().name(..), Base.name(self, ..)
                let module = self.module(class.module);
                module.exprs.iter().any(|expr| match expr.kind {
                    ExprKind::Attribute(object, attr) => {
                        attr == name && !matches!(module[object].kind, ExprKind::Name(name) if &name == "self")
                    }
                    _ => false,
                })
            })
    }

    fn on_class(&self, class: ClassRef, attr: Symbol) -> Resolution {
        let found = self.class_member(class, attr);
        match found {
            Resolution::Found(_) if self.program.stores().attributes.contains(&attr) => {
                Resolution::Unknown("assigned from outside")
            }
            Resolution::Found(values) => Resolution::union(values.into_iter().map(|value| match value {
                // Python makes `__new__` a static method: whoever reads it passes the class.
                Value::Function(f) if &attr == "__new__" => Resolution::one(Value::Function(f)),
                Value::Function(f) => match self.method_kind(f) {
                    MethodKind::Class => Resolution::one(Value::Bound(f)),
                    MethodKind::Instance | MethodKind::Static => Resolution::one(Value::Function(f)),
                },
                other => Resolution::one(other),
            })),
            _ => Resolution::Unknown("a class attribute that is not followed"),
        }
    }

    fn on_instance(&self, class: ClassRef, attr: Symbol) -> Resolution {
        let stored = self.stored_attribute(class, attr);
        if let Some(method) = self.partial_method(class, attr).filter(|_| stored.is_empty()) {
            return method;
        }
        match self.class_member(class, attr) {
            Resolution::Found(values) => {
                let bound = values.into_iter().map(|value| match value {
                    Value::Function(f) if self.is_property(f) => Resolution::Unknown("a property"),
                    Value::Function(_) if self.is_field(class, attr) => {
                        Resolution::Unknown("a field: the object has what its constructor was given")
                    }
                    Value::Function(f) => match self.alias_of(class, attr) {
                        Some(value) => self.on_instance_alias(value, f),
                        None if self.method_kind(f) == MethodKind::Static => Resolution::one(Value::Function(f)),
                        None => Resolution::one(Value::Bound(f)),
                    },
                    // A descriptor may be anything; plain values are themselves.
                    Value::Constant(c) => Resolution::one(Value::Constant(c)),
                    Value::Class(c) => Resolution::one(Value::Class(c)),
                    _ => Resolution::Unknown("a class attribute that is not followed"),
                });
                Resolution::union(bound.chain(stored))
            }
            Resolution::Missing if !stored.is_empty() => Resolution::union(stored),
            _ if stored.is_empty() => Resolution::Unknown("an instance attribute that is not followed"),
            _ => Resolution::Unknown("an attribute that a base may define"),
        }
    }

    /// Whether the constructor of the class may store `attr` on the object, where a function is not bound.
    fn is_field(&self, class: ClassRef, attr: Symbol) -> bool {
        match self.fields(class) {
            Some(Some(fields)) => fields.iter().any(|field| field.name == attr),
            Some(None) => false,
            None => true,
        }
    }

    /// The expression that a class body binds `attr` to: `attr = function`.
    fn alias_of(&self, class: ClassRef, attr: Symbol) -> Option<ExprRef> {
        let mro = self.mro(class)?;
        let scope = |owner: &ClassRef| {
            let module = self.module(owner.module);
            (module, module[owner.class].scope)
        };
        let owner = mro.classes.iter().find(|owner| {
            let (module, scope) = scope(owner);
            module[scope].names.contains_key(&attr)
        })?;
        let (module, scope) = scope(owner);
        module[scope].names[&attr].iter().rev().find_map(|&binding| match module[binding].kind {
            BindingKind::Value(expr) => Some(ExprRef { module: owner.module, expr }),
            _ => None,
        })
    }

    /// `attr = functools.partialmethod(function, ..)`
    fn partial_method(&self, class: ClassRef, attr: Symbol) -> Option<Resolution> {
        let ExprRef { module: id, expr } = self.alias_of(class, attr)?;
        let ExprKind::Call(call) = &self.module(id)[expr].kind else { return None };
        if self.spelled(id, call.callee).as_deref() != Some("functools.partialmethod") {
            return None;
        }
        let (first, rest) = call.arguments.split_first()?;
        Some(match self.eval(id, first.value).single() {
            Some(&Value::Function(f)) if self.method_kind(f) == MethodKind::Instance => {
                Resolution::one(Value::Partial(Arc::new(Partial {
                    callee: Value::Bound(f),
                    module: id,
                    arguments: rest.iter().map(BoundArgument::from).collect(),
                })))
            }
            _ => Resolution::Unknown("partialmethod() of an unknown callee"),
        })
    }

    /// A function that a class body binds to a name becomes a method, unless it is wrapped.
    fn on_instance_alias(&self, value: ExprRef, f: FnRef) -> Resolution {
        match self.module(value.module)[value.expr].kind {
            ExprKind::Name(_) | ExprKind::Attribute(..) | ExprKind::Lambda(_)
                if matches!(self.method_kind(f), MethodKind::Instance)
                    || self.module(f.module)[f.function].class.is_none() =>
            {
                Resolution::one(Value::Bound(f))
            }
            ExprKind::Call(ref call) if self.spelled(value.module, call.callee).as_deref() == Some("staticmethod") => {
                Resolution::one(Value::Function(f))
            }
            _ => Resolution::Unknown("a function behind a wrapper in a class body"),
        }
    }

    fn on_super(&self, class: ClassRef, attr: Symbol) -> Resolution {
        // With several subclasses the next class in line depends on the object; judged only where it cannot.
        let concrete = self.self_class.get().unwrap_or(class);
        let Some(mro) = self.mro(concrete) else {
            return Resolution::Unknown("a class whose bases are not known");
        };
        let Some(at) = mro.classes.iter().position(|&c| c == class) else {
            return Resolution::Unknown("a class outside the hierarchy");
        };
        if self.self_class.get().is_none()
            && (self.is_flat() || self.program.class_table().has_mixed_descendants(self, class))
        {
            return Resolution::Unknown("super() in a class used with mixins");
        }
        for &next in &mro.classes[at + 1..] {
            match self.own_member(next, attr) {
                Resolution::Missing => {}
                Resolution::Found(values) => {
                    return Resolution::union(values.into_iter().map(|value| match value {
                        Value::Function(f) => match self.method_kind(f) {
                            _ if self.alias_of(next, attr).is_some() => {
                                Resolution::Unknown("a class attribute that is not followed")
                            }
                            MethodKind::Static => Resolution::one(Value::Function(f)),
                            _ if &attr == "__new__" => Resolution::one(Value::Function(f)),
                            _ if self.is_property(f) => Resolution::Unknown("a property"),
                            _ => Resolution::one(Value::Bound(f)),
                        },
                        _ => Resolution::Unknown("a class attribute that is not followed"),
                    }));
                }
                unknown @ Resolution::Unknown(_) => return unknown,
            }
        }
        Resolution::Unknown("not found in any base")
    }

    /// Element `index` of an unpacked value.
    pub(super) fn element(&self, id: ModId, value: ExprId, index: u32) -> Resolution {
        match self.eval(id, value).single() {
            Some(Value::Sequence(at)) => match &self.module(at.module)[at.expr].kind {
                ExprKind::Tuple(items) | ExprKind::List(items) => match items.get(index as usize) {
                    Some(&item) if !self.has_star(at.module, items) => self.eval(at.module, item),
                    _ => Resolution::Unknown("an unpacked display with a star"),
                },
                _ => Resolution::Unknown("an unpacked value"),
            },
            _ => Resolution::Unknown("an unpacked value"),
        }
    }

    fn has_star(&self, id: ModId, items: &[ExprId]) -> bool {
        let module = self.module(id);
        items.iter().any(|&item| matches!(module[item].kind, ExprKind::Starred(_)))
    }

    fn subscript(&self, id: ModId, value: ExprId, index: ExprId) -> Resolution {
        let base = self.eval(id, value);
        match base.single() {
            // Generic[T] and Base[int] are the class itself.
            Some(Value::Class(class)) => Resolution::one(Value::Class(*class)),
            Some(Value::External(path)) => Resolution::one(Value::External(*path)),
            Some(Value::Sequence(_)) => match self.constant(id, index) {
                Some(Const::Int(index)) if index >= 0 => self.element(id, value, index as u32),
                _ => Resolution::Unknown("an item"),
            },
            Some(Value::Mapping(at)) => {
                let ExprKind::Dict(items) = &self.module(at.module)[at.expr].kind else {
                    return Resolution::Unknown("an item");
                };
                let Some(wanted) = self.constant(id, index) else { return Resolution::Unknown("a computed key") };
                let mut hit = Resolution::Unknown("a key that the display does not show");
                for (key, value) in items {
                    match key.and_then(|key| self.constant(at.module, key)) {
                        Some(key) if key == wanted => hit = self.eval(at.module, *value),
                        Some(_) => {}
                        None => return Resolution::Unknown("a display with computed keys"),
                    }
                }
                hit
            }
            _ => Resolution::Unknown("an item"),
        }
    }

    fn call_value(&self, id: ModId, expr: ExprId, call: &Call) -> Resolution {
        let callee = self.eval(id, call.callee);
        let Some(value) = callee.single() else {
            return match callee {
                Resolution::Found(values) => {
                    let at = ExprRef { module: id, expr };
                    Resolution::union(values.iter().map(|value| match value {
                        Value::Class(class) if self.is_plain_class(*class) => {
                            Resolution::one(Value::Instance(*class, Some(at)))
                        }
                        _ => Resolution::Unknown("the result of one of several callees"),
                    }))
                }
                _ => Resolution::Unknown("the result of an unknown callee"),
            };
        };
        match value {
            Value::Class(class) if self.is_plain_class(*class) => {
                Resolution::one(Value::Instance(*class, Some(ExprRef { module: id, expr })))
            }
            Value::External(path) => self.external_call(id, call, path),
            Value::Function(f) | Value::Bound(f) => {
                if self.is_keeping_wrapper(id, call, value) {
                    return self.eval(id, call.arguments[0].value);
                }
                self.returned(*f)
            }
            _ => Resolution::Unknown("the result of a callee that is not followed"),
        }
    }

    /// `cute.jit(f)`, called rather than used as a decorator.
    fn is_keeping_wrapper(&self, id: ModId, call: &Call, callee: &Value) -> bool {
        let [argument] = &call.arguments[..] else { return false };
        let paths = [self.spelled(id, call.callee), self.path_of(callee)];
        argument.kind == ArgumentKind::Positional
            && paths
                .iter()
                .flatten()
                .any(|path| matches!(self.program.packs.decorator(path), Some(Decorator::Keeps | Decorator::Kernel)))
    }

    fn external_call(&self, id: ModId, call: &Call, path: &str) -> Resolution {
        let first = call.arguments.first().filter(|argument| argument.kind == ArgumentKind::Positional);
        match path {
            "functools.partial" => {
                let Some(first) = first else { return Resolution::Unknown("partial() of a starred argument") };
                match self.eval(id, first.value).single() {
                    Some(callee) => Resolution::one(Value::Partial(Arc::new(Partial {
                        callee: callee.clone(),
                        module: id,
                        arguments: call.arguments[1..].iter().map(BoundArgument::from).collect(),
                    }))),
                    None => Resolution::Unknown("partial() of an unknown callee"),
                }
            }
            // `super(C, self)`
            "super" if call.arguments.len() == 2 => {
                let class = self.eval(id, call.arguments[0].value);
                let object = self.eval(id, call.arguments[1].value);
                match (class.single(), object.single()) {
                    (Some(Value::Class(class)), Some(Value::SelfOf(_))) => Resolution::one(Value::Super(*class)),
                    _ => Resolution::Unknown("super() of something else"),
                }
            }
            "super" if call.arguments.is_empty() => {
                let module = self.module(id);
                let class = module.enclosing_function(module[call.callee].scope).and_then(|f| self.method_class(id, f));
                match class {
                    Some(class) => Resolution::one(Value::Super(class)),
                    None => Resolution::Unknown("super() outside a method"),
                }
            }
            "importlib.import_module" | "__import__" => match first.and_then(|a| self.constant(id, a.value)) {
                Some(Const::Str(name)) if !name.starts_with('.') => {
                    let name = if path == "__import__" { name.split('.').next().unwrap_or_default() } else { &name };
                    match self.program.locate(name) {
                        Located::Module(module) => Resolution::one(Value::Module(module)),
                        Located::Outside => Resolution::one(Value::External(Symbol::new(name))),
                        _ => Resolution::Unknown("an import that fails"),
                    }
                }
                _ => Resolution::Unknown("a computed import"),
            },
            "getattr" => match &call.arguments[..] {
                [object, name] if name.kind == ArgumentKind::Positional => match self.constant(id, name.value) {
                    Some(Const::Str(name)) => match self.attribute(&self.eval(id, object.value), name) {
                        Resolution::Missing => Resolution::Unknown("getattr of what is missing"),
                        other => other,
                    },
                    _ => Resolution::Unknown("getattr of a computed name"),
                },
                _ => Resolution::Unknown("getattr with a default"),
            },
            "staticmethod" | "functools.cache" => match first {
                Some(first) => self.eval(id, first.value),
                None => Resolution::Unknown("a wrapper without an argument"),
            },
            _ => Resolution::Unknown("the result of a callee that is not followed"),
        }
    }

    /// What a function returns, where every return gives a value that is followed.
    fn returned(&self, f: FnRef) -> Resolution {
        let module = self.module(f.module);
        let function = &module[f.function];
        if function.is_async || function.is_generator || !self.keeps_result(f) {
            return Resolution::Unknown("the result of a decorated function");
        }
        if let Some(value) = function.lambda {
            return self.eval(f.module, value);
        }
        if function.falls_through {
            return Resolution::Unknown("a function that may return nothing");
        }
        let mut results = Vec::new();
        for (_, stmt) in module.own_statements(&function.body, function.scope) {
            let StmtKind::Return(value) = stmt.kind else { continue };
            if self.truth_of_guard(f.module, stmt.guard, stmt.span.start) == Truth::No {
                continue;
            }
            let Some(value) = value else { return Resolution::Unknown("a function that may return nothing") };
            match self.eval(f.module, value) {
                Resolution::Found(values) if values.iter().all(is_portable) => results.push(Resolution::Found(values)),
                _ => return Resolution::Unknown("the result of a call"),
            }
        }
        match Resolution::union(results) {
            Resolution::Missing => Resolution::Unknown("a function that returns nothing"),
            found => found,
        }
    }
}

/// Values that mean the same outside the function that returns them.
fn is_portable(value: &Value) -> bool {
    matches!(
        value,
        Value::Module(_)
            | Value::Function(_)
            | Value::Class(_)
            | Value::Instance(..)
            | Value::Constant(_)
            | Value::External(_)
    )
}
