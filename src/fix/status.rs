//! What has become of patched files: for `undo --list` and FA105.

use std::collections::BTreeSet;

use super::journal::{self, Entry, Transaction};

/// What a patched file is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// As the patch left it.
    Patched,
    /// As it was before the patch: reinstalled, most likely.
    Original,
    /// Neither.
    Changed,
    /// Not there.
    Gone,
}

/// The file of an entry, given the bytes that are there now.
pub fn state(entry: &Entry, now: Option<&[u8]>) -> FileState {
    let now = now.map(journal::digest);
    if now == entry.after {
        FileState::Patched
    } else if now.is_none() {
        // Also for a file that was new: without it the patch is not whole.
        FileState::Gone
    } else if now == entry.before.as_ref().map(|original| original.sha256.clone()) {
        FileState::Original
    } else {
        FileState::Changed
    }
}

/// The last word on every file: its entry in the newest transaction that changed it. Compiled files are left out.
pub fn latest(transactions: &[Transaction]) -> Vec<(&Transaction, &Entry)> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for transaction in transactions.iter().rev() {
        for entry in transaction.journal.files.iter().filter(|entry| entry.compiled_from.is_none()) {
            if seen.insert(entry.path.as_str()) {
                found.push((transaction, entry));
            }
        }
    }
    found.sort_by_key(|(_, entry)| entry.path.as_str());
    found
}
