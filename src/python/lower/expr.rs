//! From the syntax tree to the index: expressions, assignment targets and patterns.

use ruff_python_ast::{self as ast, Expr as Ast};
use ruff_text_size::Ranged;
use thin_vec::ThinVec;

use super::super::ir::*;
use super::super::symbol::Symbol;
use super::{Lowering, span};

pub(super) fn operator(op: ast::Operator) -> Operator {
    match op {
        ast::Operator::Add => Operator::Add,
        ast::Operator::Sub => Operator::Sub,
        ast::Operator::Mult => Operator::Mul,
        ast::Operator::FloorDiv => Operator::FloorDiv,
        ast::Operator::Mod => Operator::Mod,
        ast::Operator::BitOr => Operator::BitOr,
        _ => Operator::Other,
    }
}

fn comparison(op: ast::CmpOp) -> Comparison {
    match op {
        ast::CmpOp::Eq => Comparison::Eq,
        ast::CmpOp::NotEq => Comparison::NotEq,
        ast::CmpOp::Lt => Comparison::Lt,
        ast::CmpOp::LtE => Comparison::LtE,
        ast::CmpOp::Gt => Comparison::Gt,
        ast::CmpOp::GtE => Comparison::GtE,
        ast::CmpOp::Is => Comparison::Is,
        ast::CmpOp::IsNot => Comparison::IsNot,
        ast::CmpOp::In => Comparison::In,
        ast::CmpOp::NotIn => Comparison::NotIn,
    }
}

fn usage(context: ast::ExprContext) -> Usage {
    match context {
        ast::ExprContext::Store => Usage::Store,
        ast::ExprContext::Del => Usage::Del,
        ast::ExprContext::Load | ast::ExprContext::Invalid => Usage::Load,
    }
}

/// Methods that change which items a list, set or dict holds, or where.
const MUTATORS: &[&str] = &[
    "__setitem__",
    "add",
    "append",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
];

impl<'a> Lowering<'a> {
    fn push_expr(&mut self, kind: ExprKind, node: &impl Ranged, usage: Usage) -> ExprId {
        let id = ExprId(self.out.exprs.len() as u32);
        let (scope, guard, phase) = (self.scope, self.guard, self.phase);
        match &kind {
            ExprKind::Subscript(table, _) if usage != Usage::Load => self.note_mutated(*table),
            ExprKind::Call(call) => {
                if let ExprKind::Attribute(table, method) = self.out[call.callee].kind
                    && MUTATORS.contains(&method.as_str())
                {
                    self.note_mutated(table);
                }
            }
            _ => {}
        }
        self.out.exprs.push(Expr { kind, span: span(node.range()), scope, guard, usage, phase });
        id
    }

    fn note_mutated(&mut self, table: ExprId) {
        if let ExprKind::Name(name) = self.out[table].kind {
            self.out.mutated.insert(name);
        }
    }

    fn exprs(&mut self, nodes: &'a [Ast]) -> ThinVec<ExprId> {
        nodes.iter().map(|node| self.expr(node)).collect()
    }

