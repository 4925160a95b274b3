//! Input that is wrong in every way: each gets one clear message and the right exit code, and nothing in it reaches the
//! terminal as a control sequence.

mod common;

use common::{BROKEN, doctor, site, write};

/// Settings files, and a part of what is said about them.
const SETTINGS: [(&str, &str); 14] = [
    ("selct = []", "unknown field `selct`, expected one of `select`"),
    ("\u{feff}[", "TOML parse error"),
    ("[[ignore]]\ncode = 'FA001'", "missing field `reason`"),
    ("[[ignore]]\nreason = 'x'", "hint: narrow it down"),
    ("[[ignore]]\nreason = 'x'\ncode = 'FA001'\nuntil = 2027-02-30", "invalid date"),
    ("[[ignore]]\nreason = 'x'\ncode = 'FA001'\nuntil = 'soon'", "expected a TOML datetime"),
    ("[[ignore]]\nreason = 'x'\ncode = 'FA001'\nversion = '>>1'", "not a version range"),
    ("fail-on = 'errors'", "unknown variant `errors`"),
    ("[severity]\nFA999 = 'error'", "there is no rule `FA999`"),
    ("[severity]\nFA001 = 'fatal'", "unknown variant `fatal`"),
    ("select = 'FA001'", "expected a sequence"),
    ("arch = ['sm_120\\u001b[31m']", "is no GPU"),
    ("platform = 'tpu'", "unknown variant `tpu`"),
    (
        "x = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "TOML parse error",
    ),
];

/// Files that are no results, all of which are named in the message.
const RESULTS: [&[u8]; 13] = [
    b"",
    b"[]",
    b"null",
    b"1e999",
    b"\0\0\0",
    b"\xff\xfe{\0}\0",
    b"\xef\xbb\xbf{\"schema\": 1}",
    b"{\"schema\": 2}",
    b"{\"schema\": \"1\"}",
    b"{\"schema\": 1, \"stages\": [{\"name\": 1}]}",
    b"{\"schema\": 1, \"dsl\": {}, \"cases\": 7}",
    b"{\"schema\": 1, \"environment\": {}, \"findings\": [{\"line\": -1}]}",
    b"{} {}",
];

/// Arguments, exit code, and a part of what is said.
const ARGUMENTS: [(&[&str], i32, &str); 33] = [
    (&["scan", "site", "--output", "absent/x.json"], 2, "cannot write"),
    (&["scan", "site", "--format", "yaml"], 2, "possible values"),
    (&["scan", "site", "--output", "x"], 2, "format of `x`"),
    (&["scan", "site", "--output", "."], 2, "format of `.`"),
    (&["scan", "site", "--baseline", "other.json"], 2, "cannot read the baseline"),
    (&["scan", "site", "--write-baseline", "absent/b"], 2, "cannot write the baseline"),
    (&["scan", "site", "--select", ","], 2, "there is no rule ``"),
    (&["scan", "site", "--arch", ""], 2, "is no GPU architecture"),
    (&["scan", "site", "--arch", "12.0.0"], 2, "is no GPU architecture"),
    (&["scan", "site", "--glibc", "2.x"], 2, "looks like `2.31`"),
    (&["scan", "site", "--python", "absent"], 2, "no Python interpreter"),
    (&["scan", "site", "--color", "purple"], 2, "possible values"),
    (&["scan", "site", "-q", "-v"], 2, "cannot be used with"),
    (&["scan", "\u{1b}[31mred"], 2, "no such file or folder"),
    (&["scan", ""], 2, "a value is required"),
    (&["explain", ""], 2, "there is no rule"),
    (&["explain", "FA001\u{1b}[31m"], 2, "there is no rule"),
    (&["explain", "../../etc/passwd"], 2, "there is no rule"),
    (&["rules", "--format", "xml"], 2, "possible values"),
    (&["completions"], 2, "<SHELL>"),
    (&["completions", "tcsh"], 2, "possible values"),
    (&["man", "other.json"], 2, "cannot create"),
    (&["config", "--config", "absent.toml"], 2, "cannot read"),
    (&["config", "--config", "site"], 2, "cannot read"),
    (&["merge"], 2, "<FILE>"),
    (&["merge", "site"], 2, "cannot read `site`"),
    (&["report", "site", "--smoke", "absent.json"], 2, "cannot read"),
    (&["report", "site", "--smoke", "other.json"], 2, "is not a JSON result of smoke"),
    (&["report", "site", "--probe", "other.json"], 2, "is not a JSON result of probe"),
    (&["report", "empty"], 3, "nothing to scan"),
    (&["smoke", "--device", "999999999999999999999"], 2, "number too large"),
    (&["smoke", "--timeout", "0"], 2, "is not in"),
    (&["smoke", "--python", "absent"], 2, "is not a python executable"),
];

#[test]
fn wrong_input_gets_a_message_and_an_exit_code() {
    let place = tempfile::tempdir().expect("a folder");
    site(&place.path().join("site"), BROKEN);
    write(place.path(), "other.json", "{\"schema\": 1, \"secret\": \"hunter2\"}");
    std::fs::create_dir(place.path().join("empty")).expect("a folder");
    let run = |arguments: &[&str], code: i32, needle: &str| {
        let output = doctor(place.path()).args(arguments).output().expect("it runs");
        let err = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {err}");
        // Long messages are wrapped.
        let flat = err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(needle), "{arguments:?}: {err}");
        assert!(
            err.starts_with("error: ") && !err.contains('\u{1b}') && !err.contains("panicked"),
            "{arguments:?}: {err}"
        );
        err
    };
    for (arguments, code, needle) in ARGUMENTS {
        assert!(!run(arguments, code, needle).contains("hunter2"));
    }
    for (text, needle) in SETTINGS {
        write(place.path(), "fa-doctor.toml", text);
        let err = run(&["config"], 2, needle);
        assert_eq!(err.matches(needle).count(), 1, "once is enough: {err}");
    }
    std::fs::remove_file(place.path().join("fa-doctor.toml")).expect("removed");
    for bytes in RESULTS {
        std::fs::write(place.path().join("node.json"), bytes).expect("a file");
        run(&["merge", "node.json"], 2, "`node.json`");
    }
}

#[test]
fn hostile_results_stay_text() {
    let place = tempfile::tempdir().expect("a folder");
    site(&place.path().join("site"), BROKEN);
    let report = common::run(place.path(), "scan site --format json").out;
    let mut report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let hostile = "\u{1b}[31m\u{7}\u{202e}\n::error::x\n```\n</script>";
    report["findings"][0]["message"] = hostile.into();
    report["findings"][0]["path"] = hostile.into();
    report["environment"]["packages"][0]["name"] = hostile.into();
    report["findings"][0]["line"] = u32::MAX.into();
    write(place.path(), "node\u{202e}.json", &report.to_string());
    write(place.path(), "other.json", &report.to_string().replace("4.99.0", "4.98.0"));
    for format in ["text", "markdown"] {
        let merged = doctor(place.path())
            .args(["merge", "node\u{202e}.json", "other.json", "--format", format])
            .output()
            .expect("it runs");
        let out = String::from_utf8(merged.stdout).expect("UTF-8");
        assert_eq!(merged.status.code(), Some(1), "{out}");
        assert!(!out.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{out}");
        assert!(out.lines().all(|line| !line.starts_with("::error")), "{out}");
    }
}
