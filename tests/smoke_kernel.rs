//! Proves the PTX that ships, on the CPU: every case of the matrix against the float64 reference, under several
//! schedules, by the interpreter of `tests/ptx`, which checks every access on the way. And proves the proof: planted
//! bugs must be caught.

mod smoke_support;

use fa_doctor::smoke::cases;
use fa_doctor::smoke::half::Dtype;
use fa_doctor::smoke::kernel;
use fa_doctor::smoke::problem::{Case, Mask, Problem};
use fa_doctor::smoke::reference::{LSE_TOLERANCE, Output, compare};
use ptx::{FaultKind, Module};
use rayon::prelude::*;
use smoke_support::compute;

fn module() -> Module {
    Module::parse(kernel::PTX).expect("the PTX that ships")
}

/// The cases of `smoke`, and short sequences that end in every part of the first tile that one instruction copies: a
/// copy of one row too many leaves the buffer.
fn all_cases() -> Vec<Case> {
    let mut all = cases::matrix();
    for (head_dim, dtype) in [(64, Dtype::Bf16), (128, Dtype::F16)] {
        for end in (4..64).step_by(8) {
            let (name, mask) = ("short", Mask::CAUSAL);
            let lengths = vec![(2, end)];
            all.push(Case { name, dtype, head_dim, heads_q: 1, heads_k: 1, lengths, mask, page_size: None });
        }
    }
    all
}

/// Why a problem fails under a schedule, if it does: the fault, or how far its numbers are off.
fn failure(module: &Module, problem: &Problem, seed: u64) -> Option<String> {
    let case = &problem.case;
    let computed = match compute(module, problem, seed) {
        Ok(computed) => computed,
        Err(fault) => return Some(format!("{} seed {seed}: {fault}", case.name)),
    };
    let deviation = compare(problem, Output { o: &computed.o, lse: Some(&computed.lse) });
    println!("{:<18} seed {seed}: output {:.1e}, lse {:.1e}", case.name, deviation.output, deviation.lse);
    let right = deviation.output <= case.dtype.tolerance() && deviation.lse <= LSE_TOLERANCE;
    (!right).then(|| format!("{} seed {seed}: {deviation:?}", case.name))
}

