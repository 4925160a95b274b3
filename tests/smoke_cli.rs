//! `fa-doctor smoke` from end to end on a machine without a GPU: the fake driver of `tests/fake-libcuda` runs the PTX
//! that ships, and misbehaves in every way that has a verdict.
#![cfg(target_os = "linux")]

#[path = "common/schema.rs"]
mod schema;
mod smoke_support;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fa_doctor::smoke::{backends, cases, kernel, problem::Problem};
use serde_json::Value;
use tempfile::TempDir;

/// A machine with the fake driver.
struct Machine {
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

/// What the command printed, and its exit code.
struct Run {
    code: i32,
    json: Value,
    elapsed: Duration,
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let test = std::env::current_exe().unwrap();
        let library = test.parent().unwrap().join("libfake_libcuda.so");
        std::os::unix::fs::symlink(&library, folder.path().join("libcuda.so")).unwrap();
        Machine { folder, variables: Vec::new() }
    }

    /// With `FAKE_CUDA_<name>` set.
    fn with(mut self, name: &'static str, value: impl Into<String>) -> Machine {
        self.variables.push((name, value.into()));
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fa-doctor"));
        command.arg("smoke").args(arguments).env("LD_LIBRARY_PATH", self.folder.path());
        command.env_remove("CUDA_VISIBLE_DEVICES").env("NO_COLOR", "1");
        for (name, value) in &self.variables {
            command.env(format!("FAKE_CUDA_{name}"), value);
        }
        command
    }

    fn smoke(&self, arguments: &[&str]) -> Run {
        let begin = Instant::now();
        let output = self.command(&[arguments, &["--format", "json"]].concat()).output().unwrap();
        let elapsed = begin.elapsed();
        let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        });
        let schema = serde_json::from_str(include_str!("../docs/smoke.schema.json")).unwrap();
        assert_eq!(schema::problems(&schema, &json), Vec::<String>::new());
        Run { code: output.status.code().unwrap(), json, elapsed }
    }

    fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.command(arguments).output().unwrap().stdout).unwrap()
    }
}

impl Run {
    fn stage(&self, name: &str) -> &Value {
        let stages = self.json["stages"].as_array().unwrap();
        stages.iter().find(|stage| stage["name"] == name).unwrap_or_else(|| panic!("no stage {name}: {}", self.json))
    }

    /// The run ended with that code, in that stage, whose message and advice contain these words.
    fn failed(&self, code: i32, stage: &str, message: &str, advice: &str) {
        let found = self.stage(stage);
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("verdict"), "fail", "{found}");
        assert!(text("message").contains(message), "{found}");
        assert!(text("advice").contains(advice), "{found}");
        assert_eq!(self.code, code, "{found}");
        for later in self.json["stages"].as_array().unwrap().iter().skip_while(|s| s["name"] != stage).skip(1) {
            assert_eq!(later["verdict"], "skipped", "{later}");
        }
    }
}

#[test]
fn right() {
    let run = Machine::new().with("NAME", "Fake 5090").smoke(&["--arch", "sm_120"]);
    assert_eq!(run.code, 0, "{}", run.json);
    assert_eq!(run.json["schema"], 1);
    assert_eq!(run.json["device"], serde_json::json!({"name": "Fake 5090", "arch": "sm_120", "driver": "13.0"}));
    let names: Vec<&str> = run.json["stages"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["library", "driver", "device", "memory", "load", "cases", "throughput"]);
    let results = run.json["cases"].as_array().unwrap();
    assert_eq!(results.len(), cases::matrix().len());
    for case in results {
        assert_eq!(case["verdict"], "pass", "{case}");
        assert!(case["max_error"].as_f64().unwrap() <= case["tolerance"].as_f64().unwrap());
        assert!(case["ms"].as_f64().unwrap() > 0.0);
    }
    assert!(run.json["throughput"]["tflops"].as_f64().unwrap() > 0.0);
    // Two seconds on an idle machine; this one may be running every test at once.
    println!("the whole command: {:?}", run.elapsed);
    assert!(run.elapsed < Duration::from_secs(30), "{:?}", run.elapsed);
}

