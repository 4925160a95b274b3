//! Writes a plan to disk, whole or not at all.
//!
//! The order is what makes it safe: check every file against the bytes that were scanned, write the journal with the
//! originals, write every new file beside its target, and only then rename, never writing into a file that exists: its
//! bytes may be shared with a package cache through a hard link, or with anything through a symbolic one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::files::{Attributes, Disk, read_optional};
use super::journal::{self, AppliedFix, Entry, JournalError, Original};
use super::lock::{Lock, LockError};
use super::undo;
use crate::environment::RootKind;

/// One file as it is to be.
#[derive(Debug, Clone)]
pub struct Change {
    /// Relative to the root, with `/`.
    pub path: String,
    /// The bytes that were scanned; nothing, for a new file.
    pub before: Option<Vec<u8>>,
    /// The bytes that are to be there.
    pub after: Vec<u8>,
    /// The distribution that owns it, and its version.
    pub package: Option<(String, String)>,
    /// The fixes that changed it.
    pub fixes: Vec<AppliedFix>,
}

/// What was done, and what a person may want to know of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Files that have new bytes, relative to the root.
    pub written: Vec<String>,
    /// Compiled files that were removed.
    pub removed: Vec<String>,
    /// Links that were replaced by files, with where they pointed.
    pub unlinked: Vec<(String, String)>,
    /// Files that shared their bytes with another name, and no longer do.
    pub unshared: Vec<String>,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A wheel is read in place.
    #[error("{} is a wheel, and wheels are never changed", .0.display())]
    Wheel(PathBuf),
    /// The interpreter's own.
    #[error("{} belongs to the interpreter and not to the attention stack", .0.display())]
    StandardLibrary(PathBuf),
    /// Through a link, or by its name, the file is somewhere else.
    #[error("{path} is not inside {}: it is reached through a link", root.display())]
    Outside {
        /// Relative to the root.
        path: String,
        /// The root.
        root: PathBuf,
    },
    /// Somebody was faster.
    #[error("{path} has changed since it was scanned; nothing was written")]
    Changed {
        /// Relative to the root.
        path: String,
    },
    /// The folder cannot be written.
    #[error("{} cannot be written ({error}); nothing was changed", folder.display())]
    ReadOnly {
        /// Which folder.
        folder: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is somebody else's.
    #[error("{} belongs to another user (id {owner}); nothing was changed", path.display())]
    ForeignOwned {
        /// Which file.
        path: PathBuf,
        /// Whose.
        owner: u32,
    },
    /// A step failed, and what had been done was taken back.
    #[error("{}: {error}; everything is as it was before", path.display())]
    Failed {
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A step failed, and so did taking back what had been done.
    #[error("{}: {error}; and taking the changes back failed too: {second}", path.display())]
    Stuck {
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
        /// What it said when the changes were taken back.
        second: String,
        /// The root.
        root: PathBuf,
    },
    /// The journal of an earlier run is in the way.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another run is writing.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl WriteError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let own = "make an environment of your own: python3 -m venv .venv";
        Some(match self {
            WriteError::Wheel(_) => "install or unpack it, and give that: python3 -m wheel unpack FILE".to_owned(),
            WriteError::StandardLibrary(_) => "give the environment itself: fa-doctor fix .venv".to_owned(),
            WriteError::Outside { .. } => "give the folder that really holds it".to_owned(),
            WriteError::Changed { .. } => "run the command again".to_owned(),
            WriteError::ReadOnly { error, .. } if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                "the file system is mounted read-only: copy the environment to a place of your own".to_owned()
            }
            WriteError::ReadOnly { .. } => format!("run this as a user who may write there, or {own}"),
            WriteError::ForeignOwned { .. } => format!("run this as its owner, or {own}"),
            WriteError::Stuck { root, .. } => {
                format!("the originals are safe; when the cause is gone: fa-doctor undo {}", root.display())
            }
            WriteError::Failed { .. } | WriteError::Journal(_) | WriteError::Lock(_) => return None,
        })
    }
}

