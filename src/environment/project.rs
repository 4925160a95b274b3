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
        if kind == EntryKind::Folder && is_project(&path.join(&name)) {
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
    let text = |file: &str| {
        let bytes = tree.read(&join(folder, file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let config = text("setup.cfg");
    if let Some(name) = setting(&config, "name") {
        return Some(named("setup.cfg", name, setting(&config, "version")));
    }
    let setup = text("setup.py");
    let name = argument(&setup, "name")?;
    Some(named("setup.py", name, argument(&setup, "version")))
}

/// The packages of a checkout that are projects of their own: `flash_attn/cute/pyproject.toml` with a name.
pub(super) fn nested_packages(tree: &Tree) -> Vec<String> {
    let folders = |folder: &str| {
        let entries = tree.list(folder).into_iter().filter(|(_, kind)| *kind == EntryKind::Folder);
        entries.map(|(name, _)| join(folder, &name)).collect::<Vec<_>>()
    };
    let two_levels = folders("").into_iter().flat_map(|folder| {
        let below = folders(&folder);
        std::iter::once(folder).chain(below)
    });
    let is_package = |folder: &String| tree.is_file(&join(folder, "__init__.py"));
    let is_named = |folder: &String| pyproject(tree, folder).is_some_and(|table| dig(&table, &["project"]).is_some());
    two_levels.filter(|folder| is_package(folder) && is_named(folder)).collect()
}

/// The value of `key = ..` in an INI file.
fn setting(text: &str, key: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.trim_end().strip_prefix(key)?.trim_start().strip_prefix('='));
    values.map(str::trim).find(|value| !value.is_empty()).map(str::to_owned)
}

/// The literal that the call of `setup` gives for an argument, directly or by a name that is assigned one.
fn argument(text: &str, key: &str) -> Option<String> {
    let call = text.rfind("setup(").map(|at| &text[at + "setup(".len()..])?;
    let start = call.match_indices(key).find_map(|(at, _)| {
        let is_start = call[..at].ends_with(|c: char| c.is_whitespace() || c == '(' || c == ',') || at == 0;
        call[at + key.len()..].trim_start().strip_prefix('=').filter(|_| is_start)
    })?;
    let value = start.trim_start();
    literal(value).or_else(|| {
        let end = value.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(value.len());
        assigned(text, &value[..end])
    })
}

/// The literal of the first line `name = ".."`.
fn assigned(text: &str, name: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('='));
    values.filter_map(|value| literal(value.trim_start())).next()
}

fn literal(text: &str) -> Option<String> {
    let (value, _) = super::pth::string(text)?;
    (!value.is_empty()).then_some(value)
}

/// Dynamic versions end up in a file of the package, or of the folder itself.
fn version_in_package(tree: &Tree, folder: &str, name: &str) -> Option<String> {
    let package = join(folder, &normalize(name).replace('-', "_"));
    let files = ["_version.py", "version.py", "__init__.py"].iter().map(|file| join(&package, file));
    files.chain([join(folder, "__init__.py")]).find_map(|file| {
        let bytes = tree.read(&file).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let version = assigned(&text, "__version__ = version").or_else(|| assigned(&text, "__version__"))?;
        version.parse::<pep440_rs::Version>().is_ok().then_some(version)
    })
}