    /// Lowers an expression and its parts, parts first.
    pub(super) fn expr(&mut self, node: &'a Ast) -> ExprId {
        let mut context = Usage::Load;
        let kind = match node {
            Ast::Name(name) => {
                context = usage(name.ctx);
                ExprKind::Name(self.symbol(&name.id))
            }
            Ast::Attribute(attribute) => {
                context = usage(attribute.ctx);
                let value = self.expr(&attribute.value);
                ExprKind::Attribute(value, self.symbol(&attribute.attr.id))
            }
            Ast::Call(call) => self.call(call),
            Ast::BoolOp(op) => {
                let outer = self.guard;
                let mut parts = Vec::with_capacity(op.values.len());
                for value in &op.values {
                    let test = self.expr(value);
                    parts.push(test);
                    self.guard = self.push_guard(GuardKind::Test { test, holds: op.op == ast::BoolOp::And });
                }
                self.guard = outer;
                match op.op {
                    ast::BoolOp::And => ExprKind::And(parts.into()),
                    ast::BoolOp::Or => ExprKind::Or(parts.into()),
                }
            }
            Ast::Named(named) => {
                let value = self.expr(&named.value);
                let target = self.expr(&named.target);
                if let Ast::Name(name) = named.target.as_ref() {
                    self.bind_named(&name.id, value, name);
                }
                ExprKind::Named(target, value)
            }
            Ast::BinOp(op) => {
                let left = self.expr(&op.left);
                ExprKind::Binary(operator(op.op), left, self.expr(&op.right))
            }
            Ast::UnaryOp(op) => {
                let operand = self.expr(&op.operand);
                match op.op {
                    ast::UnaryOp::Not => ExprKind::Not(operand),
                    ast::UnaryOp::USub => ExprKind::Negative(operand),
                    _ => ExprKind::Other,
                }
            }
            Ast::Lambda(lambda) => self.lambda(lambda),
            Ast::If(conditional) => {
                let test = self.expr(&conditional.test);
                let body = self.under(GuardKind::Test { test, holds: true }, |t| t.expr(&conditional.body));
                let orelse = self.under(GuardKind::Test { test, holds: false }, |t| t.expr(&conditional.orelse));
                ExprKind::If(Box::new([test, body, orelse]))
            }
            Ast::Dict(dict) => {
                let items = dict.items.iter();
                ExprKind::Dict(items.map(|i| (i.key.as_ref().map(|k| self.expr(k)), self.expr(&i.value))).collect())
            }
            Ast::Set(set) => ExprKind::Set(self.exprs(&set.elts)),
            Ast::List(list) => {
                context = usage(list.ctx);
                ExprKind::List(self.exprs(&list.elts))
            }
            Ast::Tuple(tuple) => {
                context = usage(tuple.ctx);
                ExprKind::Tuple(self.exprs(&tuple.elts))
            }
            Ast::ListComp(c) => self.comprehension(ComprehensionKind::List, None, &c.elt, &c.generators),
            Ast::SetComp(c) => self.comprehension(ComprehensionKind::Set, None, &c.elt, &c.generators),
            Ast::DictComp(c) => self.comprehension(ComprehensionKind::Dict, c.key.as_deref(), &c.value, &c.generators),
            Ast::Generator(c) => self.comprehension(ComprehensionKind::Generator, None, &c.elt, &c.generators),
            Ast::Await(node) => ExprKind::Await(self.expr(&node.value)),
            Ast::Yield(node) => {
                self.yields = true;
                if let Some(value) = node.value.as_deref() {
                    self.expr(value);
                }
                ExprKind::Other
            }
            Ast::YieldFrom(node) => {
                self.yields = true;
                self.expr(&node.value);
                ExprKind::Other
            }
            Ast::Compare(compare) => {
                let left = self.expr(&compare.left);
                let rest = compare.ops.iter().zip(&compare.comparators);
                ExprKind::Compare(left, rest.map(|(op, right)| (comparison(*op), self.expr(right))).collect())
            }
            Ast::FString(string) => self.fstring(&string.value),
            Ast::TString(string) => {
                for element in string.value.elements() {
                    self.interpolated(element, &mut Vec::new());
                }
                ExprKind::Other
            }
            Ast::StringLiteral(literal) => ExprKind::Constant(Constant::Str(Symbol::new(literal.value.to_str()))),
            Ast::BytesLiteral(_) => ExprKind::Constant(Constant::Other),
            Ast::NumberLiteral(literal) => ExprKind::Constant(match &literal.value {
                ast::Number::Int(int) => int.as_i32().map_or(Constant::Other, Constant::Int),
                ast::Number::Float(float) => Constant::Float(Symbol::new(&float.to_string())),
                ast::Number::Complex { .. } => Constant::Other,
            }),
            Ast::BooleanLiteral(literal) => ExprKind::Constant(Constant::Bool(literal.value)),
            Ast::NoneLiteral(_) => ExprKind::Constant(Constant::None),
            Ast::EllipsisLiteral(_) => ExprKind::Constant(Constant::Ellipsis),
            Ast::Subscript(subscript) => {
                context = usage(subscript.ctx);
                let value = self.expr(&subscript.value);
                ExprKind::Subscript(value, self.expr(&subscript.slice))
            }
            Ast::Starred(starred) => {
                context = usage(starred.ctx);
                ExprKind::Starred(self.expr(&starred.value))
            }
            Ast::Slice(slice) => {
                for part in [&slice.lower, &slice.upper, &slice.step].into_iter().flatten() {
                    self.expr(part);
                }
                ExprKind::Other
            }
            Ast::IpyEscapeCommand(_) => ExprKind::Other,
        };
        self.push_expr(kind, node, context)
    }

