//! The command line as a user meets it: exit codes, formats, settings, messages.

mod common;

use std::fs;
use std::path::Path;

use common::{BROKEN, FIXED, doctor, run, schema, site, write};
use serde_json::Value;

const FORMATS: [&str; 8] = ["text", "concise", "json", "sarif", "github", "markdown", "junit", "html"];

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn exit_codes_are_the_same_in_every_format() {
    let place = folder();
    site(&place.path().join("broken"), BROKEN);
    site(&place.path().join("fixed"), FIXED);
    site(&place.path().join("unreadable"), "def f(:\n");
    fs::create_dir(place.path().join("empty")).expect("a folder");
    for format in FORMATS {
        for (target, code) in [("broken", 1), ("fixed", 0), ("unreadable", 3), ("empty", 3), ("absent", 2)] {
            let run = run(place.path(), &format!("scan {target} --format {format}"));
            assert_eq!(run.code, code, "{target} as {format}: {}{}", run.out, run.err);
        }
    }
}

#[test]
fn a_finding_wins_over_what_could_not_be_checked() {
    let place = folder();
    site(place.path(), BROKEN);
    write(place.path(), "flash_attn/cute/other.py", "def f(:\n");
    let run = run(place.path(), "scan . --format json");
    let report: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(run.code, 1, "{}", run.out);
    assert_eq!(report["findings"][0]["code"], "FA001");
    assert_eq!(report["incomplete"][0]["path"], "flash_attn/cute/other.py");
}

#[test]
fn fail_on_decides_what_fails() {
    let place = folder();
    site(place.path(), BROKEN);
    for (fail_on, code) in [("error", 1), ("warning", 1), ("info", 1), ("never", 0)] {
        assert_eq!(run(place.path(), &format!("scan . --fail-on {fail_on}")).code, code, "{fail_on}");
    }
    write(place.path(), "fa-doctor.toml", "[severity]\nFA001 = 'warning'\n");
    for (fail_on, code) in [("error", 0), ("warning", 1)] {
        assert_eq!(run(place.path(), &format!("scan . --fail-on {fail_on}")).code, code, "{fail_on}");
    }
}

#[test]
fn a_wrong_folder_never_looks_like_a_clean_one() {
    let place = folder();
    let empty = run(place.path(), "scan .");
    assert_eq!((empty.code, empty.out.as_str()), (3, ""));
    assert!(empty.err.contains("nothing to scan") && empty.err.contains("hint:"), "{}", empty.err);
    write(place.path(), "other/__init__.py", "x = 1\n");
    write(place.path(), "other-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: other\nVersion: 1.0\n");
    let other = run(place.path(), "scan .");
    assert_eq!((other.code, other.out.as_str()), (3, ""));
    let json = run(place.path(), "scan . --format json --output also.sarif");
    let report: Value = serde_json::from_str(&json.out).expect("a report all the same");
    assert_eq!((json.code, &report["incomplete"][0]["path"]), (3, &".".into()));
    assert!(place.path().join("also.sarif").is_file());
    let nobody = doctor(place.path()).env("PATH", "").arg("scan").output().expect("runs");
    assert_eq!(nobody.status.code(), Some(3));
}

#[test]
fn wrong_usage_says_what_to_do() {
    let place = folder();
    site(place.path(), FIXED);
    for (arguments, needle) in [
        ("scan absent", "no such file or folder: absent"),
        ("scan . --select XX", "there is no rule `XX`"),
        ("scan . --ignore FA999", "there is no rule `FA999`"),
        ("scan . --arch blackwell", "known are"),
        ("scan . --format json --format sarif", "--output"),
        ("scan . --output x.unknown", "the format of `x.unknown` is not known"),
        ("scan . --output absent/x.json", "cannot write"),
        ("scan . --baseline absent.json", "cannot read the baseline"),
        ("scan . --config absent.toml", "cannot read absent.toml"),
        ("scan . --rules absent", "absent"),
        ("explain FA999", "fa-doctor rules"),
        ("frobnicate", "unrecognized subcommand"),
        ("merge fa-doctor-absent.json", "cannot read"),
    ] {
        let run = run(place.path(), arguments);
        assert_eq!(run.code, 2, "{arguments}: {}{}", run.out, run.err);
        assert!(run.err.contains(needle), "{arguments}: {}", run.err);
        assert!(run.err.starts_with("error: ") && !run.err.contains("panicked"), "{arguments}: {}", run.err);
    }
}

