//! Takes transactions back: to the exact bytes before, the newest first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::files::{Attributes, Disk, read_optional};
use super::journal::{self, Entry, JournalError, Original, Transaction};
use super::lock::{Lock, LockError};
use super::transaction::{check_writable, compiled, temporary};

/// What was taken back.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UndoReport {
    /// Files that have their old bytes again.
    pub restored: Vec<String>,
    /// Files that were new, and are gone.
    pub removed: Vec<String>,
    /// Files that were left as they are, and why.
    pub left: Vec<(String, String)>,
    /// How many transactions were taken back.
    pub transactions: usize,
}

/// Why nothing was taken back.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// Somebody has worked on a patched file since.
    #[error("{} changed since fa-doctor patched {}: {}; nothing was taken back. To overwrite the later changes: fa-doctor undo --force", if .0.len() == 1 { "a file was" } else { "files were" }, if .0.len() == 1 { "it" } else { "them" }, .0.join(", "))]
    ChangedSince(Vec<String>),
    /// A copy in the journal is not what the journal says.
    #[error("the journal's copy of {0} is damaged; it was left alone. Reinstall the package to get the original")]
    Damaged(String),
    /// The file system says no.
    #[error("{}: {error}; run the command again when that is solved, nothing is lost", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// The folder cannot be written.
    #[error("{0}")]
    Refused(String),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another run is writing.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// What is to happen to one file of a transaction.
enum Action<'t> {
    /// Its old bytes come back.
    Restore(&'t Entry, &'t Original),
    /// It was new: it goes.
    Remove(&'t Entry),
}

impl Action<'_> {
    fn path(&self) -> &str {
        match self {
            Action::Restore(entry, _) | Action::Remove(entry) => &entry.path,
        }
    }
}

/// Takes back every transaction of the root that `lock` is for.
///
/// `installed` says which version of a distribution is there now: what an upgrade has replaced is not brought back.
pub fn undo(
    disk: &Disk<'_>,
    lock: &Lock,
    force: bool,
    installed: &dyn Fn(&str) -> Option<String>,
) -> Result<UndoReport, UndoError> {
    let root = lock.root();
    let mut transactions = journal::transactions(root)?;
    transactions.reverse();
    let mut report = UndoReport::default();
    let mut changed = BTreeSet::new();
    let mut state = BTreeMap::new();
    let mut plans = Vec::new();
    for transaction in &transactions {
        plans.push(plan(root, transaction, force, installed, &mut state, &mut report, &mut changed)?);
    }
    if !changed.is_empty() {
        return Err(UndoError::ChangedSince(changed.into_iter().collect()));
    }
    for (transaction, actions) in transactions.iter().zip(&plans) {
        take_back(disk, root, transaction, actions)?;
        for action in actions {
            let (list, path) = match action {
                Action::Restore(entry, _) if entry.compiled_from.is_none() => (&mut report.restored, &entry.path),
                Action::Remove(entry) => (&mut report.removed, &entry.path),
                Action::Restore(..) => continue,
            };
            if !list.contains(path) {
                list.push(path.clone());
            }
        }
        report.transactions += 1;
    }
    // A file that two transactions changed, of which the older made it, is gone.
    report.restored.retain(|path| !report.removed.contains(path));
    Ok(report)
}

/// Takes back the transactions that were interrupted; says how many there were.
pub fn recover(disk: &Disk<'_>, lock: &Lock) -> Result<usize, UndoError> {
    let mut interrupted = journal::transactions(lock.root())?;
    interrupted.retain(|transaction| !transaction.complete);
    for transaction in interrupted.iter().rev() {
        roll_back(disk, lock.root(), transaction)?;
    }
    Ok(interrupted.len())
}

/// Takes back a transaction that was interrupted, or whose last step failed. Its files have their old or new bytes.
pub fn roll_back(disk: &Disk<'_>, root: &Path, transaction: &Transaction) -> Result<(), UndoError> {
    let mut report = UndoReport::default();
    let mut changed = BTreeSet::new();
    let actions = plan(root, transaction, false, &|_| None, &mut BTreeMap::new(), &mut report, &mut changed)?;
    if !changed.is_empty() {
        return Err(UndoError::ChangedSince(changed.into_iter().collect()));
    }
    take_back(disk, root, transaction, &actions)
}