/// What a file is before it is replaced.
struct Current {
    bytes: Vec<u8>,
    link: Option<String>,
    shared: bool,
    modified: Option<i128>,
}

/// Replaces the files of `changes` in the root that `lock` is for.
pub fn commit(disk: &Disk<'_>, lock: &Lock, changes: &[Change]) -> Result<Receipt, WriteError> {
    let root = lock.root();
    let mut receipt = Receipt::default();
    let mut entries = Vec::new();
    let mut originals: Vec<Vec<u8>> = Vec::new();
    let mut keep = |bytes: Vec<u8>, link: Option<String>, modified: Option<i128>| {
        let original = Original { sha256: journal::digest(&bytes), copy: originals.len().to_string(), link, modified };
        originals.push(bytes);
        original
    };
    for change in changes {
        let current = check(root, change)?;
        receipt.written.push(change.path.clone());
        let before = current.map(|current| {
            receipt.unlinked.extend(current.link.iter().map(|target| (change.path.clone(), target.clone())));
            if current.shared {
                receipt.unshared.push(change.path.clone());
            }
            keep(current.bytes, current.link, current.modified)
        });
        entries.push(Entry {
            path: change.path.clone(),
            before,
            after: Some(journal::digest(&change.after)),
            compiled_from: None,
            package: change.package.clone(),
            fixes: change.fixes.clone(),
        });
    }
    for change in changes {
        for path in compiled(root, &change.path) {
            let absolute = root.join(&path);
            let Some(bytes) = read_optional(&absolute).map_err(failed(&absolute))? else { continue };
            let modified = age(&absolute);
            receipt.removed.push(path.clone());
            entries.push(Entry {
                path,
                before: Some(keep(bytes, None, modified)),
                after: None,
                compiled_from: Some(change.path.clone()),
                package: None,
                fixes: Vec::new(),
            });
        }
    }
    let copies: Vec<&[u8]> = originals.iter().map(Vec::as_slice).collect();
    let mut transaction = journal::create(disk, root, entries, &copies).map_err(failed(&root.join(journal::FOLDER)))?;

    let written = write(disk, root, changes, &receipt.removed).and_then(|()| {
        journal::mark_complete(disk, &mut transaction).map_err(|error| (transaction.folder.clone(), error))
    });
    if let Err((path, error)) = written {
        return Err(match undo::roll_back(disk, root, &transaction) {
            Ok(()) => WriteError::Failed { path, error },
            Err(second) => WriteError::Stuck { path, error, second: second.to_string(), root: root.to_owned() },
        });
    }
    Ok(receipt)
}

/// Writes every new file beside its target, then renames them all: a full disk shows before anything has changed.
fn write(disk: &Disk<'_>, root: &Path, changes: &[Change], removed: &[String]) -> Result<(), (PathBuf, io::Error)> {
    for change in changes {
        let path = root.join(&change.path);
        stage(disk, &path, &change.after).map_err(|error| (path, error))?;
    }
    let mut folders = BTreeSet::new();
    for change in changes {
        let path = root.join(&change.path);
        disk.rename(&temporary(&path), &path).map_err(|error| (path.clone(), error))?;
        folders.extend(path.parent().map(Path::to_owned));
    }
    for path in removed {
        let path = root.join(path);
        disk.remove(&path).map_err(|error| (path.clone(), error))?;
        folders.extend(path.parent().map(Path::to_owned));
    }
    folders.into_iter().try_for_each(|folder| disk.sync_folder(&folder).map_err(|error| (folder, error)))
}

/// Writes the bytes that `path` is to have beside it, with the attributes of what is there.
fn stage(disk: &Disk<'_>, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let attributes = match Attributes::of(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Attributes::of_new_file_in(parent(path))?,
        other => other?,
    };
    disk.remove(&temporary(path))?;
    disk.write_new(&temporary(path), bytes, Some(&attributes))
}

/// The name under which the new bytes of `path` wait for their rename.
pub fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{}", journal::TEMPORARY))
}

