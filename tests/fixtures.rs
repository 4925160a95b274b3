//! Every case under `fixtures/<CODE>/<case>/`, end to end.
//!
//! - `bad/`: a small site-packages tree with a defect; `expect.toml` lists its findings.
//! - `fixed/`: the files of `bad/` that `fix --write` changes or adds, as it leaves them. The five-fold check: the result
//!   parses, the finding is gone, nothing new appears, a second run changes nothing, undo restores every byte. Where there
//!   is no `fixed/`, `fix --write --unsafe` must change nothing.
//! - `good/`: the same code without the defect, of which nothing may be said.
//!
//! `with = ["cutlass"]` in `expect.toml` lays `fixtures/shared/cutlass/` under each tree. To write `fixed/` anew from what
//! `fix` does, for a person to review: `FA_DOCTOR_BLESS=1 cargo test --test fixtures`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Expect {
    /// One sentence: what the case shows.
    #[allow(dead_code)]
    about: String,
    /// Trees of `fixtures/shared/` that lie under this one.
    #[serde(default)]
    with: Vec<String>,
    /// More arguments of `scan` and `fix`.
    #[serde(default)]
    args: Vec<String>,
    /// More arguments of `fix`.
    #[serde(default)]
    fix: Vec<String>,
    /// The exit code of the scan.
    exit: i32,
    #[serde(default)]
    finding: Vec<BTreeMap<String, serde_json::Value>>,
    /// Codes of findings that the fix leaves.
    #[serde(default)]
    left: Vec<String>,
}

/// The generated module: its text changes with the packs.
const ADAPTER: &str = "_fa_doctor_compat.py";

type Tree = BTreeMap<String, Vec<u8>>;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

fn read_tree(root: &Path) -> Tree {
    let files = walkdir::WalkDir::new(root).into_iter().map(Result::unwrap).filter(|entry| entry.file_type().is_file());
    files
        .map(|entry| {
            let path = entry.path().strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            (path, fs::read(entry.path()).unwrap())
        })
        .filter(|(path, _)| !path.contains("__pycache__"))
        .collect()
}

