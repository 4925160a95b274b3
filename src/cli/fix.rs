//! `fa-doctor fix`: shows the patches that follow from the sources, and applies them.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::args::{CheckArgs, GlobalArgs, HardwareArgs, TargetArgs};
use super::undo::{PATIENCE, patchable};
use super::{Failure, Status};
use crate::config::Settings;
use crate::environment::{Environment, RootId};
use crate::finding::{Finding, Incomplete, Severity};
use crate::fix::diff;
use crate::fix::engine::{Choice, Overlay, Plan, Workspace, plan};
use crate::fix::files::Disk;
use crate::fix::journal::AppliedFix;
use crate::fix::lock::Lock;
use crate::fix::transaction::{Change, Receipt, WriteError, check_root, commit};
use crate::fix::undo::recover;
use crate::packs::Packs;
use crate::progress::Progress;
use crate::python::{self, Origin, Symbol};
use crate::report::style::wrap;
use crate::report::{Style, count};
use crate::rules::RuleInfo;
use crate::scan::{Options, check};

/// Arguments of `fa-doctor fix`.
#[derive(Debug, Args)]
pub struct FixArgs {
    /// Which environment.
    #[command(flatten)]
    pub target: TargetArgs,
    /// What it is to run on.
    #[command(flatten)]
    pub hardware: HardwareArgs,
    /// Which findings to fix.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Apply the safe fixes (without this, they are only shown)
    #[arg(long)]
    pub write: bool,
    /// Also apply fixes that are a judgement
    #[arg(long = "unsafe")]
    pub unsafe_too: bool,
    /// Compile the kernels for this architecture first, patched and not, and write only if no case gets worse
    #[arg(long, value_name = "ARCH", value_parser = crate::environment::arch::normalize, requires = "write")]
    pub verify: Option<String>,
    /// Let the compatibility adapter drop arguments that matter, with a warning at run time
    #[arg(long)]
    pub allow_degraded: bool,
}

/// The environment as the engine sees it.
struct Installed<'a> {
    environment: Environment,
    packs: &'a Packs,
    options: &'a Options,
    progress: &'a Progress,
    /// Findings of rules that no source edit can change.
    carried: Vec<Finding>,
}

impl Workspace for Installed<'_> {
    fn read(&mut self, root: RootId, path: &str) -> io::Result<Option<Vec<u8>>> {
        let tree = &mut self.environment.roots[root.0 as usize].tree;
        tree.set_overlay(BTreeMap::new());
        match tree.read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn scan(&mut self, overlay: &Overlay) -> anyhow::Result<Vec<Finding>> {
        for (index, root) in self.environment.roots.iter_mut().enumerate() {
            let of_root = overlay.iter().filter(|((id, _), _)| id.0 as usize == index);
            root.tree.set_overlay(of_root.map(|((_, path), bytes)| (path.clone(), bytes.clone())).collect());
        }
        let mut findings = check(&self.environment, self.packs, self.options, &reads_sources, self.progress)?.findings;
        findings.extend(self.carried.iter().cloned());
        findings.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        Ok(findings)
    }

    fn syntax_errors(&self, bytes: &[u8]) -> usize {
        let origin = Origin { name: Symbol::new(""), is_package: false, root: RootId(0), path: String::new() };
        python::index(bytes, origin).map_or(1, |module| module.errors.len())
    }
}

/// Whether a rule's findings can change with a source: libraries and the hashes of installed files take long to read.
fn reads_sources(rule: &RuleInfo) -> bool {
    !rule.code.starts_with("FA2") && rule.code != "FA103"
}

