//! The walk inside one function that [`Follower`] takes: which definitions and uses depend on a parameter.

use rustc_hash::{FxHashMap, FxHashSet};

use super::fate::{Fate, Follower, is_body, is_closed, is_raised_under};
use super::{Const, FnRef, Linker, Resolution, Truth, Value};
use crate::python::ir::{
    ArgumentKind, BindingId, BindingKind, Call, Comparison, Constant, ExprId, ExprKind, FStringPart, Function,
    GuardKind, Phase, ScopeId, ScopeKind, Stmt, StmtId, StmtKind, Usage,
};
use crate::python::{Module, Symbol};

/// A read of a name that the function binds.
#[derive(Clone, Copy)]
struct Mention {
    expr: ExprId,
    stmt: StmtId,
    /// Read in a function inside this one, which may run at any time.
    nested: bool,
}

/// The walk inside one function.
pub(super) struct Flow<'f, 'l, 'p> {
    follower: &'f mut Follower<'l, 'p>,
    f: FnRef,
    module: &'p Module,
    function: &'p Function,
    parents: FxHashMap<ExprId, ExprId>,
    /// Bindings whose value depends on the parameter.
    tainted: FxHashSet<BindingId>,
    /// Tests that depend on it.
    tests: FxHashSet<ExprId>,
    fate: Fate,
}

impl<'f, 'l, 'p> Flow<'f, 'l, 'p> {
    /// `None` if the function does things that are not followed.
    pub(super) fn new(follower: &'f mut Follower<'l, 'p>, f: FnRef, parameter: Symbol) -> Option<Self> {
        let module = follower.linker.module(f.module);
        let function = &module[f.function];
        let scope = &module[function.scope];
        let mut parents = FxHashMap::default();
        for at in function.exprs.clone().map(ExprId) {
            if let ExprKind::Call(call) = &module[at].kind
                && matches!(module[call.callee].kind, ExprKind::Name(name) if LOOKS_AROUND.contains(&name.as_str()))
            {
                return None;
            }
            for part in parts(&module[at].kind) {
                parents.insert(part, at);
            }
        }
        let shared = scope.dynamic || !scope.globals.is_empty();
        if function.is_generator
            || function.is_async
            || function.lambda.is_some()
            || shared
            || is_stub(module, function)
        {
            return None;
        }
        let tainted =
            scope.names.get(&parameter)?.iter().copied().filter(
                |&binding| matches!(module[binding].kind, BindingKind::Parameter(owner, _) if owner == f.function),
            );
        let tainted: FxHashSet<BindingId> = tainted.collect();
        Some(Flow { f, module, function, parents, tainted, tests: FxHashSet::default(), fate: Fate::Dropped, follower })
    }

    fn linker(&self) -> &'l Linker<'p> {
        self.follower.linker
    }

    /// The reads of names that the function binds.
    fn reads(&self) -> Vec<(ExprId, Symbol)> {
        let (module, scope) = (self.module, self.function.scope);
        let reads = self.function.exprs.clone().map(ExprId).filter_map(|expr| match module[expr].kind {
            ExprKind::Name(name) if module[expr].usage == Usage::Load && module[expr].phase == Phase::Run => {
                Some((expr, name))
            }
            _ => None,
        });
        reads
            .filter(|&(expr, name)| self.linker().binding_scope(module, module[expr].scope, name) == Some(scope))
            .collect()
    }

    /// A read that this architecture may get to.
    fn live(&self, expr: ExprId) -> Option<Mention> {
        let (data, scope) = (&self.module[expr], self.function.scope);
        if self.linker().truth_of_guard(self.f.module, data.guard, data.span.start) == Truth::No {
            return None;
        }
        let stmt = self.statement_of(expr)?;
        Some(Mention { expr, stmt, nested: is_nested(self.module, data.scope, scope) })
    }

    /// The innermost statement of the body around an expression.
    fn statement_of(&self, expr: ExprId) -> Option<StmtId> {
        let at = self.module[expr].span;
        let around = self.function.body.clone().map(StmtId).filter(|&stmt| {
            let span = self.module[stmt].span;
            span.start <= at.start && at.end <= span.end
        });
        around.min_by_key(|&stmt| self.module[stmt].span.end - self.module[stmt].span.start)
    }

