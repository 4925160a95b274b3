//! # What it does
//!
//! Knows the defects of released versions and of pinned commits (the rule packs list them, with references) and reports
//! those that what is scanned has:
//!
//! - in an installed package, where the file is as it was released and no finding in the sources shows the defect by
//!   itself. Where one does (FA001 to FA007), that finding gets the references instead of a second report; where its
//!   rule is not selected, nothing is said;
//! - in a source checkout of vLLM, where CMake fetches flash-attention at a commit with known defects, or
//!   `VLLM_FLASH_ATTN_SRC_DIR` points at a checkout of one.
//!
//! # Why is this bad
//!
//! In a checkout the sources of the kernels are not there yet: they arrive with the build, an hour later. And some
//! defects cannot be seen in the text of one file.
//!
//! # Example
//!
//! ```cmake
//! FetchContent_Declare(
//!   vllm-flash-attn
//!   GIT_REPOSITORY https://github.com/vllm-project/flash-attention.git
//!   GIT_TAG caaa4eb59845388a20b1f435ecaafb4bd9517ad8
//! )
//! ```
//!
//! # Fix
//!
//! Install the first release without the defect, or pin the first commit without it; the help names it. A file that was
//! changed since installation is not reported: its sources are judged as they are.
//!
//! # References
//!
//! - <https://github.com/vllm-project/flash-attention/pull/178>

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::cmake;
use super::packaging::{finding, installed, named, related};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::tree::join;
use crate::environment::{Distribution, RootId, Tree};
use crate::finding::{Finding, Severity};
use crate::packs::{Defect, Packs, PinnedSource};

static INFO: RuleInfo = RuleInfo {
    code: "FA104",
    name: "known-defect",
    summary: "a released version or a pinned commit has a defect that is known",
    source: include_str!("fa104_known_defect.rs"),
};

/// FA104.
pub struct KnownDefect;

impl Rule for KnownDefect {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn builds_on(&self) -> &'static [&'static str] {
        &["FA001", "FA002", "FA003", "FA004", "FA005", "FA006", "FA007"]
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let Context { environment, packs, .. } = context;
        for distribution in packs.distributions.iter().filter_map(|name| installed(environment, name)) {
            check_installed(context, distribution, sink);
        }
        for (index, root) in environment.roots.iter().enumerate() {
            for source in &packs.sources {
                sink.findings.extend(check_pin(context, RootId(index as u32), &root.tree, source));
            }
        }
    }
}

/// What is known of the file that holds a defect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The bytes are those that were released.
    AsReleased,
    /// The file is there, and there is no digest to compare it with.
    Unverified,
    /// Changed since it was installed, or not part of this build.
    Otherwise,
    /// Neither the file nor a list of files is there.
    NotHere,
}

