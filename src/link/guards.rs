//! Which code runs in this environment, and which failures are caught where they happen.

use super::{Linker, Located, ModId, NodeKind, Resolution, Value, absolute};
use crate::python::ir::{
    ArgumentKind, BindingKind, Comparison, ExprId, ExprKind, GuardId, GuardKind, Handler, StmtId, StmtKind, TryId,
};
use crate::python::{Module, Symbol, builtins};

/// Whether a condition holds in this environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// Always.
    Yes,
    /// Never.
    No,
    /// It depends on the run, or is not known.
    Maybe,
}

impl From<Option<bool>> for Truth {
    fn from(known: Option<bool>) -> Truth {
        match known {
            Some(true) => Truth::Yes,
            Some(false) => Truth::No,
            None => Truth::Maybe,
        }
    }
}

/// What becomes of a `try` body, judged by the imports in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It consists of imports that succeed and of harmless statements.
    Succeeds,
    /// This import in it fails.
    Fails(StmtId),
    /// Neither is certain.
    Open,
}

/// The exceptions that a failure raises; a handler for any of them protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// `NameError`
    Name,
    /// `AttributeError`
    Attribute,
    /// `TypeError`
    Type,
    /// `ModuleNotFoundError`, which is an `ImportError`
    Import,
    /// `ImportError`: the module is there, the name in it is not
    ImportName,
    /// `ValueError` (or `TypeError`), raised by unpacking
    Unpack,
}

impl Protection {
    fn caught_by(self, class: &str) -> bool {
        let own: &[&str] = match self {
            Protection::Name => &["NameError", "UnboundLocalError"],
            Protection::Attribute => &["AttributeError"],
            Protection::Type => &["TypeError"],
            Protection::Import => &["ImportError", "ModuleNotFoundError"],
            Protection::ImportName => &["ImportError"],
            Protection::Unpack => &["ValueError", "TypeError"],
        };
        own.contains(&class) || matches!(class, "Exception" | "BaseException")
    }
}

/// What a condition may ask of the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Whether something is there, or which version of it.
    Installed,
    /// Which version of something that is there.
    Version,
}

/// Functions that ask whether something is installed.
const FINDERS: &[&str] = &["find_spec", "import_module"];

/// Functions that ask what is installed.
const QUESTIONS: &[&str] = &["hasattr", "signature", "getfullargspec", "get_type_hints", "version", "parse", "Version"];

/// Names of Python's values that say what is installed; packs name those of packages.
const ANSWERS: &[&str] = &["__version__", "version_info", "parameters", "__code__"];