    pub(super) fn run(mut self) -> Fate {
        let reads = self.reads();
        let mut known: FxHashMap<ExprId, Option<Mention>> = FxHashMap::default();
        loop {
            let before = (self.tainted.len(), self.tests.len());
            self.augmented();
            for &(expr, name) in &reads {
                if self.fate == Fate::Used {
                    return Fate::Used;
                }
                if !self.is_carrier(name) {
                    continue;
                }
                let mention = *known.entry(expr).or_insert_with(|| self.live(expr));
                if let Some(mention) = mention.filter(|mention| self.is_tainted(name, expr, Some(mention.stmt))) {
                    self.mention(&mention);
                }
            }
            self.controlled();
            if self.fate == Fate::Used {
                return Fate::Used;
            }
            if before == (self.tainted.len(), self.tests.len()) {
                break;
            }
        }
        if self.fate == Fate::Dropped && is_closed(self.linker(), self.f, 3) {
            return Fate::Refused;
        }
        self.fate
    }

    /// Some binding of the name depends on the parameter.
    fn is_carrier(&self, name: Symbol) -> bool {
        let bound = self.module[self.function.scope].names.get(&name);
        bound.is_some_and(|bindings| bindings.iter().any(|binding| self.tainted.contains(binding)))
    }

    fn note(&mut self, fate: Fate) {
        self.fate = self.fate.max(fate);
    }

    /// Whether a value that depends on the parameter can be what the name means here.
    fn is_tainted(&self, name: Symbol, expr: ExprId, stmt: Option<StmtId>) -> bool {
        let (linker, id) = (self.linker(), self.f.module);
        let mut place = linker.place(id, expr);
        // `x = f(x)` reads what `x` was before the statement.
        if let Some(stmt) = stmt
            && matches!(
                self.module[stmt].kind,
                StmtKind::Assign(..) | StmtKind::AnnAssign(..) | StmtKind::AugAssign(..)
            )
        {
            place.offset = self.module[stmt].span.start;
        }
        linker.candidates(id, self.function.scope, name, Some(place)).iter().any(|b| self.tainted.contains(b))
    }

    /// `x += 1` keeps what `x` depends on.
    fn augmented(&mut self) {
        for stmt in self.own() {
            if let StmtKind::AugAssign(target, ..) = self.module[stmt].kind
                && let ExprKind::Name(name) = self.module[target].kind
                && self.is_tainted(name, target, Some(stmt))
            {
                self.taint(stmt, |_| true);
            }
        }
    }

    /// Statements of the function itself that this architecture may run.
    fn own(&self) -> Vec<StmtId> {
        let (linker, id) = (self.linker(), self.f.module);
        let own = self.module.own_statements(&self.function.body, self.function.scope);
        let live = own.filter(|(_, stmt)| linker.truth_of_guard(id, stmt.guard, stmt.span.start) != Truth::No);
        live.map(|(id, _)| id).collect()
    }

    /// What a statement binds depends on the parameter.
    fn taint(&mut self, stmt: StmtId, which: impl Fn(BindingKind) -> bool) {
        let names = self.module[self.function.scope].names.values().flatten();
        let bound: Vec<BindingId> = names
            .copied()
            .filter(|&b| self.module[b].stmt == stmt && which(self.module[b].kind))
            .filter(|&b| !matches!(self.module[b].kind, BindingKind::Parameter(..)))
            .collect();
        self.tainted.extend(bound);
    }

    fn mention(&mut self, mention: &Mention) {
        if mention.nested {
            return self.note(Fate::Used);
        }
        match self.climb(mention.expr) {
            Climb::Ends(fate) => self.note(fate),
            Climb::Root(root) => self.statement(mention, root),
        }
    }

