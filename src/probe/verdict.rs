//! What an outcome means: whose fault it is, where, and which finding of a scan says the same.

use std::path::PathBuf;

use pep440_rs::{Operator, Version};
use pep508_rs::Requirement;

use super::Options;
use super::cases::Case;
use super::cubin::{self, Usage};
use super::driver::{Outcome, Raised, Stage};
use super::packages::{INTERFACE, Package};
use super::report::{CaseReport, Verdict};
use super::request::Request;
use crate::environment::tree::{join, split};
use crate::environment::{Distribution, Environment, RootId};
use crate::finding::{Finding, Related};
use crate::packs::{Packs, parse_requirement, required_name, required_range, satisfies};
use crate::rules::fa303_smem_over_capacity as fa303;

/// What kernels are compiled with: distributions whose interfaces change from release to release.
const TOOLCHAIN: [&str; 3] = ["nvidia-cutlass-dsl", "quack-kernels", "apache-tvm-ffi"];

/// Judges the outcomes of one package.
pub struct Judge<'a> {
    /// Where it is installed.
    pub environment: &'a Environment,
    /// What is known of releases.
    pub packs: &'a Packs,
    /// What a scan says.
    pub findings: &'a [Finding],
    /// The package.
    pub package: &'a Package,
    /// What was asked for.
    pub request: &'a Request,
    /// How it was asked for.
    pub options: &'a Options,
}

/// A verdict with its reason, for any number of cases.
#[derive(Debug, Clone)]
pub struct Judged {
    report: CaseReport,
}

impl Judged {
    /// The same for a case.
    pub fn of(&self, case: &Case) -> CaseReport {
        CaseReport { name: case.name.to_owned(), ..self.report.clone() }
    }
}

