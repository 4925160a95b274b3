//! Rule packs: what ships fits its schema and its own cases, and mistakes are errors that point at the line.

mod common;

use std::fs;
use std::path::Path;

use fa_doctor::packs::{PackError, Packs};

/// The packs of this repository, with their texts.
fn shipped() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let mut files: Vec<_> = fs::read_dir(folder).expect("rules").map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), fs::read_to_string(path).expect("a pack"))).collect()
}

#[test]
fn every_file_of_the_folder_is_in_the_binary() {
    let source = include_str!("../src/packs/load.rs");
    for (name, _) in shipped() {
        assert!(source.contains(&format!("(\"rules/{name}\"")), "{name} is not embedded");
    }
}

#[test]
fn what_ships_fits_the_schema() {
    let schema: serde_json::Value = serde_json::from_str(include_str!("../docs/pack-schema.json")).expect("a schema");
    for (name, text) in shipped() {
        let value: toml::Value = toml::from_str(&text).expect("TOML");
        let value = serde_json::to_value(value).expect("JSON");
        assert_eq!(common::schema::problems(&schema, &value), Vec::<String>::new(), "{name}");
    }
}

/// Sections that `src/packs/schema.rs` knows are those of the schema: a pack with each of them empty loads.
#[test]
fn the_schema_knows_every_section() {
    let schema: serde_json::Value = serde_json::from_str(include_str!("../docs/pack-schema.json")).expect("a schema");
    let sections = schema["properties"].as_object().expect("properties");
    let mut text = "requires = \">=0.1.0\"\n".to_owned();
    for (name, section) in sections.iter().filter(|(name, _)| *name != "requires") {
        let empty = if section["type"] == "array" { "[]" } else { "{}" };
        text.push_str(&format!("{name} = {empty}\n"));
    }
    Packs::default().add("all.toml", &text).expect("every section of the schema is known");
    let error = Packs::default().add("x.toml", "requires = \">=0.1.0\"\nnone = 1\n").expect_err("an unknown section");
    let known = error.message.split('`').skip(3).step_by(2).collect::<Vec<_>>();
    for name in &known {
        assert!(sections.contains_key(*name), "the schema lacks `{name}`");
    }
    assert_eq!(known.len(), sections.len());
}

#[test]
fn every_defect_proves_itself() {
    let packs = Packs::embedded();
    assert!(packs.defects.len() >= 5);
    for defect in &packs.defects {
        assert!(defect.invalid.iter().all(|case| defect.matches_case(case)), "{}", defect.id);
        assert!(!defect.valid.iter().any(|case| defect.matches_case(case)), "{}", defect.id);
        let mut commits = defect.commits.clone();
        commits.dedup();
        assert_eq!(commits, defect.commits, "{}", defect.id);
        assert!(defect.fixed_commit.as_ref().is_none_or(|fixed| !defect.has_commit(fixed)), "{}", defect.id);
    }
}

#[test]
fn every_known_bad_pin_names_both_seed_defects() {
    let packs = Packs::embedded();
    let seed = packs.defects.iter().find(|defect| defect.id == "vllm-fa4-sm80-dynamic-causal").expect("the first seed");
    assert_eq!(seed.commits.len(), 15);
    for commit in &seed.commits {
        let ids: Vec<&str> =
            packs.defects_at("vllm-flash-attn", commit).into_iter().map(|defect| defect.id.as_str()).collect();
        assert_eq!(ids[..2], ["vllm-fa4-sm80-dynamic-causal", "vllm-fa4-sm80-is-split-kv"], "{commit}");
    }
    assert_eq!(packs.defects_at("vllm-flash-attn", "7484d4751a4569fb30e5c0604581f1b02ae3df71").len(), 0);
}

fn error(text: &str) -> PackError {
    let mut packs = Packs::embedded();
    packs.add("mine/extra.toml", text).expect_err("a mistake")
}

const DEFECT: &str = r#"
[[defect]]
id = "mine"
package = "flash-attn-4"
versions = ">=4.0.0b5,<4.0.0b9"
title = "it breaks"
path = "flash_attn/cute/x.py"
advice = "do something"
valid = ["4.0.0b9"]
invalid = ["4.0.0b5"]
"#;

