//! The attention functions of a Python environment, on the inputs of the native stage: one Python process each, raw
//! tensors through files, every output compared with the float64 reference.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Options;
use super::cases;
use super::child::{self, Ended};
use super::problem::{Case, Problem};
use super::reference::{Output, compare};
use super::report::{BackendResult, BackendVerdict, Report, Stage, StageName, Verdict};
use crate::progress::Progress;

/// The program that runs in the user's Python.
const PROGRAM: &str = include_str!("backends.py");

/// The functions, in the order they run; the first is the control. `backends.py` knows how to call each.
pub const BACKENDS: [&str; 9] = [
    CONTROL,
    "flash-attn-2",
    "flash-attn-3",
    "flash-attn-4",
    "vllm-fa2",
    "vllm-fa3",
    "vllm-fa4",
    "vllm-cute",
    "flashinfer",
];

/// Not a package under test: if it is wrong too, suspect torch or the GPU.
const CONTROL: &str = "torch-sdpa";

/// Other implementations may round once more than ours; a wrong mask is wrong by a hundred times as much.
const TOLERANCE_FACTOR: f64 = 2.0;

/// What `backends.py` tells.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    /// It is not there.
    Absent,
    /// It is there.
    Installed { version: Option<String> },
    /// It could not be imported, or refuses this GPU as a whole.
    Stopped { result: CaseOutcome, message: String },
    /// A case begins.
    Begin { case: String },
    /// A case has ended.
    Case { case: String, result: CaseOutcome, message: String },
    /// The large case has been timed.
    Timed { ms: f64 },
    /// All cases have ended.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CaseOutcome {
    Ran,
    Raises,
    Gated,
    NotOffered,
}

/// The cases that other implementations are given: all but rows that see no key, about which they disagree.
pub fn matrix() -> Vec<Case> {
    let sees_keys = |case: &Case| {
        let sequences = case.lengths.iter();
        sequences.clone().all(|(q, _)| *q > 0)
            && sequences.clone().all(|l| (0..l.0).all(|q| !case.mask.visible(q, *l).is_empty()))
    };
    cases::matrix().into_iter().filter(sees_keys).collect()
}

