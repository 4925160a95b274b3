//! `fa-doctor probe` from end to end: a stand-in DSL and a package that fails in every way that has a verdict, with any
//! Python; and the released packages with the real DSL.
//!
//! The latter need a Python 3.12 and the corpus, and CI runs them:
//!
//!     python3.12 -m venv venv && venv/bin/pip install -r tests/probe/requirements.txt
//!     python3 scripts/corpus.py target/corpus
//!     FA_DOCTOR_PROBE_PYTHON=venv/bin/python FA_DOCTOR_CORPUS=target/corpus cargo test --test probe -- --ignored

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{schema, write};
use serde_json::Value;

/// What a run gave.
struct Run {
    code: i32,
    json: Value,
    stderr: String,
}

impl Run {
    fn case(&self, name: &str) -> &Value {
        let cases = self.json["cases"].as_array().expect("cases");
        cases.iter().find(|case| case["name"] == name).unwrap_or_else(|| panic!("no case {name}: {:#}", self.json))
    }

    /// The verdict of a case, and what its message contains.
    fn expect(&self, name: &str, verdict: &str, text: &str) {
        let case = self.case(name);
        assert_eq!(case["verdict"], verdict, "{case:#}");
        assert!(case["message"].as_str().is_some_and(|message| message.contains(text)), "{case:#}");
    }
}

fn command(targets: &[&Path], python: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fa-doctor"));
    command.arg("probe").args(targets).arg("--python").arg(python).args(arguments).env("NO_COLOR", "1");
    command
}

fn probe(targets: &[&Path], python: &Path, arguments: &[&str]) -> Run {
    let output = command(targets, python, arguments).args(["--format", "json"]).output().expect("fa-doctor");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    if json != Value::Null {
        let contract = serde_json::from_str(include_str!("../docs/probe.schema.json")).expect("a schema");
        assert_eq!(schema::problems(&contract, &json), Vec::<String>::new());
    }
    Run { code: output.status.code().expect("an exit code"), json, stderr }
}

// ---- a stand-in DSL ----

/// What the driver patches and reads, as releases of the DSL have it.
const DSL: [(&str, &str); 9] = [
    (
        "cutlass/__init__.py",
        "\
__version__ = '4.99.0'


def fmax(a, b):
    return max(a, b)


class DSLUserCodeError(Exception):
    pass


def trace(function, *arguments):
    try:
        return function(*arguments)
    except NameError as error:
        raise DSLUserCodeError('what you wrote does not compile') from error
",
    ),
    ("cutlass/cute/__init__.py", "def kernel(function):\n    return function\n"),
    ("cutlass/utils/__init__.py", ""),
    (
        "cutlass/utils/hardware_info.py",
        "class HardwareInfo:\n    def __init__(self):\n        raise RuntimeError('cuInit')\n",
    ),
    (
        "cutlass/memory.py",
        "def get_smem_capacity_in_bytes(arch):\n    return {'sm_120': 101376, 'sm_80': 166912}[arch]\n",
    ),
    ("cutlass/base_dsl/__init__.py", ""),
    ("cutlass/base_dsl/compiler.py", "class Compiler:\n    pass\n"),
    (
        "cutlass/base_dsl/dsl.py",
        "\
class BaseDSL:
    class LaunchConfig:
        def __init__(self, smem):
            self.smem = smem
            self.__post_init__()

        def __post_init__(self):
            pass
",
    ),
    (
        "nvidia_cutlass_dsl-4.99.0.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: nvidia-cutlass-dsl\nVersion: 4.99.0\n",
    ),
];

/// A kernel that reads a parameter of its launcher.
const FORWARD: &str = "\
import cutlass.cute as cute
from cutlass.base_dsl.dsl import BaseDSL


class Launched:
    def launch(self, grid):
        BaseDSL.LaunchConfig(1024)


class Forward:
    def __call__(self, q, mask=None):
        self.kernel(q).launch(grid=(1, 1, 1))

    @cute.kernel
    def kernel(self, q):
        return Launched() if mask is None else mask
";

