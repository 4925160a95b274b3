//! # What it does
//!
//! Binds every call whose callee can be resolved (through imports, re-exports, aliases, `functools.partial`, methods,
//! constructors, dataclasses, kernel launches) to the definition that is really installed, as
//! `inspect.Signature.bind` would: unexpected keywords, missing and surplus arguments.
//!
//! # Why is this bad
//!
//! The call raises TypeError. It happens when caller and callee come from different releases: vLLM passes a keyword that
//! only its own fork of flash-attention has, or an argument was renamed.
//!
//! # Example
//!
//! ```text
//! TypeError: _flash_attn_fwd() got an unexpected keyword argument 'dynamic_causal'
//! ```
//!
//! # Fix
//!
//! A keyword that is literally None is left out. Another call with an unexpected keyword goes through a generated
//! adapter, which passes only what the callee accepts, leaves out None and documented neutral values, and otherwise
//! raises a TypeError that says what would be lost. Missing and surplus arguments are for a person to settle.
//!
//! # References
//!
//! - <https://docs.python.org/3/library/inspect.html#inspect.Signature.bind>

use super::sources::{finding, over, related, report};
use super::{Context, Rule, RuleInfo, Sink};
use crate::finding::Finding;
use crate::link::{Callee, Linker, Mismatch, ModId, Protection, Resolution, Truth, Value, bind};
use crate::python::Symbol;
use crate::python::ir::{ArgumentKind, Call, ExprId, ExprKind, Span};

static INFO: RuleInfo = RuleInfo {
    code: "FA003",
    name: "call-mismatch",
    summary: "a call that the installed definition does not take",
    source: include_str!("fa003_call_mismatch.rs"),
};

/// FA003.
pub struct CallMismatch;

impl Rule for CallMismatch {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let program = context.program;
        let mut found = over(context, &program.audited, |linker, id| check_module(context, linker, id, false));
        found.extend(over(context, &program.importers, |linker, id| check_module(context, linker, id, true)));
        report(context, sink, found);
    }
}

/// A call that does not fit, with the definition that decides it.
#[derive(Debug)]
pub struct BadCall {
    /// The call expression.
    pub expr: ExprId,
    /// What it binds to.
    pub callee: Callee,
    /// Why it does not fit.
    pub mismatch: Mismatch,
    /// The method takes its object first, which Python counts.
    pub bound: bool,
}

fn check_module(context: &Context<'_>, linker: &Linker<'_>, id: ModId, attention_only: bool) -> Vec<Finding> {
    let bad = bad_calls(linker, id, attention_only);
    bad.iter().map(|bad| describe(context, linker, id, bad)).collect()
}

/// Every call of a module that fails against all definitions it may reach.
pub fn bad_calls(linker: &Linker<'_>, id: ModId, attention_only: bool) -> Vec<BadCall> {
    let module = linker.module(id);
    let mut found = Vec::new();
    for (index, expr) in module.exprs.iter().enumerate() {
        let ExprKind::Call(call) = &expr.kind else { continue };
        if !matches!(
            module[call.callee].kind,
            ExprKind::Name(_)
                | ExprKind::Attribute(..)
                | ExprKind::Call(_)
                | ExprKind::Subscript(..)
                | ExprKind::If(_)
                | ExprKind::Lambda(_)
        ) {
            continue;
        }
        let at = ExprId(index as u32);
        if attention_only && !linker.touches_attention(id, call.callee) {
            continue;
        }
        let bad = judge(linker, id, at, call, attention_only);
        if bad.is_empty() {
            continue;
        }
        let runs = super::fa001_undefined_name::is_evaluated(expr.phase, linker.program.environment.python)
            && linker.truth_of_guard(id, expr.guard, expr.span.start) != Truth::No;
        if runs
            && !linker.is_protected(id, expr.guard, Protection::Type)
            && !linker.is_behind_open_question(id, expr.guard)
        {
            found.extend(bad);
        }
    }
    found.sort_by_key(|bad| module[bad.expr].span);
    found
}

/// The mismatches of a call against the first definition that it may reach, if every other refuses it too.
fn judge(linker: &Linker<'_>, id: ModId, expr: ExprId, call: &Call, attention_only: bool) -> Vec<BadCall> {
    let Resolution::Found(values) = linker.eval(id, call.callee) else { return Vec::new() };
    let mut arguments = linker.arguments(id, &call.arguments);
    if let Some(path) = linker.spelled(id, call.callee) {
        arguments.keywords.retain(|(name, _)| !linker.program.packs.consumes(&path, name));
    }
    let mut first = Vec::new();
    for value in &values {
        let (target, arguments) = linker.flatten(value, &arguments);
        let Some(callee) = linker.callee(target) else { return Vec::new() };
        if attention_only && !is_attention(linker, &callee) {
            return Vec::new();
        }
        match bind(&callee.signature, &arguments) {
            Ok(()) => return Vec::new(),
            Err(mismatches) if first.is_empty() => {
                let bound = !matches!(target, Value::Function(_)) && callee.definition.is_some();
                let bad = |mismatch| BadCall { expr, callee: callee.clone(), mismatch, bound };
                first.extend(mismatches.into_iter().map(bad));
            }
            Err(_) => {}
        }
    }
    first
}

