//! Folders and wheels behind one read-only tree.
//!
//! Paths are relative to the tree, with `/`, without a leading or trailing slash; the root is `""`. A path that
//! leaves the tree (`..`) names nothing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::folder::Folder;
use super::wheel::Wheel;

/// Sources and metadata above this size are refused: nothing real comes near, and a zip bomb would.
pub const LARGEST_SOURCE: u64 = 64 << 20;

/// What a path in a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A regular file (links are followed).
    File,
    /// A folder.
    Folder,
}

/// The bytes of a file, read, decompressed or mapped.
#[derive(Debug)]
pub enum Bytes {
    /// In memory.
    Owned(Vec<u8>),
    /// Mapped from disk.
    Mapped(memmap2::Mmap),
    /// A part of a mapped wheel: a file that it stores uncompressed.
    Part(Arc<memmap2::Mmap>, std::ops::Range<usize>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Owned(bytes) => bytes,
            Bytes::Mapped(map) => map,
            Bytes::Part(map, range) => &map[range.clone()],
        }
    }
}

/// A read-only tree of files.
#[derive(Debug)]
pub struct Tree {
    kind: Kind,
    /// Files as they would be, by path: they hide those of the tree.
    overlay: BTreeMap<String, Vec<u8>>,
}

#[derive(Debug)]
enum Kind {
    Folder(Folder),
    Wheel(Wheel),
    /// Several trees as if installed one after the other into one folder: the last one that has a path wins.
    Layers(Vec<Tree>),
}

impl From<Kind> for Tree {
    fn from(kind: Kind) -> Tree {
        Tree { kind, overlay: BTreeMap::new() }
    }
}

impl Tree {
    /// A folder on disk.
    pub fn folder(path: &Path) -> io::Result<Tree> {
        Ok(Kind::Folder(Folder::new(path)?).into())
    }

    /// A folder that was put on the search path and may hold anything else as well, such as somebody's home: of what
    /// lies right inside only what can be imported is shown.
    pub fn importable(path: &Path) -> io::Result<Tree> {
        Ok(Kind::Folder(Folder::importable(path)?).into())
    }

    /// A folder that shows only the given places: pairs of a path in the tree and the file or folder that stands
    /// there. This is what the import hook of an editable install makes importable.
    pub fn mounted(path: &Path, mounts: Vec<(String, PathBuf)>) -> io::Result<Tree> {
        Ok(Kind::Folder(Folder::mounted(path, mounts)?).into())
    }

    /// A wheel, by its central directory. `InvalidData` for what is no wheel, `UnexpectedEof` for a truncated one.
    pub fn wheel(path: &Path) -> io::Result<Tree> {
        Ok(Kind::Wheel(Wheel::open(path)?).into())
    }

    /// Several trees as one, as if each had been installed over the ones before it.
    pub fn layered(mut layers: Vec<Tree>) -> Tree {
        match layers.len() {
            1 => layers.remove(0),
            _ => Kind::Layers(layers).into(),
        }
    }

    /// Lays these sources over the tree, in place of those laid over it before: what a patch would make of it.
    pub fn set_overlay(&mut self, overlay: BTreeMap<String, Vec<u8>>) {
        self.overlay = overlay;
    }

    /// The paths of the sources that are laid over the tree.
    pub fn overlaid(&self) -> impl Iterator<Item = &str> {
        self.overlay.keys().map(String::as_str)
    }

    /// The layer that `path` is read from, counted from 0 in the order given to [`Tree::layered`].
    pub fn layer(&self, path: &str) -> usize {
        match &self.kind {
            Kind::Layers(layers) => layers.iter().rposition(|layer| layer.kind(path).is_some()).unwrap_or(0),
            _ => 0,
        }
    }

    /// What `path` is, if it exists. Answers come from cached folder listings, so asking often is cheap.
    pub fn kind(&self, path: &str) -> Option<EntryKind> {
        if self.overlay.contains_key(path) {
            return Some(EntryKind::File);
        }
        match &self.kind {
            Kind::Folder(folder) => folder.kind(path),
            Kind::Wheel(wheel) => wheel.kind(path),
            Kind::Layers(layers) => layers.iter().rev().find_map(|layer| layer.kind(path)),
        }
    }

    /// Whether `path` is a file.
    pub fn is_file(&self, path: &str) -> bool {
        self.kind(path) == Some(EntryKind::File)
    }