fn check_installed(context: &Context<'_>, distribution: &Distribution, sink: &mut Sink) {
    let Some(version) = distribution.version() else { return };
    let asked = &context.environment.arch;
    let concerns = |defect: &&Defect| {
        defect.arch.is_empty() || asked.is_empty() || defect.arch.iter().any(|arch| asked.contains(arch))
    };
    let mut reported: Vec<(Severity, &Defect)> = Vec::new();
    for defect in context.packs.defects_of(&distribution.name, &version).filter(concerns) {
        if explain(&mut sink.findings, distribution, defect) {
            continue;
        }
        let tree = &context.environment.root(distribution.root).tree;
        let unread = sink.incomplete.iter().any(|i| i.path == join(&distribution.base.prefix, &defect.path));
        // On which architectures the kernel runs here is not known unless the user says so.
        let limited = !defect.arch.is_empty() && asked.is_empty();
        match state(tree, distribution, &defect.path) {
            State::AsReleased if limited => reported.push((Severity::Warning, defect)),
            State::AsReleased => reported.push((Severity::Error, defect)),
            // What a rule can see in the source and does not is not there.
            State::Unverified if defect.shown_by.is_none() || unread => reported.push((Severity::Warning, defect)),
            State::NotHere => reported.push((Severity::Info, defect)),
            State::Unverified | State::Otherwise => {}
        }
    }
    for severity in [Severity::Error, Severity::Warning, Severity::Info] {
        let defects: Vec<&Defect> =
            reported.iter().filter(|(s, _)| *s == severity).map(|(_, defect)| *defect).collect();
        if defects.is_empty() {
            continue;
        }
        let symbol = &distribution.name;
        let mut found = finding(&INFO, severity, distribution, &distribution.metadata_path, 1, symbol);
        found.message = format!("{} has {}", named(distribution), listed(&defects));
        if severity == Severity::Info {
            found.message.push_str("; its sources are not here to be checked");
        }
        found.arch = architectures(&defects);
        found.help = Some(advice(&defects));
        if severity != Severity::Info {
            let place = |defect: &&Defect| {
                related(
                    distribution,
                    &join(&distribution.base.prefix, &defect.path),
                    1,
                    format!("`{}` is here", defect.id),
                )
            };
            found.related = defects.iter().map(place).collect();
        }
        sink.findings.push(found);
    }
}

/// Gives the references of a defect to the finding that shows it; whether there is one.
fn explain(findings: &mut [Finding], distribution: &Distribution, defect: &Defect) -> bool {
    let Some(shown_by) = &defect.shown_by else { return false };
    let shows = |found: &&mut Finding| {
        found.code == shown_by.code
            && found.symbol == shown_by.symbol
            && found.package.as_ref() == Some(&distribution.display_name)
    };
    let mut shown = false;
    for found in findings.iter_mut().filter(shows) {
        shown = true;
        let known = format!("known as `{}`: {}", defect.id, advice(&[defect]));
        found.help = Some(match found.help.take() {
            Some(help) => format!("{known}; {help}"),
            None => known,
        });
    }
    shown
}

fn state(tree: &Tree, distribution: &Distribution, path: &str) -> State {
    let path = join(&distribution.base.prefix, path);
    let has_record = tree.is_file(&distribution.record_path());
    if !tree.is_file(&path) {
        return if has_record { State::Otherwise } else { State::NotHere };
    }
    if !has_record {
        return State::Unverified;
    }
    let listed = distribution.record(tree).into_iter().find(|entry| entry.path == path).and_then(|entry| entry.sha256);
    match (listed, tree.read(&path)) {
        (Some(listed), Ok(bytes)) if <[u8; 32]>::from(Sha256::digest(&bytes)) == listed => State::AsReleased,
        (None, Ok(_)) => State::Unverified,
        _ => State::Otherwise,
    }
}

/// The defects of the commit that the CMake file of a checkout names.
fn check_pin(context: &Context<'_>, root: RootId, tree: &Tree, source: &PinnedSource) -> Option<Finding> {
    let bytes = tree.read(&source.pinned_in).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let local = std::env::var_os(&source.overridden_by).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    // The build takes the folder instead of the pinned commit.
    let head = local.as_deref().map(head);
    let known = |pin: cmake::Pin| {
        let commit = head.clone().unwrap_or_else(|| Some(pin.tag.clone()))?;
        let defects: Vec<&Defect> = context.packs.defects_at(&source.id, &commit);
        (!defects.is_empty()).then_some((pin, commit, defects))
    };
    let pins = cmake::pins(&text).into_iter().filter(|pin| pin.is_of(&source.repository));
    let (pin, commit, defects) = { pins }.find_map(known)?;
    let from = match &local {
        Some(folder) => format!("{} ({})", folder.display(), source.overridden_by),
        None => source.repository.clone(),
    };
    let environment = context.environment;
    let package = environment.distributions.iter().find(|d| d.root == root && d.name == source.package);
    let owner = Distribution { root, ..package.cloned().unwrap_or_default() };
    let mut found = finding(&INFO, Severity::Error, &owner, &source.pinned_in, pin.line, &source.package);
    found.package = package.map(|package| package.display_name.clone());
    found.version = package.map(|package| package.raw_version.clone());
    found.message = format!("builds attention from {from} at {}, which has {}", short(&commit), listed(&defects));
    found.arch = architectures(&defects);
    found.help = Some(repin(context.packs, &defects, &pin.tag, source, local.as_deref()));
    Some(found)
}