/// Whether the definition lies in an attention module.
fn is_attention(linker: &Linker<'_>, callee: &Callee) -> bool {
    let module = callee.definition.map(|f| f.module).or(callee.fields_of.map(|c| c.module));
    module.is_some_and(|id| linker.program.packs.is_attention(&linker.program.node(id).name))
}

fn describe(context: &Context<'_>, linker: &Linker<'_>, id: ModId, bad: &BadCall) -> Finding {
    let module = linker.module(id);
    let ExprKind::Call(call) = &module[bad.expr].kind else { unreachable!("bad calls are calls") };
    let whole = module[bad.expr].span;
    let at = |argument: Option<usize>| argument.map_or(whole, |index| call.arguments[index].span);
    let label = &bad.callee.label;
    let path = &bad.callee.path;
    let (span, symbol, message): (Span, String, String) = match &bad.mismatch {
        Mismatch::UnexpectedKeyword(name, argument) => (
            at(*argument),
            format!("{path}({name})"),
            format!("TypeError: {label} got an unexpected keyword argument '{name}'"),
        ),
        Mismatch::PositionalOnly(name, argument) => (
            at(*argument),
            format!("{path}({name})"),
            format!("TypeError: {label} got some positional-only arguments passed as keyword arguments: '{name}'"),
        ),
        Mismatch::Multiple(name, argument) => (
            at(*argument),
            format!("{path}({name})"),
            format!("TypeError: {label} got multiple values for argument '{name}'"),
        ),
        Mismatch::Surplus { takes, needs, given, argument } => {
            let own = usize::from(bad.bound || bad.callee.fields_of.is_some());
            let (takes, needs, given) = (takes + own, needs + own, given + own);
            let takes = if needs < takes {
                format!("from {needs} to {takes} positional arguments")
            } else {
                format!("{takes} positional argument{}", if takes == 1 { "" } else { "s" })
            };
            let were = if given == 1 { "was" } else { "were" };
            (at(*argument), format!("{path}(*)"), format!("TypeError: {label} takes {takes} but {given} {were} given"))
        }
        Mismatch::MissingPositional(names) => {
            (whole, format!("{path}({})", names[0]), missing(label, "positional", names))
        }
        Mismatch::MissingKeyword(names) => {
            (whole, format!("{path}({})", names[0]), missing(label, "keyword-only", names))
        }
    };
    let mut item = finding(context, &INFO, id, span, symbol, message);
    if let Some(f) = bad.callee.definition {
        let owner = linker.module(f.module);
        let note = format!("`{}` is defined here", owner[f.function].name);
        item.related.push(related(context, f.module, owner[f.function].span.start, note));
    } else if let Some(class) = bad.callee.fields_of {
        let owner = linker.module(class.module);
        let note = format!("the fields of `{}` make its constructor", owner[class.class].name);
        item.related.push(related(context, class.module, owner[class.class].span.start, note));
    }
    item.help = help(context, bad, call);
    item
}

fn missing(label: &str, kind: &str, names: &[Symbol]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let list = match quoted.as_slice() {
        [only] => only.clone(),
        [first, second] => format!("{first} and {second}"),
        [rest @ .., last] => format!("{}, and {last}", rest.join(", ")),
        [] => String::new(),
    };
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("TypeError: {label} missing {} required {kind} argument{plural}: {list}", names.len())
}

/// The history of the argument, or the parameter that it may have become.
fn help(context: &Context<'_>, bad: &BadCall, call: &Call) -> Option<String> {
    let name = match &bad.mismatch {
        Mismatch::UnexpectedKeyword(name, _) | Mismatch::PositionalOnly(name, _) | Mismatch::Multiple(name, _) => *name,
        Mismatch::MissingPositional(names) | Mismatch::MissingKeyword(names) => names[0],
        Mismatch::Surplus { .. } => return None,
    };
    if let Some(history) = context.packs.keyword_history(&bad.callee.path, &name) {
        return Some(history);
    }
    let Mismatch::UnexpectedKeyword(..) = bad.mismatch else { return None };
    let parameters = &bad.callee.signature.parameters;
    // A parameter that the call fills already is not what the keyword was renamed to.
    let filled = |other: Symbol| call.arguments.iter().any(|a| a.kind == ArgumentKind::Keyword(other));
    let positional = call.arguments.iter().filter(|a| a.kind == ArgumentKind::Positional).count();
    let close = parameters.iter().skip(positional).filter(|p| !filled(p.name)).find(|parameter| {
        let other = parameter.name.as_str();
        other.len() > 2 && (name.ends_with(&format!("_{other}")) || other.ends_with(&format!("_{name}")))
    });
    close.map(|parameter| format!("the installed `{}` has `{}`", bad.callee.path, parameter.name))
}
