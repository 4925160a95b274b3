//! Installed distributions: METADATA, RECORD, direct_url.json, WHEEL; eggs too.

use rayon::prelude::*;

use super::metadata::{self, all, editable_folder, first, headers, name_and_version, normalize, requires_txt};
use super::record;
use super::tree::{join, split};
use super::{EntryKind, RootId, SearchEntry, Tree};

pub use super::record::RecordEntry;

/// One installed distribution.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    /// Normalised as PEP 503 says: lower case, runs of `-_.` as one `-`.
    pub name: String,
    /// As METADATA spells it.
    pub display_name: String,
    /// As METADATA spells it (`2.8.3+cu130torch2.11`); see [`Distribution::version`].
    pub raw_version: String,
    /// The root that holds it.
    pub root: RootId,
    /// Folder that RECORD's paths are relative to (usually the search entry that holds the `.dist-info`).
    pub base: SearchEntry,
    /// The `.dist-info` (or `.egg-info`) folder, relative to the root. In a source checkout that was never installed
    /// the file that names the project.
    pub info: String,
    /// The file with the headers, relative to the root: METADATA, PKG-INFO, or what names the project.
    pub metadata_path: String,
    /// Requires-Dist lines: text and line number (from 1) in METADATA (or in an egg's requires.txt).
    pub requires: Vec<(String, u32)>,
    /// Requires-Python, if given.
    pub requires_python: Option<String>,
    /// Tags of WHEEL (`cp38-abi3-manylinux_2_31_x86_64`), empty if it has none.
    pub tags: Vec<String>,
    /// The tool that installed it, as INSTALLER says (`pip`, `uv`).
    pub installer: Option<String>,
    /// Folder that an editable install points at (direct_url.json).
    pub editable: Option<String>,
}

impl Distribution {
    /// The version as PEP 440 reads it, if it does.
    pub fn version(&self) -> Option<pep440_rs::Version> {
        self.raw_version.parse().ok()
    }

    /// Whether this is a source project that was never installed: its `info` is the file that names it.
    pub fn is_project(&self) -> bool {
        !self.info.ends_with(".dist-info") && !self.info.ends_with(".egg-info")
    }

    /// Path of RECORD, relative to the root.
    pub fn record_path(&self) -> String {
        join(&self.info, "RECORD")
    }

    /// RECORD, read when asked for (it can have 200,000 lines).
    pub fn record(&self, tree: &Tree) -> Vec<RecordEntry> {
        match tree.map(&self.record_path()) {
            Ok(bytes) => record::entries(&bytes, &self.base.prefix),
            Err(_) => Vec::new(),
        }
    }

    /// Whether RECORD lists a file of this name: `stem` (relative to the root) with any extension, or a file below it.
    pub fn lists(&self, tree: &Tree, stem: &str) -> bool {
        let Ok(bytes) = tree.map(&self.record_path()) else { return false };
        // Most of the names that are asked for stand nowhere in it.
        memchr::memmem::find(&bytes, split(stem).1.as_bytes()).is_some()
            && record::entries(&bytes, &self.base.prefix).iter().any(|entry| {
                entry.path.strip_prefix(stem).is_some_and(|rest| rest.starts_with('.') || rest.starts_with('/'))
            })
    }

    /// The names that this distribution puts directly into its folder, as far as it says.
    pub(super) fn top_level(&self, tree: &Tree) -> Vec<String> {
        if let Ok(bytes) = tree.map(&self.record_path()) {
            return record::top_level(&bytes);
        }
        // Eggs and stripped installs; the names are those of modules.
        let listed = tree.read(&join(&self.info, "top_level.txt")).unwrap_or_default();
        let names = String::from_utf8_lossy(&listed);
        let mut names: Vec<String> = names.lines().map(|name| name.trim().to_owned()).collect();
        names.retain(|name| !name.is_empty());
        if names.is_empty() {
            names.push(self.name.replace('-', "_"));
        }
        names
    }
}

/// The distributions of one folder of the search path, sorted by the name of their info folders.
pub(super) fn discover(tree: &Tree, base: &SearchEntry) -> Vec<Distribution> {
    let names = tree.list(&base.prefix);
    names.par_iter().filter_map(|(name, kind)| read(tree, base, name, *kind)).collect()
}

/// Whether a name is that of an info folder (or, for eggs, file).
pub(super) fn is_info(name: &str, kind: EntryKind) -> bool {
    // What pip renames to `~orch-..` while uninstalling and leaves behind when it fails is not installed.
    !name.starts_with('~') && (name.ends_with(".dist-info") && kind == EntryKind::Folder || name.ends_with(".egg-info"))
}

fn read(tree: &Tree, base: &SearchEntry, name: &str, kind: EntryKind) -> Option<Distribution> {
    if !is_info(name, kind) {
        return None;
    }
    let info = join(&base.prefix, name);
    let file = |name: &str| tree.read(&join(&info, name)).ok();
    let metadata_path = match kind {
        EntryKind::File => info.clone(),
        _ if name.ends_with(".egg-info") => join(&info, "PKG-INFO"),
        _ => join(&info, "METADATA"),
    };
    let metadata = tree.read(&metadata_path).ok();
    // A folder with neither is what a failed removal leaves.
    if metadata.is_none() && !tree.is_file(&join(&info, "RECORD")) {
        return None;
    }
    let headers = headers(&metadata.unwrap_or_default());
    let (folder_name, folder_version) = name_and_version(name).unwrap_or_default();
    let display_name = first(&headers, "Name").unwrap_or(folder_name).to_owned();
    if display_name.is_empty() {
        return None;
    }
    let mut requires: Vec<_> =
        all(&headers, "Requires-Dist").map(|header| (header.value.clone(), header.line)).collect();
    if requires.is_empty() && name.ends_with(".egg-info") {
        requires = file("requires.txt").map(|bytes| requires_txt(&bytes)).unwrap_or_default();
    }
    let wheel = metadata::headers(&file("WHEEL").unwrap_or_default());
    let installer = file("INSTALLER").map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    Some(Distribution {
        name: normalize(&display_name),
        display_name,
        raw_version: first(&headers, "Version").unwrap_or(folder_version).to_owned(),
        root: base.root,
        base: base.clone(),
        metadata_path,
        requires,
        requires_python: first(&headers, "Requires-Python").map(str::to_owned),
        tags: all(&wheel, "Tag").map(|header| header.value.clone()).collect(),
        installer: installer.filter(|name| !name.is_empty()),
        editable: file("direct_url.json").and_then(|bytes| editable_folder(&bytes)),
        info,
    })
}
