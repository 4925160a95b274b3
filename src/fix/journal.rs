//! What was changed, written down before it is changed: `.fa-doctor/` in the root that holds the files.
//!
//! A transaction is a folder `.fa-doctor/0001/` with `journal.json`, the original bytes as `0`, `1`, .., and, once every
//! file has its new bytes, an empty `complete`. It appears whole, by a rename from `0001.new`. A transaction without
//! `complete` was interrupted: every file has its old or its new bytes, and either can be told by its hash.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::{Disk, read_optional};

/// The folder, in the root that was patched.
pub const FOLDER: &str = ".fa-doctor";
/// The marker of a finished transaction.
const COMPLETE: &str = "complete";
/// The journal of one transaction.
const JOURNAL: &str = "journal.json";
/// What the name of a temporary file contains.
pub const TEMPORARY: &str = ".fa-doctor-tmp";
/// The version of the journal's layout.
const SCHEMA: u32 = 1;

/// One run of `fix --write`, in one root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Journal {
    /// Layout version.
    pub schema: u32,
    /// The fa-doctor that wrote it.
    pub tool: String,
    /// When, in UTC.
    pub time: String,
    /// Every file, in the order in which they are replaced.
    pub files: Vec<Entry>,
}

/// One file of a transaction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the root, with `/`.
    pub path: String,
    /// What was there; nothing, for a file that is new.
    pub before: Option<Original>,
    /// SHA-256 of the new bytes; nothing, for a file that is removed.
    pub after: Option<String>,
    /// For compiled code, the source it belongs to: it is restored with that source and never worth an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiled_from: Option<String>,
    /// The distribution that owned the file, and its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<(String, String)>,
    /// The fixes that changed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<AppliedFix>,
}

/// What a file was.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Original {
    /// SHA-256 of its bytes.
    pub sha256: String,
    /// Name of the copy, beside the journal.
    pub copy: String,
    /// Where it pointed, for a symbolic link (the copy holds the bytes of its target).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Its age, in nanoseconds since 1970: compiled code is checked against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<i128>,
}

/// A fix that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedFix {
    /// `FA001`.
    pub code: String,
    /// Of the finding.
    pub symbol: String,
    /// Of the fix.
    pub title: String,
}

/// A journal on disk.
#[derive(Debug)]
pub struct Transaction {
    /// Its number, from 1.
    pub id: u32,
    /// Its folder.
    pub folder: PathBuf,
    /// What it says.
    pub journal: Journal,
    /// Whether every file got its new bytes.
    pub complete: bool,
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system says no.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// Not what this version writes.
    #[error("{}: not a journal that this version reads ({reason}); nothing was touched", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// SHA-256, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The transactions of a root, oldest first. Folders that never became one (`0001.new`) are not among them.
pub fn transactions(root: &Path) -> Result<Vec<Transaction>, JournalError> {
    let folder = root.join(FOLDER);
    let mut found = Vec::new();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(found);
        }
        Err(error) => return Err(JournalError::Io { path: folder, error }),
    };
    for entry in entries {
        let entry = entry.map_err(|error| JournalError::Io { path: folder.clone(), error })?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let path = entry.path().join(JOURNAL);
        // A folder without a journal is one whose undo was interrupted at the very end.
        let bytes = match read_optional(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            Err(error) => return Err(JournalError::Io { path, error }),
        };
        let journal: Journal = serde_json::from_slice(&bytes)
            .map_err(|error| JournalError::Unreadable { path: path.clone(), reason: error.to_string() })?;
        if journal.schema != SCHEMA {
            return Err(JournalError::Unreadable { path, reason: format!("schema {}", journal.schema) });
        }
        if let Some(entry) = journal.files.iter().find(|entry| !is_inside(&entry.path)) {
            return Err(JournalError::Unreadable { path, reason: format!("{} is not inside the root", entry.path) });
        }
        let complete = entry.path().join(COMPLETE).exists();
        found.push(Transaction { id, folder: entry.path(), journal, complete });
    }
    found.sort_by_key(|transaction| transaction.id);
    Ok(found)
}

