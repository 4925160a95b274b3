//! The index of one source file: scopes, bindings, functions, classes, statements and expressions in flat arenas.
//!
//! It is the projection of the syntax tree that the rules need. Control structure is not kept as a tree: every
//! statement and expression carries a [`GuardId`], the head of a linked list of the conditions under which it runs
//! (tests, try bodies, handlers, early exits), so that "is this read protected?" is a walk along one list.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use thin_vec::ThinVec;

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