    fn call(&mut self, call: &'a ast::ExprCall) -> ExprKind {
        let callee = self.expr(&call.func);
        let mut arguments = Vec::with_capacity(call.arguments.args.len() + call.arguments.keywords.len());
        for argument in call.arguments.iter_source_order() {
            let at = span(argument.range());
            arguments.push(match argument {
                ast::ArgOrKeyword::Arg(Ast::Starred(starred)) => {
                    let value = self.expr(&starred.value);
                    Argument { kind: ArgumentKind::Star, value, span: at }
                }
                ast::ArgOrKeyword::Arg(value) => {
                    Argument { kind: ArgumentKind::Positional, value: self.expr(value), span: at }
                }
                ast::ArgOrKeyword::Keyword(keyword) => {
                    let kind = match &keyword.arg {
                        Some(name) => ArgumentKind::Keyword(self.symbol(name.as_str())),
                        None => ArgumentKind::DoubleStar,
                    };
                    Argument { kind, value: self.expr(&keyword.value), span: at }
                }
            });
        }
        self.note_dynamic(callee, &arguments);
        let parentheses = span(call.arguments.range);
        ExprKind::Call(Box::new(Call { callee, arguments: arguments.into(), parentheses }))
    }

    /// `exec(..)`, `globals().update(..)`, `f(globals())`, `setattr(sys.modules[__name__], ..)`: names appear that no
    /// statement shows.
    fn note_dynamic(&mut self, callee: ExprId, arguments: &[Argument]) {
        let first = arguments.first().map(|argument| argument.value);
        let is_setattr = matches!(self.out[callee].kind, ExprKind::Name(name) if &name == "setattr");
        let hands_on = arguments.iter().any(|argument| self.is_globals(argument.value))
            || is_setattr && first.is_some_and(|object| self.is_own_module(object));
        if hands_on {
            self.out.scopes[0].dynamic = true;
        }
        let namespace = |value: ExprId| match &self.out[value].kind {
            ExprKind::Call(call) => {
                matches!(self.out.dotted(call.callee).as_deref(), Some("globals" | "vars" | "locals"))
            }
            _ => false,
        };
        let (scope, module) = match self.out[callee].kind {
            ExprKind::Name(name) if &name == "exec" => (true, true),
            ExprKind::Attribute(value, attr) if ["update", "setdefault"].contains(&attr.as_str()) => {
                (false, namespace(value))
            }
            _ => (false, false),
        };
        if scope {
            self.out.scopes[self.scope.0 as usize].dynamic = true;
        }
        if module {
            self.out.scopes[0].dynamic = true;
        }
    }

