//! From the syntax tree to the index: statements, scopes and the conditions under which they run.

mod definition;
mod expr;
mod flow;

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
                self.push(StmtKind::AugAssign(target, expr::operator(node.op), value), at);
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
}