#[test]
fn the_report_for_people_fits_a_terminal() {
    let text = Machine::new().text(&[]);
    println!("{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("device     ok   GPU 0: Fake GPU, sm_120"), "{text}");
    assert!(text.contains("decode_bf16_d128    bf16   128"), "{text}");
    assert!(text.ends_with("The native kernel computes attention correctly on Fake GPU.\n"), "{text}");
    let text = Machine::new().with("DEVICES", "0").text(&[]);
    println!("{text}");
    assert!(text.contains("device     FAIL there is no GPU 0: 0 found"), "{text}");
    assert!(text.contains("hint:"), "{text}");
    assert!(text.ends_with("Could not be checked: stopped while opening the GPU.\n"), "{text}");
}

#[test]
fn corrupted_output() {
    let run = Machine::new().with("CORRUPT", "1").smoke(&[]);
    run.failed(1, "cases", "wrong: dense", "suspect driver or hardware");
    assert!(run.json["cases"].as_array().unwrap().iter().any(|case| case["verdict"] == "fail"));
}

#[test]
fn no_device() {
    Machine::new().with("DEVICES", "0").smoke(&[]).failed(3, "device", "0 found", "");
    Machine::new().with("FAIL", "cuInit:100").smoke(&[]).failed(3, "driver", "CUDA_ERROR_NO_DEVICE (100)", "");
    Machine::new().smoke(&["--device", "3"]).failed(3, "device", "no GPU 3: 1 found", "nvidia-smi -L");
}

#[test]
fn old_driver() {
    Machine::new().with("VERSION", "10020").smoke(&[]).failed(3, "driver", "CUDA 10.2", "newer driver");
    let run = Machine::new().with("FAIL", "cuModuleLoadDataEx:222").smoke(&[]);
    run.failed(3, "load", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "newer driver");
}

#[test]
fn old_or_other_gpu() {
    Machine::new().with("CAPABILITY", "7.5").smoke(&[]).failed(3, "device", "sm_75", "flash-attention");
    let run = Machine::new().with("CAPABILITY", "9.0").smoke(&["--arch", "sm_120"]);
    run.failed(3, "device", "sm_90: not sm_120", "--device N");
    assert_eq!(Machine::new().with("CAPABILITY", "8.0").smoke(&["--arch", "8.0"]).code, 0);
}

#[test]
fn gpu_that_takes_no_work() {
    Machine::new().with("MODE", "2").smoke(&[]).failed(3, "device", "closed to computations", "nvidia-smi -c DEFAULT");
    let busy = Machine::new().with("FAIL", "cuDevicePrimaryCtxRetain:46");
    busy.smoke(&[]).failed(3, "device", "CUDA_ERROR_DEVICE_UNAVAILABLE", "exclusive");
    let mps = Machine::new().with("FAIL", "cuDevicePrimaryCtxRetain:805");
    mps.smoke(&[]).failed(3, "device", "MPS", "nvidia-cuda-mps-control");
}

#[test]
fn no_memory() {
    Machine::new().with("FREE", "1000000").smoke(&[]).failed(3, "memory", "MiB needed", "nvidia-smi");
    let run = Machine::new().with("FAIL", "cuMemAlloc_v2:2").smoke(&[]);
    run.failed(3, "cases", "CUDA_ERROR_OUT_OF_MEMORY", "nvidia-smi");
}

#[test]
fn launch_failures() {
    for (code, name, advice) in [(719, "LAUNCH_FAILED", "xid"), (700, "ILLEGAL_ADDRESS", "xid"), (214, "ECC", "ECC")] {
        let run = Machine::new().with("FAIL", format!("cuEventSynchronize:{code}")).smoke(&[]);
        run.failed(1, "cases", name, advice);
        assert_eq!(run.json["cases"][0]["verdict"], "fail");
        assert_eq!(run.json["cases"][0]["max_error"], Value::Null);
    }
}

#[test]
fn ptx_that_the_driver_rejects() {
    Machine::new().with("FAIL", "cuModuleLoadDataEx:218").smoke(&[]).failed(1, "load", "INVALID_PTX", "report");
    Machine::new().with("FAIL", "cuModuleLoadDataEx:221").smoke(&[]).failed(
        3,
        "load",
        "JIT_COMPILER",
        "ptxjitcompiler",
    );
}

/// Processes of `smoke` that have this machine's folder in their environment.
fn left_running(machine: &Machine) -> Vec<PathBuf> {
    let marker = format!("LD_LIBRARY_PATH={}", machine.folder.path().display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_ours = |path: &Path| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).split('\0').any(|variable| variable == marker)
    };
    processes.map(|entry| entry.path()).filter(|path| is_ours(path)).collect()
}