impl Judge<'_> {
    /// A case that ended; nothing for one that the package does not offer.
    pub fn case(&self, name: &str, outcome: Outcome, seconds: f64, stderr: &str) -> Option<CaseReport> {
        let mut report = match outcome {
            Outcome::Compiled { launches, capacity, cubins } => self.compiled(&launches, capacity, &cubins),
            Outcome::Raised(raised) => self.raised(&raised, stderr),
            Outcome::NotOffered { .. } => return None,
            Outcome::Ended { reason } => self.blank(Verdict::NotChecked, self.ended(&reason, stderr)),
        };
        report.name = name.to_owned();
        report.seconds = Some(seconds);
        Some(report)
    }

    /// The verdict on every case, where something could not be imported.
    pub fn import(&self, stage: Stage, raised: &Raised) -> Judged {
        let mut report = self.blank(Verdict::Mismatch, raised.text());
        report.error = Some(raised.error.clone());
        self.set_place(&mut report, raised);
        // What is missing belongs to another package, or the package is broken in itself.
        let own = matches!(raised.error.as_str(), "NameError" | "SyntaxError" | "IndentationError");
        if stage == Stage::Package && (own || (raised.error.ends_with("ImportError") && !raised.foreign)) {
            report.verdict = Verdict::Defect;
        }
        if report.verdict == Verdict::Mismatch {
            report.help = self.what_fits();
        }
        Judged { report }
    }

    /// The verdict on cases that did not run.
    pub fn unchecked(&self, message: String) -> Judged {
        Judged { report: self.blank(Verdict::NotChecked, message) }
    }

    fn blank(&self, verdict: Verdict, message: String) -> CaseReport {
        CaseReport::new(&self.package.module, verdict, message)
    }

    fn compiled(&self, launches: &[Option<u64>], capacity: Option<u64>, cubins: &[PathBuf]) -> CaseReport {
        let mut report = self.blank(Verdict::Compiles, String::new());
        report.smem = launches.iter().flatten().max().copied();
        let usages = cubins.iter().filter_map(|path| cubin::usage(&std::fs::read(path).ok()?));
        let most = usages.reduce(|a, b| Usage { registers: a.registers.max(b.registers), stack: a.stack.max(b.stack) });
        report.registers = most.map(|usage| usage.registers);
        report.stack = most.map(|usage| usage.stack);
        if let (Some(asked), Some(there)) = (report.smem, capacity)
            && asked > there
        {
            let arch = &self.options.arch;
            report.verdict = Verdict::OverCapacity;
            report.finding = Some(fa303::INFO.code.to_owned());
            report.message = format!(
                "compiles, and cannot be launched: it asks for {asked} bytes of shared memory, {arch} has {there}"
            );
        } else if launches.is_empty() {
            // Without a launch nothing was compiled: an early return, or a cache that was not switched off.
            report.verdict = Verdict::NotChecked;
            report.message = "no kernel was made".to_owned();
        }
        report
    }

    fn raised(&self, raised: &Raised, stderr: &str) -> CaseReport {
        let mut report = self.blank(Verdict::Defect, raised.text());
        report.error = Some(raised.error.clone());
        self.set_place(&mut report, raised);
        if raised.refused {
            report.verdict = Verdict::Gate;
            report.message = if raised.message.is_empty() { raised.error.clone() } else { raised.message.clone() };
            report.finding = None;
            if let Some(gate) = self.packs.gate(&raised.message) {
                report.help = Some(format!("leave it there: {}", gate.guards));
            }
            return report;
        }
        let against_others = report.finding.as_deref().is_some_and(|code| matches!(code, "FA004" | "FA005"));
        if raised.foreign || against_others {
            report.verdict = Verdict::Mismatch;
            report.help = self.what_fits();
        } else if raised.message.lines().count() <= 1
            && let Some(line) = diagnostic(stderr)
        {
            // The compiler says the reason elsewhere.
            report.message = format!("{} ({line})", report.message);
        }
        report
    }

    fn ended(&self, reason: &str, stderr: &str) -> String {
        let seconds = self.options.timeout.as_secs();
        let memory = self.options.memory >> 30;
        let said = stderr.lines().rev().find(|line| !line.trim().is_empty());
        let said = said.map_or(String::new(), |line| format!(": {}", line.trim()));
        match reason {
            "timeout" => format!("not done after {seconds} s, and ended"),
            "memory" => format!("needs more than {memory} GiB, and was ended"),
            reason => format!("the compiler died ({reason}){said}"),
        }
    }

    /// The place of an exception, and the finding of a scan that says the same.
    fn set_place(&self, report: &mut CaseReport, raised: &Raised) {
        let place = raised.file.as_deref().and_then(|file| self.request.place(file));
        let finding = self.finding(raised, place.as_ref());
        report.line = raised.line;
        report.path = place.map(|(_, path)| path).or_else(|| raised.file.clone());
        match finding {
            Some(finding) => {
                report.finding = Some(finding.code.clone());
                report.symbol = Some(finding.symbol.clone());
                report.help = if finding.fix.is_some() { Some(FIX.to_owned()) } else { finding.help.clone() };
            }
            None => {
                if let Some((id, advice)) = self.known(raised) {
                    report.finding = Some("FA104".to_owned());
                    report.symbol = Some(id);
                    report.help = Some(advice);
                }
            }
        }
    }

    fn finding(&self, raised: &Raised, place: Option<&(RootId, String)>) -> Option<&Finding> {
        let (root, path) = place?;
        let line = raised.line.unwrap_or_default();
        let is_there = |finding: &&Finding| {
            let here = finding.root == *root && finding.path == *path;
            let itself = here && (finding.line..=finding.end_line.max(finding.line)).contains(&line);
            let one_of = |related: &Related| related.root == *root && related.path == *path && related.line == line;
            itself || finding.related.iter().any(one_of)
        };
        let names = |finding: &&Finding| raised.subject.as_deref().is_some_and(|name| ends_with(&finding.symbol, name));
        let there: Vec<&Finding> = self.findings.iter().filter(is_there).collect();
        let named = || there.iter().copied().find(names);
        let same_kind = |finding: &&Finding| match raised.error.as_str() {
            "NameError" | "UnboundLocalError" => finding.code == "FA001",
            "AttributeError" => matches!(finding.code.as_str(), "FA002" | "FA005"),
            "TypeError" => finding.code == "FA003",
            "ValueError" => finding.code == "FA006",
            _ => finding.code == "FA004",
        };
        // Another read of the same name in the same file may come first at run time.
        let elsewhere = || {
            let in_file = self.findings.iter().filter(|finding| finding.root == *root && finding.path == *path);
            in_file.filter(same_kind).find(names)
        };
        named().or_else(|| there.iter().copied().find(same_kind)).or_else(elsewhere)
    }

    /// A known defect of this release that is raised like this.
    fn known(&self, raised: &Raised) -> Option<(String, String)> {
        let owner = self.owner()?;
        let version = owner.version()?;
        let is_here = |arch: &[String]| arch.is_empty() || arch.contains(&self.options.arch);
        let text = raised.text();
        let folder = self.package.module.replace('.', "/");
        let mut defects = self.packs.defects_of(&owner.name, &version);
        let defect = defects.find(|defect| {
            is_here(&defect.arch) && split(&defect.path).0 == folder && defect.raises.as_deref() == Some(text.trim())
        })?;
        Some((defect.id.clone(), format!("{}; {}", defect.title, defect.advice)))
    }

    /// The distribution that brought the package.
    fn owner(&self) -> Option<&Distribution> {
        let interface = join(&self.package.folder, INTERFACE);
        self.environment.owner(self.package.root, &interface)
    }

    /// Which versions of the toolchain the package was written against, where others are installed.
    fn what_fits(&self) -> Option<String> {
        let owner = self.owner()?;
        let declared = owner.requires.iter().filter(|(text, _)| TOOLCHAIN.contains(&required_name(text).as_str()));
        let mut requirements: Vec<Requirement> =
            declared.filter_map(|(text, _)| parse_requirement(text).ok()).collect();
        if let Some(version) = owner.version() {
            let known = self.packs.needs_of(&owner.name, &version).flat_map(|needs| &needs.requires);
            requirements.extend(known.filter_map(|need| need.of(&version)));
        }
        let (mut fit, mut installed) = (Vec::new(), Vec::new());
        for name in TOOLCHAIN {
            let of_it = requirements.iter().filter(|requirement| requirement.name.to_string() == name);
            let Some(wanted) = of_it.filter_map(first_version).max() else { continue };
            let present = self.environment.distribution(name).and_then(Distribution::version);
            // Within a minor release nothing goes away.
            let fits = present.as_ref().is_some_and(|present| {
                present.release().iter().take(2).eq(wanted.release().iter().take(2)) && *present >= wanted
            });
            let extras: Vec<String> = requirements
                .iter()
                .filter(|requirement| requirement.name.to_string() == name)
                .flat_map(|requirement| requirement.extras.iter().map(ToString::to_string))
                .filter(|extra| self.lacks_extra(name, extra))
                .collect();
            if fits && !extras.is_empty() {
                let version = present.map_or(wanted, |present| present);
                fit.push(format!("\"{name}[{}]=={version}\"", extras.join(",")));
                installed.push(format!("{name} without its extra {}", extras.join(", ")));
            } else if !fits {
                fit.push(format!("{name}=={wanted}"));
                installed
                    .push(present.map_or(format!("{name} is not installed"), |version| format!("{name} {version}")));
            }
        }
        if fit.is_empty() {
            return None;
        }
        Some(format!(
            "{} {} was made for something else than {}:\npip install {}",
            owner.display_name,
            owner.raw_version,
            installed.join(", "),
            fit.join(" ")
        ))
    }

    /// Whether packages are missing that come with an extra of an installed distribution.
    fn lacks_extra(&self, name: &str, extra: &str) -> bool {
        let Some(distribution) = self.environment.distribution(name) else { return false };
        let of_extra = distribution.requires.iter().filter(|(text, _)| {
            let marker = text.split_once(';').map_or("", |(_, marker)| marker).replace('\'', "\"").replace(' ', "");
            marker.contains(&format!("extra==\"{extra}\""))
        });
        of_extra.map(|(text, _)| required_name(text)).any(|name| self.environment.distribution(&name).is_none())
    }
}