impl Linker<'_> {
    /// Whether the conditions of `guard` hold for code at `offset`.
    pub fn truth_of_guard(&self, id: ModId, guard: GuardId, offset: u32) -> Truth {
        let mut all = Truth::Yes;
        let module = self.module(id);
        for kind in module.conditions(guard) {
            match self.truth_of_kind(id, kind, offset) {
                Truth::Yes => {}
                Truth::No => return Truth::No,
                Truth::Maybe => all = Truth::Maybe,
            }
        }
        all
    }

    /// Whether one condition holds for code at `offset`.
    pub fn truth_of_kind(&self, id: ModId, kind: GuardKind, offset: u32) -> Truth {
        match kind {
            GuardKind::Always => Truth::Yes,
            GuardKind::Test { test, holds } => Truth::from(self.truth(id, test).map(|value| value == holds)),
            GuardKind::TryBody(at) => match self.outcome(id, at) {
                Outcome::Succeeds => Truth::Yes,
                Outcome::Fails(stmt) if offset >= self.module(id)[stmt].span.start => Truth::No,
                Outcome::Fails(_) => Truth::Yes,
                Outcome::Open => Truth::Maybe,
            },
            GuardKind::TryElse(at) => match self.outcome(id, at) {
                Outcome::Succeeds => Truth::Yes,
                Outcome::Fails(_) => Truth::No,
                Outcome::Open => Truth::Maybe,
            },
            GuardKind::Handler(at, index) => match self.outcome(id, at) {
                Outcome::Succeeds => Truth::No,
                Outcome::Fails(stmt) => {
                    let module = self.module(id);
                    let raised = self.raised_by_import(id, stmt);
                    let first = module[at].handlers.iter().position(|h| catches(module, h, raised));
                    Truth::from(Some(first == Some(index as usize)))
                }
                Outcome::Open => Truth::Maybe,
            },
            GuardKind::With(value) => {
                if suppressed(self.module(id), value).is_some() {
                    Truth::Maybe
                } else {
                    Truth::Yes
                }
            }
            GuardKind::Loop | GuardKind::Case | GuardKind::Body(_) => Truth::Maybe,
            GuardKind::Unreachable => Truth::No,
        }
    }

    fn outcome(&self, id: ModId, at: TryId) -> Outcome {
        if let Some(known) = self.outcomes.borrow().get(&(id, at)) {
            return *known;
        }
        let cuts = self.cuts.get();
        let outcome = self.guarded((id, 4, at.0), Outcome::Open, || match self.judge(id, at) {
            Outcome::Fails(stmt) => {
                let (module, raised) = (self.module(id), self.raised_by_import(id, stmt));
                let caught = module[at].handlers.iter().any(|handler| catches(module, handler, raised));
                if caught { Outcome::Fails(stmt) } else { Outcome::Open }
            }
            other => other,
        });
        if self.cuts.get() == cuts {
            self.outcomes.borrow_mut().insert((id, at), outcome);
        }
        outcome
    }

    fn judge(&self, id: ModId, at: TryId) -> Outcome {
        let module = self.module(id);
        let data = &module[at];
        if !data.handlers.iter().any(|handler| catches(module, handler, Protection::Import)) {
            return Outcome::Open;
        }
        let mut certain = true;
        let Some(first) = data.body.clone().next() else { return Outcome::Succeeds };
        let scope = module.stmts[first as usize].scope;
        let guard = module.stmts[first as usize].guard;
        for (stmt_id, stmt) in module.own_statements(&data.body, scope) {
            let unconditional = stmt.guard == guard;
            match &stmt.kind {
                StmtKind::Import(import) => match self.import_state(&import.module) {
                    Some(false) if unconditional => return Outcome::Fails(stmt_id),
                    Some(true) => {}
                    _ => certain = false,
                },
                StmtKind::ImportFrom(import) => {
                    match self.import_from(id, import) {
                        _ if &import.name == "*" => {}
                        Resolution::Missing if unconditional => return Outcome::Fails(stmt_id),
                        Resolution::Found(values) if !matches!(values[..], [Value::External(_)]) => {}
                        _ => certain = false,
                    }
                    match absolute(module, import.level, &import.module).and_then(|name| self.import_state(&name)) {
                        Some(false) if unconditional => return Outcome::Fails(stmt_id),
                        Some(true) => {}
                        _ => certain = false,
                    }
                }
                StmtKind::Assign(_, value) => {
                    certain &=
                        matches!(module[*value].kind, ExprKind::Constant(_) | ExprKind::Name(_) | ExprKind::Lambda(_));
                }
                StmtKind::Function(_) | StmtKind::Other => {}
                _ => certain = false,
            }
        }
        if certain { Outcome::Succeeds } else { Outcome::Open }
    }

    /// What an import that fails raises: it lacks the module, or only the name in it.
    fn raised_by_import(&self, id: ModId, stmt: StmtId) -> Protection {
        let module = self.module(id);
        match &module[stmt].kind {
            StmtKind::ImportFrom(import) => {
                let source = absolute(module, import.level, &import.module);
                match source.map(|source| self.program.locate(&source)) {
                    Some(Located::Module(_)) => Protection::ImportName,
                    _ => Protection::Import,
                }
            }
            _ => Protection::Import,
        }
    }

    /// Whether importing a module succeeds: `None` if that is not known.
    fn import_state(&self, name: &str) -> Option<bool> {
        match self.program.locate(name) {
            Located::Module(id) => self.imports_cleanly(id).then_some(true),
            Located::Missing => Some(false),
            Located::Outside if builtins::is_standard_module(name) => Some(true),
            // Absent, or installed where these roots do not show it.
            Located::Outside => self.program.environment.is_complete().then_some(false),
            Located::Unknown => None,
        }
    }

    /// The module is source, and what it imports without a guard is here too. How those fare in turn is not asked: it
    /// would read the whole environment to learn which of two definitions a name has.
    fn imports_cleanly(&self, id: ModId) -> bool {
        if let Some(known) = self.clean.borrow().get(&id) {
            return *known;
        }
        let here = |name: &str| match self.program.locate(name) {
            Located::Module(id) => !matches!(self.program.node(id).kind, NodeKind::Extension),
            Located::Outside => builtins::is_standard_module(name),
            Located::Missing | Located::Unknown => false,
        };
        let node = self.program.node(id);
        let clean = match &node.kind {
            NodeKind::Namespace => true,
            NodeKind::Extension => false,
            NodeKind::Source(_) => self.program.module(id).is_some_and(|module| {
                let unguarded = module.stmts.iter().filter(|s| s.scope == Module::SCOPE && s.guard.0 == 0);
                unguarded.into_iter().all(|stmt| match &stmt.kind {
                    StmtKind::Import(import) => here(&import.module),
                    StmtKind::ImportFrom(import) => {
                        absolute(module, import.level, &import.module).is_some_and(|source| here(&source))
                    }
                    _ => true,
                })
            }),
        };
        self.clean.borrow_mut().insert(id, clean);
        clean
    }

    /// Whether an expression leads, through imports, locals and attributes of `self`, to an attention module: judged
    /// without resolving it, since an importer outside the stack may import half of the environment.
    pub fn touches_attention(&self, id: ModId, expr: ExprId) -> bool {
        self.touches(id, expr, 4)
    }

    fn touches(&self, id: ModId, expr: ExprId, depth: u32) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        let module = self.module(id);
        match &module[expr].kind {
            ExprKind::Name(name) => {
                let Some(scope) = self.binding_scope(module, module[expr].scope, *name) else { return false };
                module[scope].names[name].iter().any(|&binding| match module[binding].kind {
                    BindingKind::Import(stmt) | BindingKind::ImportFrom(stmt) => self.imports_attention(module, stmt),
                    BindingKind::Value(value) | BindingKind::Element { value, .. } => self.touches(id, value, depth),
                    _ => false,
                })
            }
            ExprKind::Attribute(value, attr) => {
                self.touches(id, *value, depth) || {
                    let stores = match module[*value].kind {
                        ExprKind::Name(_) => self.stores_in(id, *attr),
                        _ => Vec::new(),
                    };
                    stores.into_iter().any(|value| self.touches(id, value, depth))
                }
            }
            ExprKind::Call(call) => {
                self.touches(id, call.callee, depth)
                    || call.arguments.first().is_some_and(|argument| self.touches(id, argument.value, depth))
            }
            ExprKind::If(parts) => parts.iter().any(|&part| self.touches(id, part, depth)),
            ExprKind::Subscript(value, _) => self.touches(id, *value, depth),
            _ => false,
        }
    }

    fn imports_attention(&self, module: &Module, stmt: StmtId) -> bool {
        match &module[stmt].kind {
            StmtKind::Import(import) => self.program.packs.is_attention(&import.module),
            StmtKind::ImportFrom(import) => absolute(module, import.level, &import.module).is_some_and(|source| {
                self.program.packs.is_attention(&source)
                    || self.program.packs.is_attention(&format!("{source}.{}", import.name))
            }),
            _ => false,
        }
    }

    /// Whether a failure at `guard` is caught in its function, without being raised again as it is.
    pub fn is_protected(&self, id: ModId, guard: GuardId, kind: Protection) -> bool {
        let module = self.module(id);
        for condition in module.conditions(guard) {
            match condition {
                GuardKind::Body(_) => return false,
                GuardKind::TryBody(at) => {
                    let caught = module[at].handlers.iter().find(|handler| catches(module, handler, kind));
                    if caught.is_some_and(|handler| {
                        matches!(kind, Protection::Import | Protection::ImportName) || !reraises(module, handler)
                    }) {
                        return true;
                    }
                }
                GuardKind::With(value)
                    if suppressed(module, value)
                        .is_some_and(|classes| classes.iter().any(|class| kind.caught_by(class))) =>
                {
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Whether one of the conditions asks what is installed (a version, a signature, an attribute) and the answer is not
    /// known: then nothing below it may be reported.
    pub fn is_behind_open_question(&self, id: ModId, guard: GuardId) -> bool {
        let module = self.module(id);
        module.conditions(guard).any(|condition| match condition {
            GuardKind::Test { test, .. } => {
                self.asks_environment(id, test, 4, Question::Installed) && self.truth(id, test).is_none()
            }
            _ => false,
        })
    }

    /// Whether one of the conditions asks which version is installed, and the answer is not known.
    pub(super) fn is_behind_version_question(&self, id: ModId, guard: GuardId) -> bool {
        let module = self.module(id);
        module.conditions(guard).any(|condition| match condition {
            GuardKind::Test { test, .. } => {
                self.asks_environment(id, test, 4, Question::Version) && self.truth(id, test).is_none()
            }
            _ => false,
        })
    }

    fn is_answer(&self, name: Symbol) -> bool {
        ANSWERS.contains(&name.as_str()) || self.program.packs.version_names.iter().any(|known| known == name.as_str())
    }

    /// Whether the value of an expression depends on what is installed.
    fn asks_environment(&self, id: ModId, expr: ExprId, depth: u32, about: Question) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        let module = self.module(id);
        match &module[expr].kind {
            ExprKind::Call(call) => {
                let last = match module[call.callee].kind {
                    ExprKind::Name(name) | ExprKind::Attribute(_, name) => Some(name),
                    _ => None,
                };
                let asks = |name: Symbol| {
                    QUESTIONS.contains(&name.as_str())
                        || about == Question::Installed && FINDERS.contains(&name.as_str())
                };
                last.is_some_and(asks)
                    || self.asks_environment(id, call.callee, depth, about)
                    || call.arguments.iter().any(|argument| self.asks_environment(id, argument.value, depth, about))
                    || self.calls_question(id, call.callee, depth, about)
            }
            ExprKind::Attribute(value, name) => {
                self.is_answer(*name) || self.asks_environment(id, *value, depth, about) || {
                    match self.eval(id, *value).single() {
                        Some(Value::Module(other)) => self.name_asks(*other, *name, depth, about),
                        _ => false,
                    }
                }
            }
            ExprKind::Name(name) if self.is_answer(*name) => true,
            ExprKind::Name(name) => match self.binding_scope(module, module[expr].scope, *name) {
                Some(Module::SCOPE) => self.name_asks(id, *name, depth, about),
                Some(scope) => module[scope].names[name].iter().any(|&binding| match module[binding].kind {
                    BindingKind::Value(value) => self.asks_environment(id, value, depth, about),
                    BindingKind::ImportFrom(stmt) => match &module[stmt].kind {
                        StmtKind::ImportFrom(import) => self.is_answer(import.name),
                        _ => false,
                    },
                    _ => false,
                }),
                None => false,
            },
            ExprKind::Not(inner) => self.asks_environment(id, *inner, depth + 1, about),
            ExprKind::And(parts) | ExprKind::Or(parts) => {
                parts.iter().any(|&part| self.asks_environment(id, part, depth + 1, about))
            }
            ExprKind::Compare(left, rest) => {
                self.asks_environment(id, *left, depth + 1, about)
                    || rest.iter().any(|&(_, right)| self.asks_environment(id, right, depth + 1, about))
            }
            // A table of what is there says nothing that could be followed.
            ExprKind::Subscript(value, _) => {
                about == Question::Version || self.asks_environment(id, *value, depth, about)
            }
            _ => false,
        }
    }

    /// A module-level name whose value depends on what is installed: computed from a question, or set in a handler.
    fn name_asks(&self, id: ModId, name: Symbol, depth: u32, about: Question) -> bool {
        let Some(module) = self.program.module(id) else { return false };
        let Some(bindings) = module[Module::SCOPE].names.get(&name) else { return false };
        bindings.iter().any(|&binding| {
            let data = &module[binding];
            let tried = about == Question::Installed
                && module
                    .conditions(data.guard)
                    .any(|kind| matches!(kind, GuardKind::TryBody(_) | GuardKind::Handler(..) | GuardKind::TryElse(_)));
            tried
                || match data.kind {
                    BindingKind::Value(value) => self.asks_environment(id, value, depth, about),
                    BindingKind::ImportFrom(stmt) => match &module[stmt].kind {
                        StmtKind::ImportFrom(import) if self.is_answer(import.name) => true,
                        StmtKind::ImportFrom(import) => {
                            match absolute(module, import.level, &import.module).map(|from| self.program.locate(&from))
                            {
                                Some(Located::Module(from)) if from != id && depth > 0 => {
                                    self.name_asks(from, import.name, depth - 1, about)
                                }
                                _ => false,
                            }
                        }
                        _ => false,
                    },
                    _ => false,
                }
        })
    }

    /// A function of the program that answers with such a question.
    fn calls_question(&self, id: ModId, callee: ExprId, depth: u32, about: Question) -> bool {
        match self.eval(id, callee).single() {
            Some(Value::Function(f) | Value::Bound(f)) => {
                let module = self.module(f.module);
                let function = &module[f.function];
                module.own_statements(&function.body, function.scope).any(|(_, stmt)| match stmt.kind {
                    StmtKind::Return(Some(value)) => self.asks_environment(f.module, value, depth, about),
                    // try: import x; return True
                    StmtKind::Import(_) | StmtKind::ImportFrom(_) => {
                        about == Question::Installed && self.is_protected(f.module, stmt.guard, Protection::Import)
                    }
                    _ => false,
                })
            }
            _ => false,
        }
    }

    /// Whether the conditions show that the object spelled `object` has the attribute: `hasattr`, or `getattr` with a
    /// default, on the path to `guard`.
    pub fn is_known_attribute(&self, id: ModId, guard: GuardId, object: &str, attribute: Symbol) -> bool {
        let module = self.module(id);
        module.conditions(guard).any(|kind| match kind {
            GuardKind::Test { test, holds } => self.shows(id, test, holds, object, attribute, 4),
            _ => false,
        })
    }

    /// `vars(o)`, `dir(o)`, `o.__dict__`
    fn lists_attributes_of(&self, id: ModId, expr: ExprId, object: &str) -> bool {
        let module = self.module(id);
        let target = match &module[expr].kind {
            ExprKind::Attribute(value, attr) if attr == "__dict__" => *value,
            ExprKind::Call(call) if matches!(module.dotted(call.callee).as_deref(), Some("vars" | "dir")) => {
                match call.arguments.first() {
                    Some(argument) => argument.value,
                    None => return false,
                }
            }
            _ => return false,
        };
        module.dotted(target).as_deref() == Some(object)
    }

    fn shows(&self, id: ModId, test: ExprId, holds: bool, object: &str, attribute: Symbol, depth: u32) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        let module = self.module(id);
        match &module[test].kind {
            ExprKind::Not(inner) => self.shows(id, *inner, !holds, object, attribute, depth),
            ExprKind::And(parts) if holds => parts.iter().any(|&p| self.shows(id, p, true, object, attribute, depth)),
            ExprKind::Or(parts) if !holds => parts.iter().any(|&p| self.shows(id, p, false, object, attribute, depth)),
            ExprKind::Or(parts) => parts.iter().all(|&p| self.shows(id, p, true, object, attribute, depth)),
            // `"x" in vars(o)`, `"x" not in o.__dict__`
            ExprKind::Compare(left, rest) if matches!(rest[..], [(Comparison::In | Comparison::NotIn, right)] if self.lists_attributes_of(id, right, object)) => {
                holds == matches!(rest[..], [(Comparison::In, _)])
                    && self.strings(id, *left).is_none_or(|names| names.contains(&attribute))
            }
            ExprKind::Compare(left, _) => self.shows(id, *left, true, object, attribute, depth),
            ExprKind::Named(_, value) => self.shows(id, *value, holds, object, attribute, depth),
            ExprKind::Call(call) => {
                let asked = match module[call.callee].kind {
                    ExprKind::Name(name) => ["hasattr", "getattr"].contains(&name.as_str()),
                    _ => false,
                };
                if !asked {
                    return holds
                        && call.arguments.len() == 1
                        && matches!(module[call.callee].kind, ExprKind::Name(name) if ["bool", "callable", "const_expr"].contains(&name.as_str()))
                        && self.shows(id, call.arguments[0].value, holds, object, attribute, depth);
                }
                let [target, name, ..] = &call.arguments[..] else { return false };
                holds
                    && target.kind == ArgumentKind::Positional
                    && module.dotted(target.value).as_deref() == Some(object)
                    && self.strings(id, name.value).is_none_or(|names| names.contains(&attribute))
            }
            ExprKind::Name(name) => {
                let Some(scope) = self.binding_scope(module, module[test].scope, *name) else { return false };
                match module[scope].names[name].as_slice() {
                    [only] => match module[*only].kind {
                        BindingKind::Value(value) => self.shows(id, value, holds, object, attribute, depth),
                        _ => false,
                    },
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

/// Whether a handler catches the exceptions of `kind`.
pub fn catches(module: &Module, handler: &Handler, kind: Protection) -> bool {
    match &handler.classes {
        None => true,
        Some(classes) => classes.iter().any(|&class| match module[class].kind {
            ExprKind::Name(name) | ExprKind::Attribute(_, name) => kind.caught_by(&name),
            // A computed tuple of classes may hold anything.
            _ => true,
        }),
    }
}

/// Whether a handler passes on what it caught.
fn reraises(module: &Module, handler: &Handler) -> bool {
    let Some(first) = handler.body.clone().next() else { return false };
    let guard = module.stmts[first as usize].guard;
    handler.body.clone().map(StmtId).any(|stmt| {
        module[stmt].guard == guard
            && match module[stmt].kind {
                StmtKind::Raise(None) => true,
                StmtKind::Raise(Some(value)) => {
                    matches!(module[value].kind, ExprKind::Name(name) if Some(name) == handler.name)
                }
                _ => false,
            }
    })
}

/// The classes that a `contextlib.suppress(..)` names.
fn suppressed(module: &Module, value: ExprId) -> Option<Vec<Symbol>> {
    let ExprKind::Call(call) = &module[value].kind else { return None };
    let callee = match module[call.callee].kind {
        ExprKind::Name(name) | ExprKind::Attribute(_, name) => name,
        _ => return None,
    };
    if &callee != "suppress" {
        return None;
    }
    let names = call.arguments.iter().map(|argument| match module[argument.value].kind {
        ExprKind::Name(name) | ExprKind::Attribute(_, name) => name,
        _ => Symbol::new("BaseException"),
    });
    Some(names.collect())
}
