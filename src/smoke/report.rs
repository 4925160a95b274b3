//! What `smoke` found: the JSON contract and the text for people.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::half::Dtype;
use crate::report::style::{Style, printable, wrap, wrap_after};

/// The result of a run; field order and names are the JSON contract (schema 1).
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// 1.
    pub schema: u32,
    /// The GPU, once it is known.
    pub device: Option<Device>,
    /// In the order they ran.
    pub stages: Vec<Stage>,
    /// The case matrix.
    pub cases: Vec<CaseResult>,
    /// One large case, timed.
    pub throughput: Option<Throughput>,
    /// The attention functions of the environment, with `--python`.
    pub backends: Vec<BackendResult>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// As the driver names it.
    pub name: String,
    /// `sm_120`.
    pub arch: String,
    /// The CUDA version of the driver: `13.0`.
    pub driver: String,
}

/// A step of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// See [`StageName`].
    pub name: StageName,
    /// How it went.
    pub verdict: Verdict,
    /// What was found.
    pub message: String,
    /// What to do, if it failed.
    pub advice: Option<String>,
    /// For a failure: nothing is known to be wrong with the GPU or the packages, but they could not be tried.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub unchecked: bool,
}

/// The stages, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageName {
    /// The driver library is found.
    Library,
    /// The driver starts and is recent enough.
    Driver,
    /// There is a GPU, of the architecture asked for, and it accepts work.
    Device,
    /// Enough of its memory is free.
    Memory,
    /// The driver compiles the kernel.
    Load,
    /// The kernel computes what it should.
    Cases,
    /// How fast.
    Throughput,
    /// What the environment's packages compute.
    Backends,
}

impl StageName {
    /// All stages.
    pub const ALL: [StageName; 8] = [
        StageName::Library,
        StageName::Driver,
        StageName::Device,
        StageName::Memory,
        StageName::Load,
        StageName::Cases,
        StageName::Throughput,
        StageName::Backends,
    ];

    /// As in JSON.
    pub fn text(self) -> &'static str {
        match self {
            StageName::Library => "library",
            StageName::Driver => "driver",
            StageName::Device => "device",
            StageName::Memory => "memory",
            StageName::Load => "load",
            StageName::Cases => "cases",
            StageName::Throughput => "throughput",
            StageName::Backends => "backends",
        }
    }

    /// What is being done during the stage, for a sentence.
    pub fn doing(self) -> &'static str {
        match self {
            StageName::Library => "opening the driver library",
            StageName::Driver => "starting the driver",
            StageName::Device => "opening the GPU",
            StageName::Memory => "asking for free memory",
            StageName::Load => "compiling the kernel",
            StageName::Cases => "running the kernel",
            StageName::Throughput => "timing the kernel",
            StageName::Backends => "running the installed attention",
        }
    }
}

/// How a stage or case went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should.
    Pass,
    /// Not as it should.
    Fail,
    /// Not run.
    Skipped,
}

/// A case of the native kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// As in the matrix.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// 64 or 128.
    pub head_dim: usize,
    /// Greatest absolute error of an output element; null if one is NaN or the case did not run.
    pub max_error: Option<f64>,
    /// What is accepted.
    pub tolerance: f64,
    /// Greatest absolute error of a log-sum-exp.
    pub lse_error: Option<f64>,
    /// Time of one launch.
    pub ms: Option<f64>,
    /// Whether both errors are within their tolerances.
    pub verdict: Verdict,
}

/// The speed of the native kernel in one large case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// The shape, in words.
    pub shape: String,
    /// Length of the sequence.
    pub tokens: usize,
    /// Median time of a launch.
    pub ms: f64,
    /// 10^12 operations a second that the mask leaves.
    pub tflops: f64,
}

/// An attention function of the environment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendResult {
    /// See `backends.rs`.
    pub name: &'static str,
    /// Of the distribution it comes from.
    pub version: Option<String>,
    /// What came out.
    pub verdict: BackendVerdict,
    /// Greatest absolute error over its cases.
    pub max_error: Option<f64>,
    /// Its speed in the throughput case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tflops: Option<f64>,
    /// In words.
    pub message: String,
}

/// What came out of an attention function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendVerdict {
    /// Every case it takes is right.
    Right,
    /// It runs and its numbers are wrong.
    Wrong,
    /// It raises, crashes or hangs.
    Raises,
    /// It is not there.
    NotInstalled,
    /// It says itself that it does not support this GPU.
    Gated,
}

impl BackendVerdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            BackendVerdict::Right => "right",
            BackendVerdict::Wrong => "wrong",
            BackendVerdict::Raises => "raises",
            BackendVerdict::NotInstalled => "not installed",
            BackendVerdict::Gated => "gated",
        }
    }
}

/// The result as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything that was asked for ran and is right.
    Right,
    /// Something is wrong.
    Wrong,
    /// Something could not be tried.
    Unchecked,
}

impl Report {
    /// A run that has not begun.
    pub fn new() -> Report {
        Report {
            schema: 1,
            device: None,
            stages: Vec::new(),
            cases: Vec::new(),
            throughput: None,
            backends: Vec::new(),
        }
    }

    /// What the run amounts to: a failure that shows something wrong wins over one that shows nothing.
    pub fn outcome(&self) -> Outcome {
        let failed = |unchecked| self.stages.iter().any(|s| s.verdict == Verdict::Fail && s.unchecked == unchecked);
        if failed(false) {
            Outcome::Wrong
        } else if failed(true) {
            Outcome::Unchecked
        } else {
            Outcome::Right
        }
    }

    /// The first failure.
    fn failure(&self) -> Option<&Stage> {
        let wrong = self.stages.iter().find(|s| s.verdict == Verdict::Fail && !s.unchecked);
        wrong.or_else(|| self.stages.iter().find(|s| s.verdict == Verdict::Fail))
    }