/// Every case meets another fate.
const INTERFACE: &str = "\
import os
import signal
import time

import cutlass
import torch
from cutlass.base_dsl.dsl import BaseDSL
from cutlass.utils.hardware_info import HardwareInfo

from .forward import Forward


def launch(smem):
    HardwareInfo()
    assert torch.cuda.get_device_capability()[0] in (8, 12)
    print('a package that talks')
    BaseDSL.LaunchConfig(smem)


def flash_attn_func(q, k, v, causal=False, window_size=(None, None)):
    if q.shape[-1] == 64:
        time.sleep(600)
    launch(65536)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q=None, cu_seqlens_k=None, seqused_k=None, max_seqlen_q=None,
                           max_seqlen_k=None, page_table=None, causal=False, window_size=(None, None)):
    assert page_table is None, 'Paged KV not supported on this card'
    if v.shape[-1] != q.shape[-1]:
        return cutlass.gone()
    if q.shape[-1] == 256:
        return launch(131072)
    if window_size[0] is not None:
        return bytearray(3 << 30)
    if q.shape[-2] == 32:
        os.kill(os.getpid(), signal.SIGSEGV)
    cutlass.trace(lambda: Forward()(q))


def _flash_attn_bwd(q, k, v, out, dout, lse, causal=False):
    cutlass.fmax(1, 2, 3)
";

fn site(folder: &Path) {
    for (path, text) in DSL {
        write(folder, path, text);
    }
    write(folder, "flash_attn/__init__.py", "import no_such_extension\n");
    write(folder, "flash_attn/cute/__init__.py", "from .interface import flash_attn_func\n");
    write(folder, "flash_attn/cute/forward.py", FORWARD);
    write(folder, "flash_attn/cute/interface.py", INTERFACE);
    let metadata =
        "Metadata-Version: 2.1\nName: flash-attn-4\nVersion: 4.99.0\nRequires-Dist: nvidia-cutlass-dsl>=4.90\n";
    write(folder, "flash_attn_4-4.99.0.dist-info/METADATA", metadata);
    write(folder, "flash_attn_4-4.99.0.dist-info/RECORD", "flash_attn/cute/interface.py,,\n");
}

fn python3() -> PathBuf {
    PathBuf::from(std::env::var_os("FA_DOCTOR_PYTHON").unwrap_or_else(|| "python3".into()))
}

const STANDIN: [&str; 7] = ["--arch", "sm_120", "--no-torch", "--timeout", "5", "--memory", "1"];

#[test]
#[ignore = "needs python3"]
fn every_fate_has_its_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    site(folder.path());
    let begin = Instant::now();
    let run = probe(&[folder.path()], &python3(), &STANDIN);
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert_eq!(run.json["dsl"], "4.99.0");
    run.expect("dense_d128", "compiles", "");
    assert_eq!(run.case("dense_d128")["smem"], 65536);
    run.expect("causal_d64", "not-checked", "not done after 5 s");
    run.expect("varlen_d128", "defect", "NameError: name 'mask' is not defined");
    let defect = run.case("varlen_d128");
    assert_eq!(defect["finding"], "FA001");
    assert_eq!((&defect["path"], &defect["line"]), (&"flash_attn/cute/forward.py".into(), &16.into()));
    run.expect("gqa_d128", "not-checked", "SIGSEGV");
    run.expect("local_d128", "not-checked", "needs more than 1 GiB");
    run.expect("gqa_d256", "over-capacity", "131072 bytes of shared memory, sm_120 has 101376");
    assert_eq!(run.case("gqa_d256")["finding"], "FA303");
    run.expect("mla_d192_128", "mismatch", "module 'cutlass' has no attribute 'gone'");
    let help = run.case("mla_d192_128")["help"].as_str().expect("a help").to_owned();
    assert!(help.ends_with("pip install nvidia-cutlass-dsl==4.90"), "{help}");
    run.expect("paged_d128", "gate", "Paged KV not supported on this card");
    run.expect("backward_d128", "mismatch", "fmax() takes 2 positional arguments but 3 were given");
    let left: Vec<_> = fs::read_dir(folder.path().join("flash_attn/cute")).expect("a folder").collect();
    assert_eq!(left.len(), 3, "nothing is written into the environment: {left:?}");
}

