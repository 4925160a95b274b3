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
pub struct Tree(Kind);

#[derive(Debug)]
enum Kind {
    Folder(Folder),
    Wheel(Wheel),
    /// Several trees as if installed one after the other into one folder: the last one that has a path wins.
    Layers(Vec<Tree>),
}

impl Tree {
    /// A folder on disk.
    pub fn folder(path: &Path) -> io::Result<Tree> {
        Ok(Tree(Kind::Folder(Folder::new(path)?)))
    }

    /// A folder that shows only the given places: pairs of a path in the tree and the file or folder that stands
    /// there. This is what the import hook of an editable install makes importable.
    pub fn mounted(path: &Path, mounts: Vec<(String, PathBuf)>) -> io::Result<Tree> {
        Ok(Tree(Kind::Folder(Folder::mounted(path, mounts)?)))
    }

    /// A wheel, by its central directory. `InvalidData` for what is no wheel, `UnexpectedEof` for a truncated one.
    pub fn wheel(path: &Path) -> io::Result<Tree> {
        Ok(Tree(Kind::Wheel(Wheel::open(path)?)))
    }

    /// Several trees as one, as if each had been installed over the ones before it.
    pub fn layered(mut layers: Vec<Tree>) -> Tree {
        match layers.len() {
            1 => layers.remove(0),
            _ => Tree(Kind::Layers(layers)),
        }
    }

    /// The layer that `path` is read from, counted from 0 in the order given to [`Tree::layered`].
    pub fn layer(&self, path: &str) -> usize {
        match &self.0 {
            Kind::Layers(layers) => layers.iter().rposition(|layer| layer.kind(path).is_some()).unwrap_or(0),
            _ => 0,
        }
    }

    /// What `path` is, if it exists. Answers come from cached folder listings, so asking often is cheap.
    pub fn kind(&self, path: &str) -> Option<EntryKind> {
        match &self.0 {
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
        match &self.0 {
            Kind::Folder(tree) => tree.list(folder),
            Kind::Wheel(wheel) => wheel.list(folder),
            Kind::Layers(layers) => {
                let merged: BTreeMap<_, _> = layers.iter().flat_map(|layer| layer.list(folder)).collect();
                merged.into_iter().collect()
            }
        }
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
        match &self.0 {
            Kind::Folder(tree) => tree.walk(folder, enter, keep),
            Kind::Wheel(wheel) => wheel.walk(folder, enter, keep),
            Kind::Layers(layers) => {
                let mut found: Vec<_> = layers.iter().flat_map(|l| l.walk_into(folder, enter, keep)).collect();
                found.sort_unstable();
                found.dedup();
                found
            }
        }
    }

    /// The bytes of a small file (sources, metadata).
    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_into(path, &mut bytes)?;
        Ok(bytes)
    }

    /// The same into a buffer that is emptied first, to be used again.
    pub fn read_into(&self, path: &str, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        match &self.0 {
            Kind::Folder(folder) => folder.read(path, buffer),
            Kind::Wheel(wheel) => wheel.read(path, buffer),
            Kind::Layers(_) => self.layer_with(path)?.read_into(path, buffer),
        }
    }

    /// The bytes of a large file: mapped from disk, or from a wheel decompressed (mapped if stored).
    pub fn map(&self, path: &str) -> io::Result<Bytes> {
        match &self.0 {
            Kind::Folder(folder) => folder.map(path),
            Kind::Wheel(wheel) => wheel.map(path),
            Kind::Layers(_) => self.layer_with(path)?.map(path),
        }
    }

    /// Hands a large file to `consume` as a stream: a search through a library of a wheel need not hold it in memory.
    pub fn stream(&self, path: &str, consume: &mut dyn FnMut(&mut dyn io::Read) -> io::Result<()>) -> io::Result<()> {
        match &self.0 {
            Kind::Folder(folder) => folder.stream(path, consume),
            Kind::Wheel(wheel) => wheel.stream(path, consume),
            Kind::Layers(_) => self.layer_with(path)?.stream(path, consume),
        }
    }

    /// Size in bytes, uncompressed.
    pub fn size(&self, path: &str) -> Option<u64> {
        match &self.0 {
            Kind::Folder(folder) => folder.size(path),
            Kind::Wheel(wheel) => wheel.size(path),
            Kind::Layers(_) => self.layer_with(path).ok()?.size(path),
        }
    }

    /// Where the file is on disk, or would be if it were written; `None` inside a wheel.
    pub fn on_disk(&self, path: &str) -> Option<PathBuf> {
        match &self.0 {
            Kind::Folder(folder) => folder.on_disk(path),
            Kind::Wheel(_) => None,
            Kind::Layers(layers) => {
                let parent = split(path).0;
                let holds = |layer: &&Tree| layer.kind(path).is_some() || layer.is_folder(parent);
                layers.iter().rev().find(holds)?.on_disk(path)
            }
        }
    }

    /// Folders that could not be listed so far, with the reason.
    pub fn unreadable(&self) -> Vec<(String, String)> {
        match &self.0 {
            Kind::Folder(folder) => folder.unreadable(),
            Kind::Wheel(_) => Vec::new(),
            Kind::Layers(layers) => layers.iter().flat_map(Tree::unreadable).collect(),
        }
    }

    fn layer_with(&self, path: &str) -> io::Result<&Tree> {
        let Kind::Layers(layers) = &self.0 else { return Ok(self) };
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
