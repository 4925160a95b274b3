//! Small cases that prove their own verdict: what Python itself does with the code is written beside it.
//!
//! A file of `tests/proved` holds cases. A case starts with `=== name`, may go on with settings (`key: value`), and
//! lists its files, each after `--- path`. `#! CODE symbol severity` at the end of a line (symbol and severity may be
//! left out, `;;` separates several) is a finding expected there; nothing else above info may be reported. A section
//! `--- expect` lists findings where no line can say it, and `@path` in a RECORD stands for the line of that file
//! (`@path=text`: of a file with that text; `@path!`: without a digest).
//! Packages that import every module and public function of their folder, METADATA of the packages of the stack and the
//! stand-in for the CuTe DSL are added where a case has none of its own.
//!
//! `--- witness` says what Python does: `ok statement` runs, `raises Error statement` raises; every expected error must
//! be among what is raised, at its line. To check that: `cargo test --test proved -- --ignored`
//! (with `FA_DOCTOR_PYTHON` naming a Python 3.12 or newer if `python3` is not one).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Distributions whose METADATA is added: the folder that shows them, name, version.
const DISTRIBUTIONS: &[(&str, &str, &str)] = &[
    ("flash_attn", "flash-attn-4", "4.99.0"),
    ("vllm", "vllm", "0.99.0"),
    ("cutlass", "nvidia-cutlass-dsl", "4.99.0"),
    ("torch", "torch", "2.11.0"),
];

/// What each rule says that Python raises.
const RAISES: &[(&str, &str)] = &[
    ("FA001", "NameError"),
    ("FA002", "AttributeError"),
    ("FA003", "TypeError"),
    ("FA004", "ImportError"),
    ("FA005", "AttributeError"),
    ("FA006", "ValueError"),
];

#[derive(Debug, Default)]
struct Case {
    name: String,
    settings: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    witness: Option<String>,
    expected: Vec<Expected>,
}

#[derive(Debug, Clone, PartialEq)]
struct Expected {
    code: String,
    path: String,
    line: u64,
    symbol: Option<String>,
    severity: String,
}

impl Expected {
    /// From `CODE`, `CODE symbol`, `CODE symbol severity` or `CODE severity`.
    fn parse(words: &str, path: &str, line: u64) -> Expected {
        let mut words: Vec<&str> = words.split_whitespace().collect();
        let severity = match words.last() {
            Some(last @ (&"error" | &"warning" | &"info")) => last.to_string(),
            _ => "error".to_owned(),
        };
        words.retain(|word| *word != severity);
        let symbol = words.get(1).map(|symbol| symbol.to_string());
        Expected { code: words[0].to_owned(), path: path.to_owned(), line, symbol, severity }
    }

    fn is(&self, finding: &serde_json::Value) -> bool {
        finding["code"] == *self.code
            && finding["path"] == *self.path
            && finding["line"] == self.line
            && finding["severity"] == *self.severity
            && self.symbol.as_ref().is_none_or(|symbol| finding["symbol"] == **symbol)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proved")
}

fn cases() -> Vec<Case> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap().replace("\r\n", "\n"));
    let cases: Vec<Case> =
        texts.flat_map(|text| split(&text, "=== ").iter().map(|(n, b)| case(n, b)).collect::<Vec<_>>()).collect();
    assert!(cases.len() > 150);
    cases
}

/// The parts of a text that start with `mark` at the start of a line: the rest of that line, and what follows.
fn split(text: &str, mark: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        match (line.strip_prefix(mark), parts.last_mut()) {
            (Some(head), _) => parts.push((head.trim().to_owned(), String::new())),
            (None, Some((_, body))) => body.push_str(line),
            (None, None) => {}
        }
    }
    parts
}