#[test]
#[ignore = "needs python3"]
fn the_text_tells_a_cause_once_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    site(folder.path());
    let cases = ["--case", "dense_d128,varlen_d128,gqa_d256"];
    let output = command(&[folder.path()], &python3(), &[&STANDIN[..], &cases].concat()).output().expect("fa-doctor");
    let text = String::from_utf8(output.stdout).expect("text");
    for part in [
        "flash_attn.cute for sm_120",
        "dense_d128     compiles",
        "FA001 Forward.kernel:mask",
        "help: fa-doctor fix --write",
        "fa-doctor explain FA303",
        "3 cases traced for sm_120: 1 compiles, 1 over capacity, 1 defect",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
#[ignore = "needs python3"]
fn the_patched_sources_are_compiled_before_they_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    site(folder.path());
    let one = ["--case", "varlen_d128"];
    let before = probe(&[folder.path()], &python3(), &[&STANDIN[..], &one].concat());
    before.expect("varlen_d128", "defect", "NameError");
    let patched = probe(&[folder.path()], &python3(), &[&STANDIN[..], &one, &["--overlay"]].concat());
    patched.expect("varlen_d128", "compiles", "");
    assert_eq!((patched.code, &patched.json["patched"]), (0, &true.into()));
    let on_disk = fs::read_to_string(folder.path().join("flash_attn/cute/forward.py")).expect("the file");
    assert_eq!(on_disk, FORWARD, "nothing was written");
}

fn fix(target: &Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fa-doctor"));
    command.args(["fix", "--write", "--verify", "sm_120", "--python"]).arg(python3()).arg(target);
    command.output().expect("fa-doctor")
}

#[test]
#[ignore = "needs python3"]
fn fix_writes_what_was_verified() {
    let folder = tempfile::tempdir().expect("a folder");
    site(folder.path());
    write(folder.path(), "flash_attn/cute/interface.py", &INTERFACE.replace("time.sleep(600)", "pass"));
    let output = fix(folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("verified for sm_120: 3 of 9 cases compile, 2 before"), "{output:?}");
    let on_disk = fs::read_to_string(folder.path().join("flash_attn/cute/forward.py")).expect("the file");
    assert!(on_disk.contains("def kernel(self, q, mask"), "{on_disk}");
}

#[test]
#[ignore = "needs python3"]
fn fix_writes_nothing_that_makes_a_case_worse() {
    let folder = tempfile::tempdir().expect("a folder");
    site(folder.path());
    write(folder.path(), "flash_attn/cute/interface.py", &INTERFACE.replace("time.sleep(600)", "pass"));
    // What only a patched kernel reaches kills the compiler.
    let deadly = FORWARD.replace("BaseDSL.LaunchConfig(1024)", "__import__('os').abort()");
    write(folder.path(), "flash_attn/cute/forward.py", &deadly);
    let output = fix(folder.path());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text.contains("nothing was written") && text.contains("varlen_d128"), "{text}");
    let on_disk = fs::read_to_string(folder.path().join("flash_attn/cute/forward.py")).expect("the file");
    assert_eq!(on_disk, deadly);
}

#[test]
#[ignore = "needs python3"]
fn what_cannot_be_checked_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    site(folder.path());
    let run = probe(&[folder.path()], &python3(), &["--arch", "sm_120", "--case", "nonsense"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("there is no case `nonsense`"), "{}", run.stderr);
    let run = probe(&[folder.path()], &python3(), &[&STANDIN[..], &["--package", "vllm"]].concat());
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("flash_attn.cute"), "{}", run.stderr);
    fs::remove_dir_all(folder.path().join("cutlass")).expect("the DSL");
    let run = probe(&[folder.path()], &python3(), &STANDIN);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(run.stderr.contains("pip install nvidia-cutlass-dsl"), "{}", run.stderr);
}

