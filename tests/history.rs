//! What the packs say of a function's parameters, held against the released sources.
//!
//!     python3 scripts/corpus.py target/corpus
//!     FA_DOCTOR_CORPUS=target/corpus cargo test --test history -- --ignored

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fa_doctor::environment::RootId;
use fa_doctor::packs::{Function, Packs};
use fa_doctor::python::ir::ParameterKind;
use fa_doctor::python::{Module, Origin, Symbol, index};
use pep440_rs::Version;

/// The file of a function's module in an unpacked distribution, and the function's name.
fn source(tree: &Path, function: &Function) -> Option<(PathBuf, String)> {
    let (module, name) = function.path.rsplit_once('.')?;
    let file = tree.join(format!("{}.py", module.replace('.', "/")));
    file.is_file().then(|| (file, name.to_owned()))
}

fn parse(file: &Path) -> Module {
    let origin =
        Origin { name: Symbol::new("module"), is_package: false, root: RootId(0), path: file.display().to_string() };
    index(&std::fs::read(file).expect("a source"), origin).expect("text")
}

/// Name and version of an unpacked distribution, as the corpus names its folder.
fn name_and_version(folder: &Path) -> Option<(String, Version)> {
    let whole = folder.file_name()?.to_str()?;
    whole.match_indices('-').rev().find_map(|(at, _)| Some((whole[..at].to_owned(), whole[at + 1..].parse().ok()?)))
}

#[test]
#[ignore = "needs the corpus: scripts/corpus.py"]
fn histories_are_those_of_the_released_sources() {
    let corpus = std::env::var_os("FA_DOCTOR_CORPUS").map_or_else(|| "target/corpus".into(), PathBuf::from);
    let packs = Packs::embedded();
    let mut compared = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(corpus.join("trees")).expect("the corpus") {
        let tree = entry.expect("an entry").path();
        let Some((name, version)) = name_and_version(&tree) else { continue };
        for function in packs.functions.iter().filter(|function| function.distribution == name) {
            let Some((file, bare)) = source(&tree, function) else { continue };
            let module = parse(&file);
            // The last definition at the top of the module counts.
            let mut found = module.functions.iter().filter(|f| f.class.is_none() && f.name.as_str() == bare);
            let Some(defined) = found.next_back() else {
                if function.versions.contains(&version) {
                    wrong.push(format!("{name} {version} has no {}", function.path));
                }
                continue;
            };
            compared += 1;
            let named =
                defined.parameters.iter().filter(|p| !matches!(p.kind, ParameterKind::VarArgs | ParameterKind::KwArgs));
            let real: BTreeSet<&str> = named.map(|parameter| parameter.name.as_str()).collect();
            let known = function.always.iter().chain(function.keywords.keys()).map(String::as_str);
            let all: BTreeSet<&str> = known.chain(real.iter().copied()).collect();
            for keyword in all.into_iter().filter(|keyword| !function.open || real.contains(keyword)) {
                let said = function.has(keyword, &version);
                if said != Some(real.contains(keyword)) {
                    wrong.push(format!("{name} {version}: {}({keyword}): packs say {said:?}", function.path));
                }
            }
        }
    }
    assert!(compared > 50, "only {compared} functions were found");
    assert_eq!(wrong, Vec::<String>::new());
}
