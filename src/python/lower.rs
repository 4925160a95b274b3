//! From the syntax tree to the index: statements, scopes and the conditions under which they run.

use ruff_python_ast::{self as ast, Stmt as Ast};
use ruff_text_size::{Ranged, TextRange};
use rustc_hash::FxHashMap;

use super::ir::*;
use super::symbol::Symbol;

/// Builds a [`Module`] from a syntax tree.
pub(super) struct Lowering<'a> {
    pub(super) out: Module,
    pub(super) scope: ScopeId,
    pub(super) guard: GuardId,
    pub(super) phase: Phase,
    /// Whether the loops around the current statement, inside the current function, contain a `break`.
    breaks: Vec<bool>,
    /// Whether the function around the current statement contains a `yield`.
    pub(super) yields: bool,
    /// The class around the current statement, whose name goes into private names (`__x`).
    class: Option<&'a str>,
    /// Names seen before, so that the global interner is asked once per file.
    symbols: FxHashMap<&'a str, Symbol>,
}

pub(super) fn span(range: TextRange) -> Span {
    Span { start: range.start().to_u32(), end: range.end().to_u32() }
}

impl<'a> Lowering<'a> {
    pub(super) fn new(out: Module) -> Self {
        let mut lowering = Lowering {
            out,
            scope: Module::SCOPE,
            guard: GuardId(0),
            phase: Phase::Run,
            breaks: Vec::new(),
            yields: false,
            class: None,
            symbols: FxHashMap::default(),
        };
        lowering.out.guards.push(Guard { parent: GuardId(0), kind: GuardKind::Always });
        lowering.open_scope(ScopeKind::Module);
        lowering
    }

    /// The name that an identifier stands for: inside a class `__x` is `_Class__x`.
    pub(super) fn symbol(&mut self, text: &'a str) -> Symbol {
        if text.starts_with("__")
            && !text.ends_with("__")
            && let Some(class) = self.class.map(|class| class.trim_start_matches('_'))
            && !class.is_empty()
        {
            return Symbol::new(&format!("_{class}{text}"));
        }
        *self.symbols.entry(text).or_insert_with(|| Symbol::new(text))
    }

    fn open_scope(&mut self, kind: ScopeKind) -> ScopeId {
        let id = ScopeId(self.out.scopes.len() as u32);
        self.out.scopes.push(Scope {
            kind,
            parent: self.scope,
            names: FxHashMap::default(),
            globals: Vec::new(),
            nonlocals: Vec::new(),
            stars: Vec::new(),
            dynamic: false,
            computed: Vec::new(),
        });
        id
    }

    /// Runs `body` inside a new scope.
    pub(super) fn in_scope<T>(&mut self, kind: ScopeKind, body: impl FnOnce(&mut Self) -> T) -> (ScopeId, T) {
        let outer = self.scope;
        let id = self.open_scope(kind);
        self.scope = id;
        let result = body(self);
        self.scope = outer;
        (id, result)
    }

    pub(super) fn push_guard(&mut self, kind: GuardKind) -> GuardId {
        let id = GuardId(self.out.guards.len() as u32);
        self.out.guards.push(Guard { parent: self.guard, kind });
        id
    }

    /// Runs `body` under one more condition.
    pub(super) fn under<T>(&mut self, kind: GuardKind, body: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.guard;
        self.guard = self.push_guard(kind);
        let result = body(self);
        self.guard = outer;
        result
    }

    pub(super) fn next_stmt(&self) -> StmtId {
        StmtId(self.out.stmts.len() as u32)
    }

    fn push(&mut self, kind: StmtKind, span: Span) -> StmtId {
        let id = self.next_stmt();
        self.out.stmts.push(Stmt { kind, span, scope: self.scope, guard: self.guard });
        id
    }

    /// Records a binding in the scope that Python binds the name in.
    pub(super) fn bind(&mut self, name: Symbol, kind: BindingKind, span: Span, stmt: StmtId) {
        let mut scope = self.scope;
        if self.out[scope].globals.contains(&name) {
            scope = Module::SCOPE;
        } else if self.out[scope].nonlocals.contains(&name) {
            scope = self.nonlocal_scope(name).unwrap_or(scope);
        }
        self.bind_in(scope, name, kind, span, stmt);
    }

