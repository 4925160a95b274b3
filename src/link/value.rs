//! What an expression denotes, as far as the sources tell.

use std::sync::Arc;

use crate::python::Symbol;
use crate::python::ir::{Argument, ClassId, Constant, ExprId, FunctionId};

/// Index of a module in the [`Program`](super::Program): a source file, an extension or a namespace package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModId(pub u32);

/// A function of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FnRef {
    /// The module.
    pub module: ModId,
    /// The function.
    pub function: FunctionId,
}

/// A class of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassRef {
    /// The module.
    pub module: ModId,
    /// The class.
    pub class: ClassId,
}

/// An expression of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExprRef {
    /// The module.
    pub module: ModId,
    /// The expression.
    pub expr: ExprId,
}

/// One thing that an expression may denote.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A module.
    Module(ModId),
    /// Something that no source at hand defines, known by its dotted path: `functools.partial`, `sys.version_info`.
    External(Symbol),
    /// A function.
    Function(FnRef),
    /// A method whose first parameter is taken.
    Bound(FnRef),
    /// A class.
    Class(ClassRef),
    /// An object made by calling a class, with the call that made it where that is known.
    Instance(ClassRef, Option<ExprRef>),
    /// The first parameter of a method: an instance of the class or of a subclass.
    SelfOf(ClassRef),
    /// The first parameter of a class method: the class or a subclass.
    ClassOf(ClassRef),
    /// `super()` inside a method of the class.
    Super(ClassRef),
    /// `functools.partial(..)`.
    Partial(Arc<Partial>),
    /// A literal.
    Constant(Constant),
    /// A tuple or list display.
    Sequence(ExprRef),
    /// A dict display.
    Mapping(ExprRef),
}

/// A callable with arguments already bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Partial {
    /// What is called in the end.
    pub callee: Value,
    /// Where the bound arguments stand.
    pub module: ModId,
    /// The bound arguments (the callee itself left out).
    pub arguments: Vec<BoundArgument>,
}

/// An argument of a partial; a copy of [`Argument`] that can be compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundArgument {
    /// How it is passed.
    pub kind: crate::python::ir::ArgumentKind,
    /// Its value.
    pub value: ExprId,
}

impl From<&Argument> for BoundArgument {
    fn from(argument: &Argument) -> Self {
        BoundArgument { kind: argument.kind, value: argument.value }
    }
}

/// The outcome of a resolution. Only [`Resolution::Missing`] may become a finding.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolution {
    /// Everything it may denote in this environment; never empty.
    Found(Vec<Value>),
    /// It certainly does not exist.
    Missing,
    /// The sources do not tell; the reason is for `-v` and for tests.
    Unknown(&'static str),
}

impl Resolution {
    /// A single value.
    pub fn one(value: Value) -> Resolution {
        Resolution::Found(vec![value])
    }

    /// The values, if they are known.
    pub fn found(&self) -> Option<&[Value]> {
        match self {
            Resolution::Found(values) => Some(values),
            _ => None,
        }
    }

    /// The value, if there is exactly one.
    pub fn single(&self) -> Option<&Value> {
        match self {
            Resolution::Found(values) => match values.as_slice() {
                [only] => Some(only),
                _ => None,
            },
            _ => None,
        }
    }

    /// The union: Unknown wins, then whatever was found.
    pub fn union(parts: impl IntoIterator<Item = Resolution>) -> Resolution {
        let mut all: Vec<Value> = Vec::new();
        for part in parts {
            match part {
                Resolution::Found(values) => {
                    for value in values {
                        if !all.contains(&value) {
                            all.push(value);
                        }
                    }
                }
                Resolution::Missing => {}
                unknown @ Resolution::Unknown(_) => return unknown,
            }
        }
        if all.is_empty() { Resolution::Missing } else { Resolution::Found(all) }
    }
}
