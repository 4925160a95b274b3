//! Conditions that decide in this environment: versions, platforms, what is installed, constants of the sources.

use pep440_rs::Version;

use super::{ExprRef, FnRef, Linker, Located, ModId, Resolution, Value, absolute};
use crate::python::ir::{
    BindingKind, Call, Comparison, Constant, ExprId, ExprKind, Operator, ParameterKind, ScopeId, StmtKind,
};
use crate::python::{Module, Symbol};

/// A value that is known before the program runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Const {
    /// `None`
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(Symbol),
    /// A tuple or list of known values.
    Tuple(Vec<Const>),
    /// A PEP 440 version.
    Version(Version),
    /// `sys.version_info` of a Python that is not known, or known only to its minor version.
    PythonVersion,
    /// `sys.version_info[:2]` of such a Python.
    PythonRelease,
    /// Something that is true and not None: a module, function or class.
    Object,
}

impl Const {
    /// Its truth, as `bool()` gives it.
    pub fn truth(&self) -> Option<bool> {
        Some(match self {
            Const::None => false,
            Const::Bool(value) => *value,
            Const::Int(value) => *value != 0,
            Const::Float(value) => *value != 0.0,
            Const::Str(text) => !text.is_empty(),
            Const::Tuple(items) => !items.is_empty(),
            Const::Version(_) | Const::PythonVersion | Const::PythonRelease | Const::Object => true,
        })
    }
}