    pub(super) fn bind_in(&mut self, scope: ScopeId, name: Symbol, kind: BindingKind, span: Span, stmt: StmtId) {
        let id = BindingId(self.out.bindings.len() as u32);
        self.out.bindings.push(Binding { name, kind, scope, span, guard: self.guard, stmt });
        self.out.scopes[scope.0 as usize].names.entry(name).or_default().push(id);
    }

    fn nonlocal_scope(&self, name: Symbol) -> Option<ScopeId> {
        let mut at = self.out[self.scope].parent;
        while at != Module::SCOPE {
            let scope = &self.out[at];
            if matches!(scope.kind, ScopeKind::Function(_)) && scope.names.contains_key(&name) {
                return Some(at);
            }
            at = scope.parent;
        }
        None
    }

    /// Lowers a block; true if its end can be reached. Conditions that an early exit adds end with the block.
    pub(super) fn block(&mut self, body: &'a [Ast]) -> bool {
        let outer = self.guard;
        let mut falls = true;
        for stmt in body {
            if !self.statement(stmt) {
                falls = false;
                self.guard = self.push_guard(GuardKind::Unreachable);
            }
        }
        self.guard = outer;
        falls
    }

    /// Lowers a statement; false if it always leaves the block.
    fn statement(&mut self, stmt: &'a Ast) -> bool {
        let at = span(stmt.range());
        match stmt {
            Ast::FunctionDef(node) => self.function(node),
            Ast::ClassDef(node) => self.class(node),
            Ast::Return(node) => {
                let value = node.value.as_deref().map(|value| self.expr(value));
                self.push(StmtKind::Return(value), at);
                return false;
            }
            Ast::Raise(node) => {
                let value = node.exc.as_deref().map(|value| self.expr(value));
                if let Some(cause) = node.cause.as_deref() {
                    self.expr(cause);
                }
                self.push(StmtKind::Raise(value), at);
                return false;
            }
            Ast::Delete(node) => {
                let targets = node.targets.iter().map(|target| self.target(target)).collect();
                self.push(StmtKind::Delete(targets), at);
            }
            Ast::TypeAlias(node) => {
                self.in_scope(ScopeKind::TypeParams, |this| {
                    this.type_params(node.type_params.as_deref());
                    this.in_phase(Phase::Never, |this| this.expr(&node.value));
                });
                if let ast::Expr::Name(name) = node.name.as_ref() {
                    let (symbol, stmt) = (self.symbol(&name.id), self.next_stmt());
                    self.bind(symbol, BindingKind::TypeParameter, span(name.range), stmt);
                }
                self.push(StmtKind::Other, at);
            }
            Ast::Assign(node) => {
                let value = self.expr(&node.value);
                let targets = node.targets.iter().map(|target| self.assign(target, value)).collect();
                self.push(StmtKind::Assign(targets, value), at);
            }
            Ast::AugAssign(node) => {
                let value = self.expr(&node.value);
                let target = self.target(&node.target);
                let stmt = self.next_stmt();
                if let ast::Expr::Name(name) = node.target.as_ref() {
                    let symbol = self.symbol(&name.id);
                    self.bind(symbol, BindingKind::Augmented, span(name.range), stmt);
                }
                self.push(StmtKind::AugAssign(target, super::lower_expr::operator(node.op), value), at);
            }
            Ast::AnnAssign(node) => self.annotated(node, at),
            Ast::For(node) => return self.for_loop(node, at),
            Ast::While(node) => return self.while_loop(node, at),
            Ast::If(node) => return self.if_statement(node, at),
            Ast::With(node) => return self.with(node, at),
            Ast::Match(node) => return self.match_statement(node, at),
            Ast::Try(node) => return self.try_statement(node, at),
            Ast::Assert(node) => {
                let test = self.expr(&node.test);
                let message =
                    node.msg.as_deref().map(|m| self.under(GuardKind::Test { test, holds: false }, |t| t.expr(m)));
                self.push(StmtKind::Assert(test, message), at);
                self.guard = self.push_guard(GuardKind::Test { test, holds: true });
                return !matches!(self.out[test].kind, ExprKind::Constant(Constant::Bool(false) | Constant::Int(0)));
            }
            Ast::Import(node) => {
                for alias in &node.names {
                    self.import(alias, at);
                }
            }
            Ast::ImportFrom(node) => self.import_from(node, at),
            Ast::Global(node) => {
                let names: Vec<_> = node.names.iter().map(|name| self.symbol(name.as_str())).collect();
                self.out.scopes[self.scope.0 as usize].globals.extend(names);
                self.push(StmtKind::Other, at);
            }
            Ast::Nonlocal(node) => {
                let names: Vec<_> = node.names.iter().map(|name| self.symbol(name.as_str())).collect();
                self.out.scopes[self.scope.0 as usize].nonlocals.extend(names);
                self.push(StmtKind::Other, at);
            }
            Ast::Expr(node) => {
                let value = self.expr(&node.value);
                self.push(StmtKind::Expr(value), at);
                return !self.is_exit(value);
            }
            Ast::Break(_) => {
                if let Some(last) = self.breaks.last_mut() {
                    *last = true;
                }
                self.push(StmtKind::Other, at);
                return false;
            }
            Ast::Continue(_) => {
                self.push(StmtKind::Other, at);
                return false;
            }
            Ast::Pass(_) | Ast::IpyEscapeCommand(_) => {
                self.push(StmtKind::Other, at);
            }
        }
        true
    }

