//! Holds a file that pins versions against the packs, before anything is installed.

use pep440_rs::Version;
use pep508_rs::Requirement;

use super::files::Pinned;
use crate::environment::RootId;
use crate::finding::{Finding, Related, Severity};
use crate::packs::{Machines, Needs, Packs, required_range, satisfies};
use crate::rules::registry;

/// What does not fit, as findings at the lines of `path`.
pub fn check(pins: &[Pinned], path: &str, packs: &Packs, machines: &Machines) -> Vec<Finding> {
    let applies = |pin: &&Pinned| packs.in_stack(&pin.name) && machines.include(&pin.marker);
    let pins: Vec<&Pinned> = pins.iter().filter(applies).collect();
    let checker = Checker { pins: &pins, path, packs, machines };
    let mut findings = Vec::new();
    for pin in &pins {
        if let Some(version) = pin.exact() {
            checker.needs(pin, version, &mut findings);
            checker.defects(pin, version, &mut findings);
            checker.overlaps(pin, version, &mut findings);
        }
    }
    findings.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    findings.dedup();
    findings
}

struct Checker<'a> {
    pins: &'a [&'a Pinned],
    path: &'a str,
    packs: &'a Packs,
    machines: &'a Machines,
}

impl Checker<'_> {
    fn finding(
        &self,
        code: &str,
        severity: Severity,
        at: &Pinned,
        symbol: &str,
        message: String,
        help: String,
    ) -> Finding {
        let info = registry::all().iter().map(|rule| rule.info()).find(|info| info.code == code);
        Finding {
            code: code.to_owned(),
            name: info.map_or("", |info| info.name).to_owned(),
            severity,
            package: Some(at.name.clone()),
            version: at.exact().map(Version::to_string),
            path: self.path.to_owned(),
            line: at.line,
            column: 1,
            end_line: at.line,
            end_column: 1,
            symbol: symbol.to_owned(),
            message,
            help: Some(help),
            arch: Vec::new(),
            related: Vec::new(),
            fix: None,
            root: RootId::default(),
        }
    }

    /// What this version needs of other packages in the file.
    fn needs(&self, pin: &Pinned, version: &Version, findings: &mut Vec<Finding>) {
        for needs in self.packs.needs_of(&pin.name, version) {
            for requirement in needs.requires.iter().filter_map(|need| need.of(version)) {
                if !self.machines.apply(&requirement, &pin.extras) {
                    continue;
                }
                for other in self.pins.iter().filter(|other| other.name == requirement.name.as_ref()) {
                    if !self.meets(other, &requirement) {
                        findings.push(self.unmet(pin, needs, &requirement, other));
                    }
                }
            }
        }
    }

    /// Whether what a line allows can meet a requirement.
    fn meets(&self, pin: &Pinned, requirement: &Requirement) -> bool {
        let Some(range) = required_range(requirement) else { return true };
        match pin.exact() {
            Some(version) => satisfies(version, range),
            None => {
                let releases = self.packs.releases_of(&pin.name);
                let mut allowed = releases.iter().filter(|release| satisfies(release, &pin.range)).peekable();
                // Releases that are not known may meet it.
                allowed.peek().is_none() || allowed.any(|release| satisfies(release, range))
            }
        }
    }

    fn unmet(&self, pin: &Pinned, needs: &Needs, requirement: &Requirement, other: &Pinned) -> Finding {
        let range = required_range(requirement).map(|range| range.to_string().replace(", ", ",")).unwrap_or_default();
        let asks = format!("{}{range}", requirement.name);
        let (code, verb) = if needs.because.is_some() { ("FA101", "needs") } else { ("FA102", "requires") };
        let because = needs.because.as_ref().map(|because| format!(": {because}")).unwrap_or_default();
        let message = format!("{} {verb} {asks}, but this line says `{}`{because}", pin.text, other.text);
        let mut found =
            self.finding(code, Severity::Error, other, &other.name, message, format!("write `{asks}` here"));
        found.related.push(Related {
            path: self.path.to_owned(),
            line: pin.line,
            message: format!("`{}` is pinned here", pin.text),
            root: RootId::default(),
        });
        found
    }

    fn defects(&self, pin: &Pinned, version: &Version, findings: &mut Vec<Finding>) {
        for defect in self.packs.defects_of(&pin.name, version) {
            let raises = defect.raises.as_ref().map(|raises| format!(" ({raises})")).unwrap_or_default();
            let message = format!("{} has a known defect: {}{raises}", pin.text, defect.title);
            let mut help = defect.advice.clone();
            if let Some(reference) = defect.references.first() {
                help = format!("{help} ({reference})");
            }
            // Which GPU it will run on is not in the file.
            let severity = if defect.arch.is_empty() { Severity::Error } else { Severity::Warning };
            let mut found = self.finding("FA104", severity, pin, &pin.name, message, help);
            found.arch = defect.arch.clone();
            findings.push(found);
        }
    }

    fn overlaps(&self, pin: &Pinned, version: &Version, findings: &mut Vec<Finding>) {
        for other in self.pins.iter().filter(|other| other.name > pin.name) {
            let Some(theirs) = other.exact() else { continue };
            let Some(overlap) = self.packs.overlap((&pin.name, version), (&other.name, theirs)) else { continue };
            let message = format!("{} and {} install the same files: {}", pin.text, other.text, overlap.because);
            let help = match &overlap.last {
                Some(last) => format!("keep one of them, or install {last} last"),
                None => "keep one of them".to_owned(),
            };
            findings.push(self.finding("FA103", Severity::Warning, pin, &pin.name, message, help));
        }
    }
}
