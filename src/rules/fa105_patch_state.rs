//! # What it does
//!
//! Reports the files that `fa-doctor fix --write` has patched: as info while the patch is in place, and as a warning
//! when it is not any more, because the package was reinstalled or the file was edited. A run of `fix` that was
//! interrupted is a warning, too.
//!
//! # Why is this bad
//!
//! A patched file is not the file that its package's RECORD describes, which whoever debugs the environment next
//! should know. And a reinstall brings the defect back without a word: `pip install --force-reinstall`, `uv sync` and
//! container builds all write the original bytes again.
//!
//! # Example
//!
//! ```console
//! $ fa-doctor fix --write          # patches vllm/vllm_flash_attn/cute/flash_fwd.py
//! $ pip install --force-reinstall --no-deps vllm==0.26.0
//! $ fa-doctor scan
//! warning[FA105]: the patch of vllm/vllm_flash_attn/cute/flash_fwd.py is gone
//! ```
//!
//! # Fix
//!
//! None in the source. `fa-doctor fix --write` applies the patch again, `fa-doctor undo` takes back what is left of it,
//! and `fa-doctor undo --list` shows what was done when.
//!
//! # References
//!
//! The journal: `.fa-doctor/` in the folder that holds the packages, with the original bytes of every file.

use crate::environment::{Root, RootId, RootKind};
use crate::finding::{Finding, Incomplete, Severity};
use crate::fix::journal::{self, Entry, Transaction};
use crate::fix::status::{self, FileState};

use super::{Context, Rule, RuleInfo, Sink};

/// FA105.
pub struct PatchState;

static INFO: RuleInfo = RuleInfo {
    code: "FA105",
    name: "patch-state",
    summary: "a file that fa-doctor patched, or a patch that a reinstall has overwritten",
    source: include_str!("fa105_patch_state.rs"),
};

impl Rule for PatchState {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        for (index, root) in context.environment.roots.iter().enumerate() {
            if matches!(root.kind, RootKind::SitePackages | RootKind::Checkout) {
                check_root(context, RootId(index as u32), root, sink);
            }
        }
    }
}

fn check_root(context: &Context<'_>, id: RootId, root: &Root, sink: &mut Sink) {
    let transactions = match journal::transactions(&root.path) {
        Ok(transactions) => transactions,
        Err(error) => {
            sink.incomplete.push(Incomplete { path: journal::FOLDER.to_owned(), reason: error.to_string() });
            return;
        }
    };
    for (transaction, entry) in status::latest(&transactions) {
        let now = root.tree.read(&entry.path).ok();
        if let Some((severity, message, help)) =
            judge(context, transaction, entry, status::state(entry, now.as_deref()))
        {
            let package = context.package_of(id, &entry.path);
            let (package, version) = package.or_else(|| entry.package.clone()).unzip();
            sink.findings.push(Finding {
                code: INFO.code.to_owned(),
                name: INFO.name.to_owned(),
                severity,
                package,
                version,
                path: entry.path.clone(),
                line: 1,
                column: 1,
                end_line: 1,
                end_column: 1,
                symbol: entry.path.clone(),
                message,
                help: Some(help.to_owned()),
                arch: Vec::new(),
                related: Vec::new(),
                fix: None,
                root: id,
            });
        }
    }
}

/// What to say about a file, if there is something to say.
fn judge(
    context: &Context<'_>,
    transaction: &Transaction,
    entry: &Entry,
    state: FileState,
) -> Option<(Severity, String, &'static str)> {
    let when = &transaction.journal.time;
    if !transaction.complete {
        let message =
            format!("a run of fa-doctor fix that began {when} was interrupted: this file has its old or its new bytes");
        return Some((Severity::Warning, message, "to take back what it did: fa-doctor undo"));
    }
    if state == FileState::Patched {
        let what = match &entry.before {
            Some(_) => format!("patched by fa-doctor on {when}: {}", titles(entry)),
            None => format!("made by fa-doctor on {when} for the modules that import it"),
        };
        return Some((Severity::Info, what, "to restore the original bytes: fa-doctor undo"));
    }
    let (name, version) = entry.package.as_ref()?;
    let installed = context.environment.distributions.iter().find(|distribution| distribution.display_name == *name);
    let now = installed.map(|distribution| distribution.raw_version.as_str());
    if now != Some(version) {
        let now = now.map_or("is not installed any more".to_owned(), |now| format!("is {now} now"));
        let message =
            format!("fa-doctor patched this file on {when}, in {name} {version}, which {now}: the patch is history");
        return Some((Severity::Info, message, "to forget it: fa-doctor undo"));
    }
    let how = match state {
        FileState::Original => "the file has its original bytes again (was the package reinstalled?)",
        FileState::Gone => "the file is gone",
        _ => "the file has been changed since",
    };
    let message = format!("fa-doctor patched this file on {when} ({}), and {how}", titles(entry));
    Some((Severity::Warning, message, "to apply what is needed again: fa-doctor fix --write"))
}

fn titles(entry: &Entry) -> String {
    let mut titles: Vec<String> = entry.fixes.iter().map(|fix| format!("{} {}", fix.code, fix.title)).collect();
    titles.dedup();
    titles.join("; ")
}
