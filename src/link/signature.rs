//! The signature that a call binds to: the definition after its decorators.

use super::{ClassRef, FnRef, Linker, ModId, Resolution, Truth, Value};
use crate::packs::Decorator;
use crate::python::ir::{BindingKind, ExprId, ExprKind, FunctionId, ParameterKind, ScopeId, ScopeKind, StmtKind};
use crate::python::{Module, Symbol};

/// How a function in a class body is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodKind {
    /// Takes the object.
    Instance,
    /// Takes the class.
    Class,
    /// Takes neither.
    Static,
}

/// A parameter of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureParameter {
    /// Its name.
    pub name: Symbol,
    /// How it is passed.
    pub kind: ParameterKind,
    /// It may be left out.
    pub has_default: bool,
}

/// The parameters that a call binds to, the ones already taken (`self`) left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// In order.
    pub parameters: Vec<SignatureParameter>,
}

/// Something that can be called, with the definition that decides whether the call fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Callee {
    /// What the call binds to.
    pub signature: Signature,
    /// The dotted path in findings: of the definition, or of the class as called.
    pub path: String,
    /// How Python names it in a TypeError: `f()`, `C.__init__()`.
    pub label: String,
    /// The definition, if there is one to show.
    pub definition: Option<FnRef>,
    /// The class whose fields make the constructor.
    pub fields_of: Option<ClassRef>,
}

impl<'p> Linker<'p> {
    /// How a function is bound when it is read from its class.
    pub fn method_kind(&self, f: FnRef) -> MethodKind {
        let module = self.module(f.module);
        let function = &module[f.function];
        if function.class.is_none() {
            return MethodKind::Static;
        }
        if ["__new__"].contains(&function.name.as_str()) {
            return MethodKind::Class;
        }
        if ["__init_subclass__", "__class_getitem__"].contains(&function.name.as_str()) {
            return MethodKind::Class;
        }
        for &decorator in &function.decorators {
            match module.dotted(decorator).as_deref() {
                Some("staticmethod") => return MethodKind::Static,
                Some("classmethod" | "abc.abstractclassmethod") => return MethodKind::Class,
                _ => {}
            }
        }
        MethodKind::Instance
    }

    /// The class whose method a function is, or is nested in.
    pub fn method_class(&self, id: ModId, function: FunctionId) -> Option<ClassRef> {
        let method = self.method_of(id, function)?;
        self.module(id)[method.function].class.map(|class| ClassRef { module: id, class })
    }

    /// The method whose body a scope lies in.
    pub(super) fn method_around(&self, id: ModId, scope: ScopeId) -> Option<FnRef> {
        self.method_of(id, self.module(id).enclosing_function(scope)?)
    }

    /// The method that a function is, or is nested in.
    fn method_of(&self, id: ModId, function: FunctionId) -> Option<FnRef> {
        let module = self.module(id);
        let mut at = function;
        while module[at].class.is_none() {
            at = module.enclosing_function(module[at].outer)?;
        }
        Some(FnRef { module: id, function: at })
    }

    /// Whether reading the function from an object calls it.
    pub fn is_property(&self, f: FnRef) -> bool {
        let module = self.module(f.module);
        module[f.function].decorators.iter().any(|&decorator| {
            matches!(module[decorator].kind, ExprKind::Attribute(_, attr) if ["setter", "getter", "deleter"].contains(&attr.as_str()))
                || self.decorator_kind(f.module, decorator) == Some(Decorator::Property)
        })
    }

    /// A function as a value: what its decorators make of it.
    pub fn function_value(&self, f: FnRef) -> Resolution {
        let module = self.module(f.module);
        for &decorator in module[f.function].decorators.iter().rev() {
            match self.decorator_kind(f.module, decorator) {
                Some(Decorator::Overload) => return Resolution::Missing,
                Some(Decorator::Keeps | Decorator::Kernel | Decorator::Property | Decorator::ContextManager) => {}
                Some(Decorator::Class | Decorator::Storage | Decorator::Dataclass) | None => {
                    return Resolution::Unknown("a decorator that is not known");
                }
            }
        }
        Resolution::one(Value::Function(f))
    }

    /// Whether a call gives what the function's body returns.
    pub(super) fn keeps_result(&self, f: FnRef) -> bool {
        let module = self.module(f.module);
        module[f.function]
            .decorators
            .iter()
            .all(|&decorator| self.decorator_kind(f.module, decorator) == Some(Decorator::Keeps))
    }