#[test]
#[ignore = "needs python3"]
fn a_package_that_cannot_be_imported_is_a_mismatch_or_a_defect() {
    let folder = tempfile::tempdir().expect("a folder");
    site(folder.path());
    let importing = |text: &str| {
        write(folder.path(), "flash_attn/cute/forward.py", &format!("{text}\n{FORWARD}"));
        probe(&[folder.path()], &python3(), &STANDIN)
    };
    let run = importing("from cutlass import no_longer");
    assert_eq!(run.code, 1, "{}", run.stderr);
    run.expect("dense_d128", "mismatch", "ImportError: cannot import name 'no_longer' from 'cutlass'");
    assert_eq!(run.json["cases"].as_array().map(Vec::len), Some(9));
    let run = importing("from . import never_was");
    run.expect("dense_d128", "defect", "ImportError: cannot import name 'never_was'");
    let run = importing("def f(:");
    run.expect("dense_d128", "defect", "SyntaxError");
}

// ---- the released packages ----

fn real_python() -> PathBuf {
    let python = std::env::var_os("FA_DOCTOR_PROBE_PYTHON");
    PathBuf::from(python.expect("FA_DOCTOR_PROBE_PYTHON names a Python with tests/probe/requirements.txt"))
}

fn corpus(name: &str) -> PathBuf {
    let folder = std::env::var_os("FA_DOCTOR_CORPUS").map_or_else(|| "target/corpus".into(), PathBuf::from);
    let found = folder.join(name);
    assert!(found.is_dir(), "{} is not there: run `python3 scripts/corpus.py FOLDER`", found.display());
    found
}

/// Copies the text files below a folder of an environment.
fn copy(environment: &Path, folder: &str, to: &Path) {
    for entry in walkdir::WalkDir::new(environment.join(folder)) {
        let path = entry.expect("an entry").into_path();
        let relative = path.strip_prefix(environment).expect("inside").to_str().expect("a name");
        if let Some(text) = path.is_file().then(|| fs::read_to_string(&path).ok()).flatten() {
            write(to, relative, &text);
        }
    }
}

fn real(target: &Path, arch: &str, arguments: &[&str]) -> Run {
    probe(&[target], &real_python(), &[&["--arch", arch, "--no-torch"], arguments].concat())
}

const ONE: [&str; 2] = ["--case", "varlen_d128"];

