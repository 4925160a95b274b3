//! # What it does
//!
//! Finds files that two distributions both install, with different contents (RECORD lists a digest of each), and looks
//! at the bytes on disk to see whose they are. One finding for each pair of distributions, however many files it is about.
//!
//! A contested file that fits neither digest was changed after installation; that is said, and is not held against
//! either.
//!
//! # Why is this bad
//!
//! Installers do not check for this: the last one installed wins, and the loser is left with some files of its own and
//! some of the other's. The mix imports, and then lacks names or calls functions with the wrong arguments.
//!
//! # Example
//!
//! nvidia-cutlass-dsl-libs-base and -libs-cu13 4.5.2 both own 180 paths, 99 of them with different contents:
//! `fmax(res, a, b)` in one is `fmax(a, b)` in the other. flash-attn from 2.8.0 brings an old copy of `flash_attn/cute` and
//! overwrites that of flash-attn-4.
//!
//! # Fix
//!
//! Uninstall the one that is not needed, then install the other one again: uninstalling removes the shared files too.
//! Where both are needed, install them in the order that the help names.
//!
//! # References
//!
//! - <https://packaging.python.org/en/latest/specifications/recording-installed-packages/>

use std::collections::BTreeMap;

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};

use super::packaging::{finding, installer, named, pinned, related};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::tree::is_below;
use crate::environment::{Distribution, RecordEntry, RootId, Tree};
use crate::finding::{Finding, Related, Severity};
use crate::packs::Packs;

static INFO: RuleInfo = RuleInfo {
    code: "FA103",
    name: "clobbered-files",
    summary: "two distributions own one path and the bytes of one are gone",
    source: include_str!("fa103_clobbered_files.rs"),
};

/// Files shown besides the first: more explain nothing.
const SHOWN: usize = 3;

/// FA103.
pub struct ClobberedFiles;

impl Rule for ClobberedFiles {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let mut pairs: BTreeMap<(RootId, &str, &str), Pair<'_>> = BTreeMap::new();
        let environment = context.environment;
        for (root, top, claimants) in environment.contested() {
            if claimants.iter().any(|d| context.packs.in_stack(&d.name)) {
                let tree = &environment.root(root).tree;
                collect(tree, top, &claimants, &mut pairs);
                collect_unlisted(context.packs, tree, top, &claimants, &mut pairs);
            }
        }
        // Wheels given together are looked at as if they were installed in that order.
        let planned = |root: RootId| environment.root(root).parts.len() > 1;
        let report = |((root, _, _), pair): (_, Pair)| pair.report(context.packs, planned(root));
        sink.findings.extend(pairs.into_iter().filter_map(report));
    }
}

/// A path and the line of RECORD that lists it.
struct Listed<'e> {
    owner: &'e Distribution,
    entry: RecordEntry,
}

/// Two distributions, and the paths that both list with different contents.
struct Pair<'e> {
    first: &'e Distribution,
    second: &'e Distribution,
    /// Paths that both list, whatever their contents.
    shared: usize,
    /// Whether both have a RECORD.
    listed: bool,
    files: Vec<Contested>,
}

struct Contested {
    path: String,
    /// Lines in the RECORD of the first and of the second.
    lines: [u32; 2],
    state: State,
}

/// Whose bytes are on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    First,
    Second,
    /// Changed since it was installed, or another distribution's.
    Neither,
}

/// Adds the contested files below one top-level path.
fn collect<'e>(
    tree: &Tree,
    top: &str,
    claimants: &[&'e Distribution],
    pairs: &mut BTreeMap<(RootId, &'e str, &'e str), Pair<'e>>,
) {
    let records: Vec<(&Distribution, Vec<RecordEntry>)> =
        claimants.par_iter().map(|&owner| (owner, owner.record(tree))).collect();
    let mut owners: FxHashMap<String, Vec<Listed<'e>>> = FxHashMap::default();
    for (owner, record) in records {
        for entry in record.into_iter().filter(|entry| is_below(&entry.path, top) && !entry.path.ends_with(".pyc")) {
            let listed = owners.entry(entry.path.clone()).or_default();
            // Two copies of one distribution are a leftover of an upgrade, and a path listed twice is a mistake.
            listed.retain(|other| other.owner.name != owner.name);
            listed.push(Listed { owner, entry });
        }
    }
    let contested: Vec<_> = owners.into_iter().filter(|(_, listed)| listed.len() > 1).collect();
    let judged: Vec<_> =
        contested.par_iter().map(|(path, listed)| (path, listed, fitting(tree, path, listed))).collect();
    for (path, listed, fits) in judged {
        for (index, one) in listed.iter().enumerate() {
            for (offset, other) in listed[index + 1..].iter().enumerate() {
                let flip = one.owner.name > other.owner.name;
                let (first, second) = if flip { (other, one) } else { (one, other) };
                let key = (first.owner.root, first.owner.name.as_str(), second.owner.name.as_str());
                let pair = pairs.entry(key).or_insert_with(|| Pair {
                    first: first.owner,
                    second: second.owner,
                    shared: 0,
                    listed: true,
                    files: Vec::new(),
                });
                pair.shared += 1;
                let Some(fits) = fits.as_ref().filter(|_| differ(&one.entry, &other.entry)) else { continue };
                let state = match (fits[index], fits[index + 1 + offset]) {
                    (true, _) if flip => State::Second,
                    (true, _) => State::First,
                    (_, true) if flip => State::First,
                    (_, true) => State::Second,
                    _ => State::Neither,
                };
                let lines = [first.entry.line, second.entry.line];
                pair.files.push(Contested { path: path.clone(), lines, state });
            }
        }
    }
}

