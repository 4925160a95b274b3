//! Runs the kernel that ships as `smoke` would, with the interpreter of `tests/ptx` in the place of a GPU.

#![allow(dead_code, reason = "each test uses its part")]

use fa_doctor::smoke::kernel::{Argument, Buffer, Launch};
use fa_doctor::smoke::problem::Problem;
use ptx::{Fault, Memory, Module};

/// What a launch computed.
pub struct Computed {
    pub o: Vec<u16>,
    pub lse: Vec<f32>,
}

/// Runs the launch of a problem under the schedule that the seed decides.
pub fn compute(module: &Module, problem: &Problem, seed: u64) -> Result<Computed, Fault> {
    let case = &problem.case;
    let launch = Launch::new(case);
    let bytes16 = |values: &[u16]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let bytes32 = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let rows = case.total_q() * case.heads_q;
    let mut memory = Memory::default();
    // In the order of `Buffer`; outputs begin as NaNs, so that what is not written shows.
    let buffers = [
        memory.allocate(bytes16(&problem.q)),
        memory.allocate(bytes16(&problem.k)),
        memory.allocate(bytes16(&problem.v)),
        memory.allocate(vec![0xff; 2 * rows * case.head_dim]),
        memory.allocate(vec![0xff; 4 * rows]),
        memory.allocate(bytes32(&problem.starts_q)),
        memory.allocate(bytes32(&problem.starts_k)),
        memory.allocate(bytes32(&problem.pages)),
    ];
    let value = |argument: &Argument| match *argument {
        Argument::Null => 0,
        Argument::Int(n) => u64::from(n as u32),
        Argument::Float(x) => u64::from(x.to_bits()),
        Argument::Pointer(buffer) => buffers[buffer as usize],
    };
    let arguments: Vec<u64> = launch.arguments.iter().map(value).collect();
    let kernel = module.kernel(&launch.entry).expect("an entry for every case");
    ptx::Launch { kernel, grid: launch.grid, block: launch.block, arguments: &arguments, seed }.run(&mut memory)?;
    let o = memory.read(buffers[Buffer::O as usize], 2 * rows * case.head_dim)?;
    let lse = memory.read(buffers[Buffer::Lse as usize], 4 * rows)?;
    Ok(Computed {
        o: o.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect(),
        lse: lse.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    })
}
