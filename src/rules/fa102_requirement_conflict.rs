//! # What it does
//!
//! Compares what the packages of the attention stack require of each other (Requires-Dist in their METADATA) with the
//! versions that are installed. Markers are evaluated for the environment, extras count where another installed package
//! asks for them (`nvidia-cutlass-dsl[cu13]`), pre-releases and local versions are judged as pip judges them:
//! `2.11.0+cu130` meets `==2.11.0`.
//!
//! # Why is this bad
//!
//! Kernels are compiled at run time against whatever DSL is installed. One that is older or newer than the package was
//! written for fails while tracing, long after `pip install` succeeded. What it breaks is reported as findings of its
//! own; this one names the reason.
//!
//! # Example
//!
//! ```text
//! vllm 0.26.0 requires nvidia-cutlass-dsl[cu13]==4.6.0, but 4.4.2 is installed
//! ```
//!
//! # Fix
//!
//! Install a version that meets the requirement. Where two installed packages ask for versions that exclude each other,
//! no install order helps: one of the two has to go. `fa-doctor pin` prints a set of versions that fit.
//!
//! A required package that is not installed is worth a note only: what needs it may never run. Requirements on packages
//! outside the attention stack are left to `pip check`.
//!
//! # References
//!
//! - <https://packaging.python.org/en/latest/specifications/version-specifiers/>
//! - <https://packaging.python.org/en/latest/specifications/dependency-specifiers/>

use std::collections::{BTreeMap, BTreeSet};

use pep440_rs::Version;
use pep508_rs::{ExtraName, Requirement};

use super::packaging::{copies, finding, installed, installer, named, related};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::Distribution;
use crate::finding::{Finding, Incomplete, Severity};
use crate::packs::{Machines, Packs, excluded, parse_requirement, required_name, required_range, satisfies};

static INFO: RuleInfo = RuleInfo {
    code: "FA102",
    name: "requirement-conflict",
    summary: "an installed version does not meet what another package of the stack requires",
    source: include_str!("fa102_requirement_conflict.rs"),
};

/// FA102.
pub struct RequirementConflict;

impl Rule for RequirementConflict {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let requirements = applicable(context, sink);
        let mut reported: Vec<(&str, &str)> = Vec::new();
        for demand in &requirements {
            let required = demand.requirement.name.as_ref();
            let key = (demand.by.info.as_str(), required);
            if reported.contains(&key) {
                continue;
            }
            if let Some(found) = judge(context, demand, &requirements) {
                sink.findings.push(found);
                reported.push(key);
            }
        }
    }
}

/// A requirement on a package of the stack that applies here.
struct Demand<'e> {
    by: &'e Distribution,
    requirement: Requirement,
    line: u32,
}

/// Every requirement within the stack that applies, with the extras that installed packages ask of each other.
fn applicable<'e>(context: &Context<'e>, sink: &mut Sink) -> Vec<Demand<'e>> {
    let Context { environment, packs, .. } = context;
    let mut all = Vec::new();
    let stack = packs.distributions.iter().filter_map(|name| installed(environment, name));
    for by in stack {
        let mut seen = BTreeSet::new();
        for (text, line) in &by.requires {
            if !packs.in_stack(&required_name(text)) || !seen.insert(text) {
                continue;
            }
            match parse_requirement(text) {
                Ok(requirement) => all.push(Demand { by, requirement, line: *line }),
                Err(error) => {
                    let reason = format!("line {line}: `{text}` is not a requirement: {error}");
                    sink.incomplete.push(Incomplete { path: by.metadata_path.clone(), reason });
                }
            }
        }
    }
    let machines = Machines::of(environment);
    let mut extras: BTreeMap<String, Vec<ExtraName>> = BTreeMap::new();
    loop {
        let asked = |name: &str| extras.get(name).map_or(&[][..], Vec::as_slice);
        let applies = |demand: &&Demand| machines.apply(&demand.requirement, asked(&demand.by.name));
        let wanted: Vec<(String, ExtraName)> = all
            .iter()
            .filter(applies)
            .flat_map(|d| d.requirement.extras.iter().map(|extra| (d.requirement.name.to_string(), extra.clone())))
            .filter(|(name, extra)| !asked(name).contains(extra))
            .collect();
        if wanted.is_empty() {
            let keep: Vec<bool> = all.iter().map(|demand| applies(&demand)).collect();
            let mut keep = keep.into_iter();
            all.retain(|_| keep.next().unwrap_or(false));
            return all;
        }
        for (name, extra) in wanted {
            let known = extras.entry(name).or_default();
            if !known.contains(&extra) {
                known.push(extra);
            }
        }
    }
}

