//! From findings with fixes to a plan: apply what fits together, look again, until nothing is left to apply.
//!
//! Nothing touches the disk here. A fix that would break the syntax of a file, or bring a finding that was not there, is
//! dropped and reported; so is one whose finding survives it.

use std::collections::BTreeMap;
use std::io;

use super::apply::{self, Placed};
use crate::environment::RootId;
use crate::finding::{Applicability, Edit, Finding, Severity};

/// Files as they would be: what is not in it is as on disk.
pub type Overlay = BTreeMap<(RootId, String), Vec<u8>>;

/// What the engine works on: an environment that can be read, scanned and parsed.
pub trait Workspace {
    /// The bytes of a file on disk; `None` if there is none.
    fn read(&mut self, root: RootId, path: &str) -> io::Result<Option<Vec<u8>>>;
    /// The findings, with their fixes, of the environment with `overlay` laid over it.
    fn scan(&mut self, overlay: &Overlay) -> anyhow::Result<Vec<Finding>>;
    /// How many syntax errors a source has.
    fn syntax_errors(&self, bytes: &[u8]) -> usize;
}

/// Which fixes to apply.
pub struct Choice<'a> {
    /// `--unsafe`: also those that are a judgement.
    pub unsafe_too: bool,
    /// Whether a finding's rule is selected.
    pub selected: &'a dyn Fn(&Finding) -> bool,
}

/// Text that a fix put into a file of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Index into [`Plan::applied`].
    pub fix: usize,
    /// First byte, in the file as it is to be.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// One file of a plan.
#[derive(Debug, Clone, Default)]
pub struct PlannedFile {
    /// The bytes on disk; nothing, for a new file.
    pub before: Option<Vec<u8>>,
    /// The bytes that are to be there.
    pub after: Vec<u8>,
    /// Which fix put what where.
    pub marks: Vec<Mark>,
}

/// A fix that was not applied, and why.
#[derive(Debug, Clone)]
pub struct Skipped {
    /// The finding it is for.
    pub finding: Finding,
    /// A clause: "it needs --unsafe".
    pub reason: String,
}

/// What is to be written, and what remains.
#[derive(Debug, Default)]
pub struct Plan {
    /// Every file that changes.
    pub files: BTreeMap<(RootId, String), PlannedFile>,
    /// The findings whose fixes were applied, in the order in which they were.
    pub applied: Vec<Finding>,
    /// Fixes that exist and were not applied.
    pub skipped: Vec<Skipped>,
    /// The findings of the environment as planned.
    pub remaining: Vec<Finding>,
}

/// More rounds than any chain of fixes needs; a scan that goes on finding more than that does not converge.
const ROUNDS: usize = 16;

/// What tells findings apart across rounds: lines move, so they are no part of it.
type Key = (String, RootId, String, String);

fn key(finding: &Finding) -> Key {
    (finding.code.clone(), finding.root, finding.path.clone(), finding.symbol.clone())
}

fn counts(findings: &[Finding]) -> BTreeMap<Key, usize> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        *counts.entry(key(finding)).or_default() += 1;
    }
    counts
}

/// Works out the plan. `first` are the findings of the environment as it is.
pub fn plan(workspace: &mut dyn Workspace, first: Vec<Finding>, choice: &Choice<'_>) -> anyhow::Result<Plan> {
    let mut plan = Plan { remaining: first, ..Plan::default() };
    let mut refused: BTreeMap<Key, String> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let candidates: Vec<Finding> =
            plan.remaining.iter().filter(|finding| is_candidate(finding, choice, &refused)).cloned().collect();
        let together = apply::compatible(candidates.iter().map(edits));
        if together.is_empty() {
            break;
        }
        let batch: Vec<Finding> = together.into_iter().map(|index| candidates[index].clone()).collect();
        match attempt(workspace, &plan, &batch)? {
            Ok(next) => plan = next,
            // Which one is to blame shows when each is tried alone.
            Err(_) if batch.len() > 1 => {
                let applied = plan.applied.len();
                for wanted in batch.iter().map(key) {
                    // After an earlier one was applied, the offsets are those of the last scan.
                    let current = plan.remaining.iter().find(|finding| key(finding) == wanted).cloned();
                    let Some(current) = current.filter(|finding| is_candidate(finding, choice, &refused)) else {
                        continue;
                    };
                    match attempt(workspace, &plan, std::slice::from_ref(&current))? {
                        Ok(next) => plan = next,
                        Err(reason) => drop(refused.insert(wanted, reason)),
                    }
                }
                if plan.applied.len() == applied {
                    break;
                }
            }
            Err(reason) => drop(refused.insert(key(&batch[0]), reason)),
        }
    }
    plan.skipped = plan.remaining.iter().filter_map(|finding| skipped(finding, choice, &refused)).collect();
    Ok(plan)
}

