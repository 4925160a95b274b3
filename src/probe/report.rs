//! What the compile check found: the JSON contract and the text for people.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::Options;
use super::cases::Case;
use super::driver::Ready;
use super::packages::Package;
use crate::report::style::{Style, printable, wrap_after, wrap_help};

/// The result; field order and names are the JSON contract (schema 1).
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// 1.
    pub schema: u32,
    /// `sm_120`.
    pub arch: String,
    /// The interpreter that compiled.
    pub python: String,
    /// The version of the DSL.
    pub dsl: Option<String>,
    /// The version of quack.
    pub quack: Option<String>,
    /// The version of torch, or of the stand-in.
    pub torch: Option<String>,
    /// The sources are those that `fix` would write.
    pub patched: bool,
    /// Down to machine code.
    pub full: bool,
    /// By package, in the order of the matrix.
    pub cases: Vec<CaseReport>,
    /// What could not be looked at.
    pub notes: Vec<String>,
}

/// One kernel of one package.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// As in the matrix.
    pub name: String,
    /// The module that holds the kernels.
    pub package: String,
    /// What came out.
    pub verdict: Verdict,
    /// Why; empty if it compiles.
    pub message: String,
    /// The class of the exception.
    pub error: Option<String>,
    /// The innermost file of the package, relative to its root.
    pub path: Option<String>,
    /// The line there.
    pub line: Option<u32>,
    /// The finding of `scan` that says the same.
    pub finding: Option<String>,
    /// Its symbol.
    pub symbol: Option<String>,
    /// What to do.
    pub help: Option<String>,
    /// Bytes of shared memory that a launch asks for; null where the DSL works it out.
    pub smem: Option<u64>,
    /// Registers of a thread, with `--full`.
    pub registers: Option<u32>,
    /// Bytes of local memory of a thread, with `--full`.
    pub stack: Option<u32>,
    /// Time it took.
    pub seconds: Option<f64>,
}

/// What came out of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// There is a kernel for the architecture.
    Compiles,
    /// The package refuses on purpose.
    Gate,
    /// There is a kernel, and the architecture cannot launch it.
    OverCapacity,
    /// The package and what it is compiled with do not fit.
    Mismatch,
    /// The package is broken.
    Defect,
    /// It is not known.
    NotChecked,
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Compiles => "compiles",
            Verdict::Gate => "gate",
            Verdict::OverCapacity => "over capacity",
            Verdict::Mismatch => "mismatch",
            Verdict::Defect => "DEFECT",
            Verdict::NotChecked => "not checked",
        }
    }

    /// The greater the worse; what is not known is the worst, since it proves nothing.
    pub fn rank(self) -> u32 {
        match self {
            Verdict::Compiles => 0,
            Verdict::Gate | Verdict::OverCapacity => 1,
            Verdict::Mismatch | Verdict::Defect => 2,
            Verdict::NotChecked => 3,
        }
    }

    fn is_bad(self) -> bool {
        matches!(self, Verdict::OverCapacity | Verdict::Mismatch | Verdict::Defect)
    }
}

/// The result as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything compiles or is refused on purpose.
    Good,
    /// Something is broken.
    Bad,
    /// Something could not be checked, and nothing is broken.
    Unchecked,
}

impl CaseReport {
    /// A case of which nothing else is known.
    pub fn new(package: &str, verdict: Verdict, message: String) -> CaseReport {
        CaseReport {
            name: String::new(),
            package: package.to_owned(),
            verdict,
            message,
            error: None,
            path: None,
            line: None,
            finding: None,
            symbol: None,
            help: None,
            smem: None,
            registers: None,
            stack: None,
            seconds: None,
        }
    }

    /// Whether both have the same cause.
    fn is_like(&self, other: &CaseReport) -> bool {
        (self.verdict, &self.message, &self.path, self.line) == (other.verdict, &other.message, &other.path, other.line)
    }
}

impl Report {
    /// A run that has not begun.
    pub fn new(options: &Options, python: &Path) -> Report {
        Report { full: options.full, ..Report::empty(&options.arch, python) }
    }

