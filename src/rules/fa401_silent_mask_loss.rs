//! # What it does
//!
//! Follows every argument that changes the mask (packs name them: `dynamic_causal`, `window_size`, `softcap`, `s_aux`,
//! `mask_mod` ..) from the public attention functions towards the kernels, on the branches that the architectures named
//! with `--arch` take, and reports one that is accepted and then goes nowhere: never read, read on other branches only,
//! or left out of the call that computes the attention. Where a number such as `fa_version` picks the implementation,
//! every one that the architecture supports has to lose it, or the one that is chosen there.
//!
//! Without `--arch` only what no path uses is reported, where something installed passes it. An assert or raise that such
//! an argument meets makes it a gate (FA301), a warning in the log makes it known; a function that does not take the
//! argument at all is FA003. Whatever is handed to something that cannot be followed counts as used.
//!
//! # Why is this bad
//!
//! Nothing fails, and the numbers are wrong: tokens see the future, a window is gone, an attention sink is missing from
//! the sum.
//!
//! # Example
//!
//! ```python
//! def flash_attn_func(q, k, v, window_size=(-1, -1)):
//!     if arch // 10 == 12:
//!         return forward_sm120(q, k, v)  # the window is gone, and nothing says so
//!     return forward(q, k, v, window_size)
//! ```
//!
//! # Fix
//!
//! None: whether to refuse the argument or to compute with it is for a person. Until then, leave it out of the call or
//! take an implementation that honours it.
//!
//! # References
//!
//! - <https://github.com/Dao-AILab/flash-attention>

use std::cell::LazyCell;
use std::collections::BTreeMap;

use rayon::prelude::*;

use super::sources::{finding, judge, related};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::arch::capability;
use crate::finding::{Finding, Severity};
use crate::link::{Const, End, Fate, FnRef, Follower, Linker, ModId, Reached, Value};
use crate::python::ir::{BindingKind, ExprId, ExprKind, FunctionId, GuardKind, Usage};
use crate::python::{Module, Symbol};

static INFO: RuleInfo = RuleInfo {
    code: "FA401",
    name: "silent-mask-loss",
    summary: "an argument that changes the mask is accepted and not used",
    source: include_str!("fa401_silent_mask_loss.rs"),
};

/// FA401.
pub struct SilentMaskLoss;

impl Rule for SilentMaskLoss {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let entries = entries(context);
        let mut losses: BTreeMap<(FnRef, Symbol), Loss> = BTreeMap::new();
        let mut note = |arch: Option<&String>, found: Vec<Loss>| {
            for loss in found {
                let known = losses.entry((loss.end.function, loss.end.parameter)).or_insert(loss);
                known.arch.extend(arch.filter(|arch| !known.arch.contains(arch)).cloned());
            }
        };
        let program = context.program;
        program.mentions();
        if context.environment.arch.is_empty() {
            note(None, of_device(&entries, false, || Linker::new(program)));
        }
        for arch in &context.environment.arch {
            if let Some((major, minor)) = capability(arch) {
                note(Some(arch), of_device(&entries, true, || Linker::for_architecture(program, major, minor)));
            }
        }
        let described = losses.values().filter_map(|loss| describe(context, loss));
        let mut findings: Vec<((), Finding)> = described.map(|finding| ((), finding)).collect();
        judge(context, &mut findings);
        sink.findings.extend(findings.into_iter().map(|(_, finding)| finding));
    }
}

/// An argument that goes nowhere.
struct Loss {
    /// Where it enters.
    entry: FnRef,
    /// What it is called there.
    argument: Symbol,
    /// Where it is dropped.
    end: End,
    /// The implementations that lose it, if a number picks them.
    versions: Vec<i64>,
    /// Another path uses it.
    elsewhere: bool,
    /// The architectures on which it is lost; none: on all.
    arch: Vec<String>,
}

/// A public attention function, and its arguments that change the mask.
struct Entry {
    function: FnRef,
    queries: Symbol,
    arguments: Vec<Symbol>,
}