/// Adds the files that a distribution without a RECORD has overwritten: one that is known to install the same paths as
/// another one whose bytes are gone. Copied trees and old installers leave no RECORD.
fn collect_unlisted<'e>(
    packs: &Packs,
    tree: &Tree,
    top: &str,
    claimants: &[&'e Distribution],
    pairs: &mut BTreeMap<(RootId, &'e str, &'e str), Pair<'e>>,
) {
    let (listing, silent): (Vec<&Distribution>, Vec<&Distribution>) =
        claimants.iter().partition(|distribution| tree.is_file(&distribution.record_path()));
    for loser in listing {
        for &winner in &silent {
            let (Some(lost), Some(won)) = (loser.version(), winner.version()) else { continue };
            if packs.overlap((&loser.name, &lost), (&winner.name, &won)).is_none() {
                continue;
            }
            let flip = loser.name > winner.name;
            let (first, second) = if flip { (winner, loser) } else { (loser, winner) };
            let mut pair = Pair { first, second, shared: 0, listed: false, files: Vec::new() };
            for entry in loser.record(tree).into_iter().filter(|entry| is_below(&entry.path, top)) {
                let listed = [Listed { owner: loser, entry }];
                if fitting(tree, &listed[0].entry.path, &listed).is_some_and(|fits| !fits[0]) {
                    let [Listed { entry, .. }] = listed;
                    let (lines, state) =
                        if flip { ([1, entry.line], State::First) } else { ([entry.line, 1], State::Second) };
                    pair.shared += 1;
                    pair.files.push(Contested { path: entry.path, lines, state });
                }
            }
            pairs.entry((first.root, first.name.as_str(), second.name.as_str())).or_insert(pair);
        }
    }
}

/// Whether two lines of RECORD list different contents.
fn differ(one: &RecordEntry, other: &RecordEntry) -> bool {
    match (one.sha256, other.sha256) {
        (Some(one), Some(other)) => one != other,
        _ => one.size.is_some() && other.size.is_some() && one.size != other.size,
    }
}

