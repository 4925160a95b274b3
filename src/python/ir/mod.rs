//! The index of one source file: scopes, bindings, functions, classes, statements and expressions in flat arenas.
//!
//! It is the projection of the syntax tree that the rules need. Control structure is not kept as a tree: every
//! statement and expression carries a [`GuardId`], the head of a linked list of the conditions under which it runs
//! (tests, try bodies, handlers, early exits), so that "is this read protected?" is a walk along one list.

mod expr;
mod scope;
mod stmt;

pub use expr::*;
pub use scope::*;
pub use stmt::*;

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::symbol::Symbol;
use crate::environment::RootId;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
    )* };
}

ids! {
    /// Index into [`Module::exprs`].
    ExprId,
    /// Index into [`Module::stmts`]; also the order in which statements stand in the file.
    StmtId,
    /// Index into [`Module::scopes`]; 0 is the module's.
    ScopeId,
    /// Index into [`Module::guards`]; 0 is "always".
    GuardId,
    /// Index into [`Module::functions`].
    FunctionId,
    /// Index into [`Module::classes`].
    ClassId,
    /// Index into [`Module::bindings`].
    BindingId,
    /// Index into [`Module::tries`].
    TryId,
}

/// Bytes of the decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last.
    pub end: u32,
}

/// One file.
#[derive(Debug)]
pub struct Module {
    /// Dotted name, as `import` would give it.
    pub name: Symbol,
    /// It is an `__init__.py`.
    pub is_package: bool,
    /// The root that holds it.
    pub root: RootId,
    /// Relative to the root.
    pub path: String,
    /// The decoded text.
    pub text: String,
    /// Bytes on disk in front of `text`.
    pub offset: usize,
    /// Offsets in `text` are offsets on disk (it may be edited).
    pub utf8: bool,
    /// `from __future__ import annotations`.
    pub lazy_annotations: bool,
    /// First byte of every line.
    pub line_starts: Vec<u32>,
    /// Arena.
    pub exprs: Vec<Expr>,
    /// Arena, in source order; statements of nested functions stand between those of the outer one.
    pub stmts: Vec<Stmt>,
    /// Arena.
    pub scopes: Vec<Scope>,
    /// Arena.
    pub guards: Vec<Guard>,
    /// Arena.
    pub functions: Vec<Function>,
    /// Arena.
    pub classes: Vec<Class>,
    /// Arena.
    pub bindings: Vec<Binding>,
    /// Arena.
    pub tries: Vec<Try>,
    /// Names, in whatever scope, of lists and dicts that some code lengthens or shortens.
    pub mutated: FxHashSet<Symbol>,
    /// Places where the file is not Python; what could be recovered is indexed all the same.
    pub errors: Vec<SyntaxError>,
}

/// A place where the file is not Python.
#[derive(Debug, Clone)]
pub struct SyntaxError {
    /// Where.
    pub span: Span,
    /// What the parser says.
    pub message: String,
}

macro_rules! index {
    ($($id:ident => $field:ident: $out:ty),* $(,)?) => { $(
        impl std::ops::Index<$id> for Module {
            type Output = $out;

            fn index(&self, id: $id) -> &$out {
                &self.$field[id.0 as usize]
            }
        }
    )* };
}

index! {
    ExprId => exprs: Expr,
    StmtId => stmts: Stmt,
    ScopeId => scopes: Scope,
    GuardId => guards: Guard,
    FunctionId => functions: Function,
    ClassId => classes: Class,
    BindingId => bindings: Binding,
    TryId => tries: Try,
}

impl Module {
    /// The scope of the module itself.
    pub const SCOPE: ScopeId = ScopeId(0);

    /// Line and column of an offset in `text`, both from 1, the column in characters.
    pub fn position(&self, offset: u32) -> (u32, u32) {
        let line = self.line_starts.partition_point(|&start| start <= offset) - 1;
        let start = self.line_starts[line] as usize;
        let column = self.text[start..offset as usize].chars().count();
        (line as u32 + 1, column as u32 + 1)
    }

    /// The source text of a span.
    pub fn slice(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    /// The conditions at `guard`, from the innermost out.
    pub fn conditions(&self, guard: GuardId) -> impl Iterator<Item = GuardKind> + '_ {
        let mut next = guard;
        std::iter::from_fn(move || {
            if next.0 == 0 {
                return None;
            }
            let Guard { parent, kind } = self[next];
            next = parent;
            Some(kind)
        })
    }

    /// The statements of a function's or class's own body, nested definitions' bodies left out.
    pub fn own_statements(&self, body: &Range<u32>, scope: ScopeId) -> impl Iterator<Item = (StmtId, &Stmt)> {
        body.clone().map(StmtId).map(|id| (id, &self[id])).filter(move |(_, stmt)| stmt.scope == scope)
    }

    /// The span of the attribute's name in `value.attr`.
    pub fn attribute_span(&self, attribute: ExprId) -> Span {
        let expr = &self[attribute];
        match expr.kind {
            ExprKind::Attribute(value, _) => {
                // Not the length of the name: a private one is written shorter than it is.
                let after = &self.text[self[value].span.end as usize..expr.span.end as usize];
                let written = after.trim_end_matches(|c: char| c == '_' || c.is_alphanumeric()).len();
                Span { start: self[value].span.end + written as u32, end: expr.span.end }
            }
            _ => expr.span,
        }
    }

    /// The dotted name of an expression made of names and attributes (`a.b.c`).
    pub fn dotted(&self, expr: ExprId) -> Option<String> {
        match self[expr].kind {
            ExprKind::Name(name) => Some(name.to_string()),
            ExprKind::Attribute(value, attr) => Some(format!("{}.{attr}", self.dotted(value)?)),
            _ => None,
        }
    }

    /// `Class.method` or `function`, with the enclosing ones in front; `<module>` for the module scope.
    pub fn qualified(&self, scope: ScopeId) -> String {
        let mut parts = Vec::new();
        let mut at = scope;
        while at != Module::SCOPE {
            match self[at].kind {
                ScopeKind::Class(class) => parts.push(self[class].name.as_str()),
                ScopeKind::Function(function) if self[function].lambda.is_none() => {
                    parts.push(self[function].name.as_str());
                }
                _ => {}
            }
            at = self[at].parent;
        }
        if parts.is_empty() {
            return "<module>".to_owned();
        }
        parts.reverse();
        parts.join(".")
    }

    /// The innermost function (lambdas and comprehensions passed over) whose body holds `scope`.
    pub fn enclosing_function(&self, scope: ScopeId) -> Option<FunctionId> {
        let mut at = scope;
        loop {
            match self[at].kind {
                ScopeKind::Function(function) if self[function].lambda.is_none() => return Some(function),
                ScopeKind::Module | ScopeKind::Class(_) => return None,
                _ => at = self[at].parent,
            }
        }
    }

    /// Whether what stands in a scope runs when the module is imported: in the module itself or the body of a class in it.
    pub fn runs_at_import(&self, scope: ScopeId) -> bool {
        match self[scope].kind {
            ScopeKind::Module => true,
            ScopeKind::Class(_) => self.runs_at_import(self[scope].parent),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment has a million expressions.
    #[test]
    fn expressions_are_small() {
        assert_eq!(size_of::<ExprKind>(), 16);
        assert_eq!(size_of::<Expr>(), 40);
    }
}