    /// `sys.exit(..)` and `os._exit(..)` never return.
    fn is_exit(&self, value: ExprId) -> bool {
        match &self.out[value].kind {
            ExprKind::Call(call) => {
                matches!(self.out.dotted(call.callee).as_deref(), Some("sys.exit" | "os._exit" | "os.abort"))
            }
            _ => false,
        }
    }

    pub(super) fn in_phase<T>(&mut self, phase: Phase, body: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.phase;
        if outer != Phase::Never {
            self.phase = phase;
        }
        let result = body(self);
        self.phase = outer;
        result
    }

    pub(super) fn annotation(&mut self, annotation: &'a ast::Expr) -> ExprId {
        let phase = if self.out.lazy_annotations { Phase::Never } else { Phase::Annotation };
        self.in_phase(phase, |this| this.expr(annotation))
    }

    fn annotated(&mut self, node: &'a ast::StmtAnnAssign, at: Span) {
        // A function evaluates no annotation of its variables, not even of `self.x: T`.
        let local = matches!(self.out[self.scope].kind, ScopeKind::Function(_));
        let annotation = if local {
            self.in_phase(Phase::Never, |this| this.expr(&node.annotation))
        } else {
            self.annotation(&node.annotation)
        };
        let value = node.value.as_deref().map(|value| self.expr(value));
        let target = match value {
            Some(value) => self.assign(&node.target, value),
            None => {
                if let ast::Expr::Name(name) = node.target.as_ref() {
                    let (symbol, stmt) = (self.symbol(&name.id), self.next_stmt());
                    self.bind(symbol, BindingKind::Declaration(annotation), span(name.range), stmt);
                }
                self.in_phase(Phase::Never, |this| this.target(&node.target))
            }
        };
        self.push(StmtKind::AnnAssign(target, annotation, value), at);
    }

    fn for_loop(&mut self, node: &'a ast::StmtFor, at: Span) -> bool {
        let iter = self.expr(&node.iter);
        let head = self.push_guard(GuardKind::Loop);
        let outer = std::mem::replace(&mut self.guard, head);
        let target = self.iterate(&node.target, iter);
        self.guard = outer;
        self.push(StmtKind::For(target, iter), at);
        self.guard = head;
        self.breaks.push(false);
        self.block(&node.body);
        self.guard = outer;
        let broke = self.breaks.pop().unwrap_or(false);
        let falls = self.block(&node.orelse);
        falls || broke
    }