    /// Whether `path` is a folder.
    pub fn is_folder(&self, path: &str) -> bool {
        self.kind(path) == Some(EntryKind::Folder)
    }

    /// The names in a folder, sorted, empty if there is none.
    pub fn list(&self, folder: &str) -> Vec<(String, EntryKind)> {
        let mut found = self.list_below_overlay(folder);
        let added = self.overlay.keys().map(|path| split(path)).filter(|(parent, _)| *parent == folder);
        for (_, name) in added {
            if let Err(at) = found.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
                found.insert(at, (name.to_owned(), EntryKind::File));
            }
        }
        found
    }

    fn list_below_overlay(&self, folder: &str) -> Vec<(String, EntryKind)> {
        match &self.kind {
            Kind::Folder(tree) => tree.list(folder),
            Kind::Wheel(wheel) => wheel.list(folder),
            Kind::Layers(layers) => {
                let merged: BTreeMap<_, _> = layers.iter().flat_map(|layer| layer.list(folder)).collect();
                merged.into_iter().collect()
            }
        }
    }

    /// The files in a folder whose names start like this, sorted, without listing the rest: the extension modules
    /// `name.` among hundreds of others.
    pub fn files_starting(&self, folder: &str, start: &str) -> Vec<String> {
        let mut found = match &self.kind {
            Kind::Folder(tree) => tree.files_starting(folder, start),
            Kind::Wheel(wheel) => wheel.files_starting(folder, start),
            Kind::Layers(layers) => layers.iter().flat_map(|layer| layer.files_starting(folder, start)).collect(),
        };
        let laid = self.overlay.keys().map(|path| split(path)).filter(|(parent, _)| *parent == folder);
        found.extend(laid.map(|(_, name)| name.to_owned()).filter(|name| name.starts_with(start)));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Every file at or below `folder` for which `keep` says yes to its path, sorted.
    pub fn walk(&self, folder: &str, keep: &(dyn Fn(&str) -> bool + Sync)) -> Vec<String> {
        self.walk_into(folder, &|_| true, keep)
    }

    /// The same, entering only the folders for which `enter` says yes to their path.
    pub fn walk_into(
        &self,
        folder: &str,
        enter: &(dyn Fn(&str) -> bool + Sync),
        keep: &(dyn Fn(&str) -> bool + Sync),
    ) -> Vec<String> {
        let mut found: Vec<String> = match &self.kind {
            Kind::Folder(tree) => tree.walk(folder, enter, keep),
            Kind::Wheel(wheel) => wheel.walk(folder, enter, keep),
            Kind::Layers(layers) => layers.iter().flat_map(|l| l.walk_into(folder, enter, keep)).collect(),
        };
        if matches!(self.kind, Kind::Layers(_)) || !self.overlay.is_empty() {
            found.extend(self.overlay.keys().filter(|path| is_below(path, folder) && keep(path)).cloned());
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    /// The bytes of a small file (sources, metadata).
    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        if let Some(bytes) = self.overlay.get(path) {
            return Ok(bytes.clone());
        }
        match &self.kind {
            Kind::Folder(folder) => folder.read(path),
            Kind::Wheel(wheel) => {
                let mut bytes = Vec::new();
                wheel.read_scratch(path, &mut bytes)?;
                Ok(bytes)
            }
            Kind::Layers(_) => self.layer_with(path)?.read(path),
        }
    }

    /// The same for many files one after the other, in a buffer that is used again and only ever grows.
    pub fn read_scratch<'b>(&self, path: &str, scratch: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
        if let Some(bytes) = self.overlay.get(path) {
            scratch.clear();
            scratch.extend_from_slice(bytes);
            return Ok(scratch);
        }
        match &self.kind {
            Kind::Folder(folder) => folder.read_scratch(path, scratch),
            Kind::Wheel(wheel) => wheel.read_scratch(path, scratch),
            Kind::Layers(_) => self.layer_with(path)?.read_scratch(path, scratch),
        }
    }

    /// The bytes of a large file: mapped from disk, or from a wheel decompressed (mapped if stored).
    pub fn map(&self, path: &str) -> io::Result<Bytes> {
        if let Some(bytes) = self.overlay.get(path) {
            return Ok(Bytes::Owned(bytes.clone()));
        }
        match &self.kind {
            Kind::Folder(folder) => folder.map(path),
            Kind::Wheel(wheel) => wheel.map(path),
            Kind::Layers(_) => self.layer_with(path)?.map(path),
        }
    }

    /// Hands a large file to `consume` as a stream: a search through a library of a wheel need not hold it in memory.
    pub fn stream(&self, path: &str, consume: &mut dyn FnMut(&mut dyn io::Read) -> io::Result<()>) -> io::Result<()> {
        if let Some(bytes) = self.overlay.get(path) {
            return consume(&mut bytes.as_slice());
        }
        match &self.kind {
            Kind::Folder(folder) => folder.stream(path, consume),
            Kind::Wheel(wheel) => wheel.stream(path, consume),
            Kind::Layers(_) => self.layer_with(path)?.stream(path, consume),
        }
    }

    /// Size in bytes, uncompressed.
    pub fn size(&self, path: &str) -> Option<u64> {
        if let Some(bytes) = self.overlay.get(path) {
            return Some(bytes.len() as u64);
        }
        match &self.kind {
            Kind::Folder(folder) => folder.size(path),
            Kind::Wheel(wheel) => wheel.size(path),
            Kind::Layers(_) => self.layer_with(path).ok()?.size(path),
        }
    }

    /// Where the file is on disk, or would be if it were written; `None` inside a wheel.
    pub fn on_disk(&self, path: &str) -> Option<PathBuf> {
        match &self.kind {
            Kind::Folder(folder) => folder.on_disk(path),
            Kind::Wheel(_) => None,
            Kind::Layers(layers) => {
                let has = |path: &str| layers.iter().rfind(|layer| layer.kind(path).is_some());
                has(path).or_else(|| has(split(path).0))?.on_disk(path)
            }
        }
    }

    /// Whether `path` lies in a folder that could not be listed: that it is not found says nothing then.
    pub fn is_unreadable(&self, path: &str) -> bool {
        match &self.kind {
            Kind::Folder(folder) => folder.is_unreadable(path),
            Kind::Wheel(_) => false,
            Kind::Layers(layers) => layers.iter().any(|layer| layer.is_unreadable(path)),
        }
    }

    /// Folders that could not be listed so far, with the reason.
    pub fn unreadable(&self) -> Vec<(String, String)> {
        match &self.kind {
            Kind::Folder(folder) => folder.unreadable(),
            Kind::Wheel(_) => Vec::new(),
            Kind::Layers(layers) => layers.iter().flat_map(Tree::unreadable).collect(),
        }
    }

    fn layer_with(&self, path: &str) -> io::Result<&Tree> {
        let Kind::Layers(layers) = &self.kind else { return Ok(self) };
        layers.iter().rev().find(|layer| layer.kind(path).is_some()).ok_or_else(|| missing(path))
    }
}