/// For each line whether the bytes on disk are those it lists; `None` if there are none, or nothing to compare.
fn fitting(tree: &Tree, path: &str, listed: &[Listed<'_>]) -> Option<Vec<bool>> {
    let size = tree.size(path)?;
    let mut fits: Vec<bool> = listed.iter().map(|l| l.entry.size.is_none_or(|listed| listed == size)).collect();
    // Libraries have hundreds of megabytes: where the sizes tell them apart there is no need to read them.
    let told_apart = listed.iter().all(|l| l.entry.size.is_some()) && fits.iter().filter(|fits| **fits).count() == 1;
    if told_apart && size > (1 << 20) {
        return Some(fits);
    }
    if fits.iter().any(|fits| *fits) {
        let digest: [u8; 32] = Sha256::digest(&*tree.map(path).ok()?).into();
        for (fits, listed) in fits.iter_mut().zip(listed) {
            *fits &= listed.entry.sha256.is_none_or(|listed| listed == digest);
        }
    }
    Some(fits)
}

impl Pair<'_> {
    fn report(mut self, packs: &Packs, planned: bool) -> Option<Finding> {
        self.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let of = |state: State| self.files.iter().filter(move |file| file.state == state);
        let (first_lost, second_lost) = (of(State::Second).count(), of(State::First).count());
        let changed = of(State::Neither).count();
        // Without a file of either there is no telling who has lost.
        let (loser, winner, state, lost) = if first_lost >= second_lost {
            (self.first, self.second, State::Second, first_lost)
        } else {
            (self.second, self.first, State::First, second_lost)
        };
        if lost == 0 || !packs.in_stack(&loser.name) {
            return self.only_changed(packs);
        }
        // The files that matter first: nothing imports the others.
        let (mut shown, strays): (Vec<&Contested>, Vec<_>) = of(state).partition(|file| !is_stray(packs, &file.path));
        let severity = if shown.is_empty() { Severity::Info } else { Severity::Error };
        shown.extend(strays);
        let path = &shown[0].path;
        let mut found = finding(&INFO, severity, loser, path, 1, path);
        let verb = match (planned, lost) {
            (true, _) => "would be",
            (false, 1) => "is",
            (false, _) => "are",
        };
        found.message = format!("{} of {} {verb} overwritten by {}", plural(lost, "file"), named(loser), named(winner));
        let mixed = first_lost.min(second_lost);
        if mixed > 0 {
            found.message += &format!(", and {} the other way round: the two are mixed", plural(mixed, "file"));
        }
        if changed > 0 {
            found.message += &format!("; {} changed since installation", plural(changed, "more"));
        }
        let line = |distribution: &Distribution, index: usize| {
            let name = named(distribution);
            let (path, note) = if !std::ptr::eq(distribution, winner) {
                (distribution.record_path(), format!("{name} lists it with other contents"))
            } else if self.listed {
                (distribution.record_path(), format!("{name} lists the bytes that are there"))
            } else {
                (
                    distribution.metadata_path.clone(),
                    format!("{name} has no RECORD, and is known to bring the same paths"),
                )
            };
            related(distribution, &path, shown[0].lines[index], note)
        };
        found.related.extend([line(self.first, 0), line(self.second, 1)]);
        // Sources say more to a reader than libraries.
        let (sources, others): (Vec<&Contested>, Vec<_>) =
            shown[1..].iter().partition(|file| file.path.ends_with(".py"));
        let more = sources.into_iter().chain(others).take(SHOWN);
        let overwritten = if planned { "would be overwritten too" } else { "is overwritten too" };
        found.related.extend(more.map(|file| Related {
            path: file.path.clone(),
            line: 1,
            message: overwritten.to_owned(),
            root: loser.root,
        }));
        found.help = Some(self.help(packs, loser, winner));
        Some(found)
    }

    /// Contested files that were changed by hand, where nothing else says who has lost.
    fn only_changed(&self, packs: &Packs) -> Option<Finding> {
        let changed: Vec<&Contested> = self.files.iter().filter(|file| file.state == State::Neither).collect();
        let file = changed.first()?;
        let owner = [self.first, self.second].into_iter().find(|d| packs.in_stack(&d.name))?;
        let mut found = finding(&INFO, Severity::Info, owner, &file.path, 1, &file.path);
        let (count, verb) = (plural(changed.len(), "file"), if changed.len() == 1 { "is" } else { "are" });
        let (first, second) = (named(self.first), named(self.second));
        found.message =
            format!("{count} that {first} and {second} both install {verb} neither's: changed since installation");
        Some(found)
    }

    fn help(&self, packs: &Packs, loser: &Distribution, winner: &Distribution) -> String {
        let pip = installer(loser);
        let again = format!("{pip} install --force-reinstall --no-deps '{}'", pinned(loser));
        let versions = (self.first.version(), self.second.version());
        let known = match &versions {
            (Some(first), Some(second)) => packs.overlap((&self.first.name, first), (&self.second.name, second)),
            _ => None,
        };
        let both = format!("the two have {} paths in common", self.shared);
        let keep = format!("to keep {}: {}", loser.display_name, replace(pip, winner, &again));
        match known.map(|known| (known.last.as_deref(), &known.because)) {
            None => format!("{both}; {keep}"),
            Some((None, because)) => format!("{both}; {because}; {keep}"),
            // The order is right: the loser was meant to be overwritten.
            Some((Some(last), because)) if last == winner.name => {
                format!("{both}; {because}. {last} is meant to be installed last, as it was; {keep}")
            }
            Some((Some(last), because)) => format!("{both}; {because}. Install {last} last: {again}"),
        }
    }
}

/// A file that packages leave at the top of site-packages by mistake, where it is part of no module of theirs: build
/// scripts, tests, documents.
fn is_stray(packs: &Packs, path: &str) -> bool {
    match path.split_once('/') {
        Some((folder, _)) => STRAY_FOLDERS.contains(&folder),
        None => {
            let (stem, suffix) = path.split_once('.').unwrap_or((path, ""));
            !(suffix.ends_with("so") || suffix.ends_with("pyd") || packs.is_attention(stem))
        }
    }
}

/// Folders of sources and documents beside a package, which a careless build installs too.
const STRAY_FOLDERS: &[&str] =
    &["benchmark", "benchmarks", "doc", "docs", "example", "examples", "scripts", "test", "tests", "tools"];

/// Removes the winner, which takes the shared files along, before the loser is installed again.
fn replace(pip: &str, winner: &Distribution, again: &str) -> String {
    let yes = if pip == "pip" { " -y" } else { "" };
    format!("{pip} uninstall{yes} {} && {again}", winner.display_name)
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 || noun == "more" { format!("{count} {noun}") } else { format!("{count} {noun}s") }
}