    fn lambda(&mut self, lambda: &'a ast::ExprLambda) -> ExprKind {
        let parameters = lambda.parameters.as_deref().map(|list| self.parameters(list)).unwrap_or_default();
        let id = FunctionId(self.out.functions.len() as u32);
        let at = span(lambda.range);
        let stmt = self.next_stmt();
        self.out.functions.push(Function {
            name: Symbol::new("<lambda>"),
            span: at,
            whole: at,
            scope: self.scope,
            outer: self.scope,
            class: None,
            parameters: Vec::new(),
            parentheses: lambda.parameters.as_deref().map_or(at, |list| span(list.range)),
            decorators: Box::default(),
            returns: None,
            guard: self.guard,
            is_async: false,
            is_generator: false,
            falls_through: false,
            body: 0..0,
            exprs: 0..0,
            stmt,
            lambda: None,
            body_start: span(lambda.body.range()).start,
        });
        let (scope, (value, yields)) = self.function_scope(id, &parameters, |this| this.expr(&lambda.body));
        let function = &mut self.out.functions[id.0 as usize];
        function.parameters = parameters;
        function.scope = scope;
        function.lambda = Some(value);
        function.is_generator = yields;
        ExprKind::Lambda(id)
    }

    fn comprehension(
        &mut self,
        kind: ComprehensionKind,
        key: Option<&'a Ast>,
        element: &'a Ast,
        generators: &'a [ast::Comprehension],
    ) -> ExprKind {
        // The first iterable is evaluated outside; everything else in the comprehension's own scope.
        let mut first = generators.first().map(|generator| self.expr(&generator.iter));
        let (_, result) = self.in_scope(ScopeKind::Comprehension, |this| {
            let outer = this.guard;
            this.guard = this.push_guard(GuardKind::Loop);
            let mut pairs = Vec::with_capacity(generators.len());
            for generator in generators {
                let iter = first.take().unwrap_or_else(|| this.expr(&generator.iter));
                pairs.push((this.iterate(&generator.target, iter), iter));
                for condition in &generator.ifs {
                    let test = this.expr(condition);
                    this.guard = this.push_guard(GuardKind::Test { test, holds: true });
                }
            }
            if let Some(key) = key {
                this.expr(key);
            }
            let element = this.expr(element);
            this.guard = outer;
            Comprehension { kind, element, generators: pairs.into() }
        });
        ExprKind::Comprehension(Box::new(result))
    }

    fn fstring(&mut self, value: &'a ast::FStringValue) -> ExprKind {
        let mut parts = Vec::new();
        for part in value {
            match part {
                ast::FStringPart::Literal(literal) => parts.push(FStringPart::Text(Symbol::new(&literal.value))),
                ast::FStringPart::FString(string) => {
                    for element in &string.elements {
                        self.interpolated(element, &mut parts);
                    }
                }
            }
        }
        ExprKind::FString(parts.into())
    }

    fn interpolated(&mut self, element: &'a ast::InterpolatedStringElement, parts: &mut Vec<FStringPart>) {
        match element {
            ast::InterpolatedStringElement::Literal(literal) => {
                parts.push(FStringPart::Text(Symbol::new(&literal.value)));
            }
            ast::InterpolatedStringElement::Interpolation(inner) => {
                let value = self.expr(&inner.expression);
                let plain = inner.conversion.is_none() && inner.format_spec.is_none() && inner.debug_text.is_none();
                parts.push(FStringPart::Value { value, plain });
                if let Some(spec) = inner.format_spec.as_deref() {
                    for element in &spec.elements {
                        self.interpolated(element, &mut Vec::new());
                    }
                }
            }
        }
    }

    /// `(name := value)` binds in the innermost scope that is not a comprehension.
    fn bind_named(&mut self, name: &'a str, value: ExprId, node: &ast::ExprName) {
        let (symbol, stmt) = (self.symbol(name), self.next_stmt());
        let inner = self.scope;
        while self.out[self.scope].kind == ScopeKind::Comprehension {
            self.scope = self.out[self.scope].parent;
        }
        self.bind(symbol, BindingKind::Value(value), span(node.range), stmt);
        self.scope = inner;
    }

    /// Lowers a target without binding it (augmented, deleted or declared).
    pub(super) fn target(&mut self, node: &'a Ast) -> ExprId {
        let id = self.expr(node);
        if self.out[id].usage == Usage::Del {
            self.note_deleted(node);
        }
        id
    }

