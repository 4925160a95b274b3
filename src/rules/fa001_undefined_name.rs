//! # What it does
//!
//! Finds names that Python cannot resolve where they are read: bound in no enclosing scope, in no module and not a
//! builtin; bound only under `TYPE_CHECKING`; an `except .. as` name read after its handler; a name of the class body
//! read in a method; a name that is only ever augmented or deleted.
//!
//! # Why is this bad
//!
//! The line raises NameError when it runs. In a kernel that is when the kernel is first compiled: the import works, the
//! model loads, and the first forward pass on the affected architecture fails. A kernel body that reads a parameter of
//! its launcher is the usual form.
//!
//! # Example
//!
//! ```python
//! @cute.jit
//! def __call__(self, mQ, mMask):
//!     self.kernel(mQ).launch(grid=grid, block=block)
//!
//! @cute.kernel
//! def kernel(self, mQ):
//!     if mMask is not None:  # NameError: name 'mMask' is not defined
//!         ...
//! ```
//!
//! # Fix
//!
//! Where the name is a parameter of the function that launches this one, it is passed in the launch and accepted in the
//! kernel, at the same index. Safe: the launch raised before. Other names are for a person to define.
//!
//! # References
//!
//! - <https://docs.python.org/3/reference/executionmodel.html#resolution-of-names>

use rustc_hash::FxHashSet;

use super::sources::{finding, over, related, report_merged};
use super::{Context, Rule, RuleInfo, Sink};
use crate::finding::{Finding, Related};
use crate::link::{Linker, Located, ModId, Protection, Resolution, Truth};
use crate::python::ir::{
    BindingId, BindingKind, ExprId, ExprKind, FunctionId, GuardKind, Phase, ScopeId, ScopeKind, Usage,
};
use crate::python::{Module, Symbol, builtins};

static INFO: RuleInfo = RuleInfo {
    code: "FA001",
    name: "undefined-name",
    summary: "a name that Python cannot resolve where it is read",
    source: include_str!("fa001_undefined_name.rs"),
};

/// FA001.
pub struct UndefinedName;

impl Rule for UndefinedName {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let found = over(context, &context.program.audited, |linker, id| check_module(context, linker, id));
        report_merged(context, sink, found, "read here too");
    }
}

/// One cause: the module, the name, and the function for names that each function would have to be given.
type Cause = (ModId, Symbol, Option<u32>);

fn check_module(context: &Context<'_>, linker: &Linker<'_>, id: ModId) -> Vec<(Cause, Finding)> {
    let mut found = Vec::new();
    for read in undefined_names(linker, id) {
        let module = linker.module(id);
        let ExprKind::Name(name) = module[read.expr].kind else { continue };
        let span = module[read.expr].span;
        let function = outermost_function(module, module[read.expr].scope);
        let launchers = function.map(|f| launchers(context, module, id, f, name)).unwrap_or_default();
        let mut place = function.map_or(module[read.expr].scope, |f| module[f].scope);
        if function.is_none() && matches!(module[place].kind, ScopeKind::Comprehension | ScopeKind::TypeParams) {
            place = module[place].parent;
        }
        let symbol = format!("{}:{name}", module.qualified(place));
        let (message, help) = read.describe(name);
        let mut item = finding(context, &INFO, id, span, symbol, message);
        item.help = help;
        if !launchers.is_empty() {
            item.help = Some(format!("pass `{name}` on to `{}`", called(module, function)));
        }
        let per_function = if launchers.is_empty() { None } else { function.map(|f| f.0) };
        item.related.extend(launchers);
        found.push(((id, name, per_function), item));
    }
    found.sort_by_key(|((_, _, _), item)| (item.line, item.column));
    found
}

fn called(module: &Module, function: Option<FunctionId>) -> &str {
    function.map_or("", |f| module[f].name.as_str())
}

/// Why a name cannot be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Unbound,
    TypeCheckingOnly,
    AfterHandler,
    OnlyAugmented,
    OnlyDeclared,
    Deleted,
    TooEarly,
    NeverBound,
    ClassName,
}

