//! `pin`: a coherent constraints file for what is installed, and a check of files that pin versions.

mod check;
mod files;
mod solve;

pub use check::check;
pub use files::{FileError, Pinned, Pins, read};

use std::fmt::Write;

use pep440_rs::Version;

use crate::environment::{Distribution, Environment};
use crate::packs::{Overlap, Packs};
use solve::{Choice, Demand, Problem, plain};

/// What a file is made for: the first of these that is installed.
const SUBJECTS: &[&str] = &["vllm", "sglang", "flash-attn-4", "sgl-fa4", "tokenspeed-fa4"];
/// Packages that people put beside the first of them without its asking for them.
const OPTIONAL: &[&str] = &["flash-attn-4", "flash-attn"];

/// Why there is no constraints file.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// Nothing to pin for.
    #[error("neither vLLM nor another package to pin versions for is installed there")]
    NoSubject,
    /// Its version cannot be read.
    #[error("the version of the installed {0}, `{1}`, is not one that PEP 440 knows")]
    UnknownVersion(String, String),
    /// Requirements exclude each other.
    #[error("no set of versions meets what {subject} requires")]
    NoneFits {
        /// `vllm 0.26.0`.
        subject: String,
        /// One line for each reason.
        reasons: Vec<String>,
    },
}

/// The text of a constraints file for what is installed.
pub fn constraints(environment: &Environment, packs: &Packs) -> Result<String, PinError> {
    let mut installed = SUBJECTS.iter().filter_map(|name| environment.distribution(name).filter(|d| !d.is_project()));
    let subject = installed.next().ok_or(PinError::NoSubject)?;
    let unknown = || PinError::UnknownVersion(subject.display_name.clone(), subject.raw_version.clone());
    let version = subject.version().ok_or_else(unknown)?.without_local();
    let mut problem = Problem::new(environment, packs, subject, &version);
    let named = format!("{} {version}", subject.display_name);
    let none_fits = |reasons| PinError::NoneFits { subject: named.clone(), reasons };
    let mut choice = problem.solve().ok_or_else(|| none_fits(conflicts(&problem, packs)))?;
    close(&mut problem, &mut choice);
    let mut left_out = Vec::new();
    for name in OPTIONAL.iter().filter(|name| **name != subject.name) {
        if subject.name != SUBJECTS[0] && environment.distribution(name).is_none() {
            continue;
        }
        let more = problem.with(name);
        match more.solve() {
            Some(found) => {
                (problem, choice) = (more, found);
                close(&mut problem, &mut choice);
            }
            None => {
                let reasons = problem.why_not(&choice, name);
                if environment.distribution(name).is_some() {
                    let mut all = vec![format!("{name} is installed, and no release of it fits beside {named}")];
                    all.extend(reasons);
                    return Err(none_fits(all));
                }
                left_out.push((*name, reasons));
            }
        }
    }
    Ok(text(packs, subject, &version, &problem, &choice, &left_out))
}

/// Chooses versions of what the chosen packages require in turn, as far as its releases are known.
fn close(problem: &mut Problem<'_>, choice: &mut Choice) {
    while let Some(name) = problem.implied(choice) {
        let more = problem.with(&name);
        let Some(found) = more.solve() else { return };
        (*problem, *choice) = (more, found);
    }
}

/// Which requirements leave nothing to choose from.
fn conflicts(problem: &Problem<'_>, packs: &Packs) -> Vec<String> {
    let mut reasons = Vec::new();
    let nothing = Choice::new();
    for name in problem.names().filter(|name| !packs.releases_of(name).is_empty()) {
        let demands = problem.demands_on(&nothing, name);
        let fits = |release: &Version| demands.iter().all(|demand| crate::packs::satisfies(release, &demand.range));
        if !packs.releases_of(name).iter().any(fits) {
            reasons.push(format!("{name}: no release meets {}", shown(&demands)));
        }
    }
    if reasons.is_empty() {
        reasons.push("each requirement can be met, but not all of them together".to_owned());
    }
    reasons
}

