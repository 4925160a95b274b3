//! What every format shows, the [`Report`], and one file per format.
//!
//! A [`Report`] is the JSON contract: `--format json` prints it, `fa-doctor merge` reads it back. What a format needs
//! beyond it (source lines, where a file is on this machine) it asks of a [`View`].

pub mod concise;
pub mod excerpt;
pub mod github;
pub mod html;
pub mod issue;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod markup;
mod private;
#[cfg(test)]
pub mod sample;
pub mod sarif;
pub mod style;
pub mod text;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::capability::Matrix;
use crate::environment::{Environment, RootId};
use crate::finding::{Finding, Incomplete, Severity};
use crate::native::table;
use crate::packs::Packs;
pub use style::Style;

/// The version of the JSON contract.
pub const SCHEMA: u32 = 1;

/// The result of a scan: the JSON contract, with the fields in its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Which fa-doctor wrote it.
    pub tool: Tool,
    /// What was looked at.
    pub environment: Subject,
    /// Sorted by path, line, code.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub incomplete: Vec<Incomplete>,
    /// Counts.
    pub summary: Summary,
    /// What a person should know about the run itself, such as an ignore that matches nothing (not part of the JSON).
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Which findings fail the run (not part of the JSON).
    #[serde(skip)]
    pub fail_on: FailOn,
    /// Whether people want all of it: what is merely good to know is shortened otherwise (not part of the JSON).
    #[serde(skip)]
    pub in_full: bool,
    /// What the installed functions accept (not part of the JSON).
    #[serde(skip)]
    pub capabilities: Matrix,
}

/// Which findings fail a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailOn {
    /// Errors.
    #[default]
    Error,
    /// Errors and warnings.
    Warning,
    /// Every finding.
    Info,
    /// None.
    Never,
}

impl FailOn {
    /// As on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            FailOn::Error => "error",
            FailOn::Warning => "warning",
            FailOn::Info => "info",
            FailOn::Never => "never",
        }
    }

    /// Whether a finding of this severity fails the run.
    pub fn includes(self, severity: Severity) -> bool {
        match self {
            FailOn::Error => severity >= Severity::Error,
            FailOn::Warning => severity >= Severity::Warning,
            FailOn::Info => true,
            FailOn::Never => false,
        }
    }
}

/// Which fa-doctor wrote a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `fa-doctor`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Every place that files came from, as the user named it.
    pub roots: Vec<String>,
    /// `3.12`, where it is known.
    pub python: Option<String>,
    /// Architectures judged for.
    pub arch: Vec<String>,
    /// What is installed.
    pub packages: Vec<Package>,
}

/// An installed distribution.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    /// As its METADATA spells it.
    pub name: String,
    /// As its METADATA spells it.
    pub version: String,
    /// The root that holds it, as in [`Subject::roots`].
    pub root: String,
    /// Whether it belongs to the attention stack, so that reports for people name it (not part of the JSON).
    #[serde(skip)]
    pub stack: bool,
}

/// Counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Findings of severity error.
    pub errors: usize,
    /// Findings of severity warning.
    pub warnings: usize,
    /// Findings of severity info.
    pub infos: usize,
    /// Source files read.
    pub files: usize,
    /// Wall time.
    pub elapsed_ms: u64,
}

impl Report {
    /// A report on `environment`, of which `stack` tells the packages that matter: sorts and deduplicates the findings, and counts them.
    pub fn new(
        environment: &Environment,
        stack: impl Fn(&str) -> bool,
        findings: Vec<Finding>,
        incomplete: Vec<Incomplete>,
        files: usize,
        elapsed: Duration,
    ) -> Report {
        let roots = environment.labels();
        let packages = environment.distributions.iter().map(|distribution| Package {
            name: distribution.display_name.clone(),
            version: distribution.raw_version.clone(),
            root: environment.label_of(distribution.root, &distribution.info),
            stack: stack(&distribution.name),
        });
        let subject = Subject {
            roots,
            python: environment.python.map(|(major, minor)| format!("{major}.{minor}")),
            arch: environment.arch.clone(),
            packages: packages.collect(),
        };
        Report::of(subject, findings, incomplete, files, elapsed)
    }