fn edits(finding: &Finding) -> &[Edit] {
    finding.fix.as_ref().map_or(&[], |fix| &fix.edits)
}

fn is_candidate(finding: &Finding, choice: &Choice<'_>, refused: &BTreeMap<Key, String>) -> bool {
    let allowed = finding.fix.as_ref().is_some_and(|fix| match fix.applicability {
        Applicability::Safe => true,
        Applicability::Unsafe => choice.unsafe_too,
        Applicability::Manual => false,
    });
    allowed && !edits(finding).is_empty() && (choice.selected)(finding) && !refused.contains_key(&key(finding))
}

/// Why the fix of a finding that remains was not applied, if it has one.
fn skipped(finding: &Finding, choice: &Choice<'_>, refused: &BTreeMap<Key, String>) -> Option<Skipped> {
    let fix = finding.fix.as_ref()?;
    let reason = match refused.get(&key(finding)) {
        Some(reason) => reason.clone(),
        None if !(choice.selected)(finding) => format!("{} is not selected", finding.code),
        None if fix.applicability == Applicability::Manual => "it is for a person to make".to_owned(),
        None if fix.applicability == Applicability::Unsafe && !choice.unsafe_too => {
            "it is a judgement, and needs --unsafe".to_owned()
        }
        None => "other fixes kept changing the same place".to_owned(),
    };
    Some(Skipped { finding: finding.clone(), reason })
}

/// Applies a batch on top of `plan` and looks at the result: the plan with it, or the reason why it is no improvement.
fn attempt(workspace: &mut dyn Workspace, plan: &Plan, batch: &[Finding]) -> anyhow::Result<Result<Plan, String>> {
    let mut next = Plan { files: plan.files.clone(), applied: plan.applied.clone(), ..Plan::default() };
    let first_fix = next.applied.len();
    next.applied.extend(batch.iter().cloned());
    for (root, path) in apply::files(batch.iter().flat_map(edits)) {
        let file_key = (root, path.to_owned());
        let is_new = !next.files.contains_key(&file_key);
        let file = next.files.entry(file_key).or_default();
        if is_new {
            file.before = workspace.read(root, path)?;
            file.after = file.before.clone().unwrap_or_default();
        }
        let Ok(text) = std::str::from_utf8(&file.after) else {
            return Ok(Err(format!("{path} is not UTF-8")));
        };
        let of_file = |edit: &&Edit| edit.root == root && edit.path == path;
        let all: Vec<&Edit> = batch.iter().flat_map(edits).filter(of_file).collect();
        let (result, placed) = match apply::apply(text, &all) {
            Ok(applied) => applied,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let is_python = path.ends_with(".py");
        if is_python && workspace.syntax_errors(result.as_bytes()) > workspace.syntax_errors(text.as_bytes()) {
            return Ok(Err(format!("it would leave {path} with a syntax error")));
        }
        let mut marks: Vec<Mark> = file.marks.iter().map(|mark| moved(mark, &placed)).collect();
        for (index, finding) in batch.iter().enumerate() {
            for edit in edits(finding).iter().filter(of_file) {
                let place = placed.iter().find(|place| (place.old_start, place.old_end) == (edit.start, edit.end));
                marks.extend(place.map(|place| Mark { fix: first_fix + index, start: place.start, end: place.end }));
            }
        }
        file.after = result.into_bytes();
        file.marks = marks;
    }
    next.files.retain(|_, file| file.before.as_deref() != Some(&file.after[..]));
    let overlay = next.files.iter().map(|(key, file)| (key.clone(), file.after.clone())).collect();
    next.remaining = workspace.scan(&overlay)?;

    // Several places may have the same defect, so findings are counted.
    let (had, has, gone) = (counts(&plan.remaining), counts(&next.remaining), counts(batch));
    let count = |counts: &BTreeMap<Key, usize>, finding: &Finding| counts.get(&key(finding)).copied().unwrap_or(0);
    if let Some(finding) =
        batch.iter().find(|finding| count(&has, finding) + count(&gone, finding) > count(&had, finding))
    {
        return Ok(Err(format!("{} is still there with it", finding.symbol)));
    }
    let new = |finding: &&Finding| finding.severity > Severity::Info && count(&has, finding) > count(&had, finding);
    if let Some(finding) = next.remaining.iter().find(new) {
        return Ok(Err(format!("it would bring {} {}", finding.code, finding.symbol)));
    }
    Ok(Ok(next))
}

/// A mark of an earlier round, after the edits of this one.
fn moved(mark: &Mark, placed: &[Placed]) -> Mark {
    let shift = |at: usize| {
        let before = placed.iter().rev().find(|place| place.old_end <= at);
        before.map_or(at, |place| place.end + (at - place.old_end))
    };
    Mark { fix: mark.fix, start: shift(mark.start), end: shift(mark.end) }
}