/// Public functions of the audited modules that take queries and something that changes the mask.
fn entries(context: &Context<'_>) -> Vec<Entry> {
    let program = context.program;
    let linker = Linker::new(program);
    let mut entries = Vec::new();
    for &id in &program.audited {
        let Some(module) = program.module(id) else { continue };
        let in_use = program.reach().of(program, id) == Reached::Normally;
        for (index, function) in module.functions.iter().enumerate() {
            let f = FnRef { module: id, function: FunctionId(index as u32) };
            let queries = function.parameters.iter().map(|parameter| parameter.name);
            let queries = queries.into_iter().find(|name| QUERIES.contains(&name.as_str()));
            let public =
                function.outer == Module::SCOPE && function.lambda.is_none() && !function.name.starts_with('_');
            let Some(queries) = queries.filter(|_| public) else { continue };
            if linker.callee(&Value::Function(f)).is_none() {
                continue;
            }
            // A module that nothing imports may still be for users to call.
            let known = || {
                linker
                    .path_of(&Value::Function(f))
                    .is_some_and(|path| context.packs.functions.iter().any(|of| of.is_at(&path)))
            };
            if !in_use && !known() {
                continue;
            }
            let arguments = function.parameters.iter().map(|parameter| parameter.name);
            let arguments: Vec<Symbol> = arguments
                .filter(|name| context.packs.arguments.get(name.as_str()).is_some_and(|argument| argument.mask))
                .collect();
            if !arguments.is_empty() {
                entries.push(Entry { function: f, queries, arguments });
            }
        }
    }
    entries
}

/// What queries are called.
const QUERIES: &[&str] = &["q", "qkv", "query"];

/// What is lost on the device that the linkers assume.
fn of_device<'p>(entries: &[Entry], known_device: bool, linker: impl Fn() -> Linker<'p> + Sync) -> Vec<Loss> {
    let parts: Vec<Vec<Loss>> = entries
        .par_iter()
        .map(|entry| {
            let linker = linker();
            let (numbers, chosen) = versions(&linker, entry.function, known_device);
            let arguments = entry.arguments.iter();
            arguments.flat_map(|&argument| lost(&linker, entry, argument, &numbers, chosen)).collect()
        })
        .collect();
    parts.into_iter().flatten().collect()
}

fn lost(
    linker: &Linker<'_>,
    entry: &Entry,
    argument: Symbol,
    numbers: &[(Symbol, i64)],
    chosen: Option<i64>,
) -> Vec<Loss> {
    let (f, queries) = (entry.function, entry.queries);
    let elsewhere = LazyCell::new(|| {
        let nothing_known = Linker::new(linker.program);
        Follower::new(&nothing_known).follow(f, argument, Vec::new()) != Fate::Dropped
    });
    let follow = |assumed: Vec<(Symbol, Const)>| {
        let mut follower = Follower::new(linker);
        let dropped = follower.follow(f, argument, assumed.clone()) == Fate::Dropped;
        // Where not even the queries go anywhere, no attention is computed: a stand-in, a fake for tracing.
        let mut of_queries = Follower::new(linker);
        let computes = dropped && of_queries.follow(f, queries, assumed) != Fate::Dropped;
        (computes && (*elsewhere || of_queries.launched)).then_some(follower.ends)
    };
    let loss = |ends: Vec<End>, versions: Vec<i64>| {
        let (elsewhere, arch) = (*elsewhere, Vec::new());
        let make = |end| Loss { entry: f, argument, end, versions: versions.clone(), elsewhere, arch: arch.clone() };
        ends.into_iter().map(make).collect()
    };
    if numbers.is_empty() {
        return follow(Vec::new()).map(|ends| loss(ends, Vec::new())).unwrap_or_default();
    }
    let each = numbers.iter().map(|&(name, number)| (number, follow(vec![(name, Const::Int(number))])));
    let losing: Vec<(i64, Vec<End>)> = each.filter_map(|(number, ends)| Some((number, ends?))).collect();
    let is_lost = losing.len() == numbers.len() || losing.iter().any(|(number, _)| Some(*number) == chosen);
    let Some((_, ends)) = losing.first().filter(|_| is_lost) else { return Vec::new() };
    loss(ends.clone(), losing.iter().map(|(number, _)| *number).collect())
}

