//! What a rule reports: a [`Finding`] with its place, its reason and, where one can be derived, its fix.
//!
//! These structs are the JSON contract (schema 1): field order and names here are what `--format json` prints.

use serde::{Deserialize, Serialize};

use crate::environment::RootId;

/// How much a finding matters to this environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something to know, or dead code: a module that nothing imports.
    Info,
    /// Goes wrong only on a path that this environment is not known to take.
    Warning,
    /// Raises, or computes wrongly, on a path that this environment can take.
    Error,
}

impl Severity {
    /// As in every output.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// Who may apply a fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Applicability {
    /// Same behaviour on every path that worked and right on the one that did not: `fix --write` applies it.
    Safe,
    /// A judgement: applied only with `--unsafe`.
    Unsafe,
    /// Shown, never applied.
    Manual,
}

/// A replacement of the bytes `start..end` of one file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Edit {
    /// Relative to the root that holds the file, with `/`.
    pub path: String,
    /// First byte replaced, from 0, in the file as it lies on disk.
    pub start: usize,
    /// One past the last byte replaced; equal to `start` for an insertion.
    pub end: usize,
    /// What stands there instead.
    pub content: String,
    /// The root that holds the file (not part of the JSON).
    #[serde(skip)]
    pub root: RootId,
}

/// Edits that belong together: all are applied, or none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fix {
    /// Who may apply it.
    pub applicability: Applicability,
    /// What it does, in the imperative: "Pass `mask` to the kernel".
    pub title: String,
    /// The edits, in any order, never overlapping.
    pub edits: Vec<Edit>,
}

/// Another place that explains a finding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Related {
    /// Relative to its root, with `/`.
    pub path: String,
    /// From 1.
    pub line: u32,
    /// What is there.
    pub message: String,
    /// The root that holds the file (not part of the JSON).
    #[serde(skip)]
    pub root: RootId,
}

/// One defect, at one place, with one cause.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// `FA001`.
    pub code: String,
    /// `undefined-name`.
    pub name: String,
    /// How much it matters here.
    pub severity: Severity,
    /// The distribution that holds the place, as its METADATA spells it.
    pub package: Option<String>,
    /// That distribution's version.
    pub version: Option<String>,
    /// Relative to its root, with `/`.
    pub path: String,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// From 1.
    pub end_line: u32,
    /// From 1, in characters, one past the last.
    pub end_column: u32,
    /// What is wrong, in the notation of its rule: `Class.method:name`, `callee(argument)`, ..
    pub symbol: String,
    /// What Python (or the loader, or the driver) would say.
    pub message: String,
    /// What to do; ends with one command to copy wherever one exists.
    pub help: Option<String>,
    /// Architectures it is limited to; empty for all.
    pub arch: Vec<String>,
    /// The places that explain it.
    pub related: Vec<Related>,
    /// The repair, where one can be derived.
    pub fix: Option<Fix>,
    /// The root that holds the file (not part of the JSON).
    #[serde(skip)]
    pub root: RootId,
}

/// Something that could not be checked, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incomplete {
    /// Relative to its root, with `/`; the target itself where nothing could be read there.
    pub path: String,
    /// A sentence without a full stop.
    pub reason: String,
}

impl Finding {
    /// The order of every report: path, line, code, then what tells equal ones apart.
    pub fn sort_key(&self) -> (&str, u32, &str, u32, &str) {
        (&self.path, self.line, &self.code, self.column, &self.symbol)
    }
}
