//! # What it does
//!
//! For an architecture named with `--arch`, walks from the entry points of vLLM's attention and of flash-attn-4 towards
//! the kernels and reports every gate on the way, in order: capability lists, asserts and raises under architecture
//! conditions, with the arguments that trigger them.
//!
//! # Why is this bad
//!
//! On a card that the sources do not admit, the first gate raises, and behind it stands the next. The whole chain says
//! whether a card can work at all, before the weights are loaded.
//!
//! # Example
//!
//! ```python
//! if capability.major not in (9, 10, 11):
//!     raise RuntimeError("not supported")  # gate 1 of 2 for sm_120
//! ...
//! if arch // 10 == 12:
//!     assert page_table is None, "paged KV is not implemented"  # gate 2 of 2, where an argument decides
//! ```
//!
//! # Fix
//!
//! None. A gate mostly guards something unimplemented: with it removed, kernels read out of bounds or compute wrong
//! numbers. An error stops every call, a warning those with the argument it names; where another implementation is
//! chosen instead the gate is info.
//!
//! # References
//!
//! - <https://developer.nvidia.com/cuda-gpus>

use rustc_hash::FxHashSet;

use super::sources::finding;
use super::{Context, Rule, RuleInfo, Sink};
use crate::finding::{Finding, Severity};
use crate::link::{FnRef, Linker, ModId, Resolution, Truth, Value};
use crate::python::Module;
use crate::python::ir::{
    ClassId, Comparison, Constant, ExprId, ExprKind, FStringPart, FunctionId, GuardId, GuardKind, Span, StmtKind,
};

static INFO: RuleInfo = RuleInfo {
    code: "FA301",
    name: "arch-gate",
    summary: "a gate on the way to the kernels for the architecture asked for",
    source: include_str!("fa301_arch_gate.rs"),
};

/// FA301.
pub struct ArchGate;

impl Rule for ArchGate {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        for arch in &context.environment.arch {
            let Some((major, minor)) = capability(arch) else { continue };
            let gates = gates(context, major, minor);
            let closing = gates.iter().filter(|gate| gate.severity != Severity::Info).count();
            let mut number = 0;
            for gate in &gates {
                if gate.severity != Severity::Info {
                    number += 1;
                }
                sink.findings.push(describe(context, arch, gate, number, closing));
            }
        }
    }
}

/// `sm_120` as (12, 0).
fn capability(arch: &str) -> Option<(i64, i64)> {
    let number: i64 = arch.strip_prefix("sm_")?.trim_end_matches(['a', 'f']).parse().ok()?;
    Some((number / 10, number % 10))
}

/// One gate on the way.
#[derive(Debug, Clone)]
pub struct Gate {
    /// The module.
    pub module: ModId,
    /// The function.
    pub function: FnRef,
    /// Its `if` or `assert`.
    pub span: Span,
    /// Error, warning or info.
    pub severity: Severity,
    /// What is raised, or what the predicate answers.
    pub says: String,
    /// What else must hold for it to trigger, as written.
    pub when: Option<String>,
    /// What is doubtful about its test.
    pub note: Option<String>,
}

/// The gates for a compute capability, in the order in which a call meets them.
pub fn gates(context: &Context<'_>, major: i64, minor: i64) -> Vec<Gate> {
    let linker = Linker::for_architecture(context.program, major, minor);
    let mut walk = Walk {
        context,
        plain: Linker::new(context.program),
        linker,
        minor,
        seen: FxHashSet::default(),
        gates: Vec::new(),
    };
    for entry in entries(context) {
        walk.function(entry);
    }
    let mut places = FxHashSet::default();
    walk.gates.retain(|gate| places.insert((gate.module, gate.span)));
    walk.gates
}

