//! The kernel that ships: its PTX and how it is launched.

use super::problem::Case;

/// One text for every architecture from sm_80 on: the driver compiles it for the GPU that is there.
/// Made of `kernels/attention.cu` by `scripts/kernels.py`.
pub const PTX: &str = include_str!("../../kernels/attention.ptx");

/// What [`PTX`] declares, for messages.
pub const PTX_NAME: &str = "PTX 7.0 for compute_80";

/// The first CUDA driver that reads PTX ISA 7.0, as `cuDriverGetVersion` counts.
pub const MINIMUM_DRIVER: i32 = 11_000;

/// The first compute capability with the instructions that the kernel uses.
pub const MINIMUM_CAPABILITY: (i32, i32) = (8, 0);

/// Query rows that one block of threads computes.
const ROWS_PER_BLOCK: usize = 64;

/// A buffer in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// The output.
    O,
    /// The log-sum-exp of every row.
    Lse,
    /// First query row of every sequence.
    StartsQ,
    /// First key row of every sequence.
    StartsK,
    /// The page table.
    Pages,
}

/// A kernel argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// The address of a buffer.
    Pointer(Buffer),
    /// No buffer.
    Null,
    /// A 32-bit integer.
    Int(i32),
    /// A 32-bit float.
    Float(f32),
}

/// How the kernel is launched for a case; the driver and the tests' interpreter take it from here.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// Name of the entry point.
    pub entry: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// In the order of the entry's parameters.
    pub arguments: Vec<Argument>,
}

impl Launch {
    /// The launch for a case.
    pub fn new(case: &Case) -> Launch {
        let int = |n: usize| Argument::Int(n as i32);
        let bound = |n: Option<usize>| Argument::Int(n.map_or(-1, |n| n as i32));
        let page_size = case.page_size.unwrap_or(1);
        Launch {
            entry: entry(case),
            grid: [case.max_q().div_ceil(ROWS_PER_BLOCK) as u32, case.heads_q as u32, case.lengths.len() as u32],
            block: [128, 1, 1],
            arguments: vec![
                Argument::Pointer(Buffer::Q),
                Argument::Pointer(Buffer::K),
                Argument::Pointer(Buffer::V),
                Argument::Pointer(Buffer::O),
                Argument::Pointer(Buffer::Lse),
                Argument::Pointer(Buffer::StartsQ),
                Argument::Pointer(Buffer::StartsK),
                case.page_size.map_or(Argument::Null, |_| Argument::Pointer(Buffer::Pages)),
                int(case.heads_q),
                int(case.heads_k),
                int(case.total_q()),
                int(page_size),
                int(case.max_k().div_ceil(page_size)),
                Argument::Float((case.scale() * std::f64::consts::LOG2_E) as f32),
                bound(case.mask.left),
                bound(case.mask.right),
            ],
        }
    }
}

/// The entry point for a case.
pub fn entry(case: &Case) -> String {
    format!("fa_fwd_{}_d{}", case.dtype.name(), case.head_dim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smoke::cases;
    use sha2::{Digest, Sha256};

    fn digest(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_manifest_describes_what_ships() {
        let manifest: toml::Table = include_str!("../../kernels/manifest.toml").parse().unwrap();
        assert_eq!(manifest["ptx_sha256"].as_str().unwrap(), digest(PTX.as_bytes()), "run scripts/kernels.py write");
        let source = include_bytes!("../../kernels/attention.cu");
        assert_eq!(manifest["source_sha256"].as_str().unwrap(), digest(source), "run scripts/kernels.py write");
        let (isa, target) = (manifest["isa"].as_str().unwrap(), manifest["target"].as_str().unwrap());
        assert!(PTX.contains(&format!("\n.version {isa}\n.target {target}\n")));
        assert_eq!(PTX_NAME, format!("PTX {isa} for {}", target.replace("sm", "compute")));
        let entries: Vec<&str> =
            PTX.lines().filter_map(|l| l.strip_prefix(".visible .entry ")).map(|l| l.trim_end_matches('(')).collect();
        let declared: Vec<&str> = manifest["entries"].as_array().unwrap().iter().filter_map(|e| e.as_str()).collect();
        assert_eq!(entries, declared);
    }

    #[test]
    fn every_case_has_an_entry() {
        for case in cases::matrix().iter().chain([&cases::throughput(128)]) {
            assert!(PTX.contains(&format!(".entry {}(", entry(case))), "{}", case.name);
        }
    }
}