/// Shows the fixes, and writes them if asked to.
pub fn run(args: &FixArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let chosen = args.checks.settings(&args.hardware, None)?;
    // All rules run: a fix of one may bring a finding of another.
    let unselected = CheckArgs { select: Vec::new(), ..args.checks.clone() };
    let options = Options {
        settings: unselected.settings(&args.hardware, None)?,
        degraded: args.allow_degraded,
        ..Options::default()
    };
    let request = args.target.request(&options.settings);
    let packs = Packs::with_directories(&options.settings.packs.value)?;
    let progress = Progress::new(global.quiet);
    progress.stage("looking at the environment");
    let mut environment = Environment::load(&request)?;
    let mut locks = Vec::new();
    if args.write {
        progress.stage("waiting for other runs");
        locks = lock(&environment, global)?;
        // What was seen before the locks were taken may have changed.
        environment = Environment::load(&request)?;
    }
    let selected = |finding: &Finding| chosen.selects(&finding.code, &finding.name);
    let choice = Choice { unsafe_too: args.unsafe_too, selected: &selected };
    let (mut environment, plan, incomplete) = planned(environment, &packs, &options, &choice, &progress)?;
    let verified = match &args.verify {
        Some(arch) if !plan.files.is_empty() => {
            Some(super::probe::verify(&mut environment, &packs, &options, &plan, arch, &progress)?)
        }
        _ => None,
    };
    drop(progress);

    let style = Style::stdout(global.color);
    let mut out = io::stdout().lock();
    if !global.quiet {
        writeln!(out, "{}", style.bold(&environment.labels().join(", ")))?;
    }
    write!(out, "{}", diff::render(&plan, style))?;
    let receipts = if args.write { write(&environment, &plan, locks)? } else { Vec::new() };
    if !global.quiet {
        summary(&mut out, args, &plan, &receipts, style)?;
        if let Some(verified) = verified {
            writeln!(out, "{verified}")?;
        }
    }
    Ok(status(args, &plan, &incomplete, &chosen).into())
}

/// Works out what `choice` would change in an environment; gives also what could not be checked.
pub(super) fn planned(
    environment: Environment,
    packs: &Packs,
    options: &Options,
    choice: &Choice<'_>,
    progress: &Progress,
) -> anyhow::Result<(Environment, Plan, Vec<Incomplete>)> {
    let before = check(&environment, packs, options, &|_| true, progress)?;
    let carried = before.findings.iter().filter(|finding| !is_from_sources(finding)).cloned().collect();
    let mut workspace = Installed { environment, packs, options, progress, carried };
    let plan = plan(&mut workspace, before.findings, choice)?;
    Ok((workspace.environment, plan, before.incomplete))
}

fn is_from_sources(finding: &Finding) -> bool {
    let rules = crate::rules::registry::all();
    rules.iter().map(|rule| rule.info()).any(|info| info.code == finding.code && reads_sources(info))
}

/// Locks what may be written before it is read: a scan that runs while another run writes would see half of its work.
/// What interrupted runs have left half done is taken back, so that this one starts from files that belong together.
fn lock(environment: &Environment, global: &GlobalArgs) -> anyhow::Result<Vec<Lock>> {
    let mut locks = Vec::new();
    // Where nothing may be written nothing changes either; that it is refused matters only if there is a fix.
    let mut roots: Vec<_> = patchable(environment).filter(|root| check_root(&root.path, root.kind).is_ok()).collect();
    // In one order, whatever the order of the targets: two runs must not wait for each other.
    roots.sort_by_key(|root| &root.path);
    for root in roots {
        let lock = Lock::acquire(&Disk::real(), &root.path, PATIENCE)?;
        if recover(&Disk::real(), &lock)? > 0 && !global.quiet {
            eprintln!("note: took back an interrupted run in {}", root.label);
        }
        locks.push(lock);
    }
    Ok(locks)
}

/// Writes a plan, root by root.
fn write(environment: &Environment, plan: &Plan, mut locks: Vec<Lock>) -> anyhow::Result<Vec<Receipt>> {
    let mut roots: BTreeMap<RootId, Vec<Change>> = BTreeMap::new();
    for ((root, path), file) in &plan.files {
        let mut fixes: Vec<AppliedFix> = Vec::new();
        for mark in &file.marks {
            let finding = &plan.applied[mark.fix];
            let title = finding.fix.as_ref().map(|fix| fix.title.clone()).unwrap_or_default();
            let fix = AppliedFix { code: finding.code.clone(), symbol: finding.symbol.clone(), title };
            if !fixes.contains(&fix) {
                fixes.push(fix);
            }
        }
        let owner = environment.owner(*root, path);
        roots.entry(*root).or_default().push(Change {
            path: path.clone(),
            before: file.before.clone(),
            after: file.after.clone(),
            package: owner.map(|owner| (owner.display_name.clone(), owner.raw_version.clone())),
            fixes,
        });
    }
    // Every root is looked at before the first is written.
    for (id, changes) in &roots {
        let root = environment.root(*id);
        check_root(&root.path, root.kind).map_err(refusal)?;
        for change in changes {
            if root.tree.on_disk(&change.path) != Some(root.path.join(&change.path)) {
                let (path, root) = (change.path.clone(), root.path.clone());
                return Err(refusal(WriteError::Outside { path, root }));
            }
        }
    }
    let mut receipts = Vec::new();
    for (id, changes) in &roots {
        let path = &environment.root(*id).path;
        let lock = match locks.iter().position(|lock| lock.root() == path) {
            Some(held) => locks.swap_remove(held),
            None => Lock::acquire(&Disk::real(), path, PATIENCE)?,
        };
        receipts.push(commit(&Disk::real(), &lock, changes).map_err(refusal)?);
    }
    Ok(receipts)
}

