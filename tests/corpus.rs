//! Real released packages, and exactly what is wrong with them.
//!
//! `tests/corpus/expected/<name>.toml` lists the true findings of one environment with the reason why each is true,
//! established by importing and running the packages themselves; anything else that the tool says is untrue.
//! `tests/corpus/chains/<name>.toml` lists the gates of one environment for `--arch` and the implementation that is taken
//! there, read from its sources by hand.
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

/// One file of `tests/corpus/chains`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chains {
    chain: Vec<Chain>,
}

/// The gates that these architectures meet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chain {
    arch: Vec<String>,
    /// The version of flash attention that is taken when nothing else is asked for.
    takes: String,
    /// The backends that run there, in the order in which they are tried.
    backends: Vec<String>,
    /// Those of MLA.
    mla: Vec<String>,
    /// Arguments that are accepted and lost there: symbols of FA401.
    lost: Vec<String>,
    /// Its number, its severity, its place, and what meets it.
    gates: Vec<[String; 4]>,
}

/// What is wrong with the gates that are said of one architecture, a line each.
fn gate_differences(site: &Path, arch: &str, chain: &Chain) -> Vec<String> {
    let report = scan(&[site.to_path_buf()], &["--select", "FA301,FA401", "--arch", arch].map(String::from));
    let (gates, losses): (Vec<&Reported>, Vec<&Reported>) = report.findings.iter().partition(|f| f.code == "FA301");
    let lost: Vec<&String> = losses.iter().map(|found| &found.symbol).collect();
    let mut wrong = Vec::new();
    if lost != chain.lost.iter().collect::<Vec<_>>() {
        wrong.push(format!("{arch} loses {lost:?} instead of {:?}", chain.lost));
    }
    let said: BTreeSet<String> = gates
        .iter()
        .map(|found| {
            let number = found.message.strip_prefix("gate ").and_then(|rest| rest.split_once(" for "));
            let number = number.map_or("", |(number, _)| number);
            format!("{arch} {number} {} {}:{}", found.severity, found.path, found.line)
        })
        .collect();
    let wanted = chain.gates.iter().map(|[number, severity, place, meets]| {
        assert!(!meets.is_empty(), "{place}: what meets this gate?");
        format!("{arch} {number} {severity} {place}")
    });
    let wanted: BTreeSet<String> = wanted.collect();
    let missed = wanted.difference(&said).map(|gate| format!("missed   {gate}"));
    wrong.extend(missed.chain(said.difference(&wanted).map(|gate| format!("untrue   {gate}"))));
    wrong
}

/// What is wrong with the implementation that `env` says is taken on one architecture.
fn choice_differences(site: &Path, arch: &str, chain: &Chain) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_fa-doctor"))
        .arg("env")
        .arg(site)
        .args(["--arch", arch, "--format", "json"])
        .output()
        .unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let choice = &facts["choices"][0];
    let names = |list: &serde_json::Value, keep: &dyn Fn(&serde_json::Value) -> bool| -> Vec<String> {
        let kept = list.as_array().into_iter().flatten().filter(|one| keep(one));
        kept.map(|one| one["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let runs = |one: &serde_json::Value| one["runs"] != false;
    let said = [
        names(&choice["versions"], &|one| one["chosen"] == true),
        names(&choice["backends"][0]["order"], &runs),
        names(&choice["backends"][1]["order"], &runs),
    ];
    let wanted = [vec![chain.takes.clone()], chain.backends.clone(), chain.mla.clone()];
    let pairs = said.iter().zip(&wanted).filter(|(said, wanted)| said != wanted);
    pairs.map(|(said, wanted)| format!("{arch} takes {said:?} instead of {wanted:?}")).collect()
}

#[test]
#[ignore = "needs the released packages that scripts/corpus.py downloads"]
fn every_architecture_meets_the_gates_of_its_sources_in_their_order() {
    let corpus = corpus();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/chains");
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let chains: Chains = toml::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let site = corpus.join("envs").join(name(&file));
        for chain in &chains.chain {
            wrong.extend(chain.arch.iter().flat_map(|arch| gate_differences(&site, arch, chain)));
            wrong.extend(chain.arch.iter().flat_map(|arch| choice_differences(&site, arch, chain)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
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