#[test]
fn json_fits_the_schema_and_is_the_same_every_time() {
    let place = folder();
    site(place.path(), BROKEN);
    let contract: Value = serde_json::from_str(include_str!("../docs/schema.json")).expect("JSON");
    let once = || {
        let mut report: Value = serde_json::from_str(&run(place.path(), "scan . --format json").out).expect("JSON");
        assert_eq!(schema::problems(&contract, &report), Vec::<String>::new());
        report["summary"]["elapsed_ms"] = 0.into();
        report.to_string()
    };
    assert_eq!(once(), once());
}

#[test]
fn one_run_writes_as_many_files_as_asked() {
    let place = folder();
    site(&place.path().join("site"), BROKEN);
    let outputs = "--output a.json --output b.sarif --output c.html --output d.md --output e.xml";
    let run = run(place.path(), &format!("scan site --format concise {outputs}"));
    assert_eq!(run.code, 1);
    assert!(run.out.starts_with("site/flash_attn/cute/forward.py:6:21: FA001 "), "{}", run.out);
    let read = |name: &str| fs::read_to_string(place.path().join(name)).expect(name);
    assert_eq!(serde_json::from_str::<Value>(&read("a.json")).expect("JSON")["schema"], 1);
    assert_eq!(serde_json::from_str::<Value>(&read("b.sarif")).expect("JSON")["version"], "2.1.0");
    assert!(read("c.html").starts_with("<!doctype html>"));
    assert!(read("d.md").starts_with("### fa-doctor: 1 error"));
    assert!(read("e.xml").starts_with("<?xml"));
    assert_eq!(common::run(place.path(), "scan site --output f.txt").out, "");
    assert!(read("f.txt").starts_with("error[FA001]"));
}

#[test]
fn scanning_writes_nothing() {
    let place = folder();
    site(place.path(), BROKEN);
    let before = listing(place.path());
    run(place.path(), "scan .");
    assert_eq!(listing(place.path()), before);
}

fn listing(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in walkdir::WalkDir::new(folder).sort_by_file_name() {
        names.push(entry.expect("an entry").path().display().to_string());
    }
    names
}

#[test]
fn settings_ignore_with_a_reason_and_report_what_is_stale() {
    let place = folder();
    site(&place.path().join("site"), BROKEN);
    let ignore = "[[ignore]]\ncode = 'FA001'\npath = 'flash_attn/**'\nreason = 'known'\n";
    write(place.path(), "fa-doctor.toml", ignore);
    let ignored = run(place.path(), "scan site");
    assert_eq!(ignored.code, 0, "{}", ignored.out);
    assert!(ignored.out.contains("1 finding ignored by"), "{}", ignored.out);
    site(&place.path().join("site"), FIXED);
    let stale = run(place.path(), "scan site");
    assert!(stale.out.contains("fa-doctor.toml:1 matches nothing"), "{}", stale.out);
    site(&place.path().join("site"), BROKEN);
    write(place.path(), "fa-doctor.toml", &format!("{ignore}until = 2020-01-01\n"));
    let over = run(place.path(), "scan site --format json");
    assert_eq!(over.code, 1);
    assert!(over.err.contains("ended on 2020-01-01"), "{}", over.err);
    write(place.path(), "fa-doctor.toml", "selekt = []\n");
    let wrong = run(place.path(), "scan site");
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("unknown field `selekt`"), "{}", wrong.err);
}

#[test]
fn config_shows_where_settings_come_from() {
    let place = folder();
    write(place.path(), "pyproject.toml", "[tool.fa-doctor]\nfail-on = 'warning'\narch = ['12.0']\n");
    let run = run(place.path(), "config --arch sm_90");
    assert_eq!(run.code, 0, "{}", run.err);
    let line = |key: &str| run.out.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
    assert!(line("fail-on").contains("warning") && line("fail-on").ends_with("pyproject.toml"), "{}", run.out);
    assert!(line("arch").contains("sm_90") && line("arch").ends_with("command line"), "{}", run.out);
    assert!(line("select").ends_with("default"), "{}", run.out);
}

#[test]
fn a_baseline_leaves_only_what_is_new() {
    let place = folder();
    site(&place.path().join("site"), BROKEN);
    assert_eq!(run(place.path(), "scan site --write-baseline known.json").code, 0);
    let known = run(place.path(), "scan site --baseline known.json");
    assert_eq!(known.code, 0, "{}", known.out);
    assert!(known.out.contains("1 finding already in the baseline"), "{}", known.out);
    site(&place.path().join("site"), &format!("{BROKEN}\n\nx = absent\n"));
    assert_eq!(run(place.path(), "scan site --baseline known.json").code, 1);
}