/// Whether a path from a journal stays inside its root.
fn is_inside(path: &str) -> bool {
    !path.is_empty() && !path.contains(['\\', ':']) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Writes a new transaction, with the bytes of the originals in the order of their copies. The lock is held.
pub fn create(disk: &Disk<'_>, root: &Path, entries: Vec<Entry>, originals: &[&[u8]]) -> io::Result<Transaction> {
    let store = root.join(FOLDER);
    sweep(disk, root)?;
    let ignore = store.join(".gitignore");
    if !ignore.exists() {
        // In a checkout the journal is nobody's to commit.
        disk.write_new(&ignore, b"*\n", None)?;
    }
    let id = numbered_folders(&store)?.into_iter().max().unwrap_or(0) + 1;
    let folder = store.join(format!("{id:04}"));
    let created = fill(disk, &store, &folder, entries, originals);
    if created.is_err() && folder.exists() {
        // Nothing has changed yet, so there is nothing to take back. What cannot be removed does no harm.
        let _ = disk.remove(&folder.join(JOURNAL)).and_then(|()| remove_leftover(disk, &folder));
    }
    Ok(Transaction { id, folder, journal: created?, complete: false })
}

/// Makes the folder of a transaction under another name and renames it when it is whole.
fn fill(disk: &Disk<'_>, store: &Path, folder: &Path, entries: Vec<Entry>, originals: &[&[u8]]) -> io::Result<Journal> {
    let unfinished = folder.with_extension("new");
    disk.create_folder(&unfinished)?;
    for (index, bytes) in originals.iter().enumerate() {
        disk.write_new(&unfinished.join(index.to_string()), bytes, None)?;
    }
    let journal = Journal { schema: SCHEMA, tool: env!("CARGO_PKG_VERSION").to_owned(), time: now(), files: entries };
    let mut text = serde_json::to_vec_pretty(&journal)?;
    text.push(b'\n');
    disk.write_new(&unfinished.join(JOURNAL), &text, None)?;
    disk.sync_folder(&unfinished)?;
    disk.rename(&unfinished, folder)?;
    disk.sync_folder(store)?;
    Ok(journal)
}

/// Says that every file of a transaction has its new bytes.
pub fn mark_complete(disk: &Disk<'_>, transaction: &mut Transaction) -> io::Result<()> {
    disk.write_new(&transaction.folder.join(COMPLETE), b"", None)?;
    disk.sync_folder(&transaction.folder)?;
    transaction.complete = true;
    Ok(())
}

/// Says that a transaction is being taken back: from here on it counts as interrupted.
pub fn unmark_complete(disk: &Disk<'_>, transaction: &Transaction) -> io::Result<()> {
    disk.remove(&transaction.folder.join(COMPLETE))?;
    disk.sync_folder(&transaction.folder)
}

/// Forgets a transaction: the journal goes first, so that what is left is no transaction any more.
pub fn forget(disk: &Disk<'_>, transaction: &Transaction) -> io::Result<()> {
    disk.remove(&transaction.folder.join(JOURNAL))?;
    disk.sync_folder(&transaction.folder)?;
    remove_leftover(disk, &transaction.folder)
}

/// Removes what interrupted runs left in the store: folders that are no transaction.
pub fn sweep(disk: &Disk<'_>, root: &Path) -> io::Result<()> {
    let store = root.join(FOLDER);
    for entry in fs::read_dir(&store)? {
        let path = entry?.path();
        if path.is_dir() && (path.extension().is_some_and(|ext| ext == "new") || !path.join(JOURNAL).exists()) {
            remove_leftover(disk, &path)?;
        }
    }
    Ok(())
}

/// Removes the store itself if no transaction is left in it.
pub fn remove_if_empty(disk: &Disk<'_>, root: &Path, lock: &Path) -> io::Result<()> {
    let store = root.join(FOLDER);
    sweep(disk, root)?;
    if numbered_folders(&store)?.is_empty() {
        disk.remove(&store.join(".gitignore"))?;
        disk.remove(lock)?;
        disk.remove_folder(&store)?;
    }
    Ok(())
}

fn numbered_folders(store: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(store)? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(numbers)
}

fn remove_leftover(disk: &Disk<'_>, folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        disk.remove(&entry?.path())?;
    }
    disk.remove_folder(folder)
}

/// Now, as `2026-11-30 09:41:07 UTC`.
fn now() -> String {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    utc(elapsed.as_secs())
}

/// Seconds since 1970 as a date and time of day (the proleptic Gregorian calendar, by Hinnant's algorithm).
fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_796_031_667), "2026-11-30 09:41:07 UTC");
    }

    #[test]
    fn a_journal_cannot_point_outside() {
        for path in ["../x", "/etc/passwd", "a/../../x", "", "a\\..\\b", "a//b", "C:/x"] {
            assert!(!is_inside(path), "{path}");
        }
        assert!(is_inside("vllm/a.py"));
    }
}