fn write_tree(root: &Path, tree: &Tree) {
    for (path, bytes) in tree {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn run(arguments: &[&str], site: &Path, more: &[String]) -> Output {
    // Settings and environments of the person who runs the tests are none of the fixtures' business.
    let variables = ["VIRTUAL_ENV", "CONDA_PREFIX", "NO_COLOR", "CLICOLOR_FORCE"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_fa-doctor"));
    for name in variables {
        command.env_remove(name);
    }
    command.args(arguments).arg(site).args(more).current_dir(site).output().unwrap()
}

/// The findings of a tree and the exit code.
fn scan(site: &Path, expect: &Expect) -> Result<(Vec<serde_json::Value>, i32), String> {
    let output = run(&["scan", "--format", "json"], site, &expect.args);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("no JSON: {}", String::from_utf8_lossy(&output.stderr)))?;
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    Ok((findings, output.status.code().unwrap_or(-1)))
}

fn short(finding: &serde_json::Value) -> String {
    let text = |key: &str| finding[key].as_str().unwrap_or("").to_owned();
    format!("{} {} {}:{} {}", text("severity"), text("code"), text("path"), finding["line"], text("symbol"))
}

/// Errors and warnings match as a set; infos count where they are listed.
fn compare(expect: &Expect, findings: &[serde_json::Value]) -> Result<(), String> {
    let mut left: Vec<&serde_json::Value> = findings.iter().collect();
    let mut wrong = Vec::new();
    for wanted in &expect.finding {
        let hit = left.iter().position(|finding| wanted.iter().all(|(key, value)| &finding[key] == value));
        match hit {
            Some(index) => drop(left.remove(index)),
            None => wrong.push(format!("missing {}", serde_json::json!(wanted))),
        }
    }
    wrong.extend(left.iter().filter(|f| f["severity"] != "info").map(|f| format!("unexpected {}", short(f))));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ")) }
}

fn same(wanted: &Tree, found: &Tree, what: &str) -> Result<(), String> {
    let paths = wanted.keys().chain(found.keys());
    let mut different: Vec<&String> = paths.filter(|path| wanted.get(*path) != found.get(*path)).collect();
    different.sort();
    different.dedup();
    let Some(first) = different.first() else { return Ok(()) };
    let text =
        |tree: &Tree| tree.get(*first).map_or("(absent)".into(), |bytes| String::from_utf8_lossy(bytes).into_owned());
    Err(format!("{what}: {different:?} differ; {first} is\n{}\ninstead of\n{}", text(found), text(wanted)))
}

fn check(case: &Path) -> Result<(), String> {
    let expect: Expect =
        toml::from_str(&fs::read_to_string(case.join("expect.toml")).map_err(|e| format!("expect.toml: {e}"))?)
            .map_err(|error| error.to_string())?;
    let mut base = Tree::new();
    for name in &expect.with {
        base.extend(read_tree(&fixtures().join("shared").join(name)));
    }
    let laid_out = |name: &str| {
        let mut tree = base.clone();
        tree.extend(read_tree(&case.join(name)));
        let folder = tempfile::tempdir().unwrap();
        write_tree(folder.path(), &tree);
        (folder, tree)
    };
    if case.join("bad").exists() {
        let (folder, before) = laid_out("bad");
        let site = folder.path();
        let (findings, exit) = scan(site, &expect)?;
        compare(&expect, &findings)?;
        if exit != expect.exit {
            return Err(format!("exit code {exit} instead of {}", expect.exit));
        }
        check_fix(case, &expect, site, &before, &findings)?;
    }
    if case.join("good").exists() {
        let (folder, _) = laid_out("good");
        let (findings, exit) = scan(folder.path(), &expect)?;
        compare(&Expect::default(), &findings).map_err(|error| format!("good: {error}"))?;
        if exit != 0 {
            return Err(format!("good: exit code {exit}"));
        }
    }
    Ok(())
}

fn check_fix(
    case: &Path,
    expect: &Expect,
    site: &Path,
    before: &Tree,
    findings: &[serde_json::Value],
) -> Result<(), String> {
    let fixed = case.join("fixed");
    let mut arguments = expect.args.clone();
    arguments.extend(expect.fix.iter().cloned());
    if !fixed.exists() && expect.fix.is_empty() {
        arguments.push("--unsafe".into());
    }
    let fix = || run(&["fix", "--write"], site, &arguments);
    let output = fix();
    let mut after = read_tree(site);
    after.retain(|path, _| !path.starts_with(".fa-doctor/"));
    let changed: Tree = after
        .iter()
        .filter(|(path, bytes)| before.get(*path) != Some(bytes))
        .map(|(p, b)| (p.clone(), b.clone()))
        .collect();
    if std::env::var_os("FA_DOCTOR_BLESS").is_some() && (fixed.exists() || !changed.is_empty()) {
        drop(fs::remove_dir_all(&fixed));
        let stand_in = |path: &str| path.ends_with(ADAPTER).then(|| b"# Its text is tested elsewhere.\n".to_vec());
        let shown = changed.iter().map(|(path, bytes)| (path.clone(), stand_in(path).unwrap_or_else(|| bytes.clone())));
        write_tree(&fixed, &shown.collect());
    } else if !fixed.exists() {
        return same(before, &read_tree(site), "fix changed something, and there is no fixed/");
    }
    let without_text = |tree: &Tree| -> Tree {
        let text = |path: &str, bytes: &[u8]| if path.ends_with(ADAPTER) { Vec::new() } else { bytes.to_vec() };
        tree.iter().map(|(path, bytes)| (path.clone(), text(path, bytes))).collect()
    };
    let wanted = without_text(&read_tree(&fixed));
    same(&wanted, &without_text(&changed), &format!("fixed/\n{}", String::from_utf8_lossy(&output.stderr)))?;

    let (remaining, _) = scan(site, expect)?;
    let known: Vec<String> = findings.iter().map(|f| format!("{} {}", f["code"], f["symbol"])).collect();
    for finding in remaining.iter().filter(|f| f["severity"] != "info") {
        let code = finding["code"].as_str().unwrap_or("");
        if !expect.left.iter().any(|left| left == code) {
            return Err(format!("after the fix: {}", short(finding)));
        }
        if !known.contains(&format!("{} {}", finding["code"], finding["symbol"])) {
            return Err(format!("the fix brings {}", short(finding)));
        }
    }
    let once = read_tree(site);
    fix();
    same(&once, &read_tree(site), "a second fix")?;
    let undo = run(&["undo"], site, &[]);
    same(before, &read_tree(site), &format!("undo\n{}", String::from_utf8_lossy(&undo.stderr)))
}

#[test]
fn every_fixture_holds() {
    let mut failed = Vec::new();
    let mut count = 0;
    for code in folders(&fixtures()).into_iter().filter(|path| !path.ends_with("shared")) {
        for case in folders(&code) {
            count += 1;
            if let Err(error) = check(&case) {
                failed.push(format!("{}: {error}", case.strip_prefix(fixtures()).unwrap().display()));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {count} fixtures:\n{}", failed.len(), failed.join("\n"));
    assert!(count > 0);
}
