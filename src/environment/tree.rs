//! Folders and wheels behind one read-only tree.
//!
//! Paths are relative to the tree, with `/`, without a leading or trailing slash; the root is `""`.

use std::io;
use std::path::Path;

/// What a path in a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Owned(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }
}

/// A read-only tree of files.
#[derive(Debug)]
pub struct Tree {}

impl Tree {
    /// A folder on disk.
    pub fn folder(_path: &Path) -> io::Result<Tree> {
        unimplemented!()
    }

    /// A wheel, by its central directory.
    pub fn wheel(_path: &Path) -> io::Result<Tree> {
        unimplemented!()
    }

    /// What `path` is, if it exists. Answers come from cached folder listings, so asking often is cheap.
    pub fn kind(&self, _path: &str) -> Option<EntryKind> {
        unimplemented!()
    }

    /// The names in a folder, sorted, empty if there is none.
    pub fn list(&self, _folder: &str) -> Vec<(String, EntryKind)> {
        unimplemented!()
    }

    /// Every file at or below `folder` for which `keep` says yes to its path, sorted.
    pub fn walk(&self, _folder: &str, _keep: &(dyn Fn(&str) -> bool + Sync)) -> Vec<String> {
        unimplemented!()
    }

    /// The bytes of a small file (sources, metadata).
    pub fn read(&self, _path: &str) -> io::Result<Vec<u8>> {
        unimplemented!()
    }

    /// The bytes of a large file: mapped from disk, or from a wheel decompressed (mapped if stored).
    pub fn map(&self, _path: &str) -> io::Result<Bytes> {
        unimplemented!()
    }

    /// Size in bytes, uncompressed.
    pub fn size(&self, _path: &str) -> Option<u64> {
        unimplemented!()
    }

    /// Where the file is on disk; `None` inside a wheel.
    pub fn on_disk(&self, _path: &str) -> Option<std::path::PathBuf> {
        unimplemented!()
    }
}
