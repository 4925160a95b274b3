use std::fmt;

/// What went wrong, in the classes that a CUDA driver tells apart and the ones it never notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Global or shared memory outside every buffer.
    OutOfBounds,
    /// An address that is no multiple of the access size.
    Misaligned,
    /// Shared memory used by two threads without a barrier between, or while a copy is filling it.
    Race,
    /// Memory or a register read before it was written.
    Uninitialised,
    /// Lanes of a warp apart at an instruction that needs all of them.
    Divergence,
    /// Threads that wait for each other forever.
    Deadlock,
    /// Division by zero and the like: defined by no PTX manual.
    Undefined,
    /// The launch itself: wrong number of parameters, block size.
    Launch,
    /// More instructions than any correct run needs.
    Endless,
}

/// Why a launch failed, with the line of the PTX text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    pub message: String,
    /// `kernel:line` of the instruction; empty for a fault of the launch.
    pub place: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Fault {
        Fault { kind, message: message.into(), place: String::new() }
    }

    pub(crate) fn at(mut self, kernel: &str, line: u32) -> Fault {
        if self.place.is_empty() {
            self.place = format!("{kernel}:{line}");
        }
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            write!(f, "{:?}: {}", self.kind, self.message)
        } else {
            write!(f, "{:?} at {}: {}", self.kind, self.place, self.message)
        }
    }
}

impl std::error::Error for Fault {}