    /// A report on `subject`.
    pub fn of(
        subject: Subject,
        mut findings: Vec<Finding>,
        mut incomplete: Vec<Incomplete>,
        files: usize,
        elapsed: Duration,
    ) -> Report {
        findings.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()).then_with(|| a.message.cmp(&b.message)));
        findings.dedup();
        incomplete.sort();
        incomplete.dedup();
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let summary = Summary {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            infos: count(Severity::Info),
            files,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        };
        let tool = Tool { name: env!("CARGO_PKG_NAME").to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        Report {
            schema: SCHEMA,
            tool,
            environment: subject,
            findings,
            incomplete,
            summary,
            notes: Vec::new(),
            fail_on: FailOn::default(),
            in_full: false,
            capabilities: Matrix::default(),
        }
    }

    /// `2 errors, 1 warning; 1 not checked`, or `nothing found`.
    pub fn headline(&self) -> String {
        let Summary { errors, warnings, infos, .. } = self.summary;
        let infos = (infos > 0).then(|| format!("{infos} info"));
        let counted = [(errors, "error"), (warnings, "warning")].into_iter().filter(|(n, _)| *n > 0);
        let mut parts: Vec<_> = counted.map(|(n, noun)| count(n, noun)).chain(infos).collect();
        if parts.is_empty() {
            parts.push("nothing found".to_owned());
        }
        match self.incomplete.len() {
            0 => parts.join(", "),
            n => format!("{}; {n} not checked", parts.join(", ")),
        }
    }

    /// The most severe finding, if there is one.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Where a report's files are, for formats that show source or link to it.
pub trait View {
    /// The text of a file, if it can be had.
    fn source(&self, root: RootId, path: &str) -> Option<String>;

    /// The path as a person can open it from here; the relative path inside a wheel.
    fn place(&self, root: RootId, path: &str) -> String;

    /// Which library runs on which GPU.
    fn device_code(&self) -> Vec<table::Row> {
        Vec::new()
    }
}

/// A view of nothing: reports read back from JSON.
#[derive(Debug, Clone, Copy)]
pub struct NoSources;

impl View for NoSources {
    fn source(&self, _root: RootId, _path: &str) -> Option<String> {
        None
    }

    fn place(&self, _root: RootId, path: &str) -> String {
        path.to_owned()
    }
}

/// A view of an environment, from a current folder.
#[derive(Debug)]
pub struct Workplace<'a> {
    environment: &'a Environment,
    packs: &'a Packs,
    folder: Option<PathBuf>,
}

impl<'a> Workplace<'a> {
    /// The environment as seen from the current folder.
    pub fn new(environment: &'a Environment, packs: &'a Packs) -> Workplace<'a> {
        Workplace { environment, packs, folder: std::env::current_dir().ok() }
    }
}

impl View for Workplace<'_> {
    fn source(&self, root: RootId, path: &str) -> Option<String> {
        const LARGEST_SOURCE: u64 = 16 << 20;
        let tree = &self.environment.root(root).tree;
        // A library has no lines to show, and can be hundreds of megabytes.
        if tree.size(path)? > LARGEST_SOURCE {
            return None;
        }
        let bytes = tree.read(path).ok().filter(|bytes| !bytes.contains(&0))?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn place(&self, root: RootId, path: &str) -> String {
        match self.environment.root(root).tree.on_disk(path) {
            Some(file) => shorten(&file, self.folder.as_deref()).display().to_string(),
            None => path.to_owned(),
        }
    }

    fn device_code(&self) -> Vec<table::Row> {
        table::table(self.environment, self.packs)
    }
}

/// `file` relative to `folder` if it lies there.
fn shorten<'f>(file: &'f Path, folder: Option<&Path>) -> &'f Path {
    let file = file.strip_prefix(".").unwrap_or(file);
    folder.and_then(|folder| file.strip_prefix(folder).ok()).unwrap_or(file)
}

/// The formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Format {
    /// For people: source excerpts, reasons, what to do.
    Text,
    /// One line per finding: `path:line:column: CODE message`.
    Concise,
    /// The contract, schema 1.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// Annotations of a GitHub Actions log.
    Github,
    /// For job summaries, comments and issues.
    Markdown,
    /// JUnit XML, for CI dashboards.
    Junit,
    /// A page to look at.
    Html,
}