/// What is called from outside: the methods of vLLM's backends that lead to flash attention, then what the attention
/// packages export.
fn entries(context: &Context<'_>) -> Vec<FnRef> {
    let program = context.program;
    let linker = Linker::new(program);
    let mut entries = Vec::new();
    for &id in &program.audited {
        let Some(module) = program.module(id) else { continue };
        let name = program.node(id).name;
        let backend = crate::link::imports(module).any(|import| {
            let top = import.split('.').next().unwrap_or_default();
            program.packs.is_attention(&import)
                && (top != name.split('.').next().unwrap_or_default() || import.contains("flash_attn"))
        });
        if backend && name.contains("attention") {
            for index in 0..module.classes.len() {
                let scope = module[ClassId(index as u32)].scope;
                let methods =
                    module.functions.iter().enumerate().filter(|(_, f)| f.outer == scope && f.lambda.is_none());
                entries.extend(methods.map(|(at, _)| FnRef { module: id, function: FunctionId(at as u32) }));
            }
        }
    }
    for &id in &program.audited {
        let Some(module) = program.module(id) else { continue };
        if !module.is_package {
            continue;
        }
        let mut names: Vec<_> = module[Module::SCOPE].names.keys().copied().collect();
        names.sort();
        for name in names {
            if let Resolution::Found(values) = linker.module_member(id, name) {
                for value in values {
                    entries.extend(targets(&linker, &value));
                }
            }
        }
    }
    entries
}

/// The functions that calling a value runs.
fn targets(linker: &Linker<'_>, value: &Value) -> Vec<FnRef> {
    match value {
        Value::Function(f) | Value::Bound(f) => vec![*f],
        Value::Class(class) | Value::Instance(class, _) => {
            let name = if matches!(value, Value::Class(_)) { "__init__" } else { "__call__" };
            match linker.class_member(*class, crate::python::Symbol::new(name)) {
                Resolution::Found(values) => values
                    .iter()
                    .filter_map(|value| match value {
                        Value::Function(f) => Some(*f),
                        _ => None,
                    })
                    .collect(),
                _ => Vec::new(),
            }
        }
        Value::Partial(partial) => targets(linker, &partial.callee),
        _ => Vec::new(),
    }
}

struct Walk<'c> {
    context: &'c Context<'c>,
    /// Answers that hold on any architecture.
    plain: Linker<'c>,
    /// Answers that hold on the one asked for.
    linker: Linker<'c>,
    minor: i64,
    seen: FxHashSet<FnRef>,
    gates: Vec<Gate>,
}

/// What a function does that matters here, in source order.
enum Step {
    Call(ExprId),
    Assert(ExprId, Option<ExprId>, Span, GuardId),
    Raise(Option<ExprId>, GuardId),
    Refuse(ExprId, GuardId),
}

