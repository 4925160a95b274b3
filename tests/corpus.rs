//! Real released packages, and exactly what is wrong with them.
//!
//! `tests/corpus/expected/<name>.toml` lists the true findings of one environment with the reason why each is true,
//! established by importing and running the packages themselves; anything else that the tool says is untrue.
//! The packages are prepared by `scripts/corpus.py`, which needs pip and a network, so these tests ask for it:
//!
//!     python3 scripts/corpus.py target/corpus
//!     FA_DOCTOR_CORPUS=target/corpus cargo test --release --test corpus -- --ignored

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// One file of `tests/corpus/expected`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// Where it lies, relative to the corpus; an environment of the file's name when empty. `*` stands for any text.
    #[serde(default)]
    targets: Vec<String>,
    /// Further arguments.
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    finding: Vec<Entry>,
}

/// One true finding.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    code: String,
    severity: String,
    path: String,
    line: u32,
    symbol: String,
    /// Why it is true, and what showed it.
    reason: String,
}

/// What of the report is compared.
#[derive(Deserialize)]
struct Report {
    findings: Vec<Reported>,
    incomplete: Vec<Incomplete>,
}

#[derive(Deserialize)]
struct Reported {
    code: String,
    severity: String,
    path: String,
    line: u32,
    symbol: String,
    message: String,
}

#[derive(Deserialize)]
struct Incomplete {
    path: String,
    reason: String,
}

fn corpus() -> PathBuf {
    let folder = std::env::var_os("FA_DOCTOR_CORPUS").map(PathBuf::from).unwrap_or_else(|| "target/corpus".into());
    assert!(
        folder.join("envs").is_dir(),
        "{} holds no corpus: run `python3 scripts/corpus.py FOLDER` and set FA_DOCTOR_CORPUS to it",
        folder.display()
    );
    folder
}

fn expected_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/expected");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some())
        .collect();
    files.sort();
    files
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

/// The only path that `pattern` names, where at most one `*` stands in its last component.
fn find(corpus: &Path, pattern: &str) -> PathBuf {
    let whole = corpus.join(pattern);
    let last = whole.file_name().unwrap().to_string_lossy().into_owned();
    let Some((before, after)) = last.split_once('*') else { return whole };
    let mut matching: Vec<PathBuf> = std::fs::read_dir(whole.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(before) && name.ends_with(after)
        })
        .collect();
    assert_eq!(matching.len(), 1, "{pattern} should name one file: {matching:?}");
    matching.remove(0)
}

fn scan(targets: &[PathBuf], arguments: &[String]) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_fa-doctor"))
        .arg("scan")
        .args(targets)
        .args(arguments)
        .args(["--format", "json", "--fail-on", "never"])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("scan {targets:?} ended with {}: {error}\n{}", output.status, String::from_utf8_lossy(&output.stderr))
    })
}

/// What is wrong with the report of one environment, a line each.
fn differences(corpus: &Path, file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let expected: Expected = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let targets: Vec<PathBuf> = match expected.targets.as_slice() {
        [] => vec![corpus.join("envs").join(name(file))],
        targets => targets.iter().map(|pattern| find(corpus, pattern)).collect(),
    };
    let report = scan(&targets, &expected.arguments);
    let wanted: BTreeSet<String> = expected
        .finding
        .iter()
        .map(|entry| {
            assert!(!entry.reason.trim().is_empty(), "{}: {} needs a reason", file.display(), entry.symbol);
            line(&entry.code, &entry.severity, &entry.path, entry.line, &entry.symbol)
        })
        .collect();
    let said: BTreeSet<String> = report
        .findings
        .iter()
        .map(|found| line(&found.code, &found.severity, &found.path, found.line, &found.symbol))
        .collect();
    let message = |of: &String| {
        let found = report
            .findings
            .iter()
            .find(|found| line(&found.code, &found.severity, &found.path, found.line, &found.symbol) == *of);
        found.map(|found| found.message.clone()).unwrap_or_default()
    };
    let mut all: Vec<String> = wanted.difference(&said).map(|miss| format!("missed   {miss}")).collect();
    all.extend(said.difference(&wanted).map(|extra| format!("untrue   {extra}: {}", message(extra))));
    all.extend(report.incomplete.iter().map(|one| format!("unread   {}: {}", one.path, one.reason)));
    all
}

fn line(code: &str, severity: &str, path: &str, line: u32, symbol: &str) -> String {
    format!("{code} {severity} {path}:{line} {symbol}")
}

#[test]
#[ignore = "needs the released packages that scripts/corpus.py downloads"]
fn every_environment_has_its_true_findings_and_nothing_else() {
    let corpus = corpus();
    let mut report = String::new();
    let files = expected_files();
    assert!(!files.is_empty());
    for file in &files {
        let differences = differences(&corpus, file);
        if !differences.is_empty() {
            report += &format!("{}\n  {}\n", name(file), differences.join("\n  "));
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn every_judged_environment_is_described() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = std::fs::read_to_string(manifest.join("tests/corpus/packages.toml")).unwrap();
    let packages: toml::Table = packages.parse().unwrap();
    let described: BTreeSet<String> = expected_files().iter().map(|file| name(file)).collect();
    for environment in packages["environment"].as_array().unwrap() {
        let sets = environment["sets"].as_array().unwrap();
        let name = environment["name"].as_str().unwrap();
        if sets.iter().any(|set| set.as_str() == Some("judged")) {
            assert!(described.contains(name), "tests/corpus/expected/{name}.toml is missing");
        }
    }
}