/// Runs every backend and adds the results to the report.
pub fn run(report: &mut Report, python: &Path, options: &Options, progress: &Progress) -> io::Result<()> {
    let ran = report.cases.len() == cases::matrix().len() && report.cases.iter().all(|case| case.ms.is_some());
    if !ran {
        let message = "not run: the GPU did not run the native kernel".to_owned();
        report.stages.push(stage(Verdict::Skipped, message, None, false));
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("fa-doctor-smoke-").tempdir()?;
    let problems: Vec<Problem> = matrix().into_iter().map(Problem::new).collect();
    let throughput = report.throughput.as_ref().map(|throughput| cases::throughput(throughput.tokens));
    write_inputs(folder.path(), &problems, throughput.as_ref())?;
    // Absolute, because it runs in our folder; not resolved, because a link is what makes a virtual environment.
    let python = std::path::absolute(python)?;
    let (folder, device, limit) = (folder.path(), options.device, options.timeout);
    let runner = Runner { python: &python, folder, problems: &problems, throughput, device, limit };
    for name in BACKENDS {
        progress.stage(&format!("running {name}"));
        let (told, ended) = runner.run(name)?;
        if !told.anything {
            let message = format!("{} did not run: {}", python.display(), last_line(&ended.stderr));
            report.stages.push(stage(Verdict::Fail, message, Some(WHICH_PYTHON), true));
            return Ok(());
        }
        report.backends.push(runner.result(name, told, &ended));
    }
    let arch = report.device.as_ref().map_or("sm_120", |device| &device.arch);
    let summary = summary(&report.backends, arch);
    report.stages.push(summary);
    Ok(())
}

const WHICH_PYTHON: &str = "Name the Python of the environment to check, as: fa-doctor smoke --python .venv/bin/python";

fn stage(verdict: Verdict, message: String, advice: Option<&str>, unchecked: bool) -> Stage {
    Stage { name: StageName::Backends, verdict, message, advice: advice.map(str::to_owned), unchecked }
}

/// The stage that sums up the backends.
fn summary(backends: &[BackendResult], arch: &str) -> Stage {
    use BackendVerdict::{Gated, NotInstalled, Raises, Right, Wrong};
    let names = |verdicts: &[BackendVerdict]| -> Vec<&str> {
        backends.iter().filter(|b| verdicts.contains(&b.verdict)).map(|b| b.name).collect()
    };
    let (bad, right, gated) = (names(&[Wrong, Raises]), names(&[Right]), names(&[Gated]));
    let packages = |names: &[&str]| names.iter().any(|name| *name != CONTROL);
    if !bad.is_empty() {
        let advice = if bad.contains(&CONTROL) {
            "torch itself fails, so the packages on top of it prove nothing. Check it with: \
             python -m torch.utils.collect_env"
        } else {
            "See what does not fit, and where: fa-doctor scan; patch it with: fa-doctor fix --write"
        };
        stage(Verdict::Fail, format!("failed: {}", bad.join(", ")), Some(advice), false)
    } else if packages(&right) {
        let absent = names(&[NotInstalled]).len();
        stage(Verdict::Pass, format!("right: {}; {absent} not installed", right.join(", ")), None, false)
    } else if packages(&gated) {
        let advice = format!("Every installed attention refuses this GPU. See each gate: fa-doctor scan --arch {arch}");
        stage(Verdict::Fail, format!("gated on this GPU: {}", gated.join(", ")), Some(&advice), true)
    } else {
        stage(Verdict::Fail, "no attention package is installed there".to_owned(), Some(WHICH_PYTHON), true)
    }
}

/// `cases.json`.
#[derive(Serialize)]
struct Inputs {
    cases: Vec<Described>,
    throughput: Option<Described>,
}

/// What `backends.py` reads of a case.
#[derive(Serialize)]
struct Described {
    name: &'static str,
    dtype: &'static str,
    head_dim: usize,
    heads_q: usize,
    heads_k: usize,
    lengths_k: Vec<usize>,
    max_q: usize,
    max_k: usize,
    window: [i64; 2],
    page_size: Option<usize>,
    scale: f64,
}

impl Described {
    fn new(case: &Case) -> Described {
        let bound = |side: Option<usize>| side.map_or(-1, |n| n as i64);
        Described {
            name: case.name,
            dtype: case.dtype.name(),
            head_dim: case.head_dim,
            heads_q: case.heads_q,
            heads_k: case.heads_k,
            lengths_k: case.lengths.iter().map(|(_, k)| *k).collect(),
            max_q: case.max_q(),
            max_k: case.max_k(),
            window: [bound(case.mask.left), bound(case.mask.right)],
            page_size: case.page_size,
            scale: case.scale(),
        }
    }
}

/// Writes the inputs of all problems to a folder: `cases.json`, and raw little-endian tensors.
///
/// A throughput case is described only: it is large, and its outputs are not compared.
pub fn write_inputs(folder: &Path, problems: &[Problem], throughput: Option<&Case>) -> io::Result<()> {
    let cases = problems.iter().map(|problem| Described::new(&problem.case)).collect();
    let inputs = Inputs { cases, throughput: throughput.map(Described::new) };
    std::fs::write(folder.join("backends.py"), PROGRAM)?;
    std::fs::write(folder.join("cases.json"), serde_json::to_vec(&inputs)?)?;
    for problem in problems {
        let write =
            |name: &str, bytes: Vec<u8>| std::fs::write(folder.join(format!("{}.{name}", problem.case.name)), bytes);
        let halves = |values: &[u16]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let words = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        write("q", halves(&problem.q))?;
        write("k", halves(&problem.k))?;
        write("v", halves(&problem.v))?;
        write("starts_q", words(&problem.starts_q))?;
        write("starts_k", words(&problem.starts_k))?;
        write("pages", words(&problem.pages))?;
    }
    Ok(())
}

/// What a backend's process has told.
#[derive(Default)]
struct Told {
    anything: bool,
    absent: bool,
    version: Option<String>,
    stopped: Option<(CaseOutcome, String)>,
    current: Option<String>,
    cases: HashMap<String, (CaseOutcome, String)>,
    ms: Option<f64>,
    done: bool,
}

/// What all backends have in common.
struct Runner<'a> {
    python: &'a Path,
    folder: &'a Path,
    problems: &'a [Problem],
    throughput: Option<Case>,
    device: usize,
    limit: Duration,
}