/// Folder and name of a path; the folder of a top-level name is `""`.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// `folder/name`, where the folder may be the root.
pub fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Whether `path` lies at or below `folder`.
pub fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(super) fn missing(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file `{path}`"))
}

pub(super) fn too_large(path: &str, size: u64) -> io::Error {
    let megabytes = size >> 20;
    io::Error::new(io::ErrorKind::FileTooLarge, format!("`{path}` has {megabytes} MB, too much for a source file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_hides_files_and_adds_them() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("pkg")).unwrap();
        std::fs::write(folder.path().join("pkg/b.py"), "old").unwrap();
        let mut tree = Tree::folder(folder.path()).unwrap();
        let files = [("pkg/a.py", "new"), ("pkg/b.py", "changed")];
        tree.set_overlay(files.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect());
        assert_eq!(tree.read("pkg/b.py").unwrap(), b"changed");
        assert_eq!(tree.size("pkg/a.py"), Some(3));
        assert_eq!(tree.kind("pkg/a.py"), Some(EntryKind::File));
        assert_eq!(tree.list("pkg"), [("a.py".into(), EntryKind::File), ("b.py".into(), EntryKind::File)]);
        assert_eq!(tree.walk("", &|_| true), ["pkg/a.py", "pkg/b.py"]);
        tree.set_overlay(BTreeMap::new());
        assert_eq!(tree.list("pkg").len(), 1);
        assert_eq!(tree.read("pkg/b.py").unwrap(), b"old");
    }
}