impl Walk<'_> {
    fn function(&mut self, f: FnRef) {
        let program = self.context.program;
        if !program.packs.is_audited(&program.node(f.module).name) || !self.seen.insert(f) {
            return;
        }
        let module = program.source(f.module);
        let function = &module[f.function];
        let mut steps: Vec<(u32, Step)> = Vec::new();
        for at in function.exprs.clone() {
            if let ExprKind::Call(_) = module[ExprId(at)].kind {
                steps.push((module[ExprId(at)].span.start, Step::Call(ExprId(at))));
            }
        }
        for stmt in &module.stmts[function.body.start as usize..function.body.end as usize] {
            let step = match stmt.kind {
                StmtKind::Assert(test, message) => Step::Assert(test, message, stmt.span, stmt.guard),
                StmtKind::Raise(value) => Step::Raise(value, stmt.guard),
                StmtKind::Return(Some(value)) if is_refusal(module, value) => Step::Refuse(value, stmt.guard),
                _ => continue,
            };
            steps.push((stmt.span.start, step));
        }
        steps.sort_by_key(|(at, _)| *at);
        for (offset, step) in steps {
            match step {
                Step::Call(call) => {
                    if self.linker.truth_of_guard(f.module, module[call].guard, offset) == Truth::No {
                        continue;
                    }
                    let ExprKind::Call(data) = &module[call].kind else { continue };
                    if let Resolution::Found(values) = self.linker.eval(f.module, data.callee) {
                        let next: Vec<FnRef> = values.iter().flat_map(|v| targets(&self.linker, v)).collect();
                        for next in next {
                            self.function(next);
                        }
                    }
                }
                Step::Assert(test, message, span, guard) => self.assert(f, test, message, span, guard),
                Step::Raise(value, guard) => self.raise(f, value, guard, offset),
                Step::Refuse(value, guard) => self.refuse(f, value, guard, offset),
            }
        }
    }

    /// The truth of a test on this architecture, if it is the architecture that decides.
    fn by_architecture(&self, id: ModId, test: ExprId) -> Option<bool> {
        let decided = self.linker.truth(id, test)?;
        self.plain.truth(id, test).is_none().then_some(decided)
    }

    fn assert(&mut self, f: FnRef, test: ExprId, message: Option<ExprId>, span: Span, guard: GuardId) {
        let module = self.context.program.source(f.module);
        let Some(path) = self.path(f.module, guard, span.start) else { return };
        let closed = self.by_architecture(f.module, test) == Some(false);
        let decided = self.linker.truth(f.module, test).is_some();
        // An argument is asserted on a branch for this architecture.
        let by_argument = !decided && path.on_branch;
        if !closed && !by_argument {
            return;
        }
        let text = message.map(|m| text_of(module, m)).filter(|text| !text.is_empty());
        let says = match text {
            Some(text) => format!("AssertionError: {text}"),
            None => format!("AssertionError: assert {}", one_line(module.slice(module[test].span))),
        };
        let mut when = path.when;
        if by_argument {
            when.push(format!("not ({})", one_line(module.slice(module[test].span))));
        }
        self.push(f, span, says, when, guard, Some(test));
    }

    fn raise(&mut self, f: FnRef, value: Option<ExprId>, guard: GuardId, offset: u32) {
        let module = self.context.program.source(f.module);
        let Some(path) = self.path(f.module, guard, offset) else { return };
        if !path.on_branch && !path.innermost {
            return;
        }
        let Some(test) = innermost_test(module, guard) else { return };
        let says = match value.map(|value| (value, &module[value].kind)) {
            Some((_, ExprKind::Call(call))) => {
                let name = module.slice(module[call.callee].span);
                let text = call.arguments.first().map(|a| text_of(module, a.value)).unwrap_or_default();
                if text.is_empty() { name.to_owned() } else { format!("{name}: {text}") }
            }
            Some((value, _)) => module.slice(module[value].span).to_owned(),
            None => return,
        };
        self.push(f, if_span(module, test), says, path.when, guard, Some(test));
    }

    /// A predicate answers False for this architecture: something else is chosen.
    fn refuse(&mut self, f: FnRef, value: ExprId, guard: GuardId, offset: u32) {
        let module = self.context.program.source(f.module);
        let Some(path) = self.path(f.module, guard, offset) else { return };
        let Some(test) = innermost_test(module, guard) else { return };
        if !path.innermost || !path.when.is_empty() {
            return;
        }
        let reason = match &module[value].kind {
            ExprKind::Tuple(items) => items.get(1).map(|&item| text_of(module, item)).unwrap_or_default(),
            _ => String::new(),
        };
        let name = module[f.function].name;
        let says = if reason.is_empty() {
            format!("`{name}` says no, another implementation is chosen")
        } else {
            format!("`{name}` says no, another implementation is chosen: {reason}")
        };
        let span = if_span(module, test);
        let note = self.doubt(f.module, test);
        self.gates.push(Gate { module: f.module, function: f, span, severity: Severity::Info, says, when: None, note });
    }

    fn push(&mut self, f: FnRef, span: Span, says: String, when: Vec<String>, guard: GuardId, test: Option<ExprId>) {
        let module = self.context.program.source(f.module);
        let caught =
            module.conditions(guard).take_while(|kind| !matches!(kind, GuardKind::Body(_))).any(|kind| match kind {
                GuardKind::TryBody(at) => module[at].handlers.iter().any(|handler| match &handler.classes {
                    None => true,
                    Some(classes) => classes.iter().any(|&class| {
                        let name = module.slice(module[class].span).rsplit('.').next().unwrap_or_default();
                        matches!(name, "Exception" | "BaseException") || says.starts_with(name)
                    }),
                }),
                _ => false,
            });
        let severity = match (caught, when.is_empty()) {
            (true, _) => Severity::Info,
            (false, true) => Severity::Error,
            (false, false) => Severity::Warning,
        };
        let when = (!when.is_empty()).then(|| when.join(" and "));
        let note = test.and_then(|test| self.doubt(f.module, test));
        self.gates.push(Gate { module: f.module, function: f, span, severity, says, when, note });
    }

    /// The conditions on the way to `guard`; `None` if this architecture does not get there.
    fn path(&self, id: ModId, guard: GuardId, offset: u32) -> Option<Path> {
        let module = self.context.program.source(id);
        let mut path = Path { on_branch: false, innermost: false, when: Vec::new() };
        let mut first = true;
        for kind in module.conditions(guard) {
            match kind {
                GuardKind::Body(_) => break,
                GuardKind::Test { test, holds } => {
                    match self.linker.truth(id, test) {
                        Some(truth) if truth != holds => return None,
                        Some(_) => {
                            let by_architecture = self.plain.truth(id, test).is_none();
                            path.innermost |= first && by_architecture;
                            path.on_branch |= holds && by_architecture;
                        }
                        None if holds => path.when.push(one_line(module.slice(module[test].span))),
                        // After an early exit, or in an `else`: what was not the case.
                        None => {}
                    }
                    first = false;
                }
                other => {
                    if self.linker.truth_of_kind(id, other, offset) == Truth::No {
                        return None;
                    }
                }
            }
        }
        path.when.reverse();
        Some(path)
    }

    /// Tests that name one architecture and miss its sibling, or take a bound for a family.
    fn doubt(&self, id: ModId, test: ExprId) -> Option<String> {
        let module = self.context.program.source(id);
        let around = module[test].span;
        module.exprs.iter().filter(|e| e.span.start >= around.start && e.span.end <= around.end).find_map(|e| {
            let ExprKind::Compare(_, rest) = &e.kind else { return None };
            rest.iter().find_map(|&(op, right)| match (op, &module[right].kind) {
                (Comparison::Eq | Comparison::NotEq, ExprKind::Constant(Constant::Int(value @ (120 | 100))))
                    if self.minor > 0 =>
                {
                    Some(format!("the test names sm_{value} alone and misses its siblings"))
                }
                (Comparison::GtE | Comparison::Gt, ExprKind::Constant(Constant::Int(value @ (9 | 10 | 90 | 100)))) => {
                    Some(format!("the test takes everything from {value} on for one family: 12.x is not 10.x"))
                }
                _ => None,
            })
        })
    }
}