    fn while_loop(&mut self, node: &'a ast::StmtWhile, at: Span) -> bool {
        let test = self.expr(&node.test);
        self.push(StmtKind::While(test), at);
        self.breaks.push(false);
        let outer = self.guard;
        self.guard = self.push_guard(GuardKind::Loop);
        self.under(GuardKind::Test { test, holds: true }, |this| this.block(&node.body));
        self.guard = outer;
        let broke = self.breaks.pop().unwrap_or(false);
        let forever = matches!(self.out[test].kind, ExprKind::Constant(Constant::Bool(true) | Constant::Int(1)));
        let falls = self.block(&node.orelse);
        broke || (falls && !forever)
    }

    fn if_statement(&mut self, node: &'a ast::StmtIf, at: Span) -> bool {
        let outer = self.guard;
        // Each branch's own condition, and whether it can be left at its end.
        let mut branches = Vec::with_capacity(node.elif_else_clauses.len() + 2);
        let test = self.expr(&node.test);
        self.push(StmtKind::If(test), at);
        let holds = GuardKind::Test { test, holds: true };
        let mut tests = vec![test];
        let entry = self.push_guard(holds);
        self.guard = entry;
        branches.push((entry, self.block(&node.body)));
        self.guard = outer;
        self.guard = self.push_guard(GuardKind::Test { test, holds: false });
        let mut exhaustive = false;
        for clause in &node.elif_else_clauses {
            let failed = self.guard;
            if let Some(condition) = &clause.test {
                let test = self.expr(condition);
                self.push(StmtKind::If(test), span(clause.range));
                tests.push(test);
                let entry = self.push_guard(GuardKind::Test { test, holds: true });
                self.guard = entry;
                branches.push((entry, self.block(&clause.body)));
                self.guard = failed;
                self.guard = self.push_guard(GuardKind::Test { test, holds: false });
            } else {
                exhaustive = true;
                branches.push((failed, self.block(&clause.body)));
            }
        }
        if !exhaustive {
            branches.push((self.guard, true));
        }
        let falling: Vec<GuardId> = branches.iter().filter(|(_, falls)| *falls).map(|(guard, _)| *guard).collect();
        self.guard = match falling.as_slice() {
            [] => outer,
            [only] if branches.len() > 1 => *only,
            _ => {
                // The leading branches that leave: what follows runs only where all of their tests failed.
                let leaving = branches.iter().take_while(|(_, falls)| !falls).count();
                self.guard = outer;
                for &test in &tests[..leaving.min(tests.len())] {
                    self.guard = self.push_guard(GuardKind::Test { test, holds: false });
                }
                self.guard
            }
        };
        !falling.is_empty()
    }

    fn with(&mut self, node: &'a ast::StmtWith, at: Span) -> bool {
        let outer = self.guard;
        let mut swallows = false;
        for item in &node.items {
            let value = self.expr(&item.context_expr);
            let callee = match &self.out[value].kind {
                ExprKind::Call(call) => self.out.dotted(call.callee),
                _ => None,
            };
            swallows |= callee.is_some_and(|name| name.rsplit('.').next() == Some("suppress"));
            let target = item.optional_vars.as_deref().map(|target| {
                let stmt = self.next_stmt();
                self.bind_targets(target, BindingKind::Context(value), stmt);
                self.target(target)
            });
            self.push(StmtKind::With(value, target), at);
            self.guard = self.push_guard(GuardKind::With(value));
        }
        let falls = self.block(&node.body);
        self.guard = outer;
        falls || swallows
    }