    /// The whole expression `root` of a statement depends on the parameter.
    fn statement(&mut self, mention: &Mention, root: ExprId) {
        let module = self.module;
        match &module[mention.stmt].kind {
            StmtKind::Expr(value) if *value == root => {}
            StmtKind::Assign(targets, value) if *value == root => self.assigned(mention, targets, root),
            StmtKind::AnnAssign(target, _, Some(value)) if *value == root => self.assigned(mention, &[*target], root),
            StmtKind::AugAssign(target, _, value) if *value == root => self.assigned(mention, &[*target], root),
            StmtKind::Return(_) => self.note(Fate::Returned),
            StmtKind::Raise(_) => self.note(Fate::Refused),
            StmtKind::Assert(test, _) if *test == root => self.asserted(root),
            StmtKind::Assert(_, Some(message)) if *message == root => {}
            StmtKind::If(test) | StmtKind::While(test) if *test == root => {
                self.tests.insert(root);
                // `if not x: raise`: other values are refused, so this one is what the function does anyway.
                if self.raises_after(root) && !self.checks_form(root) {
                    self.note(Fate::Refused);
                }
            }
            // Each element of a display in turn; how often a loop runs is a use.
            StmtKind::For(_, iter) if *iter == root && is_display(module, root) => self.taint(mention.stmt, |_| true),
            _ => self.note(Fate::Used),
        }
    }

    fn assigned(&mut self, mention: &Mention, targets: &[ExprId], value: ExprId) {
        for &target in targets {
            match &self.module[target].kind {
                ExprKind::Attribute(object, attr) if self.is_forgotten(*object, *attr) => {}
                _ if binds_names(self.module, target) => {}
                _ => return self.note(Fate::Used),
            }
        }
        let (module, at) = (self.module, self.module[mention.expr].span);
        // `a, b = x, y` binds each name to its own element.
        self.taint(mention.stmt, |kind| match kind {
            BindingKind::Value(part) if part != value => {
                module[part].span.start <= at.start && at.end <= module[part].span.end
            }
            _ => true,
        });
    }

    /// `self.attr = ..`, where nothing that was read mentions an attribute of that name.
    fn is_forgotten(&self, object: ExprId, attr: Symbol) -> bool {
        let first = self.function.parameters.first().map(|parameter| parameter.name);
        let own = self.function.class.is_some()
            && matches!(self.module[object].kind, ExprKind::Name(name) if Some(name) == first);
        own && !self.module.text.contains("__dict__") && !self.linker().program.mentions().is_mentioned(attr)
    }

    /// From a value up through the expressions that depend on it.
    fn climb(&mut self, from: ExprId) -> Climb {
        let module = self.module;
        let mut at = from;
        loop {
            let Some(&parent) = self.parents.get(&at) else { return Climb::Root(at) };
            match &module[parent].kind {
                ExprKind::Call(call) => match self.call(parent, call, at) {
                    Some(fate) => return Climb::Ends(fate),
                    None => at = parent,
                },
                ExprKind::Named(_, value) => {
                    let bound = module[self.function.scope].names.values().flatten().copied();
                    let named = |&b: &BindingId| matches!(module[b].kind, BindingKind::Value(v) if v == *value);
                    self.tainted.extend(bound.filter(named));
                    at = parent;
                }
                ExprKind::Await(_) => return Climb::Ends(Fate::Used),
                _ => at = parent,
            }
        }
    }

    /// A call with a part that depends on the parameter: what becomes of it, or `None` if its result depends on it.
    fn call(&mut self, expr: ExprId, call: &Call, part: ExprId) -> Option<Fate> {
        let module = self.module;
        if part == call.callee {
            // A method of the value itself (`x.contiguous()`) gives something made of it; the value called is used.
            return match module[part].kind {
                ExprKind::Attribute(..) => None,
                _ => Some(Fate::Used),
            };
        }
        // `torch.empty_like(q)`: the value lends its form.
        if matches!(module[call.callee].kind, ExprKind::Attribute(_, name) if LIKENESS.contains(&name.as_str())) {
            return None;
        }
        let index = call.arguments.iter().position(|argument| argument.value == part);
        if let ExprKind::Name(name) = module[call.callee].kind
            && PURE.split(' ').any(|pure| pure == name.as_str())
            && self.linker().binding_scope(module, module[call.callee].scope, name).is_none()
        {
            return None;
        }
        if let Some(fate) = self.told(call) {
            return Some(fate);
        }
        let Some(index) = index else { return Some(Fate::Used) };
        match self.hand_on(expr, call, index) {
            Fate::Returned => None,
            fate => Some(fate),
        }
    }