impl Linker<'_> {
    /// The truth of a test, if this environment decides it.
    pub fn truth(&self, id: ModId, test: ExprId) -> Option<bool> {
        let module = self.module(id);
        match &module[test].kind {
            ExprKind::Constant(constant) => from_literal(*constant)?.truth(),
            ExprKind::Not(_) | ExprKind::And(_) | ExprKind::Or(_) | ExprKind::Compare(..) => {
                self.kept_truth((id, test), || self.search_truth(id, test))
            }
            _ => self.constant(id, test)?.truth(),
        }
    }

    fn search_truth(&self, id: ModId, test: ExprId) -> Option<bool> {
        let module = self.module(id);
        match &module[test].kind {
            ExprKind::Not(inner) => self.truth(id, *inner).map(|value| !value),
            ExprKind::And(parts) => {
                let truths: Vec<_> = parts.iter().map(|&part| self.truth(id, part)).collect();
                if truths.contains(&Some(false)) {
                    Some(false)
                } else {
                    truths.into_iter().collect::<Option<Vec<_>>>().map(|_| true)
                }
            }
            ExprKind::Or(parts) => {
                let truths: Vec<_> = parts.iter().map(|&part| self.truth(id, part)).collect();
                if truths.contains(&Some(true)) {
                    Some(true)
                } else {
                    truths.into_iter().collect::<Option<Vec<_>>>().map(|_| false)
                }
            }
            ExprKind::Compare(left, rest) => self.compare(id, *left, rest),
            _ => self.constant(id, test)?.truth(),
        }
    }

    /// The value of an expression, if this environment decides it.
    pub fn constant(&self, id: ModId, expr: ExprId) -> Option<Const> {
        self.kept_constant((id, expr), || self.search_constant(id, expr))
    }

    fn search_constant(&self, id: ModId, expr: ExprId) -> Option<Const> {
        let module = self.module(id);
        match &module[expr].kind {
            ExprKind::Constant(constant) => from_literal(*constant),
            ExprKind::Not(_) | ExprKind::Compare(..) => self.truth(id, expr).map(Const::Bool),
            ExprKind::And(parts) => {
                for &part in &parts[..parts.len() - 1] {
                    let value = self.constant(id, part)?;
                    if !value.truth()? {
                        return Some(value);
                    }
                }
                self.constant(id, *parts.last()?)
            }
            ExprKind::Or(parts) => {
                for &part in &parts[..parts.len() - 1] {
                    let value = self.constant(id, part)?;
                    if value.truth()? {
                        return Some(value);
                    }
                }
                self.constant(id, *parts.last()?)
            }
            ExprKind::Negative(inner) => match self.constant(id, *inner)? {
                Const::Int(value) => value.checked_neg().map(Const::Int),
                Const::Float(value) => Some(Const::Float(-value)),
                _ => None,
            },
            ExprKind::Binary(op, left, right) => arithmetic(*op, self.constant(id, *left)?, self.constant(id, *right)?),
            ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::Set(items) => {
                items.iter().map(|&item| self.constant(id, item)).collect::<Option<Vec<_>>>().map(Const::Tuple)
            }
            ExprKind::If(parts) => match self.truth(id, parts[0]) {
                Some(true) => self.constant(id, parts[1]),
                Some(false) => self.constant(id, parts[2]),
                // `_device_arch() if override is None else override`: the assumed device decides.
                None if self.architecture().is_some() => {
                    self.constant(id, parts[1]).or_else(|| self.constant(id, parts[2]))
                }
                None => None,
            },
            ExprKind::Named(_, value) => self.constant(id, *value),
            ExprKind::Subscript(value, index)
                if matches!(module[*index].kind, ExprKind::Other) && module.slice(module[*index].span) == ":2" =>
            {
                (self.constant(id, *value)? == Const::PythonVersion).then_some(Const::PythonRelease)
            }
            ExprKind::Subscript(value, index) => match (self.constant(id, *value)?, self.constant(id, *index)?) {
                (Const::Tuple(items), Const::Int(index)) => {
                    let index = if index < 0 { index + items.len() as i64 } else { index };
                    items.get(usize::try_from(index).ok()?).cloned()
                }
                (Const::PythonVersion, Const::Int(0)) => Some(Const::Int(3)),
                (Const::PythonVersion, Const::Int(1)) => {
                    self.program.environment.python.map(|(_, minor)| Const::Int(i64::from(minor)))
                }
                _ => None,
            },
            ExprKind::Call(call) => self.call_constant(id, call),
            ExprKind::Attribute(value, attr) => {
                let known =
                    self.attribute_constant(id, *value, *attr).or_else(|| self.signature_constant(id, *value, *attr));
                if let Some(known) = known.or_else(|| self.device_attribute(id, *value, *attr)) {
                    return Some(known);
                }
                self.agreed(self.eval(id, expr)).or_else(|| match self.eval(id, *value).single()? {
                    Value::Module(owner) => self.only_value(*owner, Module::SCOPE, *attr),
                    _ => None,
                })
            }
            ExprKind::Name(name) => {
                if let Some(function) = module.enclosing_function(module[expr].scope) {
                    let key = (FnRef { module: id, function }, *name);
                    if let Some(assumed) = self.parameters.borrow().get(&key) {
                        return Some(assumed.clone());
                    }
                }
                self.device_name(id, *name, self.place(id, expr))
                    .or_else(|| self.agreed(self.eval(id, expr)))
                    .or_else(|| self.only_value(id, module[expr].scope, *name))
            }
            _ => None,
        }
    }

    /// The constant that the one binding of a name computes, here or where it is imported from:
    /// `HAS_OPS = find_spec("flash_attn.ops") is not None`.
    fn only_value(&self, id: ModId, scope: ScopeId, name: Symbol) -> Option<Const> {
        let module = self.program.module(id)?;
        let scope = self.binding_scope(module, scope, name)?;
        let [only] = module[scope].names[&name].as_slice() else { return None };
        if module.mutated.contains(&name) || (scope == Module::SCOPE && self.is_replaced(id, name)) {
            return None;
        }
        match module[*only].kind {
            BindingKind::Value(value) => self.constant(id, value),
            BindingKind::ImportFrom(stmt) => {
                let StmtKind::ImportFrom(import) = &module[stmt].kind else { return None };
                match self.program.locate(&absolute(module, import.level, &import.module)?) {
                    Located::Module(from) if from != id => {
                        let key = (from, 9, import.name.as_str().as_ptr() as usize as u32);
                        self.guarded(key, None, || self.only_value(from, Module::SCOPE, import.name))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The names of the parameters that `inspect.signature(f).parameters` and its like list.
    fn signature_constant(&self, id: ModId, value: ExprId, attr: Symbol) -> Option<Const> {
        let ExprKind::Call(call) = &self.module(id)[value].kind else { return None };
        let keep: fn(ParameterKind) -> bool = match (self.spelled(id, call.callee)?.as_str(), attr.as_str()) {
            ("inspect.signature", "parameters") => |_| true,
            ("inspect.getfullargspec", "args") => {
                |kind| matches!(kind, ParameterKind::PositionalOnly | ParameterKind::Normal)
            }
            ("inspect.getfullargspec", "kwonlyargs") => |kind| kind == ParameterKind::KeywordOnly,
            _ => return None,
        };
        let [argument] = &call.arguments[..] else { return None };
        let callee = self.callee(self.eval(id, argument.value).single()?)?;
        let parameters = callee.signature.parameters.iter().filter(|parameter| keep(parameter.kind));
        Some(Const::Tuple(parameters.map(|parameter| Const::Str(parameter.name)).collect()))
    }

    /// The constant that every value of a resolution comes down to.
    fn agreed(&self, resolution: Resolution) -> Option<Const> {
        let mut values = resolution.found()?.iter().map(|value| self.value_constant(value));
        let first = values.next()??;
        values.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    fn value_constant(&self, value: &Value) -> Option<Const> {
        match value {
            Value::Constant(constant) => from_literal(*constant),
            Value::Module(_) | Value::Function(_) | Value::Bound(_) | Value::Class(_) | Value::Partial(_) => {
                Some(Const::Object)
            }
            Value::Sequence(ExprRef { module, expr }) => self.constant(*module, *expr),
            Value::External(path) => self.external_constant(path),
            _ => None,
        }
    }

    /// Constants of the standard library that this environment decides.
    fn external_constant(&self, path: &str) -> Option<Const> {
        let environment = self.program.environment;
        Some(match path {
            "typing.TYPE_CHECKING" | "typing_extensions.TYPE_CHECKING" => Const::Bool(false),
            "sys.version_info" => Const::PythonVersion,
            "sys.version_info.major" => Const::Int(3),
            "sys.version_info.minor" => Const::Int(i64::from(environment.python?.1)),
            "sys.platform" => Const::Str(Symbol::new(&environment.sys_platform)),
            "os.name" => Const::Str(Symbol::new(if environment.sys_platform == "win32" { "nt" } else { "posix" })),
            "sys.maxsize" => Const::Int(i64::MAX),
            "__debug__" => Const::Bool(true),
            _ => return None,
        })
    }

    /// `__version__` of an installed package, and fields of named tuples built from literals.
    fn attribute_constant(&self, id: ModId, value: ExprId, attr: Symbol) -> Option<Const> {
        let base = self.eval(id, value);
        match base.single()? {
            Value::Module(module) if &attr == "__version__" => {
                let name = self.program.node(*module).name.replace('_', "-").to_lowercase();
                let version = &self.program.environment.distribution(&name)?.raw_version;
                Some(Const::Str(Symbol::new(version)))
            }
            Value::Instance(class, Some(at)) => {
                let (owner, field) = self.constructed_field(*class, *at, attr)?;
                self.constant(owner, field)
            }
            _ => None,
        }
    }

    fn call_constant(&self, id: ModId, call: &Call) -> Option<Const> {
        if let Some(known) = self.device_constant(id, call).or_else(|| self.tuple_constant(id, call)) {
            return Some(known);
        }
        let module = self.module(id);
        let argument = |index: usize| call.arguments.get(index).map(|argument| argument.value);
        let spelled = self.spelled(id, call.callee);
        match spelled.as_deref() {
            Some("hasattr") => {
                let name = match self.constant(id, argument(1)?)? {
                    Const::Str(name) => name,
                    _ => return None,
                };
                return match self.eval(id, argument(0)?).single()? {
                    Value::Module(target) => match self.module_attribute(*target, name) {
                        Resolution::Found(_) => Some(Const::Bool(true)),
                        Resolution::Missing => Some(Const::Bool(false)),
                        Resolution::Unknown(_) => None,
                    },
                    _ => None,
                };
            }
            Some("importlib.util.find_spec") => {
                let Const::Str(name) = self.constant(id, argument(0)?)? else { return None };
                return match self.program.locate(&name) {
                    Located::Module(_) => Some(Const::Object),
                    Located::Missing => Some(Const::None),
                    Located::Outside if crate::python::builtins::is_standard_module(&name) => Some(Const::Object),
                    Located::Outside if self.program.environment.is_complete() => Some(Const::None),
                    Located::Outside | Located::Unknown => None,
                };
            }
            Some("bool") => return self.truth(id, argument(0)?).map(Const::Bool),
            Some("all" | "any") => {
                let Const::Tuple(items) = self.constant(id, argument(0)?)? else { return None };
                let truths = items.iter().map(Const::truth).collect::<Option<Vec<_>>>()?;
                let all = spelled.as_deref() == Some("all");
                return Some(Const::Bool(if all { truths.iter().all(|t| *t) } else { truths.iter().any(|t| *t) }));
            }
            Some("callable") => {
                return match self.constant(id, argument(0)?)? {
                    Const::None => Some(Const::Bool(false)),
                    _ => None,
                };
            }
            Some("tuple" | "list") => return self.constant(id, argument(0)?),
            Some("int") => {
                return match self.constant(id, argument(0)?)? {
                    Const::Int(value) => Some(Const::Int(value)),
                    Const::Bool(value) => Some(Const::Int(i64::from(value))),
                    _ => None,
                };
            }
            Some("packaging.version.parse" | "packaging.version.Version") => {
                return match self.constant(id, argument(0)?)? {
                    Const::Str(text) => text.parse().ok().map(Const::Version),
                    Const::Version(version) => Some(Const::Version(version)),
                    _ => None,
                };
            }
            Some("importlib.metadata.version") => {
                let Const::Str(name) = self.constant(id, argument(0)?)? else { return None };
                let name = name.to_lowercase().replace(['_', '.'], "-");
                let version = &self.program.environment.distribution(&name)?.raw_version;
                return Some(Const::Str(Symbol::new(version)));
            }
            _ => {}
        }
        if let ExprKind::Attribute(object, method) = module[call.callee].kind {
            let platform = self.spelled(id, object);
            if platform.is_some_and(|path| self.program.packs.platform_objects.contains(&path)) {
                let chosen = self.program.environment.platform;
                return self.program.packs.platform_predicate(&method, chosen).map(Const::Bool);
            }
        }
        if let ExprKind::Attribute(names, method) = module[call.callee].kind
            && &method == "keys"
            && call.arguments.is_empty()
            && let ExprKind::Attribute(signature, attr) = module[names].kind
        {
            return self.signature_constant(id, signature, attr);
        }
        self.call_returns(id, call)
    }

    /// A function of the program whose every return gives the same constant, whatever it is called with.
    fn call_returns(&self, id: ModId, call: &Call) -> Option<Const> {
        let resolved = self.eval(id, call.callee);
        let (Value::Function(f) | Value::Bound(f)) = *resolved.single()? else { return None };
        let module = self.module(f.module);
        let function = &module[f.function];
        if function.is_async || function.is_generator || function.falls_through || !self.keeps_result(f) {
            return None;
        }
        let bound = matches!(resolved.single(), Some(Value::Bound(_)));
        self.common_return(f).or_else(|| {
            // `has_module("flash_attn")`: what is passed decides.
            let known = self.known_arguments(id, call, f, bound);
            let ask = || self.guarded((f.module, 10, f.function.0), None, || self.common_return(f));
            if known.is_empty() || self.architecture().is_some() { None } else { self.assuming(f, known, ask) }
        })
    }

    /// The constant that every return of a function gives.
    fn common_return(&self, f: FnRef) -> Option<Const> {
        let module = self.module(f.module);
        let function = &module[f.function];
        let mut answer: Option<Const> = None;
        // An override that is not given leaves it to the device, if the device is what the other returns ask.
        let (mut open, mut of_device) = (false, true);
        for (_, stmt) in module.own_statements(&function.body, function.scope) {
            let StmtKind::Return(value) = stmt.kind else { continue };
            if self.truth_of_guard(f.module, stmt.guard, stmt.span.start) == super::Truth::No {
                continue;
            }
            let value = match value {
                Some(expr) => match self.constant(f.module, expr) {
                    Some(value) => {
                        of_device &= self.architecture().is_none()
                            || Linker::new(self.program).constant(f.module, expr).is_none();
                        value
                    }
                    None if self.architecture().is_some() => {
                        open = true;
                        continue;
                    }
                    None => return None,
                },
                None => {
                    of_device = false;
                    Const::None
                }
            };
            if answer.get_or_insert_with(|| value.clone()) != &value {
                return None;
            }
        }
        answer.filter(|_| !open || of_device)
    }

    fn compare(&self, id: ModId, left: ExprId, rest: &[(Comparison, ExprId)]) -> Option<bool> {
        let mut left = self.constant(id, left);
        // A module that cannot be imported is not among those that are.
        if let ([(op @ (Comparison::In | Comparison::NotIn), right)], Some(Const::Str(name))) = (rest, &left)
            && self.spelled(id, *right).as_deref() == Some("sys.modules")
        {
            return (self.program.locate(name) == Located::Missing).then_some(*op == Comparison::NotIn);
        }
        let mut all = true;
        for &(op, right) in rest {
            let right = self.constant(id, right);
            match self.compare_pair(op, left.as_ref(), right.as_ref()) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => all = false,
            }
            left = right;
        }
        all.then_some(true)
    }

    fn compare_pair(&self, op: Comparison, left: Option<&Const>, right: Option<&Const>) -> Option<bool> {
        let (left, right) = (left?, right?);
        match (left, right) {
            (Const::PythonVersion, Const::Tuple(bound)) => return self.compare_python(op, bound, false),
            (Const::Tuple(bound), Const::PythonVersion) => return self.compare_python(flipped(op)?, bound, false),
            (Const::PythonRelease, Const::Tuple(bound)) => return self.compare_python(op, bound, true),
            (Const::Tuple(bound), Const::PythonRelease) => return self.compare_python(flipped(op)?, bound, true),
            (Const::PythonVersion | Const::PythonRelease, _) | (_, Const::PythonVersion | Const::PythonRelease) => {
                return None;
            }
            (Const::Object, Const::None) | (Const::None, Const::Object) => {
                return match op {
                    Comparison::Is | Comparison::Eq => Some(false),
                    Comparison::IsNot | Comparison::NotEq => Some(true),
                    _ => None,
                };
            }
            (Const::Object, _) | (_, Const::Object) => return None,
            _ => {}
        }
        match op {
            Comparison::Eq => equal(left, right),
            Comparison::NotEq => equal(left, right).map(|same| !same),
            Comparison::Is => same_singleton(left, right),
            Comparison::IsNot => same_singleton(left, right).map(|same| !same),
            Comparison::In | Comparison::NotIn => {
                let found = match (left, right) {
                    (Const::Str(part), Const::Str(whole)) => whole.contains(part.as_str()),
                    (_, Const::Tuple(items)) => {
                        let equalities = items.iter().map(|item| equal(left, item)).collect::<Option<Vec<_>>>()?;
                        equalities.contains(&true)
                    }
                    _ => return None,
                };
                Some(found == (op == Comparison::In))
            }
            Comparison::Lt | Comparison::LtE | Comparison::Gt | Comparison::GtE => {
                let order = order(left, right)?;
                Some(match op {
                    Comparison::Lt => order.is_lt(),
                    Comparison::LtE => order.is_le(),
                    Comparison::Gt => order.is_gt(),
                    _ => order.is_ge(),
                })
            }
        }
    }

    /// `sys.version_info <op> bound`: with the version unknown, true or false only if it is so from Python 3.10 on.
    fn compare_python(&self, op: Comparison, bound: &[Const], release: bool) -> Option<bool> {
        let bound: Vec<i64> = bound
            .iter()
            .map(|item| match item {
                Const::Int(value) => Some(*value),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let versions: Vec<i64> = match self.program.environment.python {
            Some((3, minor)) => vec![i64::from(minor)],
            Some(_) => return None,
            None => (10..=40).collect(),
        };
        let mut answer = None;
        for minor in versions {
            // Equality with a patch release is never certain; an order that the first two numbers decide is.
            let version = [3, minor];
            let prefix = &bound[..bound.len().min(2)];
            let decided = match version[..prefix.len()].cmp(prefix) {
                std::cmp::Ordering::Equal if release => 2.cmp(&bound.len()),
                std::cmp::Ordering::Equal if bound.len() > 2 => return None,
                // (3, 10, 4) is above (3, 10) and (3,).
                std::cmp::Ordering::Equal => std::cmp::Ordering::Greater,
                other => other,
            };
            let holds = match op {
                Comparison::Lt => decided.is_lt(),
                Comparison::LtE => decided.is_le(),
                Comparison::Gt => decided.is_gt(),
                Comparison::GtE => decided.is_ge(),
                Comparison::Eq => release && decided.is_eq(),
                Comparison::NotEq => !(release && decided.is_eq()),
                _ => return None,
            };
            if *answer.get_or_insert(holds) != holds {
                return None;
            }
        }
        answer
    }
}

fn flipped(op: Comparison) -> Option<Comparison> {
    Some(match op {
        Comparison::Lt => Comparison::Gt,
        Comparison::LtE => Comparison::GtE,
        Comparison::Gt => Comparison::Lt,
        Comparison::GtE => Comparison::LtE,
        Comparison::Eq | Comparison::NotEq => op,
        _ => return None,
    })
}

pub(super) fn from_literal(constant: Constant) -> Option<Const> {
    Some(match constant {
        Constant::None => Const::None,
        Constant::Bool(value) => Const::Bool(value),
        Constant::Int(value) => Const::Int(value.into()),
        Constant::Float(text) => Const::Float(text.parse().ok()?),
        Constant::Str(text) => Const::Str(text),
        Constant::Ellipsis | Constant::Other => return None,
    })
}

fn arithmetic(op: Operator, left: Const, right: Const) -> Option<Const> {
    match (op, left, right) {
        (Operator::Add, Const::Str(a), Const::Str(b)) => Some(Const::Str(Symbol::new(&format!("{a}{b}")))),
        (Operator::Add, Const::Tuple(mut a), Const::Tuple(b)) => {
            a.extend(b);
            Some(Const::Tuple(a))
        }
        (op, Const::Int(a), Const::Int(b)) => match op {
            Operator::Add => a.checked_add(b),
            Operator::Sub => a.checked_sub(b),
            Operator::Mul => a.checked_mul(b),
            Operator::FloorDiv if b != 0 => Some(a.div_euclid(b)).filter(|_| b > 0),
            Operator::Mod if b > 0 => Some(a.rem_euclid(b)),
            _ => None,
        }
        .map(Const::Int),
        _ => None,
    }
}

fn equal(left: &Const, right: &Const) -> Option<bool> {
    Some(match (left, right) {
        (Const::Int(a), Const::Bool(b)) | (Const::Bool(b), Const::Int(a)) => *a == i64::from(*b),
        (Const::Int(a), Const::Float(b)) | (Const::Float(b), Const::Int(a)) => *a as f64 == *b,
        (a, b) => a == b,
    })
}

fn same_singleton(left: &Const, right: &Const) -> Option<bool> {
    match (left, right) {
        (Const::None | Const::Bool(_), _) | (_, Const::None | Const::Bool(_)) => Some(left == right),
        _ => None,
    }
}

fn order(left: &Const, right: &Const) -> Option<std::cmp::Ordering> {
    match (left, right) {
        (Const::Int(a), Const::Int(b)) => Some(a.cmp(b)),
        (Const::Float(a), Const::Float(b)) => a.partial_cmp(b),
        (Const::Int(a), Const::Float(b)) => (*a as f64).partial_cmp(b),
        (Const::Float(a), Const::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Const::Str(a), Const::Str(b)) => Some(a.as_str().cmp(b.as_str())),
        (Const::Version(a), Const::Version(b)) => Some(a.cmp(b)),
        (Const::Tuple(a), Const::Tuple(b)) => {
            for (a, b) in a.iter().zip(b) {
                match order(a, b)? {
                    std::cmp::Ordering::Equal => {}
                    other => return Some(other),
                }
            }
            Some(a.len().cmp(&b.len()))
        }
        _ => None,
    }
}
