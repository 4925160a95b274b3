//! Statements and the conditions under which they run.

use std::ops::Range;

use thin_vec::ThinVec;

use super::*;

/// A statement.
#[derive(Debug)]
pub struct Stmt {
    /// What it is.
    pub kind: StmtKind,
    /// Where.
    pub span: Span,
    /// The scope it runs in.
    pub scope: ScopeId,
    /// The conditions under which it runs.
    pub guard: GuardId,
}

/// The forms of statements. Compound statements stand for their head alone.
#[derive(Debug)]
pub enum StmtKind {
    /// An expression on its own.
    Expr(ExprId),
    /// `a = b = value`
    Assign(ThinVec<ExprId>, ExprId),
    /// `a += value`
    AugAssign(ExprId, Operator, ExprId),
    /// `a: annotation = value`
    AnnAssign(ExprId, ExprId, Option<ExprId>),
    /// `return value`
    Return(Option<ExprId>),
    /// `raise value`
    Raise(Option<ExprId>),
    /// `assert test, message`
    Assert(ExprId, Option<ExprId>),
    /// `del a, b`
    Delete(ThinVec<ExprId>),
    /// `if`/`elif` with its test.
    If(ExprId),
    /// `while test`
    While(ExprId),
    /// `for target in iter`
    For(ExprId, ExprId),
    /// `with item as target`
    With(ExprId, Option<ExprId>),
    /// `match subject`
    Match(ExprId),
    /// `try`
    Try(TryId),
    /// `import a.b as c`: one statement a name.
    Import(Box<Import>),
    /// `from .a import b as c`: one statement a name.
    ImportFrom(Box<ImportFrom>),
    /// `def`
    Function(FunctionId),
    /// `class`
    Class(ClassId),
    /// `global`, `nonlocal`, `pass`, `break`, `continue`, `type`.
    Other,
}

/// `import module as alias`
#[derive(Debug)]
pub struct Import {
    /// Dotted.
    pub module: Symbol,
    /// `as`
    pub alias: Option<Symbol>,
    /// Of the dotted name.
    pub span: Span,
}

/// `from module import name as alias`
#[derive(Debug)]
pub struct ImportFrom {
    /// Number of leading dots.
    pub level: u32,
    /// Dotted, empty for `from . import`.
    pub module: Symbol,
    /// The name; `*` for a star import.
    pub name: Symbol,
    /// `as`
    pub alias: Option<Symbol>,
    /// Of the dotted module with its dots.
    pub module_span: Span,
    /// Of the name.
    pub span: Span,
}

/// A condition under which code runs, and the one around it.
#[derive(Debug, Clone, Copy)]
pub struct Guard {
    /// The condition around it.
    pub parent: GuardId,
    /// The condition.
    pub kind: GuardKind,
}

/// The forms of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardKind {
    /// No condition.
    Always,
    /// The test came out as `holds`: a branch, an operand of `and`, or what follows an early exit or an assert.
    Test {
        /// The test.
        test: ExprId,
        /// Its truth.
        holds: bool,
    },
    /// Inside the body of a `try`.
    TryBody(TryId),
    /// Inside the `else` of a `try`.
    TryElse(TryId),
    /// Inside a handler of a `try`.
    Handler(TryId, u32),
    /// Inside a `with` on this expression.
    With(ExprId),
    /// Inside a loop body, which may run no times.
    Loop,
    /// Inside a `case`, which may not match.
    Case,
    /// Inside the body of a function that is defined under the parent condition: handlers around the definition
    /// do not protect the body.
    Body(FunctionId),
    /// After a statement that always leaves.
    Unreachable,
}

/// A `try` statement.
#[derive(Debug)]
pub struct Try {
    /// Statements of the body.
    pub body: Range<u32>,
    /// Its handlers.
    pub handlers: Vec<Handler>,
}

/// An `except` clause.
#[derive(Debug)]
pub struct Handler {
    /// The classes it names; `None` for a bare `except:`.
    pub classes: Option<Box<[ExprId]>>,
    /// `as name`
    pub name: Option<Symbol>,
    /// Statements of its body.
    pub body: Range<u32>,
}