#[test]
fn colour_is_asked_for_or_left_out() {
    let place = folder();
    site(place.path(), BROKEN);
    assert!(!run(place.path(), "scan .").out.contains('\u{1b}'));
    assert!(run(place.path(), "scan . --color always").out.contains('\u{1b}'));
    let forced = doctor(place.path()).args(["scan", "."]).env("CLICOLOR_FORCE", "1").output().expect("runs");
    assert!(forced.stdout.contains(&0x1b));
    let mut plain = doctor(place.path());
    let plain = plain.args(["scan", "."]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output().expect("runs");
    assert!(!plain.stdout.contains(&0x1b));
}

#[test]
fn text_fits_80_columns() {
    let place = folder();
    site(&place.path().join("site"), BROKEN);
    for line in run(place.path(), "scan site").out.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn help_is_short_grouped_and_has_an_example() {
    let place = folder();
    let help = run(place.path(), "--help").out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() >= 10, "{help}");
    for command in commands {
        let run = run(place.path(), &format!("{command} --help"));
        assert_eq!(run.code, 0, "{command}");
        assert!(run.out.contains("\nExample"), "{command}: {}", run.out);
        assert!(run.out.lines().count() <= 60, "{command}: {}", run.out);
        assert_eq!(run.out, common::run(place.path(), &format!("{command} -h")).out);
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let place = folder();
    site(place.path(), BROKEN);
    let mut command = doctor(place.path());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output =
        command.args(["scan", "."]).stdout(writer).stderr(std::process::Stdio::piped()).output().expect("runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn results_of_nodes_are_merged() {
    let place = folder();
    site(&place.path().join("broken"), BROKEN);
    site(&place.path().join("fixed"), FIXED);
    for (node, target) in [("gpu-1", "broken"), ("gpu-2", "fixed"), ("gpu-3", "fixed")] {
        run(place.path(), &format!("scan {target} --output {node}.json"));
    }
    let merged = run(place.path(), "merge gpu-1.json gpu-2.json gpu-3.json");
    assert_eq!(merged.code, 1);
    assert!(merged.out.contains("error FA001") && merged.out.contains("1 node: gpu-1"), "{}", merged.out);
    assert!(merged.out.contains("3 nodes: 2 clean, 1 failing"), "{}", merged.out);
    assert_eq!(run(place.path(), "merge gpu-2.json gpu-3.json").code, 0);
    let json = run(place.path(), "merge gpu-1.json gpu-2.json --format json");
    let value: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(value["nodes"][0]["status"], "failing");
}

#[test]
fn env_tells_what_is_installed_or_that_nothing_is() {
    let place = folder();
    site(&place.path().join("site"), FIXED);
    let function = "def flash_attn_func(q, k, v, causal=False, softcap=0.0):\n    return q\n";
    write(&place.path().join("site"), "flash_attn/cute/interface.py", function);
    let text = run(place.path(), "env site");
    assert_eq!(text.code, 0, "{}", text.err);
    assert!(text.out.contains("flash-attn-4 4.99.0"), "{}", text.out);
    let json: Value = serde_json::from_str(&run(place.path(), "env site --format json").out).expect("JSON");
    assert_eq!(json["capabilities"]["functions"][0]["path"], "flash_attn.cute.interface.flash_attn_func");
    let accepted = json["capabilities"]["arguments"].as_array().expect("arguments").iter().map(|row| &row["name"]);
    assert_eq!(accepted.collect::<Vec<_>>(), ["causal", "softcap"]);
    fs::create_dir(place.path().join("empty")).expect("a folder");
    assert_eq!(run(place.path(), "env empty").code, 3);
}

/// A vLLM that supports version 4 on 10.x and prefers it there, and whose backends are tried in an order of their own.
const CHOOSING: &[(&str, &str)] = &[
    ("vllm-0.99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.99.0\n"),
    ("vllm/__init__.py", ""),
    ("vllm/platforms/__init__.py", "from .interface import current_platform\n"),
    (
        "vllm/platforms/interface.py",
        "from typing import NamedTuple\n\n\nclass DeviceCapability(NamedTuple):\n    major: int\n    minor: int\n\n\ncurrent_platform = object()\n",
    ),
    (
        "vllm/platforms/cuda.py",
        "from vllm.v1.attention.backends.registry import Backends\n\nfrom .interface import DeviceCapability\n\n\n\
def _get_backend_priorities(use_mla, device_capability: DeviceCapability, wide=False):\n    if use_mla:\n        \
tail = [Backends.PLAIN]\n        if not wide:\n            tail.append(Backends.NEW)\n        return [*tail]\n    \
if device_capability.major == 10:\n        return [Backends.NEW, Backends.PLAIN]\n    return [Backends.PLAIN, Backends.NEW]\n",
    ),
    ("vllm/v1/attention/__init__.py", ""),
    ("vllm/v1/attention/backends/__init__.py", ""),
    (
        "vllm/v1/attention/backends/registry.py",
        "from enum import Enum\n\n\nclass Backends(Enum):\n    PLAIN = \"vllm.v1.attention.backends.plain.Plain\"\n    \
NEW = \"vllm.v1.attention.backends.plain.New\"\n",
    ),
    (
        "vllm/v1/attention/backends/plain.py",
        "from vllm.platforms.interface import DeviceCapability\n\n\nclass Plain:\n    @classmethod\n    \
def supports_compute_capability(cls, capability: DeviceCapability):\n        return capability >= DeviceCapability(8, 0)\n\n\n\
class New(Plain):\n    @classmethod\n    def supports_compute_capability(cls, capability: DeviceCapability):\n        \
return capability.major == 10\n",
    ),
    (
        "vllm/v1/attention/backends/fa_utils.py",
        "from vllm.platforms import current_platform\nfrom vllm.vllm_flash_attn.flash_attn_interface import is_fa_version_supported\n\n\n\
def get_flash_attn_version(head_size=None):\n    capability = current_platform.get_device_capability()\n    \
if capability.major == 10 and is_fa_version_supported(4):\n        version = 4\n    else:\n        version = 2\n    \
if settings().version is not None:\n        version = settings().version\n    \
if version == 4 and head_size is not None and head_size > 128:\n        version = 2\n    return version\n",
    ),
    ("vllm/vllm_flash_attn/__init__.py", ""),
    (
        "vllm/vllm_flash_attn/flash_attn_interface.py",
        "from vllm.platforms import current_platform\n\n\ndef _four():\n    \
if not current_platform.is_device_capability_family(100):\n        return False, \"only on compute capability 10.x\"\n    \
return True, None\n\n\ndef is_fa_version_supported(fa_version):\n    if fa_version == 2:\n        return True\n    \
if fa_version == 4:\n        return _four()[0]\n    return False\n",
    ),
];

#[test]
fn env_tells_which_implementation_is_taken_and_why_not_the_others() {
    let place = folder();
    for (path, text) in CHOOSING {
        write(&place.path().join("site"), path, text);
    }
    let answer = |arch: &str| -> Value {
        let json = run(place.path(), &format!("env site --arch {arch} --format json"));
        serde_json::from_str::<Value>(&json.out).expect("JSON")["choices"][0].clone()
    };
    let names = |list: &Value| list.as_array().unwrap().iter().map(|b| b["name"].to_string()).collect::<Vec<_>>();
    let old = answer("sm_121");
    assert_eq!(old["versions"][0]["chosen"], true, "{old}");
    assert_eq!(old["versions"][0]["place"]["line"], 10);
    assert_eq!(old["versions"][2]["supported"], false);
    assert_eq!(old["versions"][2]["reason"], "only on compute capability 10.x");
    assert_eq!(old["versions"][2]["place"]["line"], 6);
    assert_eq!(names(&old["backends"][0]["order"]), ["\"PLAIN\"", "\"NEW\""]);
    assert_eq!(old["backends"][0]["order"][1]["runs"], false);
    assert_eq!(names(&old["backends"][1]["order"]), ["\"PLAIN\"", "\"NEW\""]);
    let new = answer("sm_100");
    assert_eq!((&new["versions"][2]["name"], &new["versions"][2]["chosen"]), (&"FA4".into(), &true.into()), "{new}");
    assert_eq!(names(&new["backends"][0]["order"]), ["\"NEW\"", "\"PLAIN\""]);
    let text = run(place.path(), "env site --arch sm_121").out;
    assert!(text.contains("which attention vLLM takes on sm_121"), "{text}");
    assert!(text.contains("not FA4     only on compute capability 10.x"), "{text}");
    assert!(text.contains("PLAIN; not on sm_121: NEW"), "{text}");
}

#[test]
fn the_report_for_an_issue_tells_no_private_place() {
    let place = folder();
    let home = place.path().join("home/somebody");
    let environment = home.join("site");
    site(&environment, BROKEN);
    let output = doctor(place.path()).arg("report").arg(&environment).env("HOME", &home).output().expect("runs");
    let block = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0));
    assert!(block.contains("error FA001") && block.contains("| GPU |"), "{block}");
    assert!(!block.contains("somebody"), "{block}");
}