/// A read that fails.
#[derive(Debug, Clone, Copy)]
pub struct UndefinedRead {
    /// The name expression.
    pub expr: ExprId,
    reason: Reason,
    /// The name is local there, so that Python says UnboundLocalError.
    local: bool,
}

impl UndefinedRead {
    fn describe(&self, name: Symbol) -> (String, Option<String>) {
        let message = if self.local {
            format!("UnboundLocalError: cannot access local variable '{name}' where it is not associated with a value")
        } else {
            format!("NameError: name '{name}' is not defined")
        };
        let help = match self.reason {
            Reason::Unbound => None,
            Reason::TypeCheckingOnly => {
                Some(format!("`{name}` is imported under TYPE_CHECKING only, and used at run time"))
            }
            Reason::AfterHandler => Some(format!("`except .. as {name}` unbinds `{name}` when the handler ends")),
            Reason::OnlyAugmented => Some(format!("`{name}` is augmented, but never given a first value")),
            Reason::OnlyDeclared => Some(format!("`{name}` has an annotation, but is never given a value")),
            Reason::NeverBound => Some(format!("`{name}` is deleted, but never given a value")),
            Reason::TooEarly => Some(format!("`{name}` gets its first value further down")),
            Reason::Deleted => Some(format!("`{name}` was deleted before")),
            Reason::ClassName => Some(format!("`{name}` belongs to the class: methods reach it as `self.{name}`")),
        };
        (message, help)
    }
}

/// Every read of a module that cannot be resolved, in source order.
pub fn undefined_names(linker: &Linker<'_>, id: ModId) -> Vec<UndefinedRead> {
    let module = linker.module(id);
    let python = linker.program.environment.python;
    let mut found = Vec::new();
    // Most names of a scope are asked for many times.
    let mut resolved: FxHashSet<(ScopeId, Symbol)> = FxHashSet::default();
    for (index, expr) in module.exprs.iter().enumerate() {
        let ExprKind::Name(name) = expr.kind else { continue };
        let at = ExprId(index as u32);
        if (expr.usage == Usage::Store && !is_augmented(module, expr.scope, name))
            || !is_evaluated(expr.phase, python)
            || resolved.contains(&(expr.scope, name))
        {
            continue;
        }
        match judge(linker, id, at, name) {
            Verdict::Fine => {
                resolved.insert((expr.scope, name));
            }
            Verdict::FineHere => {}
            Verdict::Undefined(reason, local) => {
                let live = linker.truth_of_guard(id, expr.guard, expr.span.start) != Truth::No;
                let protected = linker.is_protected(id, expr.guard, Protection::Name) || asks_namespace(module, at);
                if live && !protected && module.errors.is_empty() {
                    found.push(UndefinedRead { expr: at, reason, local });
                }
            }
        }
    }
    found.sort_by_key(|read| module[read.expr].span);
    found
}

/// A name that its scope only ever augments: the first `x += 1` reads it.
fn is_augmented(module: &Module, scope: ScopeId, name: Symbol) -> bool {
    // `global x` binds it in the module.
    let scope = if module[scope].globals.contains(&name) { Module::SCOPE } else { scope };
    module[scope]
        .names
        .get(&name)
        .is_some_and(|bindings| bindings.iter().all(|&binding| matches!(module[binding].kind, BindingKind::Augmented)))
}

/// Whether running the program evaluates an expression: annotations wait for someone to ask from Python 3.14 on.
pub(super) fn is_evaluated(phase: Phase, python: Option<(u32, u32)>) -> bool {
    match phase {
        Phase::Run => true,
        Phase::Annotation => python.is_none_or(|version| version < (3, 14)),
        Phase::Never => false,
    }
}

enum Verdict {
    /// Whatever reads the name in this scope.
    Fine,
    /// This read, but others in this scope may differ.
    FineHere,
    Undefined(Reason, bool),
}