#[test]
fn hang() {
    for (call, stage) in [("cuEventSynchronize", "cases"), ("cuInit", "driver")] {
        let machine = Machine::new().with("HANG", call);
        let run = machine.smoke(&["--timeout", "2"]);
        run.failed(1, stage, "no answer after 2 s", "--timeout");
        assert!(run.elapsed < Duration::from_secs(20));
        assert_eq!(left_running(&machine), Vec::<PathBuf>::new());
    }
}

#[test]
fn nothing_stays_when_smoke_itself_is_killed() {
    let machine = Machine::new().with("HANG", "cuEventSynchronize");
    let mut smoke = machine.command(&["--timeout", "100"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    let has_child = || left_running(&machine).len() == 2;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !has_child() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(has_child(), "the child process has not started");
    smoke.kill().unwrap();
    smoke.wait().unwrap();
    while !left_running(&machine).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left_running(&machine), Vec::<PathBuf>::new());
}

#[test]
fn crash() {
    let run = Machine::new().with("CRASH", "cuModuleLoadDataEx").smoke(&[]);
    run.failed(1, "load", "signal: 6 (SIGABRT)", "crashed");
}

#[test]
fn missing_driver_symbol() {
    let machine = Machine::new();
    // Renamed in the string table of a copy, the symbol is not found any more.
    let path = machine.folder.path().join("libcuda.so");
    let mut library = std::fs::read(&path).unwrap();
    let name = b"\0cuMemGetInfo_v2\0";
    let places: Vec<usize> = (0..library.len() - name.len()).filter(|i| library[*i..].starts_with(name)).collect();
    places.iter().for_each(|place| library[place + 1] = b'x');
    assert!(!places.is_empty());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, library).unwrap();
    machine.smoke(&[]).failed(3, "memory", "has no cuMemGetInfo_v2", "ldconfig");
}

#[test]
fn no_driver_at_all() {
    let machine = Machine::new();
    std::fs::remove_file(machine.folder.path().join("libcuda.so")).unwrap();
    if fa_doctor::smoke::driver::library_found() {
        return println!("this machine has a driver of its own");
    }
    let run = machine.smoke(&[]);
    run.failed(3, "library", "no NVIDIA driver found", "");
    assert_eq!(run.json["device"], Value::Null);
    assert_eq!(run.json["cases"], serde_json::json!([]));
    // It says how to check, or what to do.
    assert!(!run.stage("library")["advice"].as_str().unwrap().is_empty());
}

// ---- --python ----

