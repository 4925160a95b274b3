//! Branches, loops, `with`, `match` and `try`: the conditions that they put on what they hold.

use ruff_python_ast as ast;

use super::super::ir::*;
use super::{Lowering, span};

impl<'a> Lowering<'a> {
    pub(super) fn for_loop(&mut self, node: &'a ast::StmtFor, at: Span) -> bool {
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

    pub(super) fn while_loop(&mut self, node: &'a ast::StmtWhile, at: Span) -> bool {
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

    pub(super) fn if_statement(&mut self, node: &'a ast::StmtIf, at: Span) -> bool {
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

    pub(super) fn with(&mut self, node: &'a ast::StmtWith, at: Span) -> bool {
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

    pub(super) fn match_statement(&mut self, node: &'a ast::StmtMatch, at: Span) -> bool {
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

    pub(super) fn try_statement(&mut self, node: &'a ast::StmtTry, at: Span) -> bool {
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
}