#[test]
#[ignore = "needs the corpus and a Python with tests/probe/requirements.txt, named by FA_DOCTOR_PROBE_PYTHON"]
fn vllm_0_26_is_broken_for_sm_120_until_it_is_patched() {
    let released = corpus("envs/vllm-0.26.0");
    let run = real(&released, "sm_120", &[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let defect = run.case("varlen_d128");
    assert_eq!(
        (&defect["error"], &defect["line"], &defect["finding"]),
        (&"NameError".into(), &840.into(), &"FA001".into())
    );
    run.expect("paged_d128", "gate", "Paged KV not supported");
    for arch in ["sm_120", "sm_121", "sm_80", "sm_86", "sm_89"] {
        let run = real(&released, arch, &[&ONE[..], &["--overlay"]].concat());
        run.expect("varlen_d128", "compiles", "");
        assert_eq!(run.case("varlen_d128")["smem"], 65536, "{arch}");
    }
    // With the first of the two defects repaired, the second shows.
    let half = tempfile::tempdir().expect("a folder");
    copy(&released, "vllm/vllm_flash_attn/cute", half.path());
    write(half.path(), "vllm-0.26.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.26.0\n");
    let fixed = Command::new(env!("CARGO_BIN_EXE_fa-doctor"))
        .args(["fix", "--write", "--select", "FA001"])
        .arg(half.path())
        .output()
        .expect("fa-doctor");
    assert!(String::from_utf8_lossy(&fixed.stdout).contains("applied"), "{fixed:?}");
    let run = probe(&[half.path()], &real_python(), &[&["--arch", "sm_120", "--no-torch"], &ONE[..]].concat());
    let defect = run.case("varlen_d128");
    assert_eq!((&defect["error"], &defect["finding"]), (&"AttributeError".into(), &"FA002".into()), "{defect:#}");
    // With both, written to the files, it compiles.
    let fixed = Command::new(env!("CARGO_BIN_EXE_fa-doctor")).args(["fix", "--write"]).arg(half.path()).output();
    assert!(fixed.expect("fa-doctor").status.success());
    let run = probe(&[half.path()], &real_python(), &[&["--arch", "sm_120", "--no-torch"], &ONE[..]].concat());
    run.expect("varlen_d128", "compiles", "");
}

#[test]
#[ignore = "needs the corpus and a Python with tests/probe/requirements.txt, named by FA_DOCTOR_PROBE_PYTHON"]
fn vllm_0_33_compiles_and_d256_asks_for_too_much() {
    let run = real(&corpus("envs/vllm-0.33.0"), "sm_120", &[]);
    for case in ["dense_d128", "causal_d64", "varlen_d128", "gqa_d128", "local_d128", "mla_d192_128", "backward_d128"] {
        run.expect(case, "compiles", "");
    }
    run.expect("gqa_d256", "over-capacity", "131072 bytes of shared memory, sm_120 has 101376");
    run.expect("paged_d128", "gate", "Paged KV not supported");
}

#[test]
#[ignore = "needs the corpus and a Python with tests/probe/requirements.txt, named by FA_DOCTOR_PROBE_PYTHON"]
fn full_compiles_tell_registers_and_stack() {
    let run = real(&corpus("envs/vllm-0.33.0"), "sm_120", &["--full", "--case", "dense_d128"]);
    let case = run.case("dense_d128");
    assert_eq!(case["registers"], 255, "{case:#}");
    assert!(case["stack"].is_u64(), "{case:#}");
}

#[test]
#[ignore = "needs the corpus and a Python with tests/probe/requirements.txt, named by FA_DOCTOR_PROBE_PYTHON"]
fn flash_attn_4_b36_compiles_everywhere() {
    for arch in ["sm_80", "sm_90", "sm_100", "sm_120"] {
        real(&corpus("envs/fa4-b36"), arch, &ONE).expect("varlen_d128", "compiles", "");
    }
}

#[test]
#[ignore = "needs the corpus and a Python with tests/probe/requirements.txt, named by FA_DOCTOR_PROBE_PYTHON"]
fn flash_attn_4_b15_fails_on_sm_120_and_does_not_fit_a_newer_dsl() {
    let run = real(&corpus("envs/fa4-b15-contemporary"), "sm_120", &["--case", "dense_d128"]);
    run.expect("dense_d128", "defect", "'NoneType' object has no attribute '_trait'");
    // The same beside the DSL of the interpreter.
    let alone = tempfile::tempdir().expect("a folder");
    let released = corpus("envs/fa4-b15-contemporary");
    copy(&released, "flash_attn/cute", alone.path());
    copy(&released, "flash_attn_4-4.0.0b15.dist-info", alone.path());
    let run = real(alone.path(), "sm_120", &ONE);
    run.expect("varlen_d128", "mismatch", "cutlass");
    // The oldest DSL that it was made for, given as targets of their own.
    let trees = ["nvidia-cutlass-dsl-4.4.2", "nvidia-cutlass-dsl-libs-base-4.4.2", "quack-kernels-0.3.3"];
    let trees = trees.map(|name| corpus(&format!("trees/{name}")));
    let targets: Vec<&Path> = std::iter::once(alone.path()).chain(trees.iter().map(PathBuf::as_path)).collect();
    let arguments = ["--arch", "sm_120", "--no-torch", "--case", "dense_d128"];
    let old = probe(&targets, &real_python(), &arguments);
    assert_eq!(old.json["dsl"], "4.4.2");
    old.expect("dense_d128", "defect", "'NoneType' object has no attribute '_trait'");
    let help = run.case("varlen_d128")["help"].as_str().expect("a help").to_owned();
    assert!(help.contains("nvidia-cutlass-dsl==4.4.2"), "{help}");
}