/// The compiled files of a source that are there, relative to the root: Python takes some of them at their word.
pub fn compiled(root: &Path, source: &str) -> Vec<String> {
    let (folder, name) = source.rsplit_once('/').unwrap_or(("", source));
    let Some(stem) = name.strip_suffix(".py") else { return Vec::new() };
    let cache = if folder.is_empty() { "__pycache__".to_owned() } else { format!("{folder}/__pycache__") };
    let Ok(entries) = fs::read_dir(root.join(&cache)) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|file| file.strip_prefix(stem).is_some_and(|rest| rest.starts_with('.')) && file.ends_with(".pyc"))
        .map(|file| format!("{cache}/{file}"))
        .collect();
    found.sort_unstable();
    found
}

/// Whether a root of this kind and at this place may be written at all; asked before its lock is taken.
pub fn check_root(path: &Path, kind: RootKind) -> Result<(), WriteError> {
    match kind {
        RootKind::Wheel => return Err(WriteError::Wheel(path.to_owned())),
        RootKind::StandardLibrary => return Err(WriteError::StandardLibrary(path.to_owned())),
        RootKind::SitePackages | RootKind::Checkout => {}
    }
    check_owner(path)?;
    check_writable(path)
}

/// Looks at a file before anything is written: is it where it seems to be, ours, and what was scanned?
fn check(root: &Path, change: &Change) -> Result<Option<Current>, WriteError> {
    let path = root.join(&change.path);
    let outside = || WriteError::Outside { path: change.path.clone(), root: root.to_owned() };
    let folder = parent(&path);
    let (real_root, real_folder) =
        (fs::canonicalize(root).map_err(failed(root))?, fs::canonicalize(folder).map_err(failed(folder))?);
    if !real_folder.starts_with(&real_root) {
        return Err(outside());
    }
    let metadata = match fs::symlink_metadata(&path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(&path)(error)),
    };
    check_owner(metadata.as_ref().map_or(folder, |_| &path))?;
    check_writable(folder)?;
    let Some(metadata) = metadata else {
        return match change.before {
            None => Ok(None),
            Some(_) => Err(WriteError::Changed { path: change.path.clone() }),
        };
    };
    let bytes = fs::read(&path).map_err(failed(&path))?;
    if change.before.as_deref() != Some(&bytes[..]) {
        return Err(WriteError::Changed { path: change.path.clone() });
    }
    let link = if metadata.is_symlink() {
        let target = fs::read_link(&path).map_err(failed(&path))?;
        // A link whose text the journal could not hold could not be restored.
        Some(target.into_os_string().into_string().map_err(|_| outside())?)
    } else {
        None
    };
    Ok(Some(Current { bytes, link, shared: is_shared(&metadata), modified: age(&path) }))
}

#[cfg(unix)]
fn is_shared(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(metadata) > 1
}

#[cfg(not(unix))]
fn is_shared(_metadata: &fs::Metadata) -> bool {
    false
}

/// Refuses what belongs to another user, unless this is the one who may give it back to its owner.
pub fn check_owner(path: &Path) -> Result<(), WriteError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let owner = fs::symlink_metadata(path).map_err(failed(path))?.uid();
        let user = rustix::process::geteuid();
        if !user.is_root() && user.as_raw() != owner {
            return Err(WriteError::ForeignOwned { path: path.to_owned(), owner });
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// Refuses a folder that cannot be written, before anything is.
pub fn check_writable(folder: &Path) -> Result<(), WriteError> {
    #[cfg(unix)]
    if let Err(error) = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
        return Err(WriteError::ReadOnly { folder: folder.to_owned(), error: error.into() });
    }
    #[cfg(not(unix))]
    if fs::metadata(folder).map_err(failed(folder))?.permissions().readonly() {
        return Err(WriteError::ReadOnly { folder: folder.to_owned(), error: io::ErrorKind::PermissionDenied.into() });
    }
    Ok(())
}

/// Nanoseconds since 1970 of the last change, where the system knows it.
pub fn age(path: &Path) -> Option<i128> {
    let modified = fs::symlink_metadata(path).ok()?.modified().ok()?;
    i128::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> WriteError {
    move |error| WriteError::Failed { path: path.to_owned(), error }
}
