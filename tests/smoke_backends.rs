//! The Python side of `smoke --python`, with real interpreters. CI runs these with `--ignored`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fa_doctor::smoke::backends::{matrix, write_inputs};
use fa_doctor::smoke::child::supervise;
use fa_doctor::smoke::problem::Problem;
use fa_doctor::smoke::reference::{Output, compare};

/// Runs `backends.py` on the CPU and gives its events.
fn run(python: &str, folder: &Path, backend: &str) -> Vec<serde_json::Value> {
    let mut command = Command::new(python);
    command.arg(folder.join("backends.py")).arg(folder).args([backend, "cpu"]);
    let mut events = Vec::new();
    let ended = supervise(command, Duration::from_secs(300), |line| events.extend(serde_json::from_str(line).ok()));
    let ended = ended.expect("a Python");
    assert!(ended.status.is_some_and(|status| status.success()), "{}", ended.stderr);
    events
}

#[test]
#[ignore = "needs a Python with torch, named by FA_DOCTOR_TORCH_PYTHON"]
fn torch_on_the_cpu_agrees_with_the_reference() {
    let python = std::env::var("FA_DOCTOR_TORCH_PYTHON").expect("FA_DOCTOR_TORCH_PYTHON names a Python with torch");
    let folder = tempfile::tempdir().unwrap();
    let problems: Vec<Problem> = matrix().into_iter().map(Problem::new).collect();
    write_inputs(folder.path(), &problems, None).unwrap();
    let events = run(&python, folder.path(), "torch-sdpa");
    assert_eq!(events.first().unwrap()["event"], "installed");
    assert_eq!(events.last().unwrap()["event"], "done");
    let mut compared = 0;
    for event in events.iter().filter(|event| event["event"] == "case") {
        let name = event["case"].as_str().unwrap();
        let problem = problems.iter().find(|p| p.case.name == name).unwrap();
        if problem.case.page_size.is_some() {
            assert_eq!(event["result"], "not-offered");
            continue;
        }
        assert_eq!(event["result"], "ran", "{event}");
        let bytes = std::fs::read(folder.path().join(format!("{name}.torch-sdpa.o"))).unwrap();
        let o: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        let error = compare(problem, Output { o: &o, lse: None }).output;
        println!("{name}: {error:.1e}");
        assert!(error <= problem.case.dtype.tolerance(), "{name}: {error}");
        compared += 1;
    }
    assert!(compared >= 10);
}