fn case(name: &str, body: &str) -> Case {
    let mut case = Case { name: name.to_owned(), ..Case::default() };
    let head = body.split("--- ").next().unwrap_or_default();
    let settings = head.lines().filter_map(|line| line.split_once(": "));
    case.settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    for (path, text) in split(body, "--- ") {
        match path.as_str() {
            "witness" => case.witness = Some(text),
            "expect" => case.expected.extend(text.lines().filter(|line| !line.is_empty()).map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [code, path, at, rest @ ..] = words.as_slice() else { panic!("{line}") };
                Expected::parse(&format!("{code} {}", rest.join(" ")), path, at.parse().unwrap())
            })),
            _ => {
                let mut plain = String::new();
                for (index, line) in text.split_inclusive('\n').enumerate() {
                    let Some((code, marks)) = line.split_once("#! ") else {
                        plain.push_str(line);
                        continue;
                    };
                    plain.push_str(code.trim_end());
                    plain.push('\n');
                    let marks = marks.split(";;");
                    case.expected.extend(marks.map(|mark| Expected::parse(mark, &path, index as u64 + 1)));
                }
                case.files.insert(path, plain);
            }
        }
    }
    case
}

/// The files of a case, with what is added to them.
fn tree(case: &Case) -> BTreeMap<String, String> {
    let mut files = case.files.clone();
    let has = |files: &BTreeMap<String, String>, prefix: &str| files.keys().any(|path| path.starts_with(prefix));
    if files.values().any(|text| text.contains("cutlass")) && !has(&files, "cutlass/") {
        let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/shared/cutlass/cutlass");
        for name in ["__init__.py", "cute/__init__.py"] {
            files.insert(format!("cutlass/{name}"), fs::read_to_string(shared.join(name)).unwrap());
        }
    }
    if case.settings.get("dist").is_none_or(|value| value != "no") {
        for (folder, name, version) in DISTRIBUTIONS {
            let stem = format!("{}-", name.replace('-', "_"));
            if has(&files, &format!("{folder}/")) && !has(&files, &stem) {
                let text = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
                files.insert(format!("{stem}{version}.dist-info/METADATA"), text);
            }
        }
    }
    let sources: Vec<String> = files.keys().filter(|path| path.ends_with(".py")).cloned().collect();
    let mut folders: Vec<&str> = Vec::new();
    for path in &sources {
        folders.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
    }
    folders.sort_unstable();
    folders.dedup();
    for &folder in &folders {
        let init = format!("{folder}/__init__.py");
        if folder == "flash_attn" || files.contains_key(&init) {
            continue;
        }
        let mut text = String::new();
        let below = |path: &str| path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned);
        let package = folder.replace('/', ".");
        if folder.starts_with("flash_attn/cute") || folder.starts_with("vllm") {
            for path in &sources {
                let Some(module) = below(path).and_then(|name| name.strip_suffix(".py").map(str::to_owned)) else {
                    continue;
                };
                if module.contains('/') {
                    continue;
                }
                let _ = writeln!(text, "import {package}.{module}");
                for name in public(&files[path]) {
                    let _ = writeln!(text, "from {package}.{module} import {name}");
                }
            }
            for inner in folders.iter().filter_map(|inner| below(inner)).filter(|inner| !inner.contains('/')) {
                let _ = writeln!(text, "import {package}.{inner}");
            }
        }
        files.insert(init, text);
    }
    let record = |line: &str| {
        let Some(entry) = line.strip_prefix('@') else { return line.to_owned() };
        if let Some(path) = entry.strip_suffix('!') {
            return format!("{path},,");
        }
        let (path, text) = entry.split_once('=').unwrap_or_else(|| (entry, files[entry].as_str()));
        let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes()));
        format!("{path},sha256={digest},{}", text.len())
    };
    let records = files.iter().filter(|(path, _)| path.ends_with("/RECORD"));
    let filled: Vec<(String, String)> =
        records.map(|(path, text)| (path.clone(), text.lines().map(|line| record(line) + "\n").collect())).collect();
    files.extend(filled);
    files
}

/// Functions at the top of a source.
fn public(text: &str) -> Vec<&str> {
    let heads = text.lines().filter_map(|line| line.strip_prefix("async def ").or_else(|| line.strip_prefix("def ")));
    let mut names: Vec<&str> = heads.filter_map(|head| head.split(['(', '[']).next()).collect();
    names.dedup();
    names
}

