//! # What it does
//!
//! Compiles the installed kernels for the architecture given with `--arch` and compares the shared memory that each
//! launch asks for with what a block can have there, as the CuTe DSL knows it. It is reported by the probe, not
//! by `fa-doctor scan`: the number is known only once the kernel has been traced.
//!
//! # Why is this bad
//!
//! Compiling succeeds, and the first launch fails: "invalid argument" or "out of resources", after the model has been
//! loaded. It happens where a kernel's tiles were chosen for an architecture with more shared memory: sm_80 has 166912
//! bytes, sm_90 and sm_100 232448, sm_86, sm_89, sm_120 and sm_121 only 101376.
//!
//! # Example
//!
//! ```text
//! gqa_d256       over capacity  2.5 s  131072
//! compiles, and cannot be launched: it asks for 131072 bytes of shared memory, sm_120 has 101376
//! ```
//!
//! # Fix
//!
//! Take another implementation for this head dimension (FA2, Triton or FlashInfer), or a release whose tiles fit.
//! fa-doctor does not choose tiles.
//!
//! # References
//!
//! - <https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities>

use super::{Context, Rule, RuleInfo, Sink};

/// What `probe` reports.
pub static INFO: RuleInfo = RuleInfo {
    code: "FA303",
    name: "smem-over-capacity",
    summary: "(probe) a kernel asks for more shared memory than the architecture has",
    source: include_str!("fa303_smem_over_capacity.rs"),
};

/// FA303.
pub struct SmemOverCapacity;

impl Rule for SmemOverCapacity {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    /// Nothing: it takes a run of the user's Python, which a scan never starts.
    fn check(&self, _: &Context<'_>, _: &mut Sink) {}
}
