//! Holds the architecture of docs/adding-a-rule.md against src/: reads the sources with syn.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fa_doctor::rules::registry;
use syn::visit::Visit;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = walkdir::WalkDir::new(folder)
        .into_iter()
        .filter_map(Result::ok)
        .map(walkdir::DirEntry::into_path)
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn parse(path: &Path) -> syn::File {
    let text = std::fs::read_to_string(path).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Rule files are named after their code and rule: `fa001_undefined_name.rs`.
fn rule_files() -> BTreeSet<(String, String)> {
    let files = std::fs::read_dir(root().join("src/rules")).unwrap();
    files
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let stem = name.strip_suffix(".rs")?;
            let (code, rule) = stem.split_once('_')?;
            let is_code = code.len() == 5 && code.starts_with("fa") && code[2..].bytes().all(|b| b.is_ascii_digit());
            is_code.then(|| (code.to_uppercase(), rule.replace('_', "-")))
        })
        .collect()
}

#[test]
fn every_rule_file_is_registered_under_its_name() {
    let registered: BTreeSet<(String, String)> =
        registry::all().iter().map(|rule| (rule.info().code.to_owned(), rule.info().name.to_owned())).collect();
    assert_eq!(registered, rule_files());
    let codes: Vec<&str> = registry::all().iter().map(|rule| rule.info().code).collect();
    assert!(codes.is_sorted(), "rules run in the order of their codes: {codes:?}");
}

#[test]
fn every_rule_is_listed_in_the_readme_and_has_a_page() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for rule in registry::all() {
        let info = rule.info();
        let row = format!("| [{}](docs/rules/{}.md) | {} |", info.code, info.code, info.name);
        assert!(readme.contains(&row), "README has no row `{row}`");
        assert!(root().join(format!("docs/rules/{}.md", info.code)).is_file());
    }
}

/// Every path that a file mentions: `use` trees, types, expressions.
#[derive(Default)]
struct Paths(BTreeSet<String>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first() {
            self.0.insert(first.ident.to_string());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_use_tree(&mut self, tree: &'ast syn::UseTree) {
        let first = match tree {
            syn::UseTree::Path(path) => Some(path.ident.to_string()),
            syn::UseTree::Name(name) => Some(name.ident.to_string()),
            syn::UseTree::Rename(rename) => Some(rename.ident.to_string()),
            syn::UseTree::Glob(_) | syn::UseTree::Group(_) => None,
        };
        self.0.extend(first);
        syn::visit::visit_use_tree(self, tree);
    }
}

#[test]
fn the_parser_is_named_in_the_front_end_only() {
    for path in sources(&root().join("src")) {
        if path.starts_with(root().join("src/python")) {
            continue;
        }
        let mut paths = Paths::default();
        paths.visit_file(&parse(&path));
        let named: Vec<&String> = paths.0.iter().filter(|name| name.starts_with("ruff_")).collect();
        assert!(named.is_empty(), "{} names {named:?}", path.display());
    }
}

/// Modules of the crate that a file uses: `crate::x`.
#[derive(Default)]
struct Uses(BTreeSet<String>);

impl<'ast> Visit<'ast> for Uses {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|first| first.ident == "crate")
            && let Some(second) = segments.next()
        {
            self.0.insert(second.ident.to_string());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if let syn::UseTree::Path(path) = &item.tree
            && path.ident == "crate"
        {
            match path.tree.as_ref() {
                syn::UseTree::Path(inner) => self.0.extend([inner.ident.to_string()]),
                syn::UseTree::Group(group) => {
                    for tree in &group.items {
                        if let syn::UseTree::Path(inner) = tree {
                            self.0.insert(inner.ident.to_string());
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn data_flows_one_way() {
    // What a part may not know about: whatever comes after it.
    let forbidden = [
        ("python", &["link", "rules", "report", "fix", "cli", "packs", "native", "probe", "smoke", "scan"][..]),
        ("environment", &["python", "link", "rules", "report", "fix", "cli", "probe", "smoke", "scan"][..]),
        ("link", &["rules", "report", "fix", "cli", "probe", "smoke", "scan"][..]),
        ("packs", &["link", "rules", "report", "fix", "cli", "probe", "smoke", "scan"][..]),
        ("native", &["link", "rules", "report", "fix", "cli", "probe", "scan"][..]),
        ("rules", &["report", "cli", "probe", "smoke", "scan"][..]),
        ("report", &["cli", "probe", "scan"][..]),
    ];
    for (part, later) in forbidden {
        for path in sources(&root().join("src").join(part)) {
            let mut file = parse(&path);
            // Tests may look at anything.
            file.items.retain(|item| match item {
                syn::Item::Mod(module) => module.ident != "tests",
                _ => true,
            });
            let mut uses = Uses::default();
            uses.visit_file(&file);
            for name in later {
                assert!(!uses.0.contains(*name), "{} uses crate::{name}", path.display());
            }
        }
    }
}

#[test]
fn no_marks_of_unfinished_work() {
    for path in sources(&root().join("src")) {
        let text = std::fs::read_to_string(&path).unwrap();
        for mark in ["todo!(", "unimplemented!(", "TODO", "FIXME", "XXX", "dbg!("] {
            assert!(!text.contains(mark), "{} contains {mark}", path.display());
        }
    }
}
