//! Undefined names, compared with ruff's F821 on every file of vLLM, torch and transformers.
//!
//! Where the two differ, `tests/corpus/undefined-names.toml` says who is right and why, name by name. The trees are
//! prepared by `scripts/corpus.py`; ruff comes from its package (`FA_DOCTOR_RUFF` names it if it is not on PATH):
//!
//!     python3 scripts/corpus.py target/corpus --package torch==2.11.0 transformers==5.24.0
//!     FA_DOCTOR_CORPUS=target/corpus cargo test --release --test undefined_names -- --ignored

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use fa_doctor::environment::{Environment, Request};
use fa_doctor::link::{Linker, Program, Scope};
use fa_doctor::packs::Packs;
use fa_doctor::python::ir::ExprKind;
use fa_doctor::rules::fa001_undefined_name::undefined_names;
use rayon::prelude::*;
use serde::Deserialize;

/// The trees that are compared.
const TREES: &[&str] = &["vllm-0.26.0", "vllm-0.33.0", "torch-2.11.0", "transformers-5.24.0"];

/// `tests/corpus/undefined-names.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Explanations {
    difference: Vec<Difference>,
}

/// Names that one of the two reports and the other does not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    tree: String,
    path: String,
    names: Vec<String>,
    /// Who reports them.
    only: Who,
    /// Why fa-doctor's answer is the right one.
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Who {
    Ruff,
    FaDoctor,
}

/// Path, name and line of a read.
type Read = (String, String, u32);

fn tree(name: &str) -> PathBuf {
    let corpus = std::env::var_os("FA_DOCTOR_CORPUS").map(PathBuf::from).unwrap_or_else(|| "target/corpus".into());
    let folder = corpus.join("trees").join(name);
    assert!(folder.is_dir(), "{} is missing: see the top of this file", folder.display());
    std::fs::canonicalize(folder).unwrap()
}

fn by_ruff(tree: &Path) -> BTreeSet<Read> {
    #[derive(Deserialize)]
    struct Place {
        row: u32,
    }
    #[derive(Deserialize)]
    struct Violation {
        code: Option<String>,
        filename: PathBuf,
        location: Place,
        message: String,
    }
    let ruff = std::env::var_os("FA_DOCTOR_RUFF").unwrap_or_else(|| "ruff".into());
    let output = Command::new(&ruff)
        .args(["check", "--no-cache", "--isolated", "--no-respect-gitignore", "--ignore-noqa", "--exit-zero"])
        .args(["--select", "F821", "--output-format", "json", "."])
        .current_dir(tree)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", ruff.display()));
    let all: Vec<Violation> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("ruff: {error}\n{}", String::from_utf8_lossy(&output.stderr)));
    let undefined = all.into_iter().filter(|violation| violation.code.as_deref() == Some("F821"));
    let python = undefined.filter(|violation| violation.filename.extension().is_some_and(|ending| ending == "py"));
    python
        .map(|violation| {
            let path = violation.filename.strip_prefix(tree).unwrap().to_string_lossy().replace('\\', "/");
            let name = violation.message.split('`').nth(1).unwrap().to_owned();
            (path, name, violation.location.row)
        })
        .collect()
}

fn by_fa_doctor(tree: &Path) -> BTreeSet<Read> {
    let environment = Environment::load(&Request { targets: vec![tree.to_owned()], ..Request::default() }).unwrap();
    let mut packs = Packs::embedded();
    packs.audited = top_levels(tree);
    let program = Program::load(&environment, &packs, Scope { all: true });
    assert!(program.audited.len() > 500, "{} modules of {}", program.audited.len(), tree.display());
    program
        .audited
        .par_iter()
        .map(|&id| {
            let linker = Linker::new(&program);
            let module = linker.module(id);
            let mut reads = Vec::new();
            for read in undefined_names(&linker, id) {
                let ExprKind::Name(name) = module[read.expr].kind else { continue };
                let line = module.position(module[read.expr].span.start).0;
                reads.push((module.path.clone(), name.to_string(), line));
            }
            reads
        })
        .flatten()
        .collect()
}

/// The importable folders of a tree.
fn top_levels(tree: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(tree).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !name.contains(['.', '-']));
    names.sort();
    names
}

#[test]
#[ignore = "needs ruff and the released packages that scripts/corpus.py downloads"]
fn undefined_names_are_those_of_ruff() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(manifest.join("tests/corpus/undefined-names.toml")).unwrap();
    let explanations: Explanations = toml::from_str(&text).unwrap();
    let mut explained: BTreeMap<(String, String, String, Who), bool> = BTreeMap::new();
    for difference in explanations.difference {
        assert!(!difference.reason.trim().is_empty(), "{}: a reason is missing", difference.path);
        for name in difference.names {
            explained.insert((difference.tree.clone(), difference.path.clone(), name, difference.only), false);
        }
    }
    let mut report = String::new();
    for &name in TREES {
        let tree = tree(name);
        let (ruff, ours) = (by_ruff(&tree), by_fa_doctor(&tree));
        let only_ruff = ruff.difference(&ours).map(|read| (read, Who::Ruff));
        let only_ours = ours.difference(&ruff).map(|read| (read, Who::FaDoctor));
        for ((path, undefined, line), who) in only_ruff.chain(only_ours) {
            match explained.get_mut(&(name.to_owned(), path.clone(), undefined.clone(), who)) {
                Some(seen) => *seen = true,
                None => report += &format!("only {who:?}: {name} {path}:{line} {undefined}\n"),
            }
        }
        println!("{name}: ruff {}, fa-doctor {}, both {}", ruff.len(), ours.len(), ruff.intersection(&ours).count());
    }
    for (entry, seen) in explained {
        if !seen {
            report += &format!("no longer a difference: {entry:?}\n");
        }
    }
    assert!(report.is_empty(), "\n{report}");
}
