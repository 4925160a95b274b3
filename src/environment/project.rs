//! Source checkouts: where their packages are imported from, and what they are called.

use std::path::Path;

use toml::Table;

use super::metadata::normalize;
use super::target::is_project;
use super::tree::join;
use super::{Distribution, EntryKind, SearchEntry, Tree};

/// Folders of a project that packages are imported from, relative to it; the project itself comes first.
pub(super) fn import_folders(tree: &Tree, path: &Path) -> Vec<String> {
    let mut folders = vec![String::new()];
    folders.extend(source_folders(tree, ""));
    // Repositories of several projects: `hopper/setup.py`, `python/pyproject.toml`.
    for (name, kind) in tree.list("") {
        if kind == EntryKind::Folder && is_project(&path.join(&name)) && !tree.is_file(&join(&name, "__init__.py")) {
            folders.extend(source_folders(tree, &name));
            folders.push(name);
        }
    }
    let mut seen = Vec::new();
    folders.retain(|folder| {
        tree.is_folder(folder) && !seen.contains(folder) && {
            seen.push(folder.clone());
            true
        }
    });
    folders
}

/// `src`, and what pyproject.toml says.
fn source_folders(tree: &Tree, project: &str) -> Vec<String> {
    let mut folders = vec!["src".to_owned()];
    let table = pyproject(tree, project).unwrap_or_default();
    if let Some(setuptools) = dig(&table, &["tool", "setuptools"]) {
        let places = dig(setuptools, &["package-dir"]).map(|table| table.values().collect::<Vec<_>>());
        folders.extend(places.unwrap_or_default().into_iter().filter_map(|value| value.as_str()).map(str::to_owned));
        let found = dig(setuptools, &["packages", "find"]).and_then(|find| find.get("where")?.as_array());
        folders.extend(found.into_iter().flatten().filter_map(|value| value.as_str()).map(str::to_owned));
    }
    folders.retain(|folder| {
        let inside = !folder.is_empty() && folder.split('/').all(|part| !matches!(part, "" | "." | ".."));
        inside && !tree.is_file(&join(&join(project, folder), "__init__.py"))
    });
    folders.iter().map(|folder| join(project, folder)).collect()
}

fn pyproject(tree: &Tree, project: &str) -> Option<Table> {
    let bytes = tree.read(&join(project, "pyproject.toml")).ok()?;
    String::from_utf8_lossy(&bytes).parse().ok()
}

fn dig<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a Table> {
    keys.iter().try_fold(table, |table, key| table.get(*key)?.as_table())
}

/// The distribution that a checkout would install, as far as its files say.
pub(super) fn distribution(tree: &Tree, base: &SearchEntry) -> Option<Distribution> {
    let folder = &base.prefix;
    let named = |file: &str, name: String, version: Option<String>| {
        // `attr: package.__version__` and the like are no versions.
        let version = version.filter(|version| version.parse::<pep440_rs::Version>().is_ok());
        let version = version.or_else(|| version_in_package(tree, folder, &name));
        let info = join(folder, file);
        Distribution {
            name: normalize(&name),
            display_name: name,
            raw_version: version.unwrap_or_else(|| "unknown".to_owned()),
            root: base.root,
            base: base.clone(),
            metadata_path: info.clone(),
            info,
            ..Distribution::default()
        }
    };
    if let Some(project) = pyproject(tree, folder).as_ref().and_then(|table| dig(table, &["project"]))
        && let Some(name) = project.get("name").and_then(|name| name.as_str())
    {
        let version = project.get("version").and_then(|version| version.as_str()).map(str::to_owned);
        return Some(named("pyproject.toml", name.to_owned(), version));
    }
    for file in ["setup.cfg", "setup.py"] {
        let bytes = tree.read(&join(folder, file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let value = |key: &str| assigned(&text, key, file == "setup.cfg");
        if let Some(name) = value("name").or_else(|| value("PACKAGE_NAME")) {
            return Some(named(file, name, value("version")));
        }
    }
    None
}

/// The literal that the first line `key = ..` with one gives; in an INI file it has no quotes.
fn assigned(text: &str, key: &str, ini: bool) -> Option<String> {
    text.lines().find_map(|line| {
        let value = line.trim().strip_prefix(key)?.trim_start().strip_prefix('=')?.trim();
        let literal = if ini { value } else { value.strip_prefix(['"', '\''])?.split(['"', '\'']).next()? };
        (!literal.is_empty()).then(|| literal.to_owned())
    })
}

/// Dynamic versions end up in a file of the package.
fn version_in_package(tree: &Tree, folder: &str, name: &str) -> Option<String> {
    let package = join(folder, &normalize(name).replace('-', "_"));
    ["_version.py", "version.py", "__init__.py"].iter().find_map(|file| {
        let bytes = tree.read(&join(&package, file)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let version =
            assigned(&text, "__version__ = version", false).or_else(|| assigned(&text, "__version__", false))?;
        version.parse::<pep440_rs::Version>().is_ok().then_some(version)
    })
}