/// Decides what happens to each file. `state` is what each file will be when the newer transactions are taken back.
fn plan<'t>(
    root: &Path,
    transaction: &'t Transaction,
    force: bool,
    installed: &dyn Fn(&str) -> Option<String>,
    state: &mut BTreeMap<String, Option<String>>,
    report: &mut UndoReport,
    changed: &mut BTreeSet<String>,
) -> Result<Vec<Action<'t>>, UndoError> {
    let mut actions = Vec::new();
    let mut given_back = BTreeSet::new();
    for entry in transaction.journal.files.iter().filter(|entry| entry.compiled_from.is_none()) {
        let before = entry.before.as_ref().map(|original| original.sha256.clone());
        let now = match state.get(&entry.path) {
            Some(known) => known.clone(),
            None => read_optional(&root.join(&entry.path))
                .map_err(io_error(&root.join(&entry.path)))?
                .map(|bytes| journal::digest(&bytes)),
        };
        let ours = now == entry.after || now == before;
        if !ours && let Some((name, version)) = &entry.package {
            let there = installed(name);
            if there.as_ref() != Some(version) || (now.is_none() && !force) {
                let what = there.map_or("is not installed any more".to_owned(), |there| format!("is {there} now"));
                report.left.push((entry.path.clone(), format!("{name} was {version} when it was patched, and {what}")));
                continue;
            }
        }
        if !ours && !force {
            changed.insert(entry.path.clone());
            continue;
        }
        if now != before || !transaction.complete {
            given_back.insert(entry.path.as_str());
        }
        match &entry.before {
            Some(original) if now != before => actions.push(Action::Restore(entry, original)),
            None if now.is_some() => actions.push(Action::Remove(entry)),
            _ => {}
        }
        state.insert(entry.path.clone(), before);
    }
    for entry in &transaction.journal.files {
        if let (Some(source), Some(original)) = (&entry.compiled_from, &entry.before)
            && given_back.contains(source.as_str())
        {
            actions.push(Action::Restore(entry, original));
        }
    }
    Ok(actions)
}

/// Restores the files of a transaction and forgets it.
fn take_back(disk: &Disk<'_>, root: &Path, transaction: &Transaction, actions: &[Action<'_>]) -> Result<(), UndoError> {
    journal::unmark_complete(disk, transaction).map_err(io_error(&transaction.folder))?;
    for action in actions {
        if let Action::Restore(entry, original) = action {
            stage(disk, root, transaction, entry, original)?;
        }
    }
    let mut folders = BTreeSet::new();
    for action in actions {
        let path = root.join(action.path());
        match action {
            Action::Restore(..) => disk.rename(&temporary(&path), &path),
            Action::Remove(..) => disk.remove(&path),
        }
        .map_err(io_error(&path))?;
        folders.extend(path.parent().map(Path::to_owned));
    }
    // What Python compiled from the patched files goes with them, as does what a crash left beside them.
    let kept: BTreeSet<&str> = actions.iter().map(Action::path).collect();
    for entry in transaction.journal.files.iter().filter(|entry| entry.compiled_from.is_none()) {
        let path = root.join(&entry.path);
        disk.remove(&temporary(&path)).map_err(io_error(&path))?;
        for stale in compiled(root, &entry.path).iter().filter(|stale| !kept.contains(stale.as_str())) {
            if kept.contains(entry.path.as_str()) {
                disk.remove(&root.join(stale)).map_err(io_error(&path))?;
            }
        }
    }
    for folder in folders {
        disk.sync_folder(&folder).map_err(io_error(&folder))?;
    }
    journal::forget(disk, transaction).map_err(io_error(&transaction.folder))
}

/// Puts the original beside its place, with the attributes of what stands there and its own age.
fn stage(
    disk: &Disk<'_>,
    root: &Path,
    transaction: &Transaction,
    entry: &Entry,
    original: &Original,
) -> Result<(), UndoError> {
    let path = root.join(&entry.path);
    let bytes = fs::read(transaction.folder.join(&original.copy)).map_err(io_error(&transaction.folder))?;
    if journal::digest(&bytes) != original.sha256 {
        return Err(UndoError::Damaged(entry.path.clone()));
    }
    let Some(folder) = path.parent() else { return Err(UndoError::Damaged(entry.path.clone())) };
    check_writable(folder).map_err(|error| UndoError::Refused(error.to_string()))?;
    let staged = temporary(&path);
    disk.remove(&staged).map_err(io_error(&staged))?;
    if let Some(target) = &original.link {
        return disk.symlink(target, &staged).map_err(io_error(&staged));
    }
    let mut attributes = match Attributes::of(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Attributes::of_new_file_in(folder),
        other => other,
    }
    .map_err(io_error(&path))?;
    let nanoseconds = original.modified.and_then(|age| u64::try_from(age).ok());
    attributes.modified = nanoseconds.map(|age| UNIX_EPOCH + Duration::from_nanos(age));
    disk.write_new(&staged, &bytes, Some(&attributes)).map_err(io_error(&staged))
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> UndoError {
    move |error| UndoError::Io { path: path.to_owned(), error }
}
