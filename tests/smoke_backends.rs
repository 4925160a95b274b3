//! The Python side of `smoke --python` with a real Python and a real torch on the CPU: the control against the
//! reference, and the calls to every package against stand-ins with their signatures. CI runs these with `--ignored`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fa_doctor::smoke::backends::{matrix, write_inputs};
use fa_doctor::smoke::child::supervise;
use fa_doctor::smoke::problem::Problem;
use fa_doctor::smoke::reference::{Output, compare};
use serde_json::Value;

/// What became of a backend: how often each result came, the worst error of what ran relative to its tolerance, and
/// what it said first.
#[derive(Debug)]
struct Ran {
    results: BTreeMap<String, usize>,
    worst: f64,
    message: String,
}

/// Runs `backends.py` for one backend on the CPU.
fn run(backend: &str) -> Ran {
    let python = std::env::var("FA_DOCTOR_TORCH_PYTHON").expect("FA_DOCTOR_TORCH_PYTHON names a Python with torch");
    let folder = tempfile::tempdir().unwrap();
    let problems: Vec<Problem> = matrix().into_iter().map(Problem::new).collect();
    write_inputs(folder.path(), &problems, None).unwrap();
    let mut command = Command::new(python);
    command.arg(folder.path().join("backends.py")).arg(folder.path()).args([backend, "cpu"]);
    command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smoke_site"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let mut events: Vec<Value> = Vec::new();
    let ended = supervise(command, Duration::from_secs(300), |line| {
        events.extend(serde_json::from_str::<Value>(line));
        true
    });
    let ended = ended.expect("a Python");
    assert!(ended.status.is_some_and(|status| status.success()), "{}", ended.stderr);
    assert_eq!(events[0]["event"], "installed", "{events:?}");
    let mut ran = Ran { results: BTreeMap::new(), worst: 0.0, message: String::new() };
    for event in events.iter().filter(|event| event["event"] == "case" || event["event"] == "stopped") {
        *ran.results.entry(event["result"].as_str().unwrap().to_owned()).or_default() += 1;
        if ran.message.is_empty() {
            ran.message = event["message"].as_str().unwrap().to_owned();
        }
        if event["result"] == "ran" {
            let name = event["case"].as_str().unwrap();
            let problem = problems.iter().find(|problem| problem.case.name == name).unwrap();
            let bytes = std::fs::read(folder.path().join(format!("{name}.{backend}.o"))).unwrap();
            let o: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
            let error = compare(problem, Output { o: &o, lse: None }).output;
            println!("{backend} {name}: {error:.1e}");
            ran.worst = ran.worst.max(error / problem.case.dtype.tolerance());
        }
    }
    println!("{backend}: {ran:?}");
    ran
}

fn counts(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Cases, and those among them with pages.
fn cases() -> (usize, usize) {
    (matrix().len(), matrix().iter().filter(|case| case.page_size.is_some()).count())
}

#[test]
#[ignore = "needs a Python with torch, named by FA_DOCTOR_TORCH_PYTHON"]
fn torch_agrees_with_the_reference() {
    let (all, paged) = cases();
    let ran = run("torch-sdpa");
    assert_eq!(ran.results, counts(&[("ran", all - paged), ("not-offered", paged)]));
    assert!(ran.worst <= 1.0);
}

#[test]
#[ignore = "needs a Python with torch, named by FA_DOCTOR_TORCH_PYTHON"]
fn every_package_is_called_as_it_wants() {
    let (all, paged) = cases();
    // Pages of 256 are all that flash-attn 2 takes.
    let ran = run("flash-attn-2");
    assert_eq!(ran.results, counts(&[("ran", all - paged + 1), ("gated", paged - 1)]));
    assert!(ran.worst <= 1.0);
    let ran = run("flash-attn-4");
    assert_eq!(ran.results, counts(&[("ran", all - paged), ("gated", paged)]));
    assert!(ran.worst <= 1.0);
    let ran = run("vllm-fa2");
    assert_eq!(ran.results, counts(&[("ran", all)]));
    assert!(ran.worst <= 1.0);
    // One sequence at a time; the stand-in refuses single queries, and there is no window to the right.
    let ran = run("flashinfer");
    assert_eq!(ran.results, counts(&[("ran", all - paged - 5), ("gated", 4), ("not-offered", paged + 1)]));
    assert!(ran.worst <= 1.0);
}

#[test]
#[ignore = "needs a Python with torch, named by FA_DOCTOR_TORCH_PYTHON"]
fn what_is_wrong_gated_or_broken_is_told_apart() {
    let (all, paged) = cases();
    let ran = run("flash-attn-3");
    assert_eq!(ran.results, counts(&[("ran", all - paged), ("not-offered", paged)]));
    assert!(ran.worst > 20.0, "a mask at the wrong corner is far off: {}", ran.worst);
    let ran = run("vllm-fa3");
    assert_eq!(ran.results, counts(&[("gated", 1)]));
    assert_eq!(ran.message, "FA3 is only supported on devices with compute capability 9.x");
    let ran = run("vllm-fa4");
    assert_eq!(ran.results, counts(&[("raises", 1)]));
    assert_eq!(ran.message, "ImportError: FA4 is unavailable due to: cute.so: undefined symbol: _ZN3c105ErrorE");
    let ran = run("vllm-cute");
    assert_eq!(ran.results, counts(&[("raises", all)]));
    let expected = "NameError: name 'mRenamed' is not defined (vllm/vllm_flash_attn/cute/interface.py:6)";
    assert_eq!(ran.message, expected);
}

#[test]
#[ignore = "needs a Python with torch, named by FA_DOCTOR_TORCH_PYTHON"]
fn refusals_are_told_from_failures() {
    let python = std::env::var("FA_DOCTOR_TORCH_PYTHON").expect("FA_DOCTOR_TORCH_PYTHON names a Python with torch");
    let script = r#"
import backends
gates = [
    RuntimeError("FlashAttention only supports Ampere GPUs or newer."),
    AssertionError("Paged KV not supported on this GPU"),
    NotImplementedError(),
    ValueError("Unsupported compute capability"),
    RuntimeError("block size must be divisible by 256"),
]
failures = [
    RuntimeError("CUDA error: the provided PTX was compiled with an unsupported toolchain."),
    RuntimeError("CUDA error: no kernel image is available for execution on the device"),
    RuntimeError("Triton Error [CUDA]: operation not supported"),
    TypeError("got an unexpected keyword argument 'supported'"),
    ImportError("x.so: undefined symbol: _Zsupport"),
    AssertionError(),
]
assert all(map(backends.is_gate, gates)), [g for g in gates if not backends.is_gate(g)]
assert not any(map(backends.is_gate, failures)), [f for f in failures if backends.is_gate(f)]
"#;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/smoke");
    let mut command = Command::new(python);
    command.args(["-c", script]).env("PYTHONPATH", folder).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("a Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