fn text(
    packs: &Packs,
    subject: &Distribution,
    version: &Version,
    problem: &Problem<'_>,
    choice: &Choice,
    left_out: &[(&str, Vec<String>)],
) -> String {
    let mut lines: Vec<(String, String)> = vec![(
        format!("{}=={version}", subject.name),
        "installed".to_owned() + &defects(packs, &subject.name, version),
    )];
    for name in problem.names() {
        let demands = problem.demands_on(choice, name);
        match choice.get(name) {
            Some(chosen) => {
                let why = reason(&demands) + &overlaps(packs, name) + &defects(packs, name, chosen);
                lines.push((format!("{name}=={chosen}"), why));
            }
            None => lines.extend(
                demands.iter().map(|d| (format!("{name}{}", plain(&d.range)), reason(std::slice::from_ref(d)))),
            ),
        }
    }
    // What the chosen packages pin themselves, and what that pins in turn: the parts of the DSL.
    let mut queue: Vec<(String, Version)> =
        choice.iter().map(|(name, version)| (name.clone(), version.clone())).collect();
    while let Some((name, chosen)) = queue.pop() {
        for (part, demand) in problem.demands_of(&name, &chosen) {
            let known =
                choice.contains_key(&part) || lines.iter().any(|(line, _)| line.starts_with(&format!("{part}=")));
            if known || demand.range.is_empty() {
                continue;
            }
            if let [only] = &*demand.range {
                queue.push((part.clone(), only.version().clone()));
            }
            lines.push((format!("{part}{}", plain(&demand.range)), reason(&[demand])));
        }
    }
    let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    let mut text = format!(
        "# Versions that fit {} {version}, by fa-doctor {}.\n\
         # Use: pip install -c constraints.txt ..   or: uv pip install -c constraints.txt ..\n",
        subject.display_name,
        env!("CARGO_PKG_VERSION"),
    );
    for (line, reason) in &lines {
        let _ = writeln!(text, "{line:width$}  # {reason}");
    }
    for (name, reasons) in left_out {
        let _ = writeln!(text, "# {name}: no release fits beside the versions above, do not install it:");
        for reason in reasons {
            let _ = writeln!(text, "#   {reason}");
        }
        let _ = writeln!(text, "{name}<0  # see above");
    }
    text
}

/// `; known defect on sm_120, sm_121: ..`, or nothing.
fn defects(packs: &Packs, name: &str, version: &Version) -> String {
    let known = packs.defects_of(name, version).map(|defect| match defect.arch.is_empty() {
        true => format!("; known defect: {}", defect.id),
        false => format!("; known defect on {}: {}", defect.arch.join(", "), defect.id),
    });
    known.collect()
}

/// `vllm 0.26.0: ==4.6.0; flashinfer-python 0.6.14: >=4.5.0`.
fn reason(demands: &[Demand]) -> String {
    if demands.is_empty() { "nothing requires it: the newest that fits".to_owned() } else { shown(demands) }
}

/// Why newer releases are left out that bring files of another package, or nothing.
fn overlaps(packs: &Packs, name: &str) -> String {
    let concerns = |overlap: &&Overlap| {
        overlap.packages.first().is_some_and(|first| first == name)
            && overlap.last.as_deref().is_some_and(|l| l != name)
    };
    packs.overlaps.iter().filter(concerns).map(|overlap| format!("; {}", overlap.because.replace('`', ""))).collect()
}

fn shown(demands: &[Demand]) -> String {
    let mut by: Vec<(&str, Vec<String>)> = Vec::new();
    for demand in demands {
        let range = plain(&demand.range);
        match by.iter_mut().find(|(name, _)| *name == demand.by) {
            Some((_, ranges)) => ranges.push(range),
            None => by.push((&demand.by, vec![range])),
        }
    }
    let each = by.into_iter().map(|(name, mut ranges)| {
        ranges.retain(|range| !range.is_empty());
        let range = if ranges.is_empty() { "any".to_owned() } else { ranges.join(",") };
        format!("{name}: {range}")
    });
    each.collect::<Vec<_>>().join("; ")
}