/// A stand-in for Python: for each backend a shell fragment that tells what `backends.py` would. `$1` is the folder of
/// the inputs, and the right answers lie in `answers`.
fn python(machine: &Machine, behaviours: &HashMap<&str, &str>) -> String {
    let names: Vec<&str> = backends::matrix().iter().map(|case| case.name).collect();
    let mut script = format!(
        "#!/bin/sh\nfolder=$2 backend=$3 answers={}/answers cases='{}'\n{}\ncase $backend in\n",
        machine.folder.path().display(),
        names.join(" "),
        HELPERS
    );
    for (backend, behaviour) in behaviours {
        script.push_str(&format!("{backend})\n{behaviour}\n;;\n"));
    }
    script.push_str("*) echo '{\"event\":\"absent\"}';;\nesac\n");
    let path = machine.folder.path().join("python");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

const HELPERS: &str = r#"
installed() { printf '{"event":"installed","version":"%s"}\n' "$1"; }
stopped() { printf '{"event":"stopped","result":"%s","message":"%s"}\n' "$1" "$2"; }
begin() { printf '{"event":"begin","case":"%s"}\n' "$1"; }
ended() { printf '{"event":"case","case":"%s","result":"%s","message":"%s"}\n' "$1" "$2" "$3"; }
done_() { echo '{"event":"done"}'; }
right() { for c in $cases; do begin $c; cp $answers/$c $folder/$c.$backend.o; ended $c ran; done; }
"#;

/// Computes the right answers for the stand-in.
fn answers(machine: &Machine) {
    let folder = machine.folder.path().join("answers");
    std::fs::create_dir(&folder).unwrap();
    let module = ptx::Module::parse(kernel::PTX).unwrap();
    for case in backends::matrix() {
        let problem = Problem::new(case);
        let computed = smoke_support::compute(&module, &problem, 0).unwrap();
        let bytes: Vec<u8> = computed.o.iter().flat_map(|x| x.to_le_bytes()).collect();
        std::fs::write(folder.join(problem.case.name), bytes).unwrap();
    }
}

impl Run {
    fn backend(&self, name: &str) -> (&str, &str) {
        let found = self.json["backends"].as_array().unwrap().iter().find(|backend| backend["name"] == name).unwrap();
        (found["verdict"].as_str().unwrap(), found["message"].as_str().unwrap())
    }
}

#[test]
fn every_verdict_on_an_installed_attention() {
    let machine = Machine::new();
    answers(&machine);
    let python = python(
        &machine,
        &HashMap::from([
            ("torch-sdpa", "installed 2.11.0; echo noise; right; done_"),
            (
                "flash-attn-2",
                "installed 2.8.3; right; ended paged gated 'RuntimeError: must be divisible by 256'; done_",
            ),
            // The causal answer where none was asked for.
            ("flash-attn-4", "installed 4.0.0b36; right; cp $answers/causal $folder/dense.$backend.o; done_"),
            ("vllm-fa2", "installed 0.26.0; right; ended decode raises 'TypeError: no such keyword (a.py:3)'; done_"),
            ("vllm-fa3", "installed 0.26.0; stopped gated 'only for compute capability 9.x'"),
            ("vllm-fa4", "installed 0.26.0; stopped raises 'ImportError: undefined symbol: _Z1f'"),
            ("vllm-cute", "installed 0.26.0; begin dense; echo trouble >&2; kill -SEGV $$"),
            ("flashinfer", "installed 0.7.2; begin dense; sleep 100 & wait"),
        ]),
    );
    let run = machine.smoke(&["--python", &python, "--timeout", "5"]);
    let stage = run.stage("backends");
    assert_eq!((run.code, stage["verdict"].as_str().unwrap()), (1, "fail"), "{}", run.json);
    assert!(stage["advice"].as_str().unwrap().contains("fa-doctor scan"));
    let (verdict, message) = run.backend("torch-sdpa");
    assert_eq!(verdict, "right");
    assert!(message.starts_with("18 cases, worst error "), "{message}");
    let (verdict, message) = run.backend("flash-attn-2");
    assert_eq!(verdict, "right");
    assert!(message.contains("1 gated (paged: RuntimeError: must be divisible by 256)"), "{message}");
    let (verdict, message) = run.backend("flash-attn-4");
    assert_eq!(verdict, "wrong");
    assert!(message.starts_with("wrong ") && message.ends_with(" in dense"), "{message}");
    let (verdict, message) = run.backend("vllm-fa2");
    assert_eq!((verdict, message), ("raises", "TypeError: no such keyword (a.py:3) in decode"));
    assert_eq!(run.backend("vllm-fa3"), ("gated", "only for compute capability 9.x"));
    assert_eq!(run.backend("vllm-fa4"), ("raises", "ImportError: undefined symbol: _Z1f"));
    let (verdict, message) = run.backend("vllm-cute");
    assert_eq!(verdict, "raises");
    assert!(message.contains("signal: 11") && message.ends_with("in case dense: trouble"), "{message}");
    assert_eq!(run.backend("flashinfer"), ("raises", "no answer after 5 s, in case dense"));
    assert_eq!(run.backend("flash-attn-3"), ("not-installed", ""));
    assert_eq!(left_running(&machine), Vec::<PathBuf>::new());
}

#[test]
fn an_environment_whose_attention_is_right() {
    let machine = Machine::new();
    answers(&machine);
    let right = "installed 1.0; right; done_";
    let python = python(&machine, &HashMap::from([("torch-sdpa", right), ("flash-attn-2", right)]));
    let run = machine.smoke(&["--python", &python]);
    assert_eq!(run.code, 0, "{}", run.json);
    assert!(run.stage("backends")["message"].as_str().unwrap().contains("right: torch-sdpa, flash-attn-2"));
    let text = machine.text(&["--python", &python]);
    println!("{text}");
    assert!(text.contains("not installed: flash-attn-3,"), "{text}");
    assert!(text.contains("every installed attention that runs on"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn an_environment_without_attention_is_not_clean() {
    let machine = Machine::new();
    let nothing = python(&machine, &HashMap::new());
    machine.smoke(&["--python", &nothing]).failed(3, "backends", "no attention package", ".venv/bin/python");
    let gated = HashMap::from([("vllm-fa3", "installed 1.0; stopped gated 'only for compute capability 9.x'")]);
    let gated = python(&machine, &gated);
    machine.smoke(&["--python", &gated]).failed(3, "backends", "gated on this GPU: vllm-fa3", "scan --arch");
}

#[test]
fn packages_do_not_run_on_a_gpu_that_fails() {
    let machine = Machine::new().with("FAIL", "cuEventSynchronize:719");
    let python = python(&machine, &HashMap::from([("torch-sdpa", "installed 1.0; right; done_")]));
    let run = machine.smoke(&["--python", &python]);
    run.failed(1, "cases", "LAUNCH_FAILED", "xid");
    assert_eq!(run.stage("backends")["verdict"], "skipped");
    assert_eq!(run.json["backends"], serde_json::json!([]));
}

#[test]
fn a_python_that_is_none() {
    let machine = Machine::new();
    let output = machine.command(&["--python", "/nowhere/python"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a python executable"));
    // Another program: it runs, and says nothing that a Python would.
    let run = machine.smoke(&["--python", "/bin/sh"]);
    run.failed(3, "backends", "/bin/sh did not run: ", ".venv/bin/python");
    // No program at all.
    let file = machine.folder.path().join("notes.txt");
    std::fs::write(&file, "").unwrap();
    let output = machine.command(&["--python", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot run"), "{output:?}");
}

#[test]
fn a_relative_python() {
    let machine = Machine::new();
    answers(&machine);
    python(&machine, &HashMap::from([("flash-attn-2", "installed 1.0; right; done_")]));
    let output = machine.command(&["--python", "./python"]).current_dir(machine.folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn quiet_says_what_failed_and_how_it_ended() {
    assert_eq!(Machine::new().text(&["-q"]), "The native kernel computes attention correctly on Fake GPU.\n");
    let text = Machine::new().with("DEVICES", "0").text(&["-q"]);
    assert!(text.starts_with("device     FAIL there is no GPU 0: 0 found\n"), "{text}");
}