/// What to do about a pin: the first commit without any of the defects.
fn repin(packs: &Packs, defects: &[&Defect], tag: &str, source: &PinnedSource, local: Option<&Path>) -> String {
    let clean = |commit: &&String| packs.defects_at(&source.id, commit).is_empty();
    let references = references(defects);
    match (defects.iter().filter_map(|defect| defect.fixed_commit.as_ref()).find(clean), local) {
        (Some(fixed), None) => format!(
            "pin the first commit without them, or a later one{references}: sed -i s/{tag}/{fixed}/ {}",
            source.pinned_in
        ),
        (Some(fixed), Some(folder)) => format!(
            "check out the first commit without them, or a later one{references}: git -C {} checkout {fixed}",
            folder.display()
        ),
        (None, _) => format!("pin a commit without them{references}"),
    }
}

/// The commit that a checkout is at.
fn head(folder: &Path) -> Option<String> {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let git = folder.join(".git");
    // A worktree has a file there that names the folder.
    let git = match read(git.clone()).as_deref().and_then(|text| text.strip_prefix("gitdir:")) {
        Some(place) => folder.join(place.trim()),
        None => git,
    };
    let head = read(git.join("HEAD"))?;
    let Some(reference) = head.strip_prefix("ref:").map(str::trim) else { return Some(head) };
    let common = read(git.join("commondir")).map_or_else(|| git.clone(), |place| git.join(place));
    let packed = || {
        let text = read(common.join("packed-refs"))?;
        let line = text.lines().find_map(|line| line.strip_suffix(reference)?.strip_suffix(' '))?;
        Some(line.to_owned())
    };
    read(git.join(reference)).or_else(|| read(common.join(reference))).or_else(packed)
}

fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

/// `2 known defects: .. (NameError: ..); ..`.
fn listed(defects: &[&Defect]) -> String {
    let each = defects.iter().map(|defect| match &defect.raises {
        Some(raises) => format!("{} ({raises})", defect.title),
        None => defect.title.clone(),
    });
    let each: Vec<String> = each.collect();
    match each.as_slice() {
        [only] => format!("a known defect: {only}"),
        several => format!("{} known defects: {}", several.len(), several.join("; ")),
    }
}

/// The advice of the defects with their references; where it differs, with their names.
fn advice(defects: &[&Defect]) -> String {
    let same = defects.windows(2).all(|pair| pair[0].advice == pair[1].advice);
    let each = |defect: &&Defect| format!("`{}`: {}{}", defect.id, defect.advice, references(&[defect]));
    match defects {
        [first, ..] if same => format!("{}{}", first.advice, references(defects)),
        _ => defects.iter().map(each).collect::<Vec<_>>().join("; "),
    }
}

/// ` (https://..)`, or nothing.
fn references(defects: &[&Defect]) -> String {
    let mut references: Vec<&str> = Vec::new();
    for reference in defects.iter().flat_map(|defect| &defect.references) {
        if !references.contains(&reference.as_str()) {
            references.push(reference);
        }
    }
    if references.is_empty() { String::new() } else { format!(" ({})", references.join(", ")) }
}

/// Every architecture that one of the defects is limited to; empty if one of them is not limited.
fn architectures(defects: &[&Defect]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for defect in defects {
        if defect.arch.is_empty() {
            return Vec::new();
        }
        all.extend(defect.arch.iter().filter(|arch| !all.contains(arch)).cloned().collect::<Vec<_>>());
    }
    all
}
