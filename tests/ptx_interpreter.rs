//! The interpreter that proves the kernel: what it computes, and that it finds each kind of fault it claims to find, on
//! kernels of a few lines.

use ptx::{Fault, FaultKind, Launch, Memory, Module};

/// A kernel with one pointer parameter in `%rd1` and the thread number in `%r1`.
fn kernel(body: &str) -> String {
    format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n\
         .visible .entry small(\n.param .u64 small_param_0\n)\n.maxntid 64, 1, 1\n{{\n\
         .reg .pred %p<9>;\n.reg .f32 %f<9>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<9>;\n\
         .shared .align 16 .b8 tile[2048];\n\
         ld.param.u64 %rd1, [small_param_0];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd1, %rd2;\n\
         {body}\nret;\n}}\n"
    )
}

/// Runs it with 64 threads on a buffer of 64 words: their new contents.
fn run_with(body: &str, seed: u64) -> Result<Vec<u32>, Fault> {
    let module = Module::parse(&kernel(body)).expect("PTX");
    let mut memory = Memory::default();
    let buffer = memory.allocate((0..64_u32).flat_map(u32::to_le_bytes).collect());
    let kernel = module.kernel("small").expect("the kernel");
    Launch { kernel, grid: [1, 1, 1], block: [64, 1, 1], arguments: &[buffer], seed }.run(&mut memory)?;
    let bytes = memory.read(buffer, 256)?;
    Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// Runs it under several schedules, which must agree.
fn run(body: &str) -> Result<Vec<u32>, Fault> {
    let first = run_with(body, 0);
    for seed in 1..6 {
        let again = run_with(body, seed);
        assert_eq!(first.as_ref().map_err(|f| f.kind), again.as_ref().map_err(|f| f.kind), "seed {seed}");
    }
    first
}

fn fault(body: &str) -> FaultKind {
    run(body).expect_err("a fault").kind
}

#[test]
fn lanes_part_and_meet_again() {
    // Odd threads take one branch, even ones the other; then neighbours exchange.
    let body = "and.b32 %r2, %r1, 1;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra even;\nmul.lo.s32 %r3, %r1, 10;\nbra.uni both;\n\
                even:\nadd.s32 %r3, %r1, 1000;\nboth:\nmov.u32 %r5, 1;\nmov.u32 %r6, 31;\nmov.u32 %r7, -1;\n\
                shfl.sync.bfly.b32 %r4|%p2, %r3, %r5, %r6, %r7;\nst.global.u32 [%rd2], %r4;";
    let expected: Vec<u32> = (0..64).map(|t| if t % 2 == 0 { (t + 1) * 10 } else { t - 1 + 1000 }).collect();
    assert_eq!(run(body), Ok(expected));
}

#[test]
fn loops_of_different_length() {
    let body = "mov.u32 %r2, 0;\nmov.u32 %r3, 0;\nagain:\nadd.s32 %r3, %r3, %r2;\nadd.s32 %r2, %r2, 1;\n\
                setp.le.s32 %p1, %r2, %r1;\n@%p1 bra again;\nst.global.u32 [%rd2], %r3;";
    assert_eq!(run(body), Ok((0..64).map(|t| t * (t + 1) / 2).collect()));
}

/// Every thread copies 16 bytes to its place in shared memory; after what stands in `between`, it names the place that is
/// so many bytes away for the matrices that its warp reads: 16 is of a neighbour, 512 of the other warp.
fn copy_and_read(between: &str, distance: u32) -> String {
    format!(
        "shr.u32 %r2, %r1, 4;\nand.b32 %r2, %r1, 15;\nshl.b32 %r2, %r2, 4;\nmul.wide.u32 %rd3, %r2, 1;\nadd.s64 %rd3, %rd1, %rd3;\n\
         shl.b32 %r3, %r1, 4;\nmov.u32 %r4, tile;\nadd.s32 %r3, %r4, %r3;\nmov.u32 %r5, 16;\n\
         cp.async.cg.shared.global [%r3], [%rd3], 16, %r5;\n{between}\nxor.b32 %r6, %r3, {distance};\n\
         ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r7, %r8, %r9, %r10}}, [%r6];\nst.global.u32 [%rd2], %r7;"
    )
}

#[test]
fn a_copy_is_there_after_commit_wait_and_barrier() {
    let result =
        run(&copy_and_read("cp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;", 512)).expect("no fault");
    // A lane receives one word of a row; both warps have copied the same.
    assert_eq!(result[..4], [0, 1, 2, 3]);
    assert_eq!(result[..32], result[32..]);
}

#[test]
fn races_are_found_whatever_the_order() {
    for between in [
        "",
        "cp.async.commit_group;\nbar.sync 0;",
        "cp.async.wait_group 0;\nbar.sync 0;",
        "cp.async.commit_group;\ncp.async.wait_group 1;\nbar.sync 0;",
        "cp.async.commit_group;\ncp.async.wait_group 0;",
        "cp.async.commit_group;\nbar.sync 0;\ncp.async.wait_group 0;",
    ] {
        assert_eq!(fault(&copy_and_read(between, 16)), FaultKind::Race, "{between}");
    }
}

#[test]
fn two_threads_that_copy_to_one_place_are_a_race() {
    let body = "mov.u32 %r2, tile;\nmov.u32 %r3, 16;\ncp.async.cg.shared.global [%r2], [%rd1], 16, %r3;\n\
                cp.async.commit_group;\ncp.async.wait_group 0;";
    // Which pair of threads it is depends on the order; that it is one does not.
    assert_eq!(fault(body), FaultKind::Race);
}

#[test]
fn an_exit_with_a_copy_under_way_is_a_race() {
    assert_eq!(fault(&copy_and_read("ret;", 16)), FaultKind::Race);
}

#[test]
fn memory_is_checked() {
    assert_eq!(fault("st.global.u32 [%rd2+4], %r1;"), FaultKind::OutOfBounds);
    assert_eq!(fault("ld.global.u32 %r2, [%rd1+-4];"), FaultKind::OutOfBounds);
    assert_eq!(fault("ld.global.u32 %r2, [%rd2+2];"), FaultKind::Misaligned);
    assert_eq!(fault("ld.global.u64 %rd3, [%rd1+4];"), FaultKind::Misaligned);
    let shared = |address: &str| {
        format!("mov.u32 %r2, {address};\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r3, %r4, %r5, %r6}}, [%r2];")
    };
    assert_eq!(fault(&shared("tile")), FaultKind::Uninitialised);
    assert_eq!(fault(&shared("8")), FaultKind::Misaligned);
    assert_eq!(fault(&shared("2048")), FaultKind::OutOfBounds);
}

#[test]
fn registers_must_be_written_by_the_lanes_that_read_them() {
    assert_eq!(fault("add.s32 %r2, %r3, 1;"), FaultKind::Uninitialised);
    // Half of the lanes write it.
    let half = "setp.lt.s32 %p1, %r1, 16;\n@%p1 mov.u32 %r2, 1;\n";
    assert_eq!(fault(&format!("{half}add.s32 %r3, %r2, 1;")), FaultKind::Uninitialised);
    assert!(run(&format!("{half}@%p1 add.s32 %r3, %r2, 1;")).is_ok());
}

const SHUFFLE: &str =
    "mov.u32 %r5, 1;\nmov.u32 %r6, 31;\nmov.u32 %r7, -1;\nshfl.sync.bfly.b32 %r4|%p2, %r1, %r5, %r6, %r7;";

#[test]
fn divergence_is_found() {
    // A collective instruction that only some lanes reach, by a branch and by a guard.
    let branch = format!("setp.lt.s32 %p1, %r1, 5;\n@%p1 bra out;\n{SHUFFLE}\nout:");
    assert_eq!(fault(&branch), FaultKind::Divergence);
    let guard = SHUFFLE.replace("shfl", "@%p1 shfl");
    assert_eq!(fault(&format!("setp.lt.s32 %p1, %r1, 5;\n{guard}")), FaultKind::Divergence);
    // Two of the same kind at different places.
    let apart = format!("setp.lt.s32 %p1, %r1, 5;\n@%p1 bra other;\n{SHUFFLE}\nbra.uni out;\nother:\n{SHUFFLE}\nout:");
    assert_eq!(fault(&apart), FaultKind::Divergence);
    // A barrier that some lanes of a warp do not reach.
    assert_eq!(fault("setp.lt.s32 %p1, %r1, 5;\n@%p1 bra out;\nbar.sync 0;\nout:"), FaultKind::Divergence);
}

#[test]
fn a_warp_that_exits_does_not_hold_up_a_barrier() {
    let body = "setp.lt.s32 %p1, %r1, 32;\n@%p1 bra out;\nbar.sync 0;\nout:";
    assert!(run(body).is_ok());
}

#[test]
fn endless_loops_end() {
    let module = Module::parse(&kernel("again:\nbra.uni again;")).expect("PTX");
    let mut memory = Memory::default();
    let buffer = memory.allocate(vec![0; 256]);
    let kernel = module.kernel("small").expect("the kernel");
    let launch = Launch { kernel, grid: [1, 1, 1], block: [32, 1, 1], arguments: &[buffer], seed: 0 };
    assert_eq!(launch.run(&mut memory).expect_err("a fault").kind, FaultKind::Endless);
}

#[test]
fn undefined_arithmetic_and_wrong_launches_are_refused() {
    assert_eq!(fault("mov.u32 %r2, 0;\ndiv.s32 %r3, %r1, %r2;"), FaultKind::Undefined);
    let module = Module::parse(&kernel("")).expect("PTX");
    let kernel = module.kernel("small").expect("the kernel");
    for (block, arguments) in [([64, 1, 1], &[][..]), ([33, 1, 1], &[0]), ([128, 1, 1], &[0]), ([0, 1, 1], &[0])] {
        let launch = Launch { kernel, grid: [1, 1, 1], block, arguments, seed: 0 };
        assert_eq!(launch.run(&mut Memory::default()).expect_err("a fault").kind, FaultKind::Launch, "{block:?}");
    }
}

#[test]
fn what_it_does_not_know_is_an_error_with_its_line() {
    for body in
        ["wgmma.fence.sync.aligned;", "add.s32 %r2, %r1, %r99;", "mov.u32 %r2, %rd1;", "bra nowhere;", "bar.sync 1;"]
    {
        let error = Module::parse(&kernel(body)).expect_err(body);
        // A label can be missing only once the kernel has ended.
        assert!(error.line == 18 || body.starts_with("bra"), "{body}: {error}");
    }
    assert!(Module::parse("").is_err());
    assert!(Module::parse(".version 7.0\n.entry unfinished(\n").is_err());
}