    /// A message: a warning says what is lost, anything below does nothing.
    fn told(&self, call: &Call) -> Option<Fate> {
        let name = self.module.dotted(call.callee)?;
        let (object, method) = name.rsplit_once('.').unwrap_or(("", &name));
        let logs = object
            .rsplit('.')
            .next()
            .is_some_and(|last| last.to_lowercase().trim_start_matches('_').starts_with("log"));
        match method {
            "print" if object.is_empty() => Some(Fate::Dropped),
            "warn" | "warn_explicit" if object == "warnings" => Some(Fate::Refused),
            "debug" | "info" | "debug_once" | "info_once" if logs => Some(Fate::Dropped),
            _ if logs => Some(Fate::Refused),
            _ => None,
        }
    }

    /// Follows an argument into every function that the call may run.
    fn hand_on(&mut self, expr: ExprId, call: &Call, index: usize) -> Fate {
        let (linker, id) = (self.linker(), self.f.module);
        let module = self.module;
        if matches!(call.arguments[index].kind, ArgumentKind::Star | ArgumentKind::DoubleStar) {
            return Fate::Used;
        }
        // An autograd function is called through `apply`, which gives its `forward` a context in front.
        let (callee, context) = match module[call.callee].kind {
            ExprKind::Attribute(class, apply) if apply.as_str() == "apply" => {
                (linker.attribute(&linker.eval(id, class), Symbol::new("forward")), 1)
            }
            _ => (linker.eval(id, call.callee), 0),
        };
        let Resolution::Found(values) = callee else {
            self.follower.launched = true;
            return Fate::Used;
        };
        let mut worst = Fate::Dropped;
        for value in &values {
            let Some(HandedOn { g, parameter, assumed }) = self.bound(value, call, index, context) else {
                self.follower.launched = true;
                return Fate::Used;
            };
            self.follower.calls.push((self.f, expr));
            let fate = self.follower.follow(g, parameter, assumed);
            self.follower.calls.pop();
            worst = worst.max(fate);
            if worst == Fate::Used {
                break;
            }
        }
        worst
    }

    /// The function that a callee runs, the parameter that gets argument `index`, and what is known of the others.
    fn bound(&self, value: &Value, call: &Call, index: usize, context: usize) -> Option<HandedOn> {
        let (linker, id) = (self.linker(), self.f.module);
        let callee = linker.callee(value)?;
        let g = callee.definition?;
        let program = linker.program;
        if !program.packs.is_audited(&program.node(g.module).name) || matches!(value, Value::Partial(_)) {
            return None;
        }
        let owner = linker.module(g.module);
        let parameters = &callee.signature.parameters;
        let arguments = linker.arguments(id, &call.arguments);
        let given = linker.given(&arguments, parameters, context);
        let parameter = given.iter().find(|(_, at)| **at == Some(index)).map(|(name, _)| *name)?;
        let open = arguments.more_positional || arguments.more_keywords;
        let assumed = owner[g.function].parameters.iter().filter_map(|other| {
            if other.name == parameter || linker.is_rebound(owner, g.function, other.name) {
                return None;
            }
            let known = match given.get(&other.name) {
                Some(at) => linker.constant(id, call.arguments[(*at)?].value)?,
                None if !open => linker.constant(g.module, other.default?)?,
                None => return None,
            };
            Some((other.name, known))
        });
        Some(HandedOn { g, parameter, assumed: assumed.collect() })
    }

    /// An assert whose test depends on the parameter: it refuses the value, or (`assert x`) every other one.
    fn asserted(&mut self, test: ExprId) {
        if self.linker().truth(self.f.module, test).is_some() || !self.checks_form(test) {
            self.note(Fate::Refused);
        }
    }

