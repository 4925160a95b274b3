//! What wraps the binary: the wheel's build backend and the script of the GitHub action.

#![cfg(unix)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{BROKEN, FIXED, site, write};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const BINARY: &str = env!("CARGO_BIN_EXE_fa-doctor");

/// Runs the action's script as a runner would, for an environment in `place`.
fn action(place: &Path, target: &str, arguments: &str, fail_on: &str) -> (Output, String, String) {
    let file = |name: &str| {
        write(place, name, "");
        place.join(name)
    };
    let (outputs, summary) = (file("outputs"), file("summary"));
    let output = Command::new(format!("{ROOT}/packaging/action.sh"))
        .current_dir(place)
        .env("RUNNER_TEMP", place)
        .env("GITHUB_ACTION_PATH", ROOT)
        .env("GITHUB_OUTPUT", &outputs)
        .env("GITHUB_STEP_SUMMARY", &summary)
        .env("INPUT_BINARY", BINARY)
        .env("INPUT_TARGET", target)
        .env("INPUT_ARCH", "sm_90,sm_120")
        .env("INPUT_FAIL_ON", fail_on)
        .env("INPUT_ARGS", arguments)
        .output()
        .expect("bash");
    let read = |path| fs::read_to_string(path).expect("a file");
    (output, read(outputs), read(summary))
}

#[test]
fn the_action_annotates_summarises_and_hands_on_its_files() {
    let place = tempfile::tempdir().expect("a folder");
    site(&place.path().join("with space"), BROKEN);
    let (output, outputs, summary) = action(place.path(), "with space\n", "", "error");
    let log = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(log.contains("::error file=with space/flash_attn/cute/forward.py,line=6"), "{log}");
    assert!(summary.starts_with("### fa-doctor: 1 error"), "{summary}");
    for line in ["exit-code=1", "errors=1", "warnings=0"] {
        assert!(outputs.lines().any(|output| output == line), "{outputs}");
    }
    let sarif = outputs.lines().find_map(|line| line.strip_prefix("sarif=")).expect("the SARIF file");
    assert!(Path::new(sarif).is_file());
}

#[test]
fn the_action_hands_on_arguments_and_other_exit_codes() {
    let place = tempfile::tempdir().expect("a folder");
    site(&place.path().join("broken"), BROKEN);
    site(&place.path().join("fixed"), FIXED);
    fs::create_dir(place.path().join("empty")).expect("a folder");
    for (target, arguments, fail_on, code) in [
        ("fixed", "", "error", 0),
        ("broken", "--ignore\nFA001", "error", 0),
        ("broken", "", "never", 0),
        ("empty", "", "error", 3),
        ("broken", "--frobnicate", "error", 2),
    ] {
        let (output, outputs, _) = action(place.path(), target, arguments, fail_on);
        assert!(output.status.success(), "{target} {arguments}");
        assert!(outputs.lines().any(|line| line == format!("exit-code={code}")), "{target} {arguments}: {outputs}");
    }
}

#[test]
#[ignore = "needs python3 with pip and venv"]
fn a_wheel_installs_without_a_network() {
    let place = tempfile::tempdir().expect("a folder");
    let python = place.path().join("venv/bin/python");
    let run = |command: &mut Command| {
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(place.path().join("venv")));
    run(Command::new(&python).args(["-m", "pip", "install", "--no-index", ROOT]).env("FA_DOCTOR_BINARY", BINARY));
    let version = run(Command::new(place.path().join("venv/bin/fa-doctor")).arg("--version"));
    assert_eq!(version.trim(), concat!("fa-doctor ", env!("CARGO_PKG_VERSION")));
    let shown = run(Command::new(&python).args(["-m", "pip", "show", "fa-doctor"]));
    assert!(shown.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"))), "{shown}");
    run(Command::new(&python).args(["-m", "pip", "check"]));
}

#[test]
#[ignore = "needs pre-commit, and python3 with pip and venv"]
fn the_hook_looks_at_the_environment_of_the_repository() {
    let place = tempfile::tempdir().expect("a folder");
    let run = |command: &mut Command| command.current_dir(place.path()).output().expect("it runs");
    write(place.path(), "requirements.txt", "vllm==0.26.0\n");
    for arguments in [&["init", "-q"][..], &["add", "requirements.txt"]] {
        assert!(run(Command::new("git").args(arguments)).status.success());
    }
    write(place.path(), ".venv/pyvenv.cfg", "version = 3.12.1\n");
    site(&place.path().join(".venv/lib/python3.12/site-packages"), BROKEN);
    let mut command = Command::new("pre-commit");
    command.args(["try-repo", ROOT, "fa-doctor", "--all-files", "--verbose"]);
    command.env("FA_DOCTOR_BINARY", BINARY).env("PRE_COMMIT_HOME", place.path().join("cache"));
    command.env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX");
    // pre-commit activates an environment of its own for the hook, which is not the one that is meant.
    let shown = String::from_utf8_lossy(&run(&mut command).stdout).into_owned();
    assert!(shown.contains("exit code: 1") && shown.contains("forward.py:6:21: FA001"), "{shown}");
}
