//! The state of one line of questions: which resolutions are under way, and what is assumed meanwhile.

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;

use super::guards::Outcome;
use super::{ClassRef, Const, FnRef, ModId, Program};
use crate::python::ir::TryId;
use crate::python::{Module, Symbol};

/// How deep a chain of resolutions may go before it counts as Unknown.
const DEPTH: u32 = 48;

/// Answers questions about a [`Program`]. Cheap to make, not shared between threads.
pub struct Linker<'p> {
    /// The program.
    pub program: &'p Program<'p>,
    flat: bool,
    depth: Cell<u32>,
    /// Counts the resolutions that were cut short: their results depend on where the question started, and are not
    /// kept for others.
    pub(super) cuts: Cell<u32>,
    active: RefCell<Vec<(ModId, u32, u32)>>,
    /// What became of `try` bodies.
    pub(super) outcomes: RefCell<FxHashMap<(ModId, TryId), Outcome>>,
    /// Modules whose imports all succeed.
    pub(super) clean: RefCell<FxHashMap<ModId, bool>>,
    /// Values assumed for parameters of functions.
    pub(super) parameters: RefCell<FxHashMap<(FnRef, Symbol), Const>>,
    /// The concrete class that `self` is assumed to be.
    pub(super) self_class: Cell<Option<ClassRef>>,
}

impl<'p> Linker<'p> {
    /// A linker with nothing assumed.
    pub fn new(program: &'p Program<'p>) -> Linker<'p> {
        Linker {
            program,
            flat: false,
            depth: Cell::new(0),
            cuts: Cell::new(0),
            active: RefCell::default(),
            outcomes: RefCell::default(),
            clean: RefCell::default(),
            parameters: RefCell::default(),
            self_class: Cell::new(None),
        }
    }

    /// A linker that does not ask for subclasses: it reads the hierarchy that they are found in.
    pub(super) fn flat(program: &'p Program<'p>) -> Linker<'p> {
        Linker { flat: true, ..Linker::new(program) }
    }

    pub(super) fn is_flat(&self) -> bool {
        self.flat
    }

    /// The index of a module that is source.
    pub fn module(&self, id: ModId) -> &'p Module {
        self.program.source(id)
    }

    /// Runs `question` unless it is already under way or too deep; then the answer is `cut`.
    pub(super) fn guarded<T>(&self, key: (ModId, u32, u32), cut: T, question: impl FnOnce() -> T) -> T {
        if self.depth.get() >= DEPTH || self.active.borrow().contains(&key) {
            self.cuts.set(self.cuts.get() + 1);
            return cut;
        }
        self.depth.set(self.depth.get() + 1);
        self.active.borrow_mut().push(key);
        let answer = question();
        self.active.borrow_mut().pop();
        self.depth.set(self.depth.get() - 1);
        answer
    }

    /// Runs `question` with `self` assumed to be an instance of `class`.
    pub fn assuming_self<T>(&self, class: ClassRef, question: impl FnOnce() -> T) -> T {
        let before = self.self_class.replace(Some(class));
        let answer = question();
        self.self_class.set(before);
        answer
    }

    /// Runs `question` with parameters of `function` assumed to have these values.
    pub fn assuming<T>(&self, function: FnRef, values: Vec<(Symbol, Const)>, question: impl FnOnce() -> T) -> T {
        let before = self.parameters.borrow().clone();
        self.parameters.borrow_mut().extend(values.into_iter().map(|(name, value)| ((function, name), value)));
        let answer = question();
        *self.parameters.borrow_mut() = before;
        answer
    }
}