/// The command that repairs what a fix can be derived for.
const FIX: &str = "fa-doctor fix --write";

/// The oldest version that a requirement admits by name: what its author had.
fn first_version(requirement: &Requirement) -> Option<Version> {
    let range = required_range(requirement)?;
    let bounds = range.iter().filter(|bound| {
        matches!(bound.operator(), Operator::Equal | Operator::GreaterThanEqual | Operator::TildeEqual)
    });
    bounds.map(|bound| bound.version().clone()).filter(|version| satisfies(version, range)).max()
}

/// Whether a symbol is about this name: `Class.kernel:name`, `Class.name`, `function(name)`.
fn ends_with(symbol: &str, name: &str) -> bool {
    let symbol = symbol.trim_end_matches(')');
    symbol.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with([':', '.', '(']))
}

/// The first error of the compiler's own messages.
fn diagnostic(stderr: &str) -> Option<&str> {
    let line = stderr.lines().find(|line| line.contains("error:"))?;
    line.find("error:").map(|at| line[at..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_and_names() {
        assert!(ends_with("FlashAttentionForwardSm80.kernel:mDynamicCausal", "mDynamicCausal"));
        assert!(ends_with("Sm80.is_split_kv", "is_split_kv"));
        assert!(ends_with("pkg.f(dynamic)", "dynamic"));
        assert!(!ends_with("Sm80.is_split_kv", "split_kv"));
    }

    #[test]
    fn what_a_requirement_was_written_against() {
        let first = |text: &str| first_version(&text.parse().expect(text)).map(|version| version.to_string());
        assert_eq!(first("nvidia-cutlass-dsl>=4.4.2"), Some("4.4.2".into()));
        assert_eq!(first("apache-tvm-ffi<0.2,>=0.1.5"), Some("0.1.5".into()));
        assert_eq!(first("nvidia-cutlass-dsl[cu13]==4.6.0"), Some("4.6.0".into()));
        assert_eq!(first("quack-kernels"), None);
        assert_eq!(first("quack-kernels<1"), None);
    }

    #[test]
    fn the_compilers_reason_is_found() {
        assert_eq!(diagnostic("note: x\nloc(\"a\"): error: 'op' failed\n"), Some("error: 'op' failed"));
        assert_eq!(diagnostic("Traceback"), None);
    }
}
