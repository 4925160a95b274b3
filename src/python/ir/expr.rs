//! Expressions.

use thin_vec::ThinVec;

use super::*;

/// How a name, attribute or item is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Read.
    Load,
    /// Assigned.
    Store,
    /// Deleted.
    Del,
}

/// An expression.
#[derive(Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
    /// The scope it is evaluated in.
    pub scope: ScopeId,
    /// The conditions under which it is evaluated.
    pub guard: GuardId,
    /// Read, assigned or deleted.
    pub usage: Usage,
    /// Whether running the program evaluates it.
    pub phase: Phase,
}

/// Whether running the program evaluates an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It does.
    Run,
    /// An annotation that Python evaluates when it defines the function, class or module (before 3.14).
    Annotation,
    /// Never: an annotation under PEP 563, or of a local variable, or the value of a `type` statement.
    Never,
}

/// The forms of expressions.
#[derive(Debug)]
pub enum ExprKind {
    /// `x`
    Name(Symbol),
    /// `value.attr`; the attribute's name is the tail of the span.
    Attribute(ExprId, Symbol),
    /// `f(a, *b, k=c, **d)`
    Call(Box<Call>),
    /// A literal.
    Constant(Constant),
    /// `(a, b)`
    Tuple(ThinVec<ExprId>),
    /// `[a, b]`
    List(ThinVec<ExprId>),
    /// `{a, b}`
    Set(ThinVec<ExprId>),
    /// `{k: v, **d}`: no key for `**d`.
    Dict(ThinVec<(Option<ExprId>, ExprId)>),
    /// `lambda x: ..`
    Lambda(FunctionId),
    /// `a and b`
    And(ThinVec<ExprId>),
    /// `a or b`
    Or(ThinVec<ExprId>),
    /// `not a`
    Not(ExprId),
    /// `-a`
    Negative(ExprId),
    /// `a + b`
    Binary(Operator, ExprId, ExprId),
    /// `a < b <= c`
    Compare(ExprId, ThinVec<(Comparison, ExprId)>),
    /// `a if t else b`: test, then, else.
    If(Box<[ExprId; 3]>),
    /// `a[b]`
    Subscript(ExprId, ExprId),
    /// `*a`
    Starred(ExprId),
    /// `(x := a)`
    Named(ExprId, ExprId),
    /// `await a`
    Await(ExprId),
    /// A comprehension or generator expression.
    Comprehension(Box<Comprehension>),
    /// `f"a{b}"`
    FString(ThinVec<FStringPart>),
    /// Anything whose value no rule asks for; its parts are in the arena all the same.
    Other,
}

/// A call.
#[derive(Debug)]
pub struct Call {
    /// What is called.
    pub callee: ExprId,
    /// The arguments in source order.
    pub arguments: Box<[Argument]>,
    /// From `(` to `)`.
    pub parentheses: Span,
}

/// One argument of a call.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// How it is passed.
    pub kind: ArgumentKind,
    /// Its value (for `*a` and `**a`: `a`).
    pub value: ExprId,
    /// All of it, keyword and stars included.
    pub span: Span,
}

/// How an argument is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// `a`
    Positional,
    /// `*a`
    Star,
    /// `name=a`
    Keyword(Symbol),
    /// `**a`
    DoubleStar,
}

/// A literal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Constant {
    /// `None`
    None,
    /// `True`, `False`
    Bool(bool),
    /// An integer that fits.
    Int(i32),
    /// A float, in Rust's shortest notation.
    Float(Symbol),
    /// A string, implicit concatenation joined.
    Str(Symbol),
    /// `...`
    Ellipsis,
    /// Bytes, complex, a huge integer.
    Other,
}

/// Binary operators that rules evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Add,
    Sub,
    Mul,
    FloorDiv,
    Mod,
    BitOr,
    Other,
}

/// Comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Eq,
    NotEq,
    Lt,
    LtE,
    Gt,
    GtE,
    Is,
    IsNot,
    In,
    NotIn,
}

/// A comprehension.
#[derive(Debug)]
pub struct Comprehension {
    /// `[..]`, `{..}`, `{k: v}` or `(..)`.
    pub kind: ComprehensionKind,
    /// The element (the value, for a dict).
    pub element: ExprId,
    /// Target and iterable of each `for`.
    pub generators: Box<[(ExprId, ExprId)]>,
}

/// The forms of comprehensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ComprehensionKind {
    List,
    Set,
    Dict,
    Generator,
}

/// A piece of an f-string.
#[derive(Debug, Clone, Copy)]
pub enum FStringPart {
    /// Literal text.
    Text(Symbol),
    /// `{expr}`; `plain` when there is neither conversion nor format.
    Value {
        /// The expression.
        value: ExprId,
        /// It is formatted with `str()` alone.
        plain: bool,
    },
}