    /// The report for people; if `quiet`, only what failed and the conclusion.
    pub fn text(&self, style: Style, quiet: bool) -> String {
        let mut out = String::new();
        if quiet {
            self.write_stages(&mut out, style, &[Verdict::Fail]);
        } else {
            self.write_stages(&mut out, style, &[Verdict::Pass, Verdict::Fail]);
            self.write_cases(&mut out, style);
            self.write_backends(&mut out, style);
            line(&mut out, "");
        }
        self.write_conclusion(&mut out, style);
        out
    }

    /// What a failure kept from running goes without saying.
    fn write_stages(&self, out: &mut String, style: Style, verdicts: &[Verdict]) {
        for stage in self.stages.iter().filter(|stage| verdicts.contains(&stage.verdict)) {
            let (word, painted) = match stage.verdict {
                Verdict::Pass => ("ok  ", style.good("ok  ")),
                Verdict::Fail => ("FAIL", style.bad("FAIL")),
                Verdict::Skipped => ("skip", style.caution("skip")),
            };
            let name = format!("{:<10}", stage.name.text());
            let message = printable(&stage.message);
            line(out, &wrap_after(&format!("{name} {word}"), &format!("{name} {painted}"), &message, style.width));
            if let Some(advice) = &stage.advice {
                let (label, painted) = ("           hint:", format!("           {}", style.hint("hint:")));
                line(out, &wrap_after(label, &painted, advice, style.width));
            }
        }
    }

    fn write_cases(&self, out: &mut String, style: Style) {
        if self.cases.is_empty() {
            return;
        }
        let heading = format!(
            "{:<19} {:<5} {:>4} {:>10} {:>10} {:>10}",
            "case", "dtype", "head", "max error", "tolerance", "time"
        );
        line(out, &format!("\n{}", style.bold(&heading)));
        for case in &self.cases {
            let error = case.max_error.map_or_else(|| "-".to_owned(), |e| format!("{e:.1e}"));
            let time = case.ms.map_or_else(|| "-".to_owned(), milliseconds);
            let row = format!(
                "{:<19} {:<5} {:>4} {:>10} {:>10.1e} {:>10}",
                case.name,
                case.dtype.name(),
                case.head_dim,
                error,
                case.tolerance,
                time
            );
            let note = match case.verdict {
                Verdict::Pass => String::new(),
                Verdict::Skipped => format!("  {}", style.caution("not run")),
                Verdict::Fail => format!("  {}", style.bad("WRONG")),
            };
            line(out, &format!("{row}{note}"));
        }
    }

    fn write_backends(&self, out: &mut String, style: Style) {
        if self.backends.is_empty() {
            return;
        }
        line(
            out,
            &format!("\n{}", style.bold(&format!("{:<15} {:<8} {:<16} result", "attention", "verdict", "version"))),
        );
        for backend in self.backends.iter().filter(|b| b.verdict != BackendVerdict::NotInstalled) {
            let word = format!("{:<8}", backend.verdict.text());
            let painted = match backend.verdict {
                BackendVerdict::Right => style.good(&word),
                BackendVerdict::Wrong | BackendVerdict::Raises => style.bad(&word),
                BackendVerdict::Gated | BackendVerdict::NotInstalled => style.caution(&word),
            };
            let version = backend.version.as_deref().unwrap_or("-");
            let speed = backend.tflops.map_or_else(String::new, |x| format!("; {} TFLOP/s", three_digits(x)));
            let message = printable(&format!("{}{speed}", backend.message));
            let rest = |word: &str| format!("{:<15} {word} {version:<16}", backend.name);
            line(out, &wrap_after(&rest(&word), &rest(&painted), &message, style.width));
        }
        let absent = self.backends.iter().filter(|b| b.verdict == BackendVerdict::NotInstalled).map(|b| b.name);
        let absent = absent.collect::<Vec<_>>().join(", ");
        if !absent.is_empty() {
            line(out, &style.dim(&wrap_after("not installed:", "not installed:", &absent, style.width)));
        }
    }

    fn write_conclusion(&self, out: &mut String, style: Style) {
        let device = self.device.as_ref().map_or_else(|| "this GPU".to_owned(), |d| printable(&d.name));
        let (conclusion, paint): (String, fn(Style, &str) -> String) = match (self.outcome(), self.failure()) {
            (Outcome::Right, _) if self.backends.is_empty() => {
                (format!("The native kernel computes attention correctly on {device}."), Style::good)
            }
            (Outcome::Right, _) => {
                let what = "The native kernel and every installed attention that runs on";
                (format!("{what} {device} compute correctly."), Style::good)
            }
            (Outcome::Wrong, Some(stage)) => (format!("Failed while {}.", stage.name.doing()), Style::bad),
            (_, stage) => {
                let doing = stage.map_or("starting", |stage| stage.name.doing());
                (format!("Could not be checked: stopped while {doing}."), Style::caution)
            }
        };
        for text in wrap(&conclusion, style.width) {
            line(out, &paint(style, &text));
        }
    }
}

impl Default for Report {
    fn default() -> Report {
        Report::new()
    }
}

/// Milliseconds in three digits.
pub fn milliseconds(ms: f64) -> String {
    if ms < 1.0 {
        format!("{:.0} us", ms * 1000.0)
    } else if ms < 1000.0 {
        format!("{ms:.2} ms")
    } else {
        format!("{:.2} s", ms / 1000.0)
    }
}

/// A number in three digits, without an exponent.
pub fn three_digits(x: f64) -> String {
    let decimals = if x <= 0.0 { 0 } else { (2 - x.log10().floor() as i32).max(0) as usize };
    format!("{x:.decimals$}")
}

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", text.trim_end());
}