    /// What a decorator does, if that is known: from the packs, from Python itself, or from its own source.
    pub fn decorator_kind(&self, id: ModId, decorator: ExprId) -> Option<Decorator> {
        let module = self.module(id);
        let target = match &module[decorator].kind {
            ExprKind::Call(call) => call.callee,
            _ => decorator,
        };
        if let Some(path) = self.spelled(id, target) {
            match path.as_str() {
                "staticmethod" | "classmethod" | "abc.abstractclassmethod" => return Some(Decorator::Keeps),
                "property" | "abc.abstractproperty" | "functools.cached_property" => return Some(Decorator::Property),
                _ => {}
            }
            if let Some(known) = self.program.packs.decorator(&path) {
                return Some(known);
            }
        }
        let resolved = self.eval(id, target);
        let value = resolved.single()?;
        if let Some(known) = self.path_of(value).and_then(|path| self.program.packs.decorator(&path)) {
            return Some(known);
        }
        match *value {
            Value::Function(f) => {
                let factory = matches!(module[decorator].kind, ExprKind::Call(_));
                self.returns_argument(f, factory).then_some(Decorator::Keeps)
            }
            _ => None,
        }
    }

    /// A decorator of the program that hands back what it is given (a registry, say); with `factory`, one whose call
    /// gives such a decorator.
    fn returns_argument(&self, f: FnRef, factory: bool) -> bool {
        let module = self.module(f.module);
        let function = &module[f.function];
        if function.is_async || function.is_generator || function.falls_through || !function.decorators.is_empty() {
            return false;
        }
        let Some(parameter) = function.parameters.first().map(|parameter| parameter.name) else {
            return factory
                && self
                    .returned_functions(f)
                    .is_some_and(|inner| inner.iter().all(|&g| self.returns_argument(g, false)));
        };
        if factory {
            return self
                .returned_functions(f)
                .is_some_and(|inner| !inner.is_empty() && inner.iter().all(|&g| self.returns_argument(g, false)));
        }
        let rebound = module[function.scope].names.get(&parameter).is_none_or(|bindings| bindings.len() != 1);
        let mut any = false;
        for (_, stmt) in module.own_statements(&function.body, function.scope) {
            if let StmtKind::Return(value) = stmt.kind {
                any = true;
                let same =
                    value.is_some_and(|value| matches!(module[value].kind, ExprKind::Name(name) if name == parameter));
                if !same {
                    return false;
                }
            }
        }
        any && !rebound
    }

    /// The inner functions that a function returns, if it returns nothing else.
    fn returned_functions(&self, f: FnRef) -> Option<Vec<FnRef>> {
        let module = self.module(f.module);
        let function = &module[f.function];
        let mut inner = Vec::new();
        for (_, stmt) in module.own_statements(&function.body, function.scope) {
            let StmtKind::Return(value) = stmt.kind else { continue };
            let ExprKind::Name(name) = module[value?].kind else { return None };
            match module[function.scope].names.get(&name)?.as_slice() {
                [only] => match module[*only].kind {
                    BindingKind::Function(function) => inner.push(FnRef { module: f.module, function }),
                    _ => return None,
                },
                _ => return None,
            }
        }
        Some(inner)
    }

