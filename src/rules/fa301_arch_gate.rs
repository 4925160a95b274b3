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

use super::gate_syntax::{if_span, innermost_test, is_absence, is_asserted, is_refusal, negation, one_line, text_of};
use super::sources::finding;
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::arch::capability;
use crate::finding::{Finding, Severity};
use crate::link::{FnRef, Linker, Located, ModId, Resolution, Truth, Value};
use crate::python::ir::{
    ArgumentKind, Call, Comparison, Constant, ExprId, ExprKind, FunctionId, GuardId, GuardKind, Span, StmtKind,
};
use crate::python::{Module, Symbol};

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
            let closes = |gate: &&Gate| gate.severity != Severity::Info;
            for (index, gate) in gates.iter().enumerate() {
                let same = |other: &&Gate| other.chain == gate.chain;
                let of = gates.iter().filter(closes).filter(same).count();
                let number = gates[..=index].iter().filter(closes).filter(same).count();
                sink.findings.push(describe(context, arch, gate, number, of));
            }
        }
    }
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
    /// The way that it stands on: vLLM's own, or that of one attention package.
    pub chain: usize,
}

/// The gates for a compute capability, in the order in which a call meets them.
pub fn gates(context: &Context<'_>, major: i64, minor: i64) -> Vec<Gate> {
    let linker = Linker::for_architecture(context.program, major, minor);
    let mut walk = Walk {
        context,
        others: OTHERS.iter().map(|&(major, minor)| Linker::for_architecture(context.program, major, minor)).collect(),
        linker,
        minor,
        seen: FxHashSet::default(),
        passed: FxHashSet::default(),
        chosen: false,
        chain: 0,
        gates: Vec::new(),
    };
    walk.backends();
    for &id in &context.program.audited {
        walk.chain += 1;
        for entry in exports(context, id) {
            walk.function(entry, &[]);
        }
    }
    let mut places = FxHashSet::default();
    walk.gates.retain(|gate| places.insert((gate.module, gate.span)));
    walk.gates
}

/// What an attention package exports.
fn exports(context: &Context<'_>, id: ModId) -> Vec<FnRef> {
    let linker = Linker::new(context.program);
    let Some(module) = context.program.module(id).filter(|module| module.is_package) else { return Vec::new() };
    let mut names: Vec<_> = module[Module::SCOPE].names.keys().copied().collect();
    names.sort();
    let values = names.into_iter().filter_map(|name| match linker.module_member(id, name) {
        Resolution::Found(values) => Some(values),
        _ => None,
    });
    values.flatten().flat_map(|value| targets(&linker, &value)).collect()
}

/// A backend: a module with classes that imports flash attention, itself or through a module beside it.
fn is_backend(context: &Context<'_>, id: ModId, module: &Module) -> bool {
    let program = context.program;
    let imports =
        |module: &Module| crate::link::imports(module).any(|import| is_flash_attention(context, module, &import));
    let beside = || {
        crate::link::imports(module).any(|import| {
            let source = import.rsplit_once('.').map_or(import.as_str(), |(source, _)| source).to_owned();
            [import, source].iter().any(|name| match program.locate(name) {
                Located::Module(other) if other != id && program.audited.contains(&other) => {
                    program.module(other).is_some_and(|other| !other.is_package && imports(other))
                }
                _ => false,
            })
        })
    };
    !module.classes.is_empty() && program.node(id).name.contains(".attention.") && (imports(module) || beside())
}

/// The import leads to an attention package other than the one that the module is part of.
fn is_flash_attention(context: &Context<'_>, module: &Module, import: &str) -> bool {
    let within = |name: &str, prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    context.packs.attention_modules.iter().any(|prefix| within(import, prefix) && !within(&module.name, prefix))
}