    fn match_statement(&mut self, node: &'a ast::StmtMatch, at: Span) -> bool {
        let subject = self.expr(&node.subject);
        self.push(StmtKind::Match(subject), at);
        let mut falls = true;
        let mut any = false;
        for case in &node.cases {
            let stmt = self.next_stmt();
            any |= self.under(GuardKind::Case, |this| {
                this.pattern(&case.pattern, stmt);
                match case.guard.as_deref() {
                    Some(condition) => {
                        let test = this.expr(condition);
                        this.under(GuardKind::Test { test, holds: true }, |this| this.block(&case.body))
                    }
                    None => this.block(&case.body),
                }
            });
            if case.guard.is_none() && case.pattern.is_irrefutable() {
                falls = false;
            }
        }
        falls || any
    }

    fn try_statement(&mut self, node: &'a ast::StmtTry, at: Span) -> bool {
        let outer = self.guard;
        let id = TryId(self.out.tries.len() as u32);
        self.out.tries.push(Try { body: 0..0, handlers: Vec::new() });
        self.push(StmtKind::Try(id), at);
        let start = self.out.stmts.len() as u32;
        let mut normal = self.under(GuardKind::TryBody(id), |this| this.block(&node.body));
        self.out.tries[id.0 as usize].body = start..self.out.stmts.len() as u32;
        let mut handlers = Vec::with_capacity(node.handlers.len());
        for (index, ast::ExceptHandler::ExceptHandler(handler)) in node.handlers.iter().enumerate() {
            let classes = handler.type_.as_deref().map(|classes| {
                let value = self.expr(classes);
                match &self.out[value].kind {
                    ExprKind::Tuple(elements) => elements.iter().copied().collect(),
                    _ => Box::from([value]),
                }
            });
            let start = self.out.stmts.len() as u32;
            let guard = self.push_guard(GuardKind::Handler(id, index as u32));
            self.guard = guard;
            let name = handler.name.as_ref().map(|name| {
                let (symbol, stmt) = (self.symbol(name.as_str()), self.next_stmt());
                self.bind(symbol, BindingKind::Exception, span(name.range), stmt);
                symbol
            });
            let falls = self.block(&handler.body);
            self.guard = outer;
            handlers.push((guard, falls));
            let body = start..self.out.stmts.len() as u32;
            self.out.tries[id.0 as usize].handlers.push(Handler { classes, name, body });
        }
        let otherwise = self.push_guard(GuardKind::TryElse(id));
        if !node.orelse.is_empty() {
            self.guard = otherwise;
            normal &= self.block(&node.orelse);
            self.guard = outer;
        }
        let finally = self.block(&node.finalbody);
        let handled: Vec<GuardId> = handlers.iter().filter(|(_, falls)| *falls).map(|(guard, _)| *guard).collect();
        match (normal, handled.as_slice()) {
            // Only the undisturbed way leads on: what follows runs after a body that succeeded.
            (true, []) if !handlers.is_empty() => self.guard = otherwise,
            (false, [only]) => self.guard = *only,
            _ => {}
        }
        finally && (normal || !handled.is_empty())
    }

    fn import(&mut self, alias: &'a ast::Alias, at: Span) {
        let module = Symbol::new(&alias.name.id);
        let asname = alias.asname.as_ref().map(|name| self.symbol(&name.id));
        let kind = StmtKind::Import(Box::new(Import { module, alias: asname, span: span(alias.name.range) }));
        let id = self.push(kind, at);
        let bound = asname.unwrap_or_else(|| Symbol::new(module.split('.').next().unwrap_or_default()));
        self.bind(bound, BindingKind::Import(id), span(alias.range), id);
    }

    fn import_from(&mut self, node: &'a ast::StmtImportFrom, at: Span) {
        let module = node.module.as_ref().map_or_else(|| Symbol::new(""), |name| Symbol::new(&name.id));
        let module_span = node.module.as_ref().map_or(at, |name| span(name.range));
        for alias in &node.names {
            let name = self.symbol(&alias.name.id);
            let asname = alias.asname.as_ref().map(|name| self.symbol(&name.id));
            let kind = StmtKind::ImportFrom(Box::new(ImportFrom {
                level: node.level,
                module,
                name,
                alias: asname,
                module_span,
                span: span(alias.name.range),
            }));
            let id = self.push(kind, at);
            if &name == "*" {
                self.out.scopes[self.scope.0 as usize].stars.push(id);
            } else {
                self.bind(asname.unwrap_or(name), BindingKind::ImportFrom(id), span(alias.range), id);
            }
        }
    }