impl Format {
    /// The formats that files with this extension have, the usual one first; none for an extension that says nothing.
    pub fn of_extension(path: &Path) -> &'static [Format] {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "txt" | "log" => &[Format::Text, Format::Concise, Format::Github],
            "json" => &[Format::Json, Format::Sarif],
            "sarif" => &[Format::Sarif],
            "md" | "markdown" => &[Format::Markdown],
            "xml" => &[Format::Junit],
            "html" | "htm" => &[Format::Html],
            _ => &[],
        }
    }

    /// As on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Concise => "concise",
            Format::Json => "json",
            Format::Sarif => "sarif",
            Format::Github => "github",
            Format::Markdown => "markdown",
            Format::Junit => "junit",
            Format::Html => "html",
        }
    }

    /// Writes the report.
    pub fn write(self, report: &Report, view: &dyn View, style: Style, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Format::Text => text::write(report, view, style, out),
            Format::Concise => concise::write(report, view, style, out),
            Format::Json => json::write(report, out),
            Format::Sarif => sarif::write(report, view, out),
            Format::Github => github::write(report, view, out),
            Format::Markdown => markdown::write(report, view, out),
            Format::Junit => junit::write(report, view, out),
            Format::Html => html::write(report, view, out),
        }
    }
}

/// `1 file`, `2 files`.
pub fn count(n: usize, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a scanned file could hold to deceive a terminal, a log, a page or a table.
    const HOSTILE: &str = "\u{1b}[2J\u{202e}</pre><img src=x>\"'`|\r\n::error::x %0A ```\u{7}";

    struct HostileFiles;

    impl View for HostileFiles {
        fn source(&self, _root: RootId, _path: &str) -> Option<String> {
            Some(format!("{HOSTILE}\n").repeat(30))
        }

        fn place(&self, _root: RootId, path: &str) -> String {
            path.to_owned()
        }
    }

    #[test]
    fn hostile_text_stays_text_in_every_format() {
        let mut report = sample::report();
        for finding in &mut report.findings {
            for text in [&mut finding.path, &mut finding.symbol, &mut finding.message] {
                text.push_str(HOSTILE);
            }
            finding.help = Some(format!("{HOSTILE}\n{HOSTILE}"));
            finding.package = Some(HOSTILE.to_owned());
            for related in &mut finding.related {
                related.message.push_str(HOSTILE);
                related.path.push_str(HOSTILE);
            }
            if let Some(fix) = &mut finding.fix {
                fix.title.push_str(HOSTILE);
            }
        }
        report.incomplete[0].reason.push_str(HOSTILE);
        report.environment.roots.push(HOSTILE.to_owned());
        report.environment.packages[0].name.push_str(HOSTILE);
        report.notes.push(HOSTILE.to_owned());
        for format in Format::value_variants() {
            let mut out = Vec::new();
            format.write(&report, &HostileFiles, Style::PLAIN, &mut out).expect("writing into memory");
            let out = String::from_utf8(out).expect("UTF-8");
            let control = out.chars().find(|c| c.is_control() && *c != '\n' && *c != '\t');
            assert_eq!(control, None, "{format:?}");
            match format {
                Format::Html | Format::Junit => assert!(!out.contains("<img"), "{format:?}"),
                Format::Github => {
                    let commands =
                        out.lines().filter(|line| line.contains("::error::x") && line.starts_with("::error::"));
                    assert_eq!(commands.count(), 0, "{out}");
                }
                Format::Json | Format::Sarif => {
                    serde_json::from_str::<serde_json::Value>(&out).expect("JSON");
                }
                Format::Markdown => assert!(!out.contains("\n<img") && !out.contains("summary><img"), "{out}"),
                Format::Text | Format::Concise => assert!(!out.contains('\u{202e}'), "{format:?}"),
            }
        }
    }

    #[test]
    fn no_report_at_all_is_written_in_every_format() {
        let report = Report::of(Subject::default(), Vec::new(), Vec::new(), 0, Duration::ZERO);
        for format in Format::value_variants() {
            let mut out = Vec::new();
            format.write(&report, &NoSources, Style::PLAIN, &mut out).expect("writing into memory");
        }
    }
}