impl Runner<'_> {
    fn run(&self, name: &str) -> io::Result<(Told, Ended)> {
        let mut command = Command::new(self.python);
        command.arg(self.folder.join("backends.py")).arg(self.folder).arg(name).arg(format!("cuda:{}", self.device));
        super::number_gpus_as_nvidia_smi(&mut command);
        // Nothing is written into the environment, and compilers keep their caches where they vanish with our folder.
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("TRITON_CACHE_DIR", self.folder.join("triton"));
        command.current_dir(self.folder);
        let mut told = Told::default();
        let ended = child::supervise(command, self.limit, |line| {
            match serde_json::from_str(line) {
                Ok(Event::Absent) => told.absent = true,
                Ok(Event::Installed { version }) => told.version = version,
                Ok(Event::Stopped { result, message }) => told.stopped = Some((result, message)),
                Ok(Event::Begin { case }) => told.current = Some(case),
                Ok(Event::Case { case, result, message }) => {
                    told.current = None;
                    told.cases.insert(case, (result, message));
                }
                Ok(Event::Timed { ms }) => told.ms = Some(ms),
                Ok(Event::Done) => told.done = true,
                // Packages print too.
                Err(_) => return false,
            }
            told.anything = true;
            true
        })?;
        Ok((told, ended))
    }

    fn result(&self, name: &'static str, told: Told, ended: &Ended) -> BackendResult {
        let (verdict, max_error, message) = self.judge(name, &told, ended);
        let tflops = told.ms.zip(self.throughput.as_ref()).map(|(ms, case)| case.tflops(ms));
        BackendResult { name, version: told.version, verdict, max_error, tflops, message }
    }

    fn judge(&self, name: &str, told: &Told, ended: &Ended) -> (BackendVerdict, Option<f64>, String) {
        if told.absent {
            return (BackendVerdict::NotInstalled, None, String::new());
        }
        if let Some((outcome, message)) = &told.stopped {
            let gated = *outcome == CaseOutcome::Gated;
            return (if gated { BackendVerdict::Gated } else { BackendVerdict::Raises }, None, message.clone());
        }
        let (mut worst, mut wrong, mut right) = (0.0_f64, Vec::new(), 0);
        for problem in self.problems {
            let case = &problem.case;
            if told.cases.get(case.name).is_none_or(|(outcome, _)| *outcome != CaseOutcome::Ran) {
                continue;
            }
            let error = output_error(problem, &self.folder.join(format!("{}.{name}.o", case.name)));
            worst = worst.max(error);
            if error <= TOLERANCE_FACTOR * case.dtype.tolerance() {
                right += 1;
            } else {
                wrong.push((case.name, error));
            }
        }
        let max_error = (right + wrong.len() > 0 && worst.is_finite()).then_some(worst);
        if let Some((_, error)) = wrong.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
            let by = if error.is_finite() { format!("by {error:.2}") } else { "(NaN)".to_owned() };
            let names: Vec<&str> = wrong.iter().map(|(name, _)| *name).collect();
            return (BackendVerdict::Wrong, max_error, format!("wrong {by} in {}", names.join(", ")));
        }
        if !told.done {
            let doing = told.current.as_ref().map_or_else(|| "starting".to_owned(), |case| format!("in case {case}"));
            let message = match ended.status {
                None => format!("no answer after {} s, {doing}", self.limit.as_secs_f64()),
                Some(status) => format!("ended with {status}, {doing}: {}", last_line(&ended.stderr)),
            };
            return (BackendVerdict::Raises, max_error, message);
        }
        let of = |wanted: CaseOutcome| -> Vec<(&str, &str)> {
            let names = self.problems.iter().map(|problem| problem.case.name);
            let ended =
                names.filter_map(|name| told.cases.get(name).map(|(outcome, message)| (name, *outcome, message)));
            ended.filter(|case| case.1 == wanted).map(|(name, _, message)| (name, message.as_str())).collect()
        };
        let (raises, gated) = (of(CaseOutcome::Raises), of(CaseOutcome::Gated));
        if let Some((case, message)) = raises.first() {
            let others = if raises.len() > 1 { format!(" and {} more", raises.len() - 1) } else { String::new() };
            return (BackendVerdict::Raises, max_error, format!("{message} in {case}{others}"));
        }
        let refused = gated.first().map(|(case, message)| format!("{} gated ({case}: {message})", gated.len()));
        if right == 0 {
            let message = refused.unwrap_or_else(|| "takes none of the cases".to_owned());
            return (BackendVerdict::Gated, None, message);
        }
        let mut parts = vec![format!("{right} cases, worst error {worst:.1e}")];
        parts.extend(refused);
        let not_offered = of(CaseOutcome::NotOffered);
        if !not_offered.is_empty() {
            parts.push(format!("{} not offered", not_offered.len()));
        }
        (BackendVerdict::Right, max_error, parts.join("; "))
    }
}

/// The error of an output file: infinite if it is missing or of the wrong size.
fn output_error(problem: &Problem, path: &Path) -> f64 {
    let length = problem.case.total_q() * problem.case.heads_q * problem.case.head_dim;
    match std::fs::read(path) {
        Ok(bytes) if bytes.len() == 2 * length => {
            let o: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
            compare(problem, Output { o: &o, lse: None }).output
        }
        _ => f64::INFINITY,
    }
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message")
}