    fn function(&mut self, node: &'a ast::StmtFunctionDef) {
        let decorators = node.decorator_list.iter().map(|d| self.expr(&d.expression)).collect();
        let id = FunctionId(self.out.functions.len() as u32);
        let (name, at) = (Symbol::new(node.name.as_str()), span(node.name.range));
        let outer = self.scope;
        let class = match self.out[outer].kind {
            ScopeKind::Class(class) => Some(class),
            _ => None,
        };
        self.out.functions.push(Function {
            name,
            span: at,
            whole: Span { start: at.start, end: span(node.range).end },
            scope: outer,
            outer,
            class,
            parameters: Vec::new(),
            parentheses: span(node.parameters.range),
            decorators,
            returns: None,
            guard: self.guard,
            is_async: node.is_async,
            is_generator: false,
            falls_through: true,
            body: 0..0,
            exprs: 0..0,
            stmt: self.next_stmt(),
            lambda: None,
            body_start: body_start(&node.body),
        });
        let stmt = self.push(StmtKind::Function(id), span(node.range));
        let bound = self.symbol(node.name.as_str());
        self.bind(bound, BindingKind::Function(id), at, stmt);
        let define = |this: &mut Self| {
            let parameters = this.parameters(&node.parameters);
            let returns = node.returns.as_deref().map(|returns| this.annotation(returns));
            let start = this.out.stmts.len() as u32;
            let first = this.out.exprs.len() as u32;
            let (scope, (falls, yields)) = this.function_scope(id, &parameters, |this| this.block(&node.body));
            let function = &mut this.out.functions[id.0 as usize];
            function.parameters = parameters;
            function.returns = returns;
            function.scope = scope;
            function.falls_through = falls;
            function.is_generator = yields;
            function.body = start..this.out.stmts.len() as u32;
            function.exprs = first..this.out.exprs.len() as u32;
        };
        match node.type_params.as_deref() {
            Some(params) => {
                self.in_scope(ScopeKind::TypeParams, |this| {
                    this.type_params(Some(params));
                    define(this);
                });
            }
            None => define(self),
        }
    }

    /// Opens a function's scope, binds its parameters and lowers its body; returns what `body` says and whether it
    /// yields.
    pub(super) fn function_scope<T>(
        &mut self,
        id: FunctionId,
        parameters: &[Parameter],
        body: impl FnOnce(&mut Self) -> T,
    ) -> (ScopeId, (T, bool)) {
        let breaks = std::mem::take(&mut self.breaks);
        let yields = std::mem::replace(&mut self.yields, false);
        let phase = self.phase;
        if phase == Phase::Annotation {
            self.phase = Phase::Run;
        }
        let result = self.in_scope(ScopeKind::Function(id), |this| {
            this.under(GuardKind::Body(id), |this| {
                let stmt = this.next_stmt();
                for (index, parameter) in parameters.iter().enumerate() {
                    let kind = BindingKind::Parameter(id, index as u32);
                    this.bind(parameter.name, kind, parameter.span, stmt);
                }
                let value = body(this);
                (value, this.yields)
            })
        });
        self.phase = phase;
        self.breaks = breaks;
        self.yields = yields;
        result
    }