/// The numbers by which a function tells implementations apart, of those that the device supports; and the one that is
/// chosen there, by the function that packs name or by the parameter's default.
fn versions(linker: &Linker<'_>, f: FnRef, known_device: bool) -> (Vec<(Symbol, i64)>, Option<i64>) {
    let module = linker.module(f.module);
    let function = &module[f.function];
    let Some(name) = linker.program.packs.selection.argument.as_deref() else { return (Vec::new(), None) };
    let Some(parameter) = function.parameters.iter().find(|parameter| parameter.name == name) else {
        return (Vec::new(), None);
    };
    let mut numbers: Vec<i64> = Vec::new();
    for at in function.exprs.clone().map(ExprId) {
        let ExprKind::Compare(left, rest) = &module[at].kind else { continue };
        if !matches!(module[*left].kind, ExprKind::Name(other) if other == parameter.name) {
            continue;
        }
        for &(_, right) in rest {
            match linker.constant(f.module, right) {
                Some(Const::Int(number)) => numbers.push(number),
                Some(Const::Tuple(items)) => numbers.extend(items.iter().filter_map(|item| match item {
                    Const::Int(number) => Some(*number),
                    _ => None,
                })),
                _ => {}
            }
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    if !known_device {
        return (numbers.into_iter().map(|number| (parameter.name, number)).collect(), None);
    }
    numbers.retain(|&number| linker.is_supported(number) != Some(false));
    let default = || match linker.constant(f.module, parameter.default?)? {
        Const::Int(number) => Some(number),
        _ => None,
    };
    let chosen = linker.chosen().map(|choice| choice.value).or_else(default);
    (numbers.into_iter().map(|number| (parameter.name, number)).collect(), chosen)
}

/// The finding; none where no path uses the argument and nothing that is installed asks for it.
fn describe(context: &Context<'_>, loss: &Loss) -> Option<Finding> {
    let linker = Linker::new(context.program);
    let calls = calls(&linker, loss);
    let plainly = calls.iter().any(|call| call.passed == Some(true));
    if !loss.elsewhere && !plainly {
        return None;
    }
    let End { function: f, parameter, .. } = loss.end;
    let module = context.program.source(f.module);
    let function = &module[f.function];
    let data = function.parameters.iter().find(|data| data.name == parameter);
    let span = data.map_or(function.span, |data| data.span);
    let path = linker.path_of(&Value::Function(f)).unwrap_or_else(|| function.name.to_string());
    let names = &context.packs.selection.names;
    let name = |number: &i64| names.get(&number.to_string()).cloned().unwrap_or_else(|| number.to_string());
    let mut on = loss.arch.join(", ");
    if !loss.versions.is_empty() {
        let versions: Vec<String> = loss.versions.iter().map(name).collect();
        on = format!("{on}{}with {}", if on.is_empty() { "" } else { " " }, versions.join(" and "));
    }
    let on = match on.as_str() {
        "" => String::new(),
        on if loss.arch.is_empty() => format!(" {on}"),
        on => format!(" on {on}"),
    };
    let consequence = consequence(context, loss);
    let message = format!(
        "no error is raised: `{}()` accepts `{parameter}` and does not use it{on}: {consequence}",
        function.name
    );
    let mut item = finding(context, &INFO, f.module, span, format!("{path}({parameter})"), message);
    item.arch.clone_from(&loss.arch);
    for &(caller, call) in &loss.end.through {
        let at = context.program.source(caller.module)[call].span.start;
        item.related.push(related(context, caller.module, at, format!("`{parameter}` is handed on here")));
    }
    if let Some(read) = read_elsewhere(module, f.function, parameter) {
        item.related.push(related(context, f.module, read, format!("`{parameter}` is used here, on another path")));
    }
    if !calls.is_empty() && !plainly {
        item.severity = Severity::Warning;
    }
    for call in calls {
        let Some(plain) = call.passed else { continue };
        let note = if plain { "passed here" } else { "passed here, where it has a value" };
        let at = context.program.source(call.module)[call.expr].span.start;
        item.related.push(related(context, call.module, at, format!("`{}` is {note}", loss.argument)));
    }
    let advice = "leave the argument out, or take an implementation that honours it";
    item.help = Some(match item.severity {
        Severity::Warning => {
            format!("nothing that is installed is known to pass it on this path; in your own calls {advice}")
        }
        _ => advice.to_owned(),
    });
    Some(item)
}

fn consequence(context: &Context<'_>, loss: &Loss) -> String {
    let known = context.packs.arguments.get(loss.argument.as_str());
    known.map_or_else(|| "the mask is not what was asked for".to_owned(), |argument| argument.consequence.clone())
}

/// The first read of a parameter in its function: there is one where only this path does without.
fn read_elsewhere(module: &Module, function: FunctionId, parameter: Symbol) -> Option<u32> {
    let exprs = module[function].exprs.clone().map(ExprId);
    let read = exprs.filter(|&at| matches!(module[at].kind, ExprKind::Name(name) if name == parameter));
    read.filter(|&at| module[at].usage == Usage::Load).map(|at| module[at].span.start).min()
}

/// An installed call of the entry.
struct Caller {
    module: ModId,
    expr: ExprId,
    /// It passes the argument: whatever happens, or where it has a value.
    passed: Option<bool>,
}

/// The installed calls of the entry.
fn calls(linker: &Linker<'_>, loss: &Loss) -> Vec<Caller> {
    let program = linker.program;
    let entry = program.source(loss.entry.module);
    let name = entry[loss.entry.function].name;
    let mut found = Vec::new();
    for &(id, mention) in program.mentions().reads_of(name) {
        let module = linker.module(id);
        let calls = module.exprs.iter().enumerate().filter_map(|(at, expr)| match &expr.kind {
            ExprKind::Call(call) if call.callee == mention => Some((ExprId(at as u32), call)),
            _ => None,
        });
        for (at, call) in calls {
            let values = linker.eval(id, call.callee);
            if !values.found().is_some_and(|values| values.contains(&Value::Function(loss.entry))) {
                continue;
            }
            let arguments = linker.arguments(id, &call.arguments);
            let position = entry[loss.entry.function].parameters.iter().position(|p| p.name == loss.argument);
            let by_name = arguments.keywords.iter().find(|(name, _)| *name == loss.argument).map(|(_, at)| *at);
            let by_position = || position.and_then(|position| arguments.positional.get(position).copied());
            let value = by_name.or_else(by_position).flatten().map(|index| call.arguments[index].value);
            let value = value.filter(|&value| !is_neutral(linker, id, value, loss.argument));
            let passed = value.map(|value| is_plain(linker, id, value, loss.argument));
            found.push(Caller { module: id, expr: at, passed });
        }
    }
    found
}

fn is_neutral(linker: &Linker<'_>, id: ModId, value: ExprId, argument: Symbol) -> bool {
    let module = linker.module(id);
    let neutral =
        linker.program.packs.arguments.get(argument.as_str()).map(|a| a.neutral.as_slice()).unwrap_or_default();
    neutral.iter().any(|known| known == module.slice(module[value].span))
        || linker.constant(id, value) == Some(Const::None)
}

/// The value comes neither from a branch that may not be taken nor from an attribute that something else has set.
fn is_plain(linker: &Linker<'_>, id: ModId, value: ExprId, argument: Symbol) -> bool {
    let module = linker.module(id);
    let name = match module[value].kind {
        ExprKind::Name(name) => name,
        ref kind => return !matches!(kind, ExprKind::Attribute(..)),
    };
    let Some(scope) = linker.binding_scope(module, module[value].scope, name) else { return true };
    let reaching = linker.candidates(id, scope, name, Some(linker.place(id, value)));
    reaching.into_iter().map(|binding| &module[binding]).any(|binding| {
        let neutral = matches!(binding.kind, BindingKind::Value(value) if is_neutral(linker, id, value, argument));
        let around: Vec<GuardKind> = module.conditions(module[value].guard).collect();
        let mut conditions = module.conditions(binding.guard).take_while(|kind| !around.contains(kind));
        !neutral && !conditions.any(|kind| matches!(kind, GuardKind::Test { .. }))
    })
}