    /// A test of what the value is made of (its length, type, shape), which any proper value passes.
    fn checks_form(&self, test: ExprId) -> bool {
        let module = self.module;
        let value =
            |expr: ExprId| matches!(module[expr].kind, ExprKind::Name(name) if self.is_tainted(name, expr, None));
        let form = |expr: ExprId| match &module[expr].kind {
            ExprKind::Attribute(object, _) => value(*object),
            ExprKind::Call(call) => match module[call.callee].kind {
                ExprKind::Attribute(object, _) => value(object),
                ExprKind::Name(name) => {
                    FORM.contains(&name.as_str()) && call.arguments.first().is_some_and(|first| value(first.value))
                }
                _ => false,
            },
            _ => false,
        };
        match &module[test].kind {
            ExprKind::And(items) | ExprKind::Or(items) => items.iter().all(|&item| self.checks_form(item)),
            ExprKind::Not(inner) => self.checks_form(*inner),
            ExprKind::Compare(left, rest) => match rest[..] {
                [(Comparison::Is | Comparison::IsNot, right)] => value(*left) && is_none(module, right),
                _ => form(*left) || matches!(module[*left].kind, ExprKind::Subscript(inner, _) if form(inner)),
            },
            // all(t is None or t.is_cuda for t in (q, k, x))
            ExprKind::Call(call) => {
                let each = matches!(module[call.callee].kind, ExprKind::Name(name) if ["all", "any"].contains(&name.as_str()))
                    && matches!(&call.arguments[..], [only] if matches!(module[only.value].kind, ExprKind::Comprehension(_)));
                each || form(test)
            }
            _ => form(test),
        }
    }

    /// What runs, or does not, because of a test that depends on the parameter.
    fn controlled(&mut self) {
        for stmt in self.own() {
            let controlled = self.module.conditions(self.module[stmt].guard).take_while(|kind| !is_body(*kind)).any(|kind| {
                matches!(kind, GuardKind::Test { test, holds } if self.tests.contains(&test) && !self.is_check(test, holds))
            });
            if controlled {
                self.controlled_statement(stmt);
            }
        }
    }

    /// The way on after `if ..: raise`: nothing there depends on the test.
    fn is_check(&self, test: ExprId, holds: bool) -> bool {
        is_raised_under(self.module, self.function, GuardKind::Test { test, holds: !holds })
    }

    fn raises_after(&self, test: ExprId) -> bool {
        let under = |holds| is_raised_under(self.module, self.function, GuardKind::Test { test, holds });
        under(true) || under(false)
    }

    fn controlled_statement(&mut self, stmt: StmtId) {
        let module = self.module;
        let Stmt { kind, span, .. } = &module[stmt];
        match kind {
            StmtKind::Assign(targets, _) => self.rebound(stmt, targets),
            StmtKind::AnnAssign(target, ..) | StmtKind::AugAssign(target, ..) => self.rebound(stmt, &[*target]),
            StmtKind::Expr(value) => {
                let fate = match &module[*value].kind {
                    ExprKind::Call(call) => self.told(call).unwrap_or(Fate::Used),
                    ExprKind::Constant(_) => Fate::Dropped,
                    _ => Fate::Used,
                };
                self.note(fate);
            }
            StmtKind::Return(_) => self.note(Fate::Returned),
            StmtKind::Raise(_) => self.note(Fate::Refused),
            StmtKind::Assert(test, _) => self.asserted(*test),
            StmtKind::Function(_) | StmtKind::Class(_) | StmtKind::Import(_) | StmtKind::ImportFrom(_) => {
                self.taint(stmt, |_| true);
            }
            StmtKind::Other if module.slice(*span) != "pass" => self.note(Fate::Used),
            StmtKind::Match(_) | StmtKind::Delete(_) | StmtKind::With(..) => self.note(Fate::Used),
            // What stands in their bodies is under the same test.
            StmtKind::If(_) | StmtKind::While(_) | StmtKind::For(..) | StmtKind::Try(_) | StmtKind::Other => {}
        }
    }

