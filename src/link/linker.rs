//! The state of one line of questions: which resolutions are under way, and what is assumed meanwhile.

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;

use super::guards::Outcome;
use super::{ClassRef, Const, FnRef, ModId, Program, Resolution};
use crate::python::ir::{ExprId, TryId};
use crate::python::{Module, Symbol};

/// How deep a chain of resolutions may go before it counts as Unknown.
const DEPTH: u32 = 48;

/// What a linker assumed, and what it knew under that, before [`Linker::enter`].
pub struct Before {
    parameters: FxHashMap<(FnRef, Symbol), Const>,
    values: FxHashMap<(ModId, ExprId), Resolution>,
    constants: FxHashMap<(ModId, ExprId), Option<Const>>,
    truths: FxHashMap<(ModId, ExprId), Option<bool>>,
}

/// Answers questions about a [`Program`]. Cheap to make, not shared between threads.
pub struct Linker<'p> {
    /// The program.
    pub program: &'p Program<'p>,
    flat: bool,
    architecture: Option<(i64, i64)>,
    depth: Cell<u32>,
    /// Counts the resolutions that were cut short: their results depend on where the question started, and are not
    /// kept for others.
    pub(super) cuts: Cell<u32>,
    active: RefCell<Vec<(ModId, u32, u32)>>,
    /// What expressions denote, under what is assumed now. Answers that were cut short are kept here too: asked again
    /// from the same linker they are the same, and a cycle costs its length once.
    values: RefCell<FxHashMap<(ModId, ExprId), Resolution>>,
    /// Values of expressions, likewise.
    constants: RefCell<FxHashMap<(ModId, ExprId), Option<Const>>>,
    /// Truths of tests, likewise.
    truths: RefCell<FxHashMap<(ModId, ExprId), Option<bool>>>,
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
            architecture: None,
            depth: Cell::new(0),
            cuts: Cell::new(0),
            active: RefCell::default(),
            values: RefCell::default(),
            constants: RefCell::default(),
            truths: RefCell::default(),
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

    /// A linker for which the device has this compute capability.
    pub fn for_architecture(program: &'p Program<'p>, major: i64, minor: i64) -> Linker<'p> {
        Linker { architecture: Some((major, minor)), ..Linker::new(program) }
    }

    pub(super) fn architecture(&self) -> Option<(i64, i64)> {
        self.architecture
    }

    /// Answers depend on the program alone.
    pub(super) fn assumes_nothing(&self) -> bool {
        self.architecture.is_none() && self.self_class.get().is_none() && self.parameters.borrow().is_empty()
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

    /// The kept answer to "what does this expression denote", or the one that `question` gives.
    pub(super) fn kept_value(&self, key: (ModId, ExprId), question: impl FnOnce() -> Resolution) -> Resolution {
        if let Some(known) = self.values.borrow().get(&key) {
            return known.clone();
        }
        let answer = self.guarded((key.0, 1, key.1.0), Resolution::Unknown("a cycle"), question);
        self.values.borrow_mut().insert(key, answer.clone());
        answer
    }

    /// The kept answer to "which constant is this expression", or the one that `question` gives.
    pub(super) fn kept_constant(
        &self,
        key: (ModId, ExprId),
        question: impl FnOnce() -> Option<Const>,
    ) -> Option<Const> {
        if let Some(known) = self.constants.borrow().get(&key) {
            return known.clone();
        }
        let answer = self.guarded((key.0, 2, key.1.0), None, question);
        self.constants.borrow_mut().insert(key, answer.clone());
        answer
    }

    /// The kept answer to "is this test true", or the one that `question` gives.
    pub(super) fn kept_truth(&self, key: (ModId, ExprId), question: impl FnOnce() -> Option<bool>) -> Option<bool> {
        if let Some(known) = self.truths.borrow().get(&key) {
            return *known;
        }
        let answer = self.guarded((key.0, 8, key.1.0), None, question);
        self.truths.borrow_mut().insert(key, answer);
        answer
    }

    /// Runs `question` with nothing kept from other assumptions, and keeps nothing of it.
    fn apart<T>(&self, question: impl FnOnce() -> T) -> T {
        let (values, constants, truths) = (self.values.take(), self.constants.take(), self.truths.take());
        let answer = question();
        self.truths.replace(truths);
        self.values.replace(values);
        self.constants.replace(constants);
        answer
    }

    /// Runs `question` with `self` assumed to be an instance of `class`.
    pub fn assuming_self<T>(&self, class: ClassRef, question: impl FnOnce() -> T) -> T {
        let before = self.self_class.replace(Some(class));
        let answer = self.apart(question);
        self.self_class.set(before);
        answer
    }

    /// Runs `question` with parameters of `function` assumed to have these values.
    pub fn assuming<T>(&self, function: FnRef, values: Vec<(Symbol, Const)>, question: impl FnOnce() -> T) -> T {
        let before = self.enter(function, values);
        let answer = question();
        self.leave(before);
        answer
    }

    /// From here on, until [`Linker::leave`], parameters of `function` have these values.
    pub fn enter(&self, function: FnRef, values: Vec<(Symbol, Const)>) -> Before {
        let before = Before {
            parameters: self.parameters.borrow().clone(),
            values: self.values.take(),
            constants: self.constants.take(),
            truths: self.truths.take(),
        };
        self.parameters.borrow_mut().extend(values.into_iter().map(|(name, value)| ((function, name), value)));
        before
    }

    /// Back to what was assumed before.
    pub fn leave(&self, before: Before) {
        self.parameters.replace(before.parameters);
        self.values.replace(before.values);
        self.constants.replace(before.constants);
        self.truths.replace(before.truths);
    }
}