fn judge(linker: &Linker<'_>, id: ModId, at: ExprId, name: Symbol) -> Verdict {
    let module = linker.module(id);
    let expr = &module[at];
    let python = linker.program.environment.python;
    let is_builtin = builtins::is_builtin(&name, python);
    let Some(scope) = linker.binding_scope(module, expr.scope, name) else {
        if is_builtin || builtins::is_module_attribute(&name) || is_implicit(module, expr.scope, name) {
            return Verdict::Fine;
        }
        return match linker.module_member(id, name) {
            // Importing a submodule binds it in its package.
            Resolution::Missing if module.is_package && is_submodule(linker, module, name) => Verdict::Fine,
            Resolution::Missing if linker.is_made_builtin(name) => Verdict::Fine,
            Resolution::Missing if in_class_body(module, expr.scope, name) => {
                Verdict::Undefined(Reason::ClassName, false)
            }
            Resolution::Missing => Verdict::Undefined(Reason::Unbound, false),
            _ => Verdict::Fine,
        };
    };
    let bindings = &module[scope].names[&name];
    let local = scope != Module::SCOPE && matches!(module[scope].kind, ScopeKind::Function(_)) && {
        module.enclosing_function(expr.scope) == module.enclosing_function(scope)
    };
    let falls_back = scope == Module::SCOPE || matches!(module[scope].kind, ScopeKind::Class(_));
    if falls_back && is_builtin {
        return Verdict::Fine;
    }
    let undefined = |reason| {
        // A class body falls back to the module, and module code to builtins and star imports.
        if matches!(module[scope].kind, ScopeKind::Class(_)) {
            return Verdict::FineHere;
        }
        if scope == Module::SCOPE && (!module[scope].stars.is_empty() || module[scope].dynamic) {
            return Verdict::FineHere;
        }
        Verdict::Undefined(reason, local)
    };
    let kinds = |keep: fn(&BindingKind) -> bool| bindings.iter().all(|&b| keep(&module[b].kind));
    // `del` makes a name local to its function; without a binding, it and every read fail.
    if local && kinds(|kind| matches!(kind, BindingKind::Deletion)) {
        return undefined(Reason::Unbound);
    }
    if expr.usage == Usage::Del {
        return Verdict::FineHere;
    }
    if kinds(|kind| matches!(kind, BindingKind::Augmented)) {
        return undefined(Reason::OnlyAugmented);
    }
    if kinds(|kind| matches!(kind, BindingKind::Deletion)) {
        return undefined(Reason::NeverBound);
    }
    if kinds(|kind| matches!(kind, BindingKind::Declaration(_))) {
        // Something may fill it in from outside: `module.x = ..`, `globals()`.
        let filled = linker.program.stores().attributes.contains(&name) || !module[scope].computed.is_empty();
        return if filled { Verdict::Fine } else { undefined(Reason::OnlyDeclared) };
    }
    if kinds(|kind| matches!(kind, BindingKind::Exception)) {
        let inside = bindings.iter().any(|&b| is_inside_handler(module, at, b));
        let nested = module.enclosing_function(expr.scope) != module.enclosing_function(scope);
        let before = bindings.iter().all(|&b| module[b].span.start > expr.span.start);
        let gone = nested && scope == Module::SCOPE && !runs_early(module, expr.scope, u32::MAX);
        let fine = inside || (nested && !gone) || (before && !nested);
        return if fine { Verdict::FineHere } else { undefined(Reason::AfterHandler) };
    }
    if bindings.iter().all(|&b| is_type_checking_only(linker, id, b)) {
        return undefined(Reason::TypeCheckingOnly);
    }
    if is_deleted(module, at, scope, bindings) || is_deleted_for_good(linker, id, at, scope, bindings) {
        return undefined(Reason::Deleted);
    }
    if is_too_early(module, at, scope, bindings) && !linker.program.stores().attributes.contains(&name) {
        return match module[scope].kind {
            ScopeKind::Class(_) => Verdict::FineHere,
            _ if !module[scope].computed.is_empty() => Verdict::FineHere,
            _ => undefined(Reason::TooEarly),
        };
    }
    let has_special = bindings
        .iter()
        .any(|&b| matches!(module[b].kind, BindingKind::Deletion | BindingKind::Exception | BindingKind::Augmented));
    if has_special { Verdict::FineHere } else { Verdict::Fine }
}

