//! Runs PTX on the CPU, so that the kernel that `fa-doctor smoke` ships is proven on machines without a GPU.
//!
//! It reads the text that ships (not a translation of its source) and checks what a GPU does not:
//! every global access against the buffer it lies in and its alignment; shared memory that was never written, that a
//! copy is still filling, or that two threads use with no barrier between them; registers read before they are
//! written; warps that diverge at an instruction that needs all lanes; threads that wait for each other forever.
//! Warps and lanes take turns in an order that a seed decides.
//!
//! A dependency of the tests only. It is a crate of its own so that a debug build of fa-doctor still compiles it
//! optimised: the tests run hundreds of millions of its instructions.
#![forbid(unsafe_code)]

mod arithmetic;
mod execute;
mod fault;
mod instruction;
mod matrix;
mod memory;
mod parse;
mod schedule;
mod shared;

pub use fault::{Fault, FaultKind};
pub use memory::Memory;
pub use parse::{Kernel, Module, ParseError};
pub use schedule::{Launch, Statistics};

/// Lanes of a warp.
const LANES: usize = 32;
/// One bit per lane.
type Mask = u32;