#[test]
fn mistakes_point_at_their_line_and_say_what_to_do() {
    let with = |from: &str, to: &str| format!("requires = \">=0.1.0\"\n{}", DEFECT.replace(from, to));
    let mistakes = [
        ("nonsense".to_owned(), 1, "expected"),
        (format!("requires = \">=99\"\n{DEFECT}"), 1, "needs fa-doctor >=99"),
        ("requires = \"many\"\n".to_owned(), 1, "not a semver range"),
        (DEFECT.to_owned(), 1, "missing field `requires`"),
        (with("advice", "advise"), 9, "unknown field `advise`"),
        (with(">=4.0.0b5,<4.0.0b9", "4.0.0b5 and up"), 6, "not a PEP 440 range"),
        (with(">=4.0.0b5,<4.0.0b9", ">=4.0.0b9,<4.0.0b5"), 6, "no release of flash-attn-4 can match"),
        (with("[\"4.0.0b9\"]", "[\"4.0.0b7\"]"), 10, "defect `mine` matches `4.0.0b7`"),
        (with("[\"4.0.0b5\"]", "[\"4.0.0b5\", \"4.0.0b9\"]"), 11, "defect `mine` does not match `4.0.0b9`"),
        (with("[\"4.0.0b5\"]", "[]"), 11, "has no case"),
        (with("title", "commits = [\"abc\"]\ntitle"), 7, "not a full commit hash"),
        (with("title", "source = \"elsewhere\"\ntitle"), 7, "there is no [[source]] with id `elsewhere`"),
        ("requires = \">=0.1.0\"\n[releases]\nvllm = [\"new\"]\n".to_owned(), 3, "not a PEP 440 version"),
        ("requires = \">=0.1.0\"\n[decorators]\n\"a.b\" = \"eats\"\n".to_owned(), 3, "unknown variant `eats`"),
        (
            "requires = \">=0.1.0\"\n[[needs]]\npackage = \"vllm\"\nrequires = [\"torch ==\"]\n".to_owned(),
            4,
            "not a requirement",
        ),
        ("requires = \">=0.1.0\"\n[[overlap]]\npackages = [\"a\"]\nbecause = \"x\"\n".to_owned(), 3, "two packages"),
        (
            "requires = \">=0.1.0\"\n[[function]]\npath = \"a.f\"\ndistribution = \"flash-attn-4\"\ntitle = \"t\"\n\
             examined = \">=4.0.0b3\"\n[function.keywords]\nx = \">=4.0.0b99\"\n"
                .to_owned(),
            2,
            "parameter `x`: no release of flash-attn-4 matches `>=4.0.0b99`",
        ),
    ];
    for (text, line, message) in mistakes {
        let error = error(&text);
        let shown = error.to_string();
        assert!(error.message.contains(message), "{message:?} is not in {shown}");
        assert_eq!(error.line, Some(line), "{shown}");
        assert!(error.advice.is_some(), "{shown}");
        assert!(shown.starts_with(&format!("mine/extra.toml:{line}: ")), "{shown}");
    }
    Packs::embedded().add("mine/extra.toml", &with("a", "a")).expect("the entry itself is right");
}

#[test]
fn packs_of_a_folder_are_added_to_those_of_the_binary() {
    let folder = tempfile::tempdir().expect("a folder");
    common::write(folder.path(), "one.toml", &format!("requires = \">=0.1.0\"\n{DEFECT}"));
    common::write(folder.path(), "two.toml", "requires = \">=0.1.0\"\n[stack]\naudited = [\"mine.attention\"]\n");
    common::write(folder.path(), "notes.md", "not a pack");
    let packs = Packs::with_directories(&[folder.path()]).expect("packs");
    assert!(packs.defects.iter().any(|defect| defect.id == "mine"));
    assert!(packs.is_audited("mine.attention.kernels") && packs.is_audited("flash_attn.cute"));

    common::write(folder.path(), "three.toml", "requires = \">=0.1.0\"\n[stak]\n");
    let run = common::run(folder.path(), "scan . --rules .");
    assert_eq!(run.code, 2);
    assert!(run.err.contains("three.toml:2: unknown field `stak`"), "{}", run.err);

    let run = common::run(folder.path(), "scan . --rules missing");
    assert_eq!(run.code, 2);
    assert!(run.err.contains("missing"), "{}", run.err);
}