/// The functions that calling a value runs.
fn targets(linker: &Linker<'_>, value: &Value) -> Vec<FnRef> {
    match value {
        Value::Function(f) | Value::Bound(f) => vec![*f],
        Value::Class(class) | Value::Instance(class, _) => {
            let name = if matches!(value, Value::Class(_)) { "__init__" } else { "__call__" };
            match linker.class_member(*class, Symbol::new(name)) {
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

/// Architectures that a test must tell apart from the one asked for to be about the architecture at all.
const OTHERS: &[(i64, i64)] = &[(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)];

struct Walk<'c> {
    context: &'c Context<'c>,
    /// Answers that hold on other architectures.
    others: Vec<Linker<'c>>,
    /// Answers that hold on the one asked for.
    linker: Linker<'c>,
    minor: i64,
    seen: FxHashSet<FnRef>,
    /// Tests of gates that were reported: what stands behind them is looked at as if they were open.
    passed: FxHashSet<(ModId, ExprId)>,
    /// Inside a kernel class that the architecture has chosen.
    chosen: bool,
    chain: usize,
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
    /// Walks from the methods of vLLM's backends that lead to flash attention, where vLLM chooses them at all.
    fn backends(&mut self) {
        let context = self.context;
        for &id in &context.program.audited {
            let Some(module) = context.program.module(id) else { continue };
            if !is_backend(context, id, module) {
                continue;
            }
            let functions = (0..module.functions.len()).map(|at| FnRef { module: id, function: FunctionId(at as u32) });
            let methods: Vec<FnRef> = functions.filter(|f| module[f.function].class.is_some()).collect();
            let refusal = methods.iter().find(|f| self.refuses_device(**f));
            match refusal {
                Some(&f) => {
                    let function = &module[f.function];
                    let class = function.class.map_or("", |class| module[class].name.as_str());
                    let says = format!("vLLM does not choose `{class}` here, but another implementation");
                    let (span, severity, chain) = (function.span, Severity::Info, self.chain);
                    self.gates.push(Gate {
                        module: id,
                        function: f,
                        span,
                        severity,
                        says,
                        when: None,
                        note: None,
                        chain,
                    });
                }
                None => methods.into_iter().for_each(|f| self.function(f, &[])),
            }
        }
    }

    /// The method by which a backend says whether it runs on a device, answered with False.
    fn refuses_device(&self, f: FnRef) -> bool {
        let module = self.context.program.source(f.module);
        let function = &module[f.function];
        let mut returns =
            module.own_statements(&function.body, function.scope).filter_map(|(_, stmt)| match stmt.kind {
                StmtKind::Return(value) => value,
                _ => None,
            });
        self.context.packs.selection.device_predicate.as_deref() == Some(function.name.as_str())
            && returns.next().is_some_and(|value| self.linker.truth(f.module, value) == Some(false))
            && returns.next().is_none()
    }

    /// Walks a function to which a call hands these values, as far as the architecture decides them.
    fn function(&mut self, f: FnRef, given: &[(Symbol, (ModId, ExprId))]) {
        let program = self.context.program;
        if !program.packs.is_audited(&program.node(f.module).name) || !self.seen.insert(f) {
            return;
        }
        if given.is_empty() {
            return self.steps(f);
        }
        let assumed = |linker: &Linker<'_>| {
            let known = given.iter().filter_map(|&(name, (id, value))| Some((name, linker.constant(id, value)?)));
            known.collect::<Vec<_>>()
        };
        let before = self.linker.enter(f, assumed(&self.linker));
        let others: Vec<_> = self.others.iter().map(|other| other.enter(f, assumed(other))).collect();
        self.steps(f);
        self.linker.leave(before);
        self.others.iter().zip(others).for_each(|(other, before)| other.leave(before));
    }

    /// The arguments of a call that the architecture decides, by the parameter that gets each.
    fn given(&self, id: ModId, call: &Call, callee: &Value) -> Vec<(Symbol, (ModId, ExprId))> {
        let Some(known) = self.linker.callee(callee) else { return Vec::new() };
        let arguments = self.linker.arguments(id, &call.arguments);
        let given = self.linker.given(&arguments, &known.signature.parameters, 0);
        let nothing_known = Linker::new(self.context.program);
        let values = given.into_iter().filter_map(|(name, at)| Some((name, (id, call.arguments[at?].value))));
        values
            .filter(|&(_, (id, value))| {
                self.linker.constant(id, value).is_some() && nothing_known.constant(id, value).is_none()
            })
            .collect()
    }

    fn steps(&mut self, f: FnRef) {
        let program = self.context.program;
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
                    let callee = match module[data.callee].kind {
                        // An autograd function is called through `apply`, which runs its `forward`.
                        ExprKind::Attribute(class, apply) if apply.as_str() == "apply" => {
                            self.linker.attribute(&self.linker.eval(f.module, class), Symbol::new("forward"))
                        }
                        _ => self.linker.eval(f.module, data.callee),
                    };
                    if let Resolution::Found(values) = callee {
                        for value in &values {
                            let given = self.given(f.module, data, value);
                            let chosen = matches!(value, Value::Class(_)) && self.is_on_branch(f.module, call);
                            self.callee(value, &given, chosen);
                        }
                    }
                    // `compile(kernel, ..)`: whatever it is handed to calls the object.
                    if let Some(Value::Instance(class, Some(made))) = self.handed_over(f.module, data) {
                        let chosen = self.is_on_branch(made.module, made.expr);
                        self.callee(&Value::Instance(class, Some(made)), &[], chosen);
                    }
                }
                Step::Assert(test, message, span, guard) => self.assert(f, test, message, span, guard),
                Step::Raise(value, guard) => self.raise(f, value, guard, offset),
                Step::Refuse(value, guard) => self.refuse(f, value, guard, offset),
            }
        }
    }

    /// Walks what calling `value` runs.
    fn callee(&mut self, value: &Value, given: &[(Symbol, (ModId, ExprId))], chosen: bool) {
        let before = self.chosen;
        self.chosen |= chosen;
        for next in targets(&self.linker, value) {
            self.function(next, given);
        }
        self.chosen = before;
    }

    /// The object that a call gets first, on its own or at the head of a starred list.
    fn handed_over(&self, id: ModId, call: &Call) -> Option<Value> {
        let first = call.arguments.first()?;
        let value = match first.kind {
            ArgumentKind::Positional => self.linker.eval(id, first.value),
            ArgumentKind::Star => match *self.linker.eval(id, first.value).single()? {
                Value::Sequence(at) => match &self.context.program.source(at.module)[at.expr].kind {
                    ExprKind::List(items) | ExprKind::Tuple(items) => self.linker.eval(at.module, *items.first()?),
                    _ => return None,
                },
                _ => return None,
            },
            _ => return None,
        };
        value.single().cloned()
    }

    /// The expression stands inside a branch that the architecture opens.
    fn is_on_branch(&self, id: ModId, expr: ExprId) -> bool {
        let data = &self.context.program.source(id)[expr];
        self.path(id, data.guard, data.span.start).is_some_and(|path| path.on_branch)
    }

    /// The truth of a test on this architecture, if it is the architecture that decides.
    fn by_architecture(&self, id: ModId, test: ExprId) -> Option<bool> {
        let decided = self.linker.truth(id, test)?;
        self.others.iter().any(|other| other.truth(id, test) == Some(!decided)).then_some(decided)
    }

    fn assert(&mut self, f: FnRef, test: ExprId, message: Option<ExprId>, span: Span, guard: GuardId) {
        let module = self.context.program.source(f.module);
        let Some(path) = self.path(f.module, guard, span.start) else { return };
        let closed = self.by_architecture(f.module, test) == Some(false);
        let decided = self.linker.truth(f.module, test).is_some();
        // An argument is asserted on a branch for this architecture, or its absence in a kernel chosen for it.
        let by_argument = !decided && (path.on_branch || self.chosen && is_absence(module, test));
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
            when.push(negation(module, test));
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
        self.passed.insert((f.module, test));
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
        let (module, severity, chain) = (f.module, Severity::Info, self.chain);
        self.gates.push(Gate { module, function: f, span, severity, says, when: None, note, chain });
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
        let (module, chain) = (f.module, self.chain);
        self.gates.push(Gate { module, function: f, span, severity, says, when, note, chain });
    }

    /// The conditions on the way to `guard`; `None` if this architecture does not get there.
    fn path(&self, id: ModId, guard: GuardId, offset: u32) -> Option<Path> {
        let module = self.context.program.source(id);
        let mut path = Path { on_branch: false, innermost: false, when: Vec::new() };
        let mut first = true;
        for kind in module.conditions(guard) {
            match kind {
                GuardKind::Body(_) => break,
                GuardKind::Test { test, .. } if self.passed.contains(&(id, test)) || is_asserted(module, test) => {}
                GuardKind::Test { test, holds } => {
                    match self.linker.truth(id, test) {
                        Some(truth) if truth != holds => return None,
                        Some(_) => {
                            let by_architecture = self.by_architecture(id, test).is_some();
                            path.innermost |= first && by_architecture;
                            path.on_branch |= holds && by_architecture;
                        }
                        // `key not in cache`: the first call gets here.
                        None if matches!(&module[test].kind, ExprKind::Compare(_, rest) if matches!(rest[..], [(Comparison::NotIn, _)])) =>
                            {}
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
    let says = if when.is_empty() { gate.says.as_str() } else { gate.says.trim_end_matches('.') };
    let message = format!("{place}: {says}{when}");
    let mut item = finding(context, &INFO, gate.module, gate.span, symbol, message);
    item.severity = gate.severity;
    item.arch = vec![arch.to_owned()];
    let guards = context.packs.gate(&gate.says).map(|known| format!("not to be removed: {}", known.guards));
    let parts: Vec<String> = [gate.note.clone(), guards].into_iter().flatten().collect();
    item.help = (!parts.is_empty()).then(|| parts.join("; "));
    item
}
