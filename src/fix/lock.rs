//! One writer at a time in each root: an advisory lock on `.fa-doctor/lock`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::files::Disk;
use super::journal;

/// How often a lock that another run holds is tried again.
const PATIENCE: Duration = Duration::from_millis(100);

/// The right to write in a root; given back when dropped.
#[derive(Debug)]
pub struct Lock {
    root: PathBuf,
    path: PathBuf,
    // Held for its lock, which the system takes back even from a process that is killed.
    _file: File,
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another run has it, and kept it for as long as this one was ready to wait.
    #[error("another fa-doctor is writing in {}; run this again when it has finished", .0.display())]
    Busy(PathBuf),
    /// The file system says no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Lock {
    /// Takes the lock of `root`, waiting for another run up to `wait`.
    pub fn acquire(disk: &Disk<'_>, root: &Path, wait: Duration) -> Result<Lock, LockError> {
        let folder = root.join(journal::FOLDER);
        let path = folder.join("lock");
        let deadline = Instant::now() + wait;
        loop {
            if !folder.is_dir() {
                match disk.create_folder(&folder) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    other => other?,
                }
            }
            let file = match OpenOptions::new().create(true).truncate(false).write(true).open(&path) {
                // The run that held the lock has just removed the folder with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < deadline => continue,
                other => other?,
            };
            match file.try_lock() {
                Ok(()) if is_still_there(&file, &path) => {
                    return Ok(Lock { root: root.to_owned(), path, _file: file });
                }
                Ok(()) => {}
                Err(TryLockError::Error(error)) => return Err(error.into()),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(LockError::Busy(root.to_owned()));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(PATIENCE),
            }
        }
    }

    /// The root it is for.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Whatever this leaves behind, the next run removes: no reason to fail a run that has done its work.
        let _ = journal::remove_if_empty(&Disk::real(), &self.root, &self.path);
    }
}

/// Whether the locked file is the one that others will find: its last holder may have removed it meanwhile.
#[cfg(unix)]
fn is_still_there(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata().map(id), std::fs::metadata(path).map(id)), (Ok(held), Ok(found)) if held == found)
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn is_still_there(_file: &File, path: &Path) -> bool {
    path.exists()
}