fn is_submodule(linker: &Linker<'_>, package: &Module, name: Symbol) -> bool {
    matches!(linker.program.locate(&format!("{}.{name}", package.name)), Located::Module(_) | Located::Unknown)
}

/// Names that Python provides inside classes and methods.
fn is_implicit(module: &Module, scope: ScopeId, name: Symbol) -> bool {
    let in_class = || {
        let mut at = scope;
        loop {
            match module[at].kind {
                ScopeKind::Class(_) => return true,
                ScopeKind::Module => return false,
                _ => at = module[at].parent,
            }
        }
    };
    match name.as_str() {
        "__class__" => in_class(),
        "__module__" | "__qualname__" | "__firstlineno__" | "__static_attributes__" => {
            matches!(module[scope].kind, ScopeKind::Class(_))
        }
        "__classcell__" | "__classdict__" => in_class(),
        _ => false,
    }
}

/// An enclosing class binds the name: its methods cannot see it.
fn in_class_body(module: &Module, scope: ScopeId, name: Symbol) -> bool {
    let mut at = scope;
    while at != Module::SCOPE {
        if matches!(module[at].kind, ScopeKind::Class(_)) && module[at].names.contains_key(&name) {
            return true;
        }
        at = module[at].parent;
    }
    false
}

fn is_inside_handler(module: &Module, at: ExprId, binding: BindingId) -> bool {
    let handler = module.conditions(module[binding].guard).find(|kind| matches!(kind, GuardKind::Handler(..)));
    handler.is_some_and(|handler| module.conditions(module[at].guard).any(|kind| kind == handler))
}

/// The binding stands under a test of TYPE_CHECKING that is false at run time.
fn is_type_checking_only(linker: &Linker<'_>, id: ModId, binding: BindingId) -> bool {
    let module = linker.module(id);
    module.conditions(module[binding].guard).any(|kind| match kind {
        GuardKind::Test { test, holds } => {
            module.slice(module[test].span).contains("TYPE_CHECKING")
                && linker.truth(id, test).is_some_and(|truth| truth != holds)
        }
        _ => false,
    })
}

/// In straight-line code the last thing that happened to the name before the read is its deletion.
fn is_deleted(module: &Module, at: ExprId, scope: ScopeId, bindings: &[BindingId]) -> bool {
    let expr = &module[at];
    if expr.scope != scope || module.conditions(expr.guard).any(|kind| kind == GuardKind::Loop) {
        return false;
    }
    let before = bindings.iter().map(|&b| &module[b]).filter(|b| b.span.start < expr.span.start);
    let Some(last) = before.max_by_key(|b| b.span.start) else { return false };
    last.kind == BindingKind::Deletion && {
        let mut guard = expr.guard;
        loop {
            if guard == last.guard {
                break true;
            }
            if guard.0 == 0 {
                break false;
            }
            guard = module[guard].parent;
        }
    }
}

/// The module binds the name, unbinds it again for certain, and only then can the function around the read run.
fn is_deleted_for_good(linker: &Linker<'_>, id: ModId, at: ExprId, scope: ScopeId, bindings: &[BindingId]) -> bool {
    let module = linker.module(id);
    if scope != Module::SCOPE || module.enclosing_function(module[at].scope).is_none() {
        return false;
    }
    let Some(&last) = bindings.iter().max_by_key(|&&b| module[b].span.start) else { return false };
    let last = &module[last];
    last.kind == BindingKind::Deletion
        && linker.truth_of_guard(id, last.guard, last.span.start) == Truth::Yes
        && !runs_early(module, module[at].scope, last.span.start)
}