fn failures(cases: Vec<Case>, seeds: std::ops::Range<u64>) -> Vec<String> {
    let module = module();
    cases
        .into_par_iter()
        .flat_map_iter(|case| {
            let problem = Problem::new(case);
            seeds.clone().filter_map(|seed| failure(&module, &problem, seed)).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_case_agrees_with_the_reference_under_three_schedules() {
    let failures = failures(all_cases(), 0..3);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Every mask, layout, element type and head dimension with each other, at lengths around the edges of a tile.
#[test]
#[ignore = "minutes: CI runs it"]
fn a_large_matrix_agrees_with_the_reference() {
    let masks = [
        Mask::NONE,
        Mask::CAUSAL,
        Mask { left: Some(0), right: Some(0) },
        Mask { left: Some(63), right: Some(0) },
        Mask { left: Some(64), right: Some(1) },
        Mask { left: None, right: Some(70) },
        Mask { left: Some(10), right: None },
    ];
    let lengths: [&[(usize, usize)]; 6] = [
        &[(63, 63), (64, 64), (65, 65)],
        &[(1, 127), (1, 128), (1, 129)],
        &[(64, 1), (2, 193)],
        &[(130, 66)],
        &[(128, 256)],
        &[(7, 500)],
    ];
    let mut all = Vec::new();
    for dtype in [Dtype::F16, Dtype::Bf16] {
        for head_dim in [64, 128] {
            for (heads_q, heads_k) in [(1, 1), (6, 2)] {
                for mask in masks {
                    for lengths in lengths {
                        for page_size in [None, Some(1), Some(24), Some(128)] {
                            let (name, lengths) = ("large", lengths.to_vec());
                            all.push(Case { name, dtype, head_dim, heads_q, heads_k, lengths, mask, page_size });
                        }
                    }
                }
            }
        }
    }
    let count = all.len();
    let failures = failures(all, 1..2);
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}

/// Slots of a page after the last key hold what earlier tokens left there. Even a NaN must not get through.
#[test]
fn a_nan_in_an_unused_slot_does_not_get_through() {
    let module = module();
    for case in cases::matrix().into_iter().filter(|case| case.page_size.is_some()) {
        let mut problem = Problem::new(case);
        let row = problem.case.heads_k * problem.case.head_dim;
        let mut used = vec![false; problem.case.stored_k()];
        for (sequence, (_, length)) in problem.case.lengths.iter().enumerate() {
            (0..*length).for_each(|n| used[problem.key_row(sequence, n)] = true);
        }
        for (slot, _) in used.iter().enumerate().filter(|(_, used)| !**used) {
            problem.k[slot * row..][..row].fill(0x7fff);
            problem.v[slot * row..][..row].fill(0x7fff);
        }
        assert_eq!(failure(&module, &problem, 0), None);
    }
}

/// The text that ships is what the source gives, byte for byte, and assembles for every architecture without spills.
#[test]
#[ignore = "needs a Python with nvidia-cuda-nvrtc and nvidia-cuda-nvcc 13.5.37, named by FA_DOCTOR_CUDA_PYTHON"]
fn the_ptx_is_reproducible_and_assembles_without_spills() {
    let python = std::env::var("FA_DOCTOR_CUDA_PYTHON").expect("FA_DOCTOR_CUDA_PYTHON names a Python with NVRTC");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/kernels.py");
    for action in ["check", "assemble"] {
        let output = std::process::Command::new(&python).args([script, action]).output().expect("a Python");
        println!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

// ---- planted bugs ----

/// The PTX with the `nth` line that contains `find` changed, in every kernel.
fn mutate(find: &str, nth: usize, change: impl Fn(&str) -> String) -> Module {
    let (mut seen, mut text, mut changed) = (0, String::new(), 0);
    for line in kernel::PTX.lines() {
        if line.contains(".entry ") {
            seen = 0;
        }
        if line.contains(find) {
            if seen == nth {
                text.push_str(&change(line));
                text.push('\n');
                seen += 1;
                changed += 1;
                continue;
            }
            seen += 1;
        }
        text.push_str(line);
        text.push('\n');
    }
    assert_eq!(changed, 4, "{find} number {nth} is not in every kernel");
    Module::parse(&text).expect("the mutant is still PTX")
}

/// What the first case to fail says.
fn caught(module: &Module) -> String {
    let found = all_cases().into_par_iter().find_map_any(|case| {
        let problem = Problem::new(case);
        (0..3).find_map(|seed| failure(module, &problem, seed))
    });
    found.expect("the planted bug is caught")
}

/// Whether a case ends in a fault of that kind, in the order of the lanes alone: no luck needed.
fn fault(module: &Module, kind: FaultKind) {
    let problem = Problem::new(cases::matrix().remove(0));
    match compute(module, &problem, 0) {
        Err(fault) => assert_eq!(fault.kind, kind, "{fault}"),
        Ok(_) => panic!("no {kind:?}"),
    }
}

#[test]
fn a_missing_barrier_is_a_race() {
    for nth in 0..2 {
        fault(&mutate("bar.sync", nth, |_| String::new()), FaultKind::Race);
    }
}

#[test]
fn a_missing_wait_is_a_race() {
    for nth in 0..2 {
        fault(&mutate("cp.async.wait_group", nth, |_| String::new()), FaultKind::Race);
    }
}

#[test]
fn a_missing_commit_is_a_race() {
    // Without it the wait that follows does not wait for these copies.
    for nth in 0..2 {
        fault(&mutate("cp.async.commit_group", nth, |_| String::new()), FaultKind::Race);
    }
}

#[test]
fn a_copy_past_the_last_key_is_out_of_bounds() {
    // A copy of a row past the end is turned to row 0 and to zero bytes, by selections over one predicate.
    let mut text = String::new();
    for kernel in kernel::PTX.split_inclusive("\n}\n") {
        let selection = |line: &str| {
            let operands = line.trim().strip_prefix("selp.b32")?.trim().strip_suffix(';')?;
            <[String; 4]>::try_from(operands.split(", ").map(str::to_owned).collect::<Vec<_>>()).ok()
        };
        let is_size = |s: &[String; 4]| s[1] == "16" && s[2] == "0";
        let predicates: Vec<String> =
            kernel.lines().filter_map(selection).filter(is_size).map(|s| s[3].clone()).collect();
        for line in kernel.lines() {
            match selection(line) {
                Some([d, a, _, p]) if predicates.contains(&p) => text.push_str(&format!("mov.u32 {d}, {a};")),
                _ => text.push_str(line),
            }
            text.push('\n');
        }
    }
    fault(&Module::parse(&text).expect("PTX"), FaultKind::OutOfBounds);
}

#[test]
fn a_store_past_the_last_row_is_out_of_bounds() {
    // The guard of the stores is the last branch before the first of them.
    let mut text = String::new();
    for kernel in kernel::PTX.split_inclusive("\n}\n") {
        let lines: Vec<&str> = kernel.lines().collect();
        let store = lines.iter().position(|line| line.contains("st.global"));
        let guard = store.and_then(|store| lines[..store].iter().rposition(|line| line.trim().starts_with('@')));
        for (number, line) in lines.iter().enumerate() {
            if Some(number) != guard {
                text.push_str(line);
            }
            text.push('\n');
        }
    }
    fault(&Module::parse(&text).expect("PTX"), FaultKind::OutOfBounds);
}

#[test]
fn tiles_that_overlap_are_a_race() {
    // By two chunks, of which one is padding.
    let text = kernel::PTX.replace("[9216];", "[9184];").replace("[17408];", "[17376];");
    fault(&Module::parse(&text).expect("PTX"), FaultKind::Race);
}

#[test]
fn wrong_arithmetic_is_caught() {
    let swap = |from: &'static str, to: &'static str| move |line: &str| line.replace(from, to);
    let mutants = [
        ("the maximum is a minimum", mutate("max.f32", 3, swap("max.f32", "min.f32"))),
        (
            "a shuffle reaches too far",
            mutate("shfl.sync.bfly", 0, |line| {
                // The distance is the third operand: another lane's register pair.
                let parts: Vec<&str> = line.split(',').collect();
                format!("{}, {}, 4, {}, {}", parts[0], parts[1], parts[3], parts[4])
            }),
        ),
        ("a transposed load is not", mutate("ldmatrix.sync.aligned.m8n8.x4.trans", 2, swap(".trans", ""))),
        (
            "the probabilities' halves are swapped",
            mutate("cvt.rn.", 0, |line| {
                let (head, operands) = line.split_once("%r").expect("a register");
                let (d, rest) = operands.split_once(", ").expect("operands");
                let (high, low) = rest.trim_end_matches(';').split_once(", ").expect("operands");
                format!("{head}%r{d}, {low}, {high};")
            }),
        ),
        ("no division by the sum", mutate("rcp.rn.f32", 0, swap("rcp.rn.f32", "mov.f32"))),
        ("the logarithm is an exponential", mutate("lg2.approx.ftz.f32", 0, swap("lg2", "ex2"))),
    ];
    for (what, module) in mutants {
        println!("{what}: {}", caught(&module));
    }
}

/// Every comparison of integers (masks, bounds, loops) off by one, one at a time.
#[test]
#[ignore = "minutes: CI runs it"]
fn comparisons_that_are_off_by_one_are_caught_or_change_nothing() {
    let problems: Vec<Problem> = all_cases().into_iter().map(Problem::new).collect();
    let module = module();
    let expected: Vec<Vec<u16>> =
        problems.par_iter().map(|problem| compute(&module, problem, 1).expect("the original runs").o).collect();
    let off_by_one = [("setp.lt.s32", "setp.le.s32"), ("setp.gt.s32", "setp.ge.s32"), ("setp.ge.s32", "setp.gt.s32")];
    for (from, to) in off_by_one {
        // The kernels differ in how often an instruction occurs.
        let count = kernel::PTX.split(".entry ").skip(1).map(|kernel| kernel.matches(from).count()).min().unwrap_or(0);
        for nth in 0..count {
            let module = mutate(from, nth, |line| line.replace(from, to));
            let caught = problems.par_iter().find_map_any(|problem| failure(&module, problem, 1));
            if caught.is_some() {
                continue;
            }
            // Harmless: an empty block that is not left early, a mask where none is needed.
            println!("{from} number {nth} survives");
            for (problem, expected) in problems.iter().zip(&expected) {
                let o = compute(&module, problem, 1).expect("just now it ran").o;
                assert!(o == *expected, "{from} number {nth} changes {} within its tolerance", problem.case.name);
            }
        }
    }
}