    fn rebound(&mut self, stmt: StmtId, targets: &[ExprId]) {
        if targets.iter().all(|&target| binds_names(self.module, target)) {
            self.taint(stmt, |_| true);
        } else {
            self.note(Fate::Used);
        }
    }
}

/// Where a call hands an argument.
struct HandedOn {
    g: FnRef,
    parameter: Symbol,
    /// What is known of the other parameters.
    assumed: Vec<(Symbol, Const)>,
}

enum Climb {
    /// The value ends inside the expression.
    Ends(Fate),
    /// The whole expression of the statement depends on it.
    Root(ExprId),
}

/// Functions that can see every local.
const LOOKS_AROUND: &[&str] = &["locals", "vars", "eval", "exec", "dir"];

/// Builtins whose only effect is their result.
const PURE: &str = "abs all any bool callable dict enumerate float frozenset getattr hasattr hash id int isinstance \
    len list max min range repr reversed round set sorted str sum tuple type zip";

/// Functions that make something of the same form.
const LIKENESS: &[&str] = &["empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"];

/// Builtins that ask what a value is made of.
const FORM: &[&str] = &["callable", "hasattr", "isinstance", "len"];

fn is_none(module: &Module, expr: ExprId) -> bool {
    matches!(module[expr].kind, ExprKind::Constant(Constant::None))
}

fn is_display(module: &Module, expr: ExprId) -> bool {
    matches!(module[expr].kind, ExprKind::Tuple(_) | ExprKind::List(_))
}

/// A target made of plain names.
fn binds_names(module: &Module, target: ExprId) -> bool {
    match &module[target].kind {
        ExprKind::Name(_) => true,
        ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().all(|&item| binds_names(module, item)),
        ExprKind::Starred(inner) => binds_names(module, *inner),
        _ => false,
    }
}

/// Whether `scope` belongs to a function inside the one of `outer`.
fn is_nested(module: &Module, scope: ScopeId, outer: ScopeId) -> bool {
    let mut at = scope;
    while at != outer && at != Module::SCOPE {
        if !matches!(module[at].kind, ScopeKind::Comprehension) {
            return true;
        }
        at = module[at].parent;
    }
    false
}

/// A body without any code: declared for others to implement.
fn is_stub(module: &Module, function: &Function) -> bool {
    module.own_statements(&function.body, function.scope).all(|(_, stmt)| match stmt.kind {
        StmtKind::Expr(value) => matches!(module[value].kind, ExprKind::Constant(_)),
        StmtKind::Raise(_) | StmtKind::Other => true,
        _ => false,
    })
}

/// The expressions that an expression is made of.
fn parts(kind: &ExprKind) -> Vec<ExprId> {
    match kind {
        ExprKind::Attribute(a, _)
        | ExprKind::Not(a)
        | ExprKind::Negative(a)
        | ExprKind::Starred(a)
        | ExprKind::Await(a) => {
            vec![*a]
        }
        ExprKind::Call(call) => std::iter::once(call.callee).chain(call.arguments.iter().map(|a| a.value)).collect(),
        ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::Set(items) => items.to_vec(),
        ExprKind::And(items) | ExprKind::Or(items) => items.to_vec(),
        ExprKind::Dict(items) => items.iter().flat_map(|(key, value)| key.iter().copied().chain([*value])).collect(),
        ExprKind::Binary(_, a, b) | ExprKind::Subscript(a, b) | ExprKind::Named(a, b) => vec![*a, *b],
        ExprKind::Compare(left, rest) => std::iter::once(*left).chain(rest.iter().map(|(_, right)| *right)).collect(),
        ExprKind::If(items) => items.to_vec(),
        ExprKind::Comprehension(data) => {
            std::iter::once(data.element).chain(data.generators.iter().map(|(_, iter)| *iter)).collect()
        }
        ExprKind::FString(items) => items
            .iter()
            .filter_map(|item| match item {
                FStringPart::Value { value, .. } => Some(*value),
                FStringPart::Text(_) => None,
            })
            .collect(),
        ExprKind::Name(_) | ExprKind::Constant(_) | ExprKind::Lambda(_) | ExprKind::Other => Vec::new(),
    }
}
