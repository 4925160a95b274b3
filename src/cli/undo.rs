//! `fa-doctor undo`: back to the exact bytes before.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::args::{GlobalArgs, TargetArgs};
use super::{Failure, Status};
use crate::environment::{Environment, Request, Root, RootKind};
use crate::fix::files::{Disk, read_optional};
use crate::fix::journal::{self, Transaction};
use crate::fix::lock::Lock;
use crate::fix::status::{FileState, latest, state};
use crate::fix::transaction::check_root;
use crate::fix::undo::{UndoError, UndoReport, undo};
use crate::report::Style;

/// How long another run is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `fa-doctor undo`.
#[derive(Debug, Args)]
pub struct UndoArgs {
    /// Which environment.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show what was patched, and when, and change nothing
    #[arg(long, conflicts_with = "force")]
    pub list: bool,
    /// Restore the originals even over changes that others have made since
    #[arg(long)]
    pub force: bool,
}

/// Takes back everything that `fix --write` did in an environment.
pub fn run(args: &UndoArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let request =
        Request { targets: args.target.targets.clone(), python: args.target.python.clone(), ..Request::default() };
    let environment = Environment::load(&request)?;
    let style = Style::stdout(global.color);
    let mut out = std::io::stdout().lock();
    let mut any = false;
    for root in patchable(&environment) {
        let transactions = journal::transactions(&root.path)?;
        if transactions.is_empty() {
            continue;
        }
        any = true;
        writeln!(out, "{}", style.bold(&root.label))?;
        if args.list {
            list(&mut out, root, &transactions, style)?;
        } else {
            let report = take_back(&environment, root, args.force)?;
            print(&mut out, &report, style, global)?;
        }
    }
    if !any && !global.quiet {
        writeln!(out, "{}: nothing was patched here", environment.labels().join(", "))?;
    }
    Ok(Status::Clean.into())
}

/// The roots that `fix --write` may have patched.
pub fn patchable(environment: &Environment) -> impl Iterator<Item = &Root> {
    environment.roots.iter().filter(|root| matches!(root.kind, RootKind::SitePackages | RootKind::Checkout))
}

/// Takes back every transaction of one root.
pub fn take_back(environment: &Environment, root: &Root, force: bool) -> anyhow::Result<UndoReport> {
    check_root(&root.path, root.kind)?;
    let lock = Lock::acquire(&Disk::real(), &root.path, PATIENCE)?;
    let installed = |name: &str| {
        let found = environment.distributions.iter().find(|distribution| distribution.display_name == name);
        found.map(|distribution| distribution.raw_version.clone())
    };
    undo(&Disk::real(), &lock, force, &installed).map_err(|error| match error {
        UndoError::ChangedSince(_) => {
            let hint =
                "`fa-doctor undo --list` shows what was patched; `fa-doctor undo --force` overwrites the later changes";
            Failure::new(error.to_string(), hint).into()
        }
        other => other.into(),
    })
}

fn print(out: &mut dyn Write, report: &UndoReport, style: Style, global: &GlobalArgs) -> std::io::Result<()> {
    let lists = [("restored", &report.restored), ("removed", &report.removed)];
    for (word, paths) in lists {
        for path in paths {
            writeln!(out, "  {} {path}", style.good(word))?;
        }
    }
    for (path, reason) in &report.left {
        writeln!(out, "  {} {path}: {reason}", style.caution("left as it is"))?;
    }
    if !global.quiet {
        let (restored, removed) = (report.restored.len(), report.removed.len());
        writeln!(out, "{restored} restored, {removed} removed, {} left as they are", report.left.len())?;
    }
    Ok(())
}

fn list(out: &mut dyn Write, root: &Root, transactions: &[Transaction], style: Style) -> anyhow::Result<()> {
    let latest = latest(transactions);
    for transaction in transactions {
        let Transaction { id, journal, complete, .. } = transaction;
        let broken = if *complete { "" } else { ", interrupted" };
        writeln!(out, "  {} {} (fa-doctor {}{broken})", style.bold(&format!("#{id}")), journal.time, journal.tool)?;
        for entry in journal.files.iter().filter(|entry| entry.compiled_from.is_none()) {
            let superseded = !latest.iter().any(|(_, last)| std::ptr::eq(*last, entry));
            let now = match state(entry, read_optional(&root.path.join(&entry.path))?.as_deref()) {
                _ if superseded => style.dim("see below"),
                FileState::Patched if entry.before.is_none() => style.good("new"),
                FileState::Patched => style.good("patched"),
                FileState::Original => style.caution("original again"),
                FileState::Changed => style.caution("changed since"),
                FileState::Gone => style.caution("gone"),
            };
            let package = entry.package.as_ref().map(|(name, version)| format!("  ({name} {version})"));
            writeln!(out, "    {}  {now}{}", entry.path, style.dim(&package.unwrap_or_default()))?;
            for fix in &entry.fixes {
                writeln!(out, "      {} {}: {}", fix.code, fix.symbol, fix.title)?;
            }
        }
    }
    Ok(())
}