    /// The signature that a call of `value` binds to; `None` if it is not known.
    pub fn callee(&self, value: &Value) -> Option<Callee> {
        match value {
            Value::Function(f) => self.function_callee(*f, false),
            Value::Bound(f) => self.function_callee(*f, true),
            Value::Class(class) => self.constructor(*class),
            Value::Instance(class, _) => match self.class_member(*class, Symbol::new("__call__")).single() {
                Some(Value::Function(f)) => self.function_callee(*f, true),
                _ => None,
            },
            Value::SelfOf(class) => {
                let concrete = self.self_class.get().unwrap_or(*class);
                match self.class_member(concrete, Symbol::new("__call__")).single() {
                    Some(Value::Function(f)) => self.function_callee(*f, true),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn function_callee(&self, f: FnRef, bound: bool) -> Option<Callee> {
        let module = self.module(f.module);
        let function = &module[f.function];
        if self.is_property(f) {
            return None;
        }
        let decorators = &function.decorators;
        let known = decorators.iter().all(|&decorator| {
            matches!(
                self.decorator_kind(f.module, decorator),
                Some(Decorator::Keeps | Decorator::Kernel | Decorator::ContextManager)
            )
        });
        if !known {
            return None;
        }
        let mut parameters = signature_of(module, f.function);
        if bound {
            match parameters.first().map(|parameter| parameter.kind) {
                Some(ParameterKind::Normal | ParameterKind::PositionalOnly) => {
                    parameters.remove(0);
                }
                Some(ParameterKind::VarArgs) => {}
                // A method that takes nothing cannot take the object either; Python says so in other words.
                _ => return None,
            }
        }
        let path = self.path_of(&Value::Function(f))?;
        let label = match function.class {
            Some(class) => format!("{}.{}()", module[class].name, function.name),
            None => format!("{}()", function.name),
        };
        Some(Callee { signature: Signature { parameters }, path, label, definition: Some(f), fields_of: None })
    }

    /// The signature of a class's constructor.
    pub fn constructor(&self, class: ClassRef) -> Option<Callee> {
        if !self.is_plain_class(class) {
            return None;
        }
        let module = self.module(class.module);
        let path = self.path_of(&Value::Class(class))?;
        let name = module[class.class].name;
        let mro = self.mro(class)?;
        for &owner in &mro.classes {
            for method in ["__new__", "__init__"] {
                match self.own_member(owner, Symbol::new(method)) {
                    Resolution::Found(values) => {
                        let [Value::Function(f)] = values[..] else { return None };
                        if method == "__new__" && owner != class && self.mixes_new_and_init(&mro.classes) {
                            return None;
                        }
                        let mut callee = self.function_callee(f, true)?;
                        if method == "__new__" && self.mixes_new_and_init(&mro.classes) {
                            return None;
                        }
                        callee.path = path;
                        return Some(callee);
                    }
                    Resolution::Missing => {}
                    Resolution::Unknown(_) => return None,
                }
            }
            if let Some(fields) = self.fields(owner)? {
                let parameters = fields.into_iter().filter(|field| field.init).map(|field| SignatureParameter {
                    name: field.name,
                    kind: if field.keyword_only { ParameterKind::KeywordOnly } else { ParameterKind::Normal },
                    has_default: field.has_default,
                });
                let mut parameters: Vec<_> = parameters.collect();
                parameters.sort_by_key(|p| p.kind == ParameterKind::KeywordOnly);
                let signature = Signature { parameters };
                let label = format!("{name}.__init__()");
                return Some(Callee { signature, path, label, definition: None, fields_of: Some(class) });
            }
        }
        if !mro.open && mro.externals.iter().all(|base| TAKES_NOTHING.contains(&base.as_str())) {
            let signature = Signature { parameters: Vec::new() };
            return Some(Callee {
                signature,
                path,
                label: format!("{name}()"),
                definition: None,
                fields_of: Some(class),
            });
        }
        None
    }

    fn mixes_new_and_init(&self, classes: &[ClassRef]) -> bool {
        let has = |method: &str| {
            classes.iter().any(|&class| self.own_member(class, Symbol::new(method)) != Resolution::Missing)
        };
        has("__new__") && has("__init__")
    }

    /// Whether a parameter of a function is the one that a decorator-free read of the name gives, not rebound.
    pub fn is_rebound(&self, module: &Module, function: FunctionId, name: Symbol) -> bool {
        module[module[function].scope].names.get(&name).is_some_and(|bindings| bindings.len() > 1)
    }

    /// Whether a function raises NotImplementedError (or anything) on every path.
    pub fn always_raises(&self, f: FnRef) -> bool {
        let module = self.module(f.module);
        let function = &module[f.function];
        !function.falls_through
            && function.lambda.is_none()
            && !function.is_generator
            && !module.own_statements(&function.body, function.scope).any(|(_, stmt)| {
                matches!(stmt.kind, StmtKind::Return(_))
                    && self.truth_of_guard(f.module, stmt.guard, stmt.span.start) != Truth::No
            })
            && !matches!(module[function.outer].kind, ScopeKind::Comprehension)
    }
}

impl Linker<'_> {
    /// A method that is there for subclasses to replace: abstract, always raising, or without a body.
    pub fn is_stub(&self, f: FnRef) -> bool {
        let module = self.module(f.module);
        let function = &module[f.function];
        let is_empty = function.lambda.is_none()
            && module.own_statements(&function.body, function.scope).all(|(_, stmt)| match stmt.kind {
                StmtKind::Expr(value) => matches!(module[value].kind, ExprKind::Constant(_)),
                StmtKind::Other => true,
                _ => false,
            });
        is_empty || self.is_abstract(f) || self.always_raises(f)
    }

    /// Whether a decorator declares a method abstract.
    pub fn is_abstract(&self, f: FnRef) -> bool {
        let module = self.module(f.module);
        module[f.function].decorators.iter().any(|&decorator| {
            let path = module.dotted(decorator);
            path.is_some_and(|path| path.rsplit('.').next().is_some_and(|last| last.starts_with("abstract")))
        })
    }
}

/// Bases outside the sources whose constructor takes no arguments.
const TAKES_NOTHING: &[&str] =
    &["object", "abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol"];

/// The parameters of a function as written.
fn signature_of(module: &Module, function: FunctionId) -> Vec<SignatureParameter> {
    let parameters = module[function].parameters.iter();
    parameters
        .map(|parameter| SignatureParameter {
            name: parameter.name,
            kind: parameter.kind,
            has_default: parameter.default.is_some(),
        })
        .collect()
}
