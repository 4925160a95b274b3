//! Scopes and what is bound in them: names, functions and classes.

use std::ops::Range;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::*;

/// The bindings of one name; few names have more than two.
pub type Bindings = SmallVec<[BindingId; 2]>;

/// A scope.
#[derive(Debug)]
pub struct Scope {
    /// What opens it.
    pub kind: ScopeKind,
    /// The scope around it (itself for the module).
    pub parent: ScopeId,
    /// What is bound in it, in source order.
    pub names: FxHashMap<Symbol, Bindings>,
    /// Names declared `global` here.
    pub globals: Vec<Symbol>,
    /// Names declared `nonlocal` here.
    pub nonlocals: Vec<Symbol>,
    /// Star imports into it.
    pub stars: Vec<StmtId>,
    /// `exec`, `globals().update(..)` and the like: names may exist that no statement shows.
    pub dynamic: bool,
    /// Targets of `globals()[key] = ..` (module scope): the key expressions.
    pub computed: Vec<ExprId>,
}

/// What opens a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeKind {
    /// A file.
    Module,
    /// A class body.
    Class(ClassId),
    /// A function body or lambda.
    Function(FunctionId),
    /// A comprehension.
    Comprehension,
    /// PEP 695 type parameters.
    TypeParams,
}

/// Something that gives a name a meaning.
#[derive(Debug)]
pub struct Binding {
    /// The name.
    pub name: Symbol,
    /// What it is bound to.
    pub kind: BindingKind,
    /// The scope it is bound in.
    pub scope: ScopeId,
    /// The name's place.
    pub span: Span,
    /// The conditions under which it is bound.
    pub guard: GuardId,
    /// The statement (the next one for parts of a statement's head).
    pub stmt: StmtId,
}

/// What a name is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingKind {
    /// A parameter, by index.
    Parameter(FunctionId, u32),
    /// [`StmtKind::Import`]
    Import(StmtId),
    /// [`StmtKind::ImportFrom`]
    ImportFrom(StmtId),
    /// `def`
    Function(FunctionId),
    /// `class`
    Class(ClassId),
    /// The value of an assignment.
    Value(ExprId),
    /// One element of an unpacked value.
    Element {
        /// What is unpacked.
        value: ExprId,
        /// Position among the targets.
        index: u32,
    },
    /// `x: T` without a value: declares, does not bind.
    Declaration(ExprId),
    /// `x += ..`: reads before it binds.
    Augmented,
    /// A target of `for` or of a comprehension.
    Iteration {
        /// What is iterated over.
        iter: ExprId,
        /// The position of the name in its target; `None` if it is the target.
        column: Option<u32>,
    },
    /// `with .. as x`
    Context(ExprId),
    /// `except .. as x`: unbound again when the handler ends.
    Exception,
    /// A capture of `match`.
    Pattern,
    /// A type parameter or `type` alias.
    TypeParameter,
    /// `del x`: makes a name local, does not bind.
    Deletion,
}

/// A function or lambda.
#[derive(Debug)]
pub struct Function {
    /// Its name; `<lambda>` for a lambda.
    pub name: Symbol,
    /// Of the name.
    pub span: Span,
    /// Of the whole definition, decorators excluded.
    pub whole: Span,
    /// Its body's scope.
    pub scope: ScopeId,
    /// The scope that holds the definition (past type parameters).
    pub outer: ScopeId,
    /// The class whose body holds it directly.
    pub class: Option<ClassId>,
    /// Its parameters in the order they are written.
    pub parameters: Vec<Parameter>,
    /// From `(` to `)`; of the parameters alone for a lambda.
    pub parentheses: Span,
    /// From the outermost in.
    pub decorators: Box<[ExprId]>,
    /// The return annotation.
    pub returns: Option<ExprId>,
    /// Conditions of the definition.
    pub guard: GuardId,
    /// `async def`
    pub is_async: bool,
    /// Contains a `yield`.
    pub is_generator: bool,
    /// The end of the body can be reached, which returns None.
    pub falls_through: bool,
    /// Statements of the body (with those of nested functions and classes).
    pub body: Range<u32>,
    /// Expressions of the body (with those of nested functions and classes).
    pub exprs: Range<u32>,
    /// The statement that defines it; for a lambda the one that holds it.
    pub stmt: StmtId,
    /// The value of a lambda.
    pub lambda: Option<ExprId>,
    /// Where the first statement of the body that is not a docstring starts.
    pub body_start: u32,
}

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Its name.
    pub name: Symbol,
    /// How it is passed.
    pub kind: ParameterKind,
    /// Its default.
    pub default: Option<ExprId>,
    /// Its annotation.
    pub annotation: Option<ExprId>,
    /// From the name (or the stars) to the end of the default.
    pub span: Span,
}

/// How a parameter is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ParameterKind {
    PositionalOnly,
    Normal,
    VarArgs,
    KeywordOnly,
    KwArgs,
}

/// A class.
#[derive(Debug)]
pub struct Class {
    /// Its name.
    pub name: Symbol,
    /// Of the name.
    pub span: Span,
    /// Of the whole definition, decorators excluded.
    pub whole: Span,
    /// Its body's scope.
    pub scope: ScopeId,
    /// The scope that holds the definition.
    pub outer: ScopeId,
    /// Base classes, and `*bases`.
    pub bases: Box<[ExprId]>,
    /// `metaclass=..` and the like.
    pub keywords: Box<[(Option<Symbol>, ExprId)]>,
    /// From the outermost in.
    pub decorators: Box<[ExprId]>,
    /// Conditions of the definition.
    pub guard: GuardId,
    /// Statements of the body.
    pub body: Range<u32>,
    /// The statement that defines it.
    pub stmt: StmtId,
    /// Where the first statement of the body that is not a docstring starts.
    pub body_start: u32,
}