    /// Lowers a parameter list: defaults and annotations are evaluated in the scope around the function.
    pub(super) fn parameters(&mut self, list: &'a ast::Parameters) -> Vec<Parameter> {
        let mut parameters = Vec::with_capacity(list.len());
        let mut add = |this: &mut Self, kind, p: &'a ast::Parameter, default: Option<&'a ast::Expr>, at: TextRange| {
            let annotation = p.annotation.as_deref().map(|annotation| this.annotation(annotation));
            let default = default.map(|default| this.expr(default));
            let name = this.symbol(p.name.as_str());
            parameters.push(Parameter { name, kind, default, annotation, span: span(at) });
        };
        for p in &list.posonlyargs {
            add(self, ParameterKind::PositionalOnly, &p.parameter, p.default.as_deref(), p.range);
        }
        for p in &list.args {
            add(self, ParameterKind::Normal, &p.parameter, p.default.as_deref(), p.range);
        }
        if let Some(p) = list.vararg.as_deref() {
            add(self, ParameterKind::VarArgs, p, None, p.range);
        }
        for p in &list.kwonlyargs {
            add(self, ParameterKind::KeywordOnly, &p.parameter, p.default.as_deref(), p.range);
        }
        if let Some(p) = list.kwarg.as_deref() {
            add(self, ParameterKind::KwArgs, p, None, p.range);
        }
        parameters
    }

    fn class(&mut self, node: &'a ast::StmtClassDef) {
        let decorators = node.decorator_list.iter().map(|d| self.expr(&d.expression)).collect();
        let id = ClassId(self.out.classes.len() as u32);
        let (name, at) = (self.symbol(node.name.as_str()), span(node.name.range));
        self.out.classes.push(Class {
            name,
            span: at,
            whole: Span { start: at.start, end: span(node.range).end },
            scope: self.scope,
            outer: self.scope,
            bases: Box::default(),
            keywords: Box::default(),
            decorators,
            guard: self.guard,
            body: 0..0,
            stmt: self.next_stmt(),
            body_start: body_start(&node.body),
        });
        let stmt = self.push(StmtKind::Class(id), span(node.range));
        self.bind(name, BindingKind::Class(id), at, stmt);
        let define = |this: &mut Self| {
            let (mut bases, mut keywords) = (Vec::new(), Vec::new());
            if let Some(arguments) = node.arguments.as_deref() {
                bases.extend(arguments.args.iter().map(|base| this.expr(base)));
                for keyword in &arguments.keywords {
                    let name = keyword.arg.as_ref().map(|name| this.symbol(name.as_str()));
                    keywords.push((name, this.expr(&keyword.value)));
                }
            }
            let start = this.out.stmts.len() as u32;
            let outer = this.class.replace(node.name.as_str());
            let (scope, _) = this.in_scope(ScopeKind::Class(id), |this| this.block(&node.body));
            this.class = outer;
            let class = &mut this.out.classes[id.0 as usize];
            class.bases = bases.into();
            class.keywords = keywords.into();
            class.scope = scope;
            class.body = start..this.out.stmts.len() as u32;
        };
        match node.type_params.as_deref() {
            Some(params) => {
                self.in_scope(ScopeKind::TypeParams, |this| {
                    this.type_params(Some(params));
                    define(this);
                });
            }
            None => define(self),
        }
    }

    fn type_params(&mut self, params: Option<&'a ast::TypeParams>) {
        for param in params.into_iter().flat_map(|params| params.iter()) {
            let (name, parts): (_, Vec<&'a ast::Expr>) = match param {
                ast::TypeParam::TypeVar(p) => {
                    (&p.name, p.bound.as_deref().into_iter().chain(p.default.as_deref()).collect())
                }
                ast::TypeParam::TypeVarTuple(p) => (&p.name, p.default.as_deref().into_iter().collect()),
                ast::TypeParam::ParamSpec(p) => (&p.name, p.default.as_deref().into_iter().collect()),
            };
            let (symbol, stmt) = (self.symbol(name.as_str()), self.next_stmt());
            self.bind(symbol, BindingKind::TypeParameter, span(name.range), stmt);
            for part in parts {
                self.in_phase(Phase::Never, |this| this.expr(part));
            }
        }
    }
}

/// Where the first statement that is not a docstring starts; the end of the docstring if there is none.
fn body_start(body: &[Ast]) -> u32 {
    match body {
        [Ast::Expr(first), rest @ ..] if first.value.is_string_literal_expr() => {
            rest.first().map_or(first.range.end(), Ranged::start).to_u32()
        }
        [first, ..] => first.start().to_u32(),
        [] => 0,
    }
}