    fn note_deleted(&mut self, node: &'a Ast) {
        let stmt = self.next_stmt();
        match node {
            Ast::Name(name) => {
                let symbol = self.symbol(&name.id);
                self.bind(symbol, BindingKind::Deletion, span(name.range), stmt);
            }
            Ast::Tuple(tuple) => tuple.elts.iter().for_each(|element| self.note_deleted(element)),
            Ast::List(list) => list.elts.iter().for_each(|element| self.note_deleted(element)),
            _ => {}
        }
    }

    /// Lowers and binds the target of an assignment.
    pub(super) fn assign(&mut self, target: &'a Ast, value: ExprId) -> ExprId {
        let stmt = self.next_stmt();
        match target {
            Ast::Name(name) => {
                let symbol = self.symbol(&name.id);
                self.bind(symbol, BindingKind::Value(value), span(name.range), stmt);
            }
            Ast::Tuple(ast::ExprTuple { elts, .. }) | Ast::List(ast::ExprList { elts, .. }) => {
                self.bind_elements(elts, value, stmt);
            }
            Ast::Subscript(subscript) => self.note_computed(subscript),
            _ => {}
        }
        let id = self.expr(target);
        match self.out[id].kind {
            ExprKind::Subscript(namespace, key) if self.is_globals(namespace) => {
                self.out.scopes[0].computed.push(key);
            }
            // `sys.modules[__name__] = ..`, `sys.modules[__name__].x = ..`
            ExprKind::Attribute(object, _) if self.is_own_module(object) => self.out.scopes[0].dynamic = true,
            ExprKind::Subscript(..) if self.is_own_module(id) => self.out.scopes[0].dynamic = true,
            // `g = globals()`: what is done with it is not followed.
            _ if self.is_globals(value) => self.out.scopes[0].dynamic = true,
            _ => {}
        }
        id
    }

    /// `sys.modules[..]`: the module itself, as far as anyone can tell.
    fn is_own_module(&self, value: ExprId) -> bool {
        match self.out[value].kind {
            ExprKind::Subscript(modules, key) => {
                !matches!(self.out[key].kind, ExprKind::Constant(_))
                    && self.out.dotted(modules).as_deref() == Some("sys.modules")
            }
            _ => false,
        }
    }

    fn is_globals(&self, value: ExprId) -> bool {
        match &self.out[value].kind {
            ExprKind::Call(call) => match self.out.dotted(call.callee).as_deref() {
                Some("globals") => true,
                Some("vars" | "locals") => call.arguments.is_empty() && self.scope == Module::SCOPE,
                _ => false,
            },
            _ => false,
        }
    }

    /// `sys.modules[__name__].__dict__[..] = ..` and its like leave the module open, as does putting another object in
    /// its place: `sys.modules[__name__] = ..`.
    fn note_computed(&mut self, subscript: &'a ast::ExprSubscript) {
        let is_modules = match subscript.value.as_ref() {
            Ast::Attribute(modules) => {
                modules.attr.as_str() == "modules"
                    && matches!(&*modules.value, Ast::Name(name) if name.id.as_str() == "sys")
            }
            _ => false,
        };
        if is_modules && matches!(&*subscript.slice, Ast::Name(name) if name.id.as_str() == "__name__") {
            self.out.scopes[0].dynamic = true;
        }
        if let Ast::Attribute(attribute) = subscript.value.as_ref()
            && attribute.attr.as_str() == "__dict__"
            && !matches!(attribute.value.as_ref(), Ast::Name(name) if name.id.as_str() == "self")
        {
            self.out.scopes[0].dynamic = true;
        }
    }