fn refusal(error: WriteError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => Failure::new(error.to_string(), hint).into(),
        None => error.into(),
    }
}

/// What was applied, what was not and why, and what to do next.
fn summary(out: &mut dyn Write, args: &FixArgs, plan: &Plan, receipts: &[Receipt], style: Style) -> anyhow::Result<()> {
    let fixes = |n| if n == 1 { "1 fix".to_owned() } else { format!("{n} fixes") };
    if !plan.files.is_empty() {
        writeln!(out)?;
    }
    let word = if args.write { style.good("applied") } else { style.hint("to apply") };
    for finding in &plan.applied {
        describe(out, finding, &word, None, style)?;
    }
    for skipped in &plan.skipped {
        describe(out, &skipped.finding, &style.caution("left out"), Some(&skipped.reason), style)?;
    }
    for receipt in receipts {
        for (path, target) in &receipt.unlinked {
            writeln!(out, "{path} was a link to {target} and is a file now; what it pointed to is as it was")?;
        }
        if !receipt.unshared.is_empty() {
            writeln!(
                out,
                "{} shared with a package cache before; the cache is as it was",
                count(receipt.unshared.len(), "file")
            )?;
        }
    }
    let is_open = |finding: &&Finding| finding.fix.is_none() && finding.severity > Severity::Info;
    let without = plan.remaining.iter().filter(is_open).count();
    if without > 0 {
        writeln!(out, "{} without a fix: {}", count(without, "finding"), style.hint("fa-doctor scan"))?;
    }
    match (plan.applied.len(), args.write) {
        (0, _) => writeln!(out, "nothing to apply")?,
        (n, false) => {
            writeln!(out, "{}; nothing was written. To apply: {}", fixes(n), style.hint(&again("--write")))?;
        }
        (n, true) => {
            let files: usize = receipts.iter().map(|receipt| receipt.written.len()).sum();
            writeln!(out, "{} applied in {}. RECORD still lists the original files.", fixes(n), count(files, "file"))?;
            writeln!(out, "To restore them: {}", style.hint(&undo_command(&args.target)))?;
        }
    }
    Ok(())
}

/// One fix: what it is for, and what it does.
fn describe(out: &mut dyn Write, finding: &Finding, word: &str, reason: Option<&str>, style: Style) -> io::Result<()> {
    writeln!(out, "{word} {} {}", finding.code, finding.symbol)?;
    let title = finding.fix.as_ref().map_or("", |fix| fix.title.as_str());
    let text = reason.map_or(title.to_owned(), |reason| format!("{title}: {reason}"));
    for line in wrap(&text, style.width.saturating_sub(4)) {
        writeln!(out, "    {line}")?;
    }
    Ok(())
}

/// This command with one more flag, to copy.
fn again(flag: &str) -> String {
    let words = std::env::args().skip(1).chain([flag.to_owned()]);
    format!("fa-doctor {}", words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" "))
}

/// The command that takes it back, to copy.
fn undo_command(target: &TargetArgs) -> String {
    let mut words = vec!["fa-doctor".to_owned(), "undo".to_owned()];
    words.extend(target.targets.iter().map(|path| quoted(&path.display().to_string())));
    words.extend(target.python.iter().map(|path| format!("--python {}", quoted(&path.display().to_string()))));
    words.join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// What is left decides; without --write, that is also what could be fixed.
fn status(args: &FixArgs, plan: &Plan, incomplete: &[Incomplete], chosen: &Settings) -> Status {
    let shown: &[Finding] = if args.write { &[] } else { &plan.applied };
    let mut left = plan.remaining.iter().chain(shown);
    let counts = |finding: &Finding| chosen.selects(&finding.code, &finding.name);
    if left.any(|finding| counts(finding) && chosen.fail_on.value.includes(finding.severity)) {
        Status::Findings
    } else if incomplete.is_empty() {
        Status::Clean
    } else {
        Status::Unchecked
    }
}