struct Path {
    /// Inside a branch that the architecture opens.
    on_branch: bool,
    /// The nearest condition is one that the architecture decides.
    innermost: bool,
    /// Conditions that arguments decide.
    when: Vec<String>,
}

fn innermost_test(module: &Module, guard: GuardId) -> Option<ExprId> {
    module.conditions(guard).take_while(|kind| !matches!(kind, GuardKind::Body(_))).find_map(|kind| match kind {
        GuardKind::Test { test, .. } => Some(test),
        _ => None,
    })
}

/// The head of the `if` that has this test.
fn if_span(module: &Module, test: ExprId) -> Span {
    let head = module.stmts.iter().find(|stmt| matches!(stmt.kind, StmtKind::If(t) if t == test));
    let end = module[test].span.end;
    head.map_or(module[test].span, |stmt| Span { start: stmt.span.start, end })
}

/// `return False`, `return False, "why"`.
fn is_refusal(module: &Module, value: ExprId) -> bool {
    match &module[value].kind {
        ExprKind::Constant(Constant::Bool(false)) => true,
        ExprKind::Tuple(items) => {
            items.first().is_some_and(|&item| matches!(module[item].kind, ExprKind::Constant(Constant::Bool(false))))
        }
        _ => false,
    }
}

/// The literal text of a message.
fn text_of(module: &Module, expr: ExprId) -> String {
    match &module[expr].kind {
        ExprKind::Constant(Constant::Str(text)) => one_line(text),
        ExprKind::FString(parts) => {
            let text: String = parts
                .iter()
                .map(|part| match part {
                    FStringPart::Text(text) => text.to_string(),
                    FStringPart::Value { value, .. } => format!("{{{}}}", module.slice(module[*value].span)),
                })
                .collect();
            one_line(&text)
        }
        _ => String::new(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn describe(context: &Context<'_>, arch: &str, gate: &Gate, number: usize, of: usize) -> Finding {
    let module = context.program.source(gate.module);
    let function = &module[gate.function.function];
    let outer = module.qualified(function.scope);
    let symbol = format!("{}.{outer}", module.name);
    let place = match gate.severity {
        Severity::Info => format!("on the way for {arch}"),
        _ => format!("gate {number} of {of} for {arch}"),
    };
    let when = gate.when.as_ref().map(|when| format!(", if {when}")).unwrap_or_default();
    let message = format!("{place}: {}{when}", gate.says);
    let mut item = finding(context, &INFO, gate.module, gate.span, symbol, message);
    item.severity = gate.severity;
    item.arch = vec![arch.to_owned()];
    let guards = context.packs.gate(&gate.says).map(|known| format!("not to be removed: {}", known.guards));
    let parts: Vec<String> = [gate.note.clone(), guards].into_iter().flatten().collect();
    item.help = (!parts.is_empty()).then(|| parts.join("; "));
    item
}