fn judge(context: &Context<'_>, demand: &Demand<'_>, all: &[Demand<'_>]) -> Option<Finding> {
    let Demand { by, requirement, line } = demand;
    let name = requirement.name.as_ref();
    let asks = shown(requirement);
    let report = |severity, message| {
        let mut found = finding(&INFO, severity, by, &by.metadata_path, *line, name);
        found.message = message;
        found
    };
    let Some(present) = installed(context.environment, name) else {
        // Wheels and unpacked trees are not an environment: of course their requirements are elsewhere.
        context.environment.interpreter.as_ref()?;
        let mut found = report(Severity::Info, format!("{} requires {asks}, which is not installed", named(by)));
        found.help = Some(format!("install it: {} install '{asks}'", installer(by)));
        return Some(found);
    };
    let range = required_range(requirement)?;
    present.version()?;
    // Of a distribution that is twice in one folder, the one that fits may be the real one.
    let mut here = copies(context.environment, name).filter(|copy| copy.base == present.base);
    if here.any(|copy| copy.version().is_none_or(|version| satisfies(&version, range))) {
        return None;
    }
    let message = format!("{} requires {asks}, but {} is installed", named(by), present.raw_version);
    let mut found = report(Severity::Warning, message);
    found.help = Some(help(context.packs, demand, present, all));
    found.related.push(related(present, &present.metadata_path, 1, format!("{} is installed here", named(present))));
    Some(found)
}

/// The command that meets the requirement; where that would break another one, what else has to change.
fn help(packs: &Packs, demand: &Demand<'_>, present: &Distribution, all: &[Demand<'_>]) -> String {
    let name = demand.requirement.name.as_ref();
    let same = || all.iter().filter(|other| other.requirement.name == demand.requirement.name);
    let releases = packs.releases_of(name);
    let range = |demand: &Demand| required_range(&demand.requirement).cloned().unwrap_or_default();
    let excludes = |other: &&Demand| excluded(&[range(demand), range(other)], releases);
    if let Some(other) = same().find(excludes) {
        let both = format!("{} requires {}, and no release meets both", named(other.by), shown(&other.requirement));
        // What the other one requires itself gives way to it.
        let required = all.iter().any(|d| d.by.info == demand.by.info && d.requirement.name.as_ref() == other.by.name);
        let (gives_way, stays) = if required { (other, demand) } else { (demand, other) };
        let pip = installer(present);
        return match fitting_release(packs, gives_way, stays, all) {
            Some(release) => format!(
                "{both}; {} {release} fits the other: {pip} install {}",
                gives_way.by.display_name,
                quoted(&[shown(&stays.requirement), format!("{}=={release}", gives_way.by.display_name)])
            ),
            None => format!("{both}; one of the two needs another version; a set that fits: fa-doctor pin"),
        };
    }
    let ranged = same().filter(|other| required_range(&other.requirement).is_some());
    let mut wanted: Vec<String> = ranged.map(|other| shown(&other.requirement)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    format!("install what is required: {} install {}", installer(present), quoted(&wanted))
}

fn takes(demand: &Demand<'_>, release: &Version) -> bool {
    required_range(&demand.requirement).is_none_or(|range| satisfies(release, range))
}

/// The newest release of the package behind `gives_way` that everybody takes and that takes what `stays` asks for.
fn fitting_release<'p>(
    packs: &'p Packs,
    gives_way: &Demand<'_>,
    stays: &Demand<'_>,
    all: &[Demand<'_>],
) -> Option<&'p Version> {
    let package = gives_way.by.name.as_str();
    let wanted = stays.requirement.name.as_ref();
    let compatible = |release: &&Version| {
        let own =
            packs.needs_of(package, release).flat_map(|needs| needs.requires.iter().filter_map(|n| n.of(release)));
        let own: Vec<Requirement> = own.filter(|requirement| requirement.name.as_ref() == wanted).collect();
        let fits = |r: &&Version| {
            takes(stays, r) && own.iter().all(|own| required_range(own).is_none_or(|range| satisfies(r, range)))
        };
        !own.is_empty() && packs.releases_of(wanted).iter().any(|r| fits(&r))
    };
    let asked = all.iter().filter(|d| d.requirement.name.as_ref() == package);
    let asked: Vec<&Demand> = asked.collect();
    let releases = packs.releases_of(package).iter().filter(|release| asked.iter().all(|d| takes(d, release)));
    releases.filter(compatible).max()
}

fn quoted(requirements: &[String]) -> String {
    requirements.iter().map(|text| format!("'{text}'")).collect::<Vec<_>>().join(" ")
}

/// `nvidia-cutlass-dsl[cu13]==4.6.0`: the requirement without its marker.
fn shown(requirement: &Requirement) -> String {
    let extras: Vec<&str> = requirement.extras.iter().map(AsRef::as_ref).collect();
    let extras = if extras.is_empty() { String::new() } else { format!("[{}]", extras.join(",")) };
    let range = required_range(requirement).map(|range| range.to_string().replace(", ", ",")).unwrap_or_default();
    format!("{}{extras}{range}", requirement.name)
}