/// Module code before `until` may run the function around `scope`: it calls something that the module defines, or hands
/// it on.
fn runs_early(module: &Module, scope: ScopeId, until: u32) -> bool {
    let Some(function) = outermost_function(module, scope) else { return true };
    let defined = module[function].whole.start;
    module.exprs.iter().any(|expr| {
        let ExprKind::Name(name) = expr.kind else { return false };
        expr.usage == Usage::Load
            && (defined..until).contains(&expr.span.start)
            && module.enclosing_function(expr.scope).is_none()
            && module[Module::SCOPE].names.get(&name).is_some_and(|bindings| {
                bindings.iter().any(|&b| {
                    matches!(module[b].kind, BindingKind::Function(_) | BindingKind::Class(_) | BindingKind::Value(_))
                })
            })
    })
}

/// Code that runs along with the scope (its own, or that of a class body in it) reads the name above every place that
/// binds it, in no loop that leads back.
fn is_too_early(module: &Module, at: ExprId, scope: ScopeId, bindings: &[BindingId]) -> bool {
    let expr = &module[at];
    let mut inner = expr.scope;
    while inner != scope && matches!(module[inner].kind, ScopeKind::Class(_) | ScopeKind::TypeParams) {
        inner = module[inner].parent;
    }
    if inner != scope
        || expr.usage != Usage::Load
        || module
            .conditions(expr.guard)
            .take_while(|kind| !matches!(kind, GuardKind::Body(_)))
            .any(|kind| kind == GuardKind::Loop)
    {
        return false;
    }
    let function = |guard| module.conditions(guard).find(|kind| matches!(kind, GuardKind::Body(_)));
    let statement = |offset: u32| {
        let around = module.stmts.iter().map(|s| s.span).filter(|span| span.start <= offset && offset < span.end);
        around.min_by_key(|span| span.end - span.start)
    };
    bindings.iter().map(|&b| &module[b]).all(|binding| {
        // A class has its name once its body has run.
        let bound_at = match binding.kind {
            BindingKind::Class(class) => module[class].whole.end,
            _ => binding.span.start,
        };
        bound_at > expr.span.start
            // A function that declares the name global may have run before.
            && function(binding.guard) == function(expr.guard)
            // One statement may evaluate its parts in another order: `x if (x := f()) else y`.
            && (matches!(binding.kind, BindingKind::Class(_)) || statement(expr.span.start) != statement(binding.span.start))
    })
}

/// A test on the path looks into the namespace itself: `if "x" in globals()`.
fn asks_namespace(module: &Module, at: ExprId) -> bool {
    module.conditions(module[at].guard).any(|kind| match kind {
        GuardKind::Test { test, .. } => {
            let text = module.slice(module[test].span);
            ["globals()", "locals()", "vars()", "dir()"].iter().any(|namespace| text.contains(namespace))
        }
        _ => false,
    })
}

/// The outermost function around a scope that is not a method's class or a module: the one a launch names.
fn outermost_function(module: &Module, scope: ScopeId) -> Option<FunctionId> {
    let mut found = None;
    let mut at = scope;
    loop {
        match module[at].kind {
            ScopeKind::Function(function) if module[function].lambda.is_none() => found = Some(function),
            ScopeKind::Module => return found,
            _ => {}
        }
        at = module[at].parent;
    }
}

/// Functions of the module that call `function` by name and have a parameter called `name`.
fn launchers(context: &Context<'_>, module: &Module, id: ModId, function: FunctionId, name: Symbol) -> Vec<Related> {
    let target = &module[function];
    let mut places: Vec<Related> = Vec::new();
    for expr in &module.exprs {
        let ExprKind::Call(call) = &expr.kind else { continue };
        let callee = match module[call.callee].kind {
            ExprKind::Name(callee) => callee,
            ExprKind::Attribute(object, callee) if matches!(module[object].kind, ExprKind::Name(_)) => callee,
            _ => continue,
        };
        if callee != target.name {
            continue;
        }
        let Some(caller) = module.enclosing_function(expr.scope) else { continue };
        let parameter = module[caller].parameters.iter().find(|parameter| parameter.name == name);
        if let Some(parameter) = parameter
            && caller != function
        {
            let message =
                format!("`{name}` is a parameter of `{}`, which calls `{}`", module[caller].name, target.name);
            let place = related(context, id, parameter.span.start, message);
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}