    fn bind_elements(&mut self, targets: &'a [Ast], value: ExprId, stmt: StmtId) {
        let starred = targets.iter().position(|target| target.is_starred_expr());
        let literal = match &self.out[value].kind {
            ExprKind::Tuple(elements) | ExprKind::List(elements)
                if starred.is_none()
                    && elements.len() == targets.len()
                    && !elements.iter().any(|e| matches!(self.out[*e].kind, ExprKind::Starred(_))) =>
            {
                Some(elements.clone())
            }
            _ => None,
        };
        for (index, target) in targets.iter().enumerate() {
            match target {
                Ast::Name(name) => {
                    let kind = match (&literal, starred) {
                        (Some(elements), _) => BindingKind::Value(elements[index]),
                        (None, Some(star)) if index > star => BindingKind::Pattern,
                        (None, _) => BindingKind::Element { value, index: index as u32 },
                    };
                    let symbol = self.symbol(&name.id);
                    self.bind(symbol, kind, span(name.range), stmt);
                }
                _ => self.bind_targets(target, BindingKind::Pattern, stmt),
            }
        }
    }

    /// Lowers and binds the target of a loop or comprehension.
    pub(super) fn iterate(&mut self, target: &'a Ast, iter: ExprId) -> ExprId {
        let stmt = self.next_stmt();
        match target {
            Ast::Tuple(ast::ExprTuple { elts, .. }) | Ast::List(ast::ExprList { elts, .. }) => {
                let starred = elts.iter().position(Ast::is_starred_expr).unwrap_or(elts.len());
                for (index, element) in elts.iter().enumerate() {
                    let kind = match element {
                        Ast::Name(_) if index < starred => BindingKind::Iteration { iter, column: Some(index as u32) },
                        _ => BindingKind::Pattern,
                    };
                    self.bind_targets(element, kind, stmt);
                }
            }
            _ => self.bind_targets(target, BindingKind::Iteration { iter, column: None }, stmt),
        }
        self.expr(target)
    }

    /// Binds every name in a target to the same kind.
    pub(super) fn bind_targets(&mut self, target: &'a Ast, kind: BindingKind, stmt: StmtId) {
        match target {
            Ast::Name(name) => {
                let symbol = self.symbol(&name.id);
                self.bind(symbol, kind, span(name.range), stmt);
            }
            Ast::Tuple(tuple) => tuple.elts.iter().for_each(|t| self.bind_targets(t, kind, stmt)),
            Ast::List(list) => list.elts.iter().for_each(|t| self.bind_targets(t, kind, stmt)),
            Ast::Starred(starred) => self.bind_targets(&starred.value, BindingKind::Pattern, stmt),
            _ => {}
        }
    }

    /// Lowers a pattern and binds its captures.
    pub(super) fn pattern(&mut self, pattern: &'a ast::Pattern, stmt: StmtId) {
        let capture = |this: &mut Self, name: Option<&'a ast::Identifier>| {
            if let Some(name) = name {
                let symbol = this.symbol(name.as_str());
                this.bind(symbol, BindingKind::Pattern, span(name.range), stmt);
            }
        };
        match pattern {
            ast::Pattern::MatchValue(node) => {
                self.expr(&node.value);
            }
            ast::Pattern::MatchSingleton(_) => {}
            ast::Pattern::MatchSequence(node) => node.patterns.iter().for_each(|p| self.pattern(p, stmt)),
            ast::Pattern::MatchMapping(node) => {
                node.keys.iter().for_each(|key| {
                    self.expr(key);
                });
                node.patterns.iter().for_each(|p| self.pattern(p, stmt));
                capture(self, node.rest.as_ref());
            }
            ast::Pattern::MatchClass(node) => {
                self.expr(&node.cls);
                node.arguments.patterns.iter().for_each(|p| self.pattern(p, stmt));
                node.arguments.keywords.iter().for_each(|k| self.pattern(&k.pattern, stmt));
            }
            ast::Pattern::MatchStar(node) => capture(self, node.name.as_ref()),
            ast::Pattern::MatchAs(node) => {
                if let Some(inner) = node.pattern.as_deref() {
                    self.pattern(inner, stmt);
                }
                capture(self, node.name.as_ref());
            }
            ast::Pattern::MatchOr(node) => node.patterns.iter().for_each(|p| self.pattern(p, stmt)),
        }
    }
}