    /// A report on nothing.
    pub fn empty(arch: &str, python: &Path) -> Report {
        Report {
            schema: 1,
            arch: arch.to_owned(),
            python: python.display().to_string(),
            dsl: None,
            quack: None,
            torch: None,
            patched: false,
            full: false,
            cases: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Takes the versions that the driver found.
    pub fn ready(&mut self, ready: Ready) {
        self.dsl = self.dsl.take().or(ready.dsl);
        self.quack = self.quack.take().or(ready.quack);
        self.torch = self.torch.take().or(Some(ready.torch));
        self.notes.extend(ready.notes.into_iter().map(|note| format!("could not be prepared: {note}")));
        self.notes.sort();
        self.notes.dedup();
    }

    /// Cases end in any order; they are reported in that of the matrix.
    pub fn sort(&mut self, packages: &[Package], cases: &[Case]) {
        let place = |case: &CaseReport| {
            let package = packages.iter().position(|package| package.module == case.package);
            (package, cases.iter().position(|known| known.name == case.name))
        };
        self.cases.sort_by_key(place);
    }

    /// What the run amounts to.
    pub fn outcome(&self) -> Outcome {
        if self.cases.iter().any(|case| case.verdict.is_bad()) {
            Outcome::Bad
        } else if self.cases.iter().any(|case| case.verdict == Verdict::NotChecked) {
            Outcome::Unchecked
        } else {
            Outcome::Good
        }
    }

    /// The report for people.
    pub fn text(&self, style: Style) -> String {
        let mut out = String::new();
        let mut known = vec![format!("python {}", self.python)];
        known.extend(self.dsl.as_ref().map(|version| format!("DSL {version}")));
        known.extend(self.quack.as_ref().map(|version| format!("quack {version}")));
        known.extend(self.torch.as_ref().map(|version| format!("torch {version}")));
        line(&mut out, &style.dim(&printable(&known.join(", "))));
        let mut packages: Vec<&str> = self.cases.iter().map(|case| case.package.as_str()).collect();
        packages.dedup();
        for package in packages {
            self.write_package(&mut out, package, style);
        }
        for note in &self.notes {
            line(&mut out, &wrap_after("note:", "note:", &printable(note), style.width));
        }
        self.write_conclusion(&mut out, style);
        out
    }

    fn write_package(&self, out: &mut String, package: &str, style: Style) {
        let cases: Vec<&CaseReport> = self.cases.iter().filter(|case| case.package == package).collect();
        let patched = if self.patched { ", as `fix` would write it" } else { "" };
        line(out, &format!("\n{}", style.bold(&format!("{package} for {}{patched}", self.arch))));
        let usage = if self.full { format!("{:>5} {:>6}", "regs", "stack") } else { String::new() };
        let heading = format!("  {:<14} {:<13} {:>6} {:>7} {usage}", "case", "verdict", "time", "smem");
        line(out, &style.dim(heading.trim_end()));
        // Most failures are one cause in several cases: it is told once.
        let mut causes: Vec<&CaseReport> = Vec::new();
        for case in &cases {
            let number = (!case.message.is_empty()).then(|| {
                causes.iter().position(|cause| cause.is_like(case)).unwrap_or_else(|| {
                    causes.push(case);
                    causes.len() - 1
                })
            });
            line(out, &self.row(case, number, style));
        }
        for (index, cause) in causes.iter().enumerate() {
            write_cause(out, index + 1, cause, style);
        }
    }

    fn row(&self, case: &CaseReport, cause: Option<usize>, style: Style) -> String {
        fn shown<T: ToString>(value: Option<T>) -> String {
            value.map_or_else(|| "-".to_owned(), |value| value.to_string())
        }
        let word = format!("{:<13}", case.verdict.text());
        let time = case.seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
        let usage =
            if self.full { format!("{:>5} {:>6}", shown(case.registers), shown(case.stack)) } else { String::new() };
        let mark = cause.map_or(String::new(), |number| format!(" [{}]", number + 1));
        format!(
            "  {:<14} {} {time:>6} {:>7} {usage}{mark}",
            case.name,
            paint(case.verdict, &word, style),
            shown(case.smem)
        )
    }

    fn write_conclusion(&self, out: &mut String, style: Style) {
        let count = |verdict: Verdict| self.cases.iter().filter(|case| case.verdict == verdict).count();
        let counted: Vec<String> = [
            Verdict::Compiles,
            Verdict::Gate,
            Verdict::OverCapacity,
            Verdict::Mismatch,
            Verdict::Defect,
            Verdict::NotChecked,
        ]
        .into_iter()
        .filter(|verdict| count(*verdict) > 0)
        .map(|verdict| format!("{} {}", count(verdict), verdict.text().to_lowercase()))
        .collect();
        let depth = if self.full { "compiled" } else { "traced" };
        let text = format!("{} cases {depth} for {}: {}", self.cases.len(), self.arch, counted.join(", "));
        let painted = match self.outcome() {
            Outcome::Good => style.good(&text),
            Outcome::Bad => style.bad(&text),
            Outcome::Unchecked => style.caution(&text),
        };
        line(out, &format!("\n{painted}"));
    }
}

fn write_cause(out: &mut String, number: usize, cause: &CaseReport, style: Style) {
    let label = format!("  [{number}]");
    line(out, &wrap_after(&label, &label, &printable(&short(&cause.message)), style.width));
    let indent = " ".repeat(label.len());
    if let Some(path) = &cause.path {
        let place = cause.line.map_or_else(|| path.clone(), |line| format!("{path}:{line}"));
        line(out, &style.dim(&format!("{indent} {}", printable(&place))));
    }
    let finding = cause.finding.as_ref().zip(cause.symbol.as_ref());
    if let Some((code, symbol)) = finding {
        line(out, &format!("{indent} {} {}", style.bold(code), printable(symbol)));
    } else if let Some(code) = &cause.finding {
        line(out, &format!("{indent} {}: fa-doctor explain {code}", style.bold(code)));
    }
    if let Some(help) = &cause.help {
        let width = style.width.saturating_sub(label.len() + 7);
        let mut lines = wrap_help(help, width).into_iter();
        line(out, &format!("{indent} {} {}", style.hint("help:"), lines.next().unwrap_or_default()));
        for text in lines {
            line(out, &format!("{indent}       {text}"));
        }
    }
}

/// The first lines of a message: the DSL's own pages go on.
fn short(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    lines.join(" ")
}

fn paint(verdict: Verdict, text: &str, style: Style) -> String {
    match verdict {
        Verdict::Compiles => style.good(text),
        Verdict::Gate | Verdict::NotChecked => style.caution(text),
        Verdict::OverCapacity | Verdict::Mismatch | Verdict::Defect => style.bad(text),
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", text.trim_end());
}