fn write(case: &Case) -> tempfile::TempDir {
    let site = tempfile::tempdir().unwrap();
    for (path, text) in tree(case) {
        let path = site.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    site
}

fn judge(case: &Case) -> Vec<String> {
    let site = write(case);
    let mut scan = Command::new(env!("CARGO_BIN_EXE_fa-doctor"));
    scan.arg("scan").arg(site.path()).args(["--format", "json"]);
    for arch in case.settings.get("arch").into_iter().flat_map(|list| list.split_whitespace()) {
        scan.args(["--arch", arch]);
    }
    scan.args(case.settings.get("args").into_iter().flat_map(|list| list.split_whitespace()));
    let output = scan.output().unwrap();
    let Ok(report) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
        return vec![format!("no report: {}", String::from_utf8_lossy(&output.stderr))];
    };
    let mut findings = report["findings"].as_array().unwrap().clone();
    let mut wrong = Vec::new();
    for expected in &case.expected {
        match findings.iter().position(|finding| expected.is(finding)) {
            Some(at) => {
                findings.remove(at);
            }
            None => wrong.push(format!("missing: {expected:?}")),
        }
    }
    for finding in findings.iter().filter(|finding| finding["severity"] != "info") {
        wrong.push(format!(
            "untrue: {} {}:{} {} ({}) {}",
            finding["code"],
            finding["path"],
            finding["line"],
            finding["symbol"],
            finding["severity"],
            finding["message"]
        ));
    }
    let incomplete = report["incomplete"].as_array().unwrap();
    wrong.extend(incomplete.iter().map(|note| format!("incomplete: {note}")));
    let errors = case.expected.iter().any(|expected| expected.severity == "error");
    if output.status.code() != Some(i32::from(errors)) {
        wrong.push(format!("exit {:?}", output.status.code()));
    }
    wrong
}

/// The Python that runs a case's statements and checks what each raises, and where.
const DRIVER: &str = r#"
import sys, traceback
RAISED = []
def witness(kind, name, statement):
    try:
        exec(compile(statement, "<witness>", "exec"), globals())
    except BaseException as error:
        names = [c.__name__ for c in type(error).__mro__]
        if name not in names:
            print(f"!{statement}: {type(error).__name__}: {error}")
        while error is not None:
            RAISED.extend((names, f.f_code.co_filename, n) for f, n in traceback.walk_tb(error.__traceback__))
            error = error.__cause__ or error.__context__
    else:
        if kind == "raises":
            print(f"!{statement}: runs")
def raised(name, path, line, slack):
    if not any(name in names and file.endswith(path) and abs(at - line) <= slack for names, file, at in RAISED):
        print(f"!{path}:{line}: no {name} shows it")
"#;

fn check_with_python(case: &Case, python: &str) -> Vec<String> {
    let Some(witness) = &case.witness else { return Vec::new() };
    let site = write(case);
    let mut script = DRIVER.to_owned();
    for line in witness.lines() {
        if let Some(statement) = line.strip_prefix("ok ") {
            let _ = writeln!(script, "witness('ok', None, {statement:?})");
        } else if let Some((name, statement)) = line.strip_prefix("raises ").and_then(|rest| rest.split_once(' ')) {
            let _ = writeln!(script, "witness('raises', {name:?}, {statement:?})");
        } else {
            let _ = writeln!(script, "{line}");
        }
    }
    // A call over several lines raises at its first.
    let slack = case.settings.get("slack").map_or("0", String::as_str);
    for expected in case.expected.iter().filter(|expected| expected.severity == "error") {
        if let Some((_, name)) = RAISES.iter().find(|(code, _)| *code == expected.code) {
            let _ = writeln!(script, "raised({name:?}, {:?}, {}, {slack})", expected.path, expected.line);
        }
    }
    let output = Command::new(python).args(["-B", "-c", &script]).env("PYTHONPATH", site.path()).output().unwrap();
    if !output.status.success() {
        return vec![String::from_utf8_lossy(&output.stderr).into_owned()];
    }
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().filter_map(|line| line.strip_prefix('!')).map(str::to_owned).collect()
}

fn over_all(question: impl Fn(&Case) -> Vec<String> + Sync) {
    use rayon::prelude::*;
    let wrong: Vec<String> = cases()
        .par_iter()
        .flat_map_iter(|case| {
            question(case).into_iter().map(|line| format!("{}: {line}", case.name)).collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_case_has_its_findings_and_no_others() {
    over_all(judge);
}

#[test]
#[ignore = "needs Python 3.12 or newer"]
fn every_verdict_is_what_python_does() {
    let python = std::env::var("FA_DOCTOR_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    over_all(|case| check_with_python(case, &python));
}
