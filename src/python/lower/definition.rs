//! Functions, classes and their type parameters.

use ruff_python_ast::{self as ast, Stmt as Ast};
use ruff_text_size::{Ranged, TextRange};

use super::super::ir::*;
use super::super::symbol::Symbol;
use super::{Lowering, span};

impl<'a> Lowering<'a> {
    pub(super) fn function(&mut self, node: &'a ast::StmtFunctionDef) {
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

    pub(super) fn class(&mut self, node: &'a ast::StmtClassDef) {
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

    pub(super) fn type_params(&mut self, params: Option<&'a ast::TypeParams>) {
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
