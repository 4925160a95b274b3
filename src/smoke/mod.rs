//! `smoke`: runs the bundled attention kernel on the GPU, and compares the installed attention with it.
//!
//! The native stages run in a child process of our own executable, because a driver can crash, hang, or lack a symbol
//! (which makes cudarc panic); the packages of `--python` run in one Python process each. See `docs/smoke.md` for what
//! all this proves and what it does not.

pub mod advice;
pub mod backends;
pub mod cases;
pub mod child;
pub mod driver;
pub mod half;
pub mod kernel;
pub mod native;
pub mod problem;
pub mod reference;
pub mod report;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::progress::Progress;
use native::Event;
use report::{Report, Stage, StageName, Verdict};

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of the GPU.
    pub device: usize,
    /// The architecture that it must have: `sm_120`.
    pub arch: Option<String>,
    /// Interpreter whose packages are compared.
    pub python: Option<PathBuf>,
    /// How long a process may take for one answer.
    pub timeout: Duration,
}

/// The hidden subcommand of the child process.
pub const CHILD_COMMAND: &str = "smoke-child";

/// Runs everything; `executable` is this program, which knows [`CHILD_COMMAND`].
pub fn run(options: &Options, executable: &Path, progress: &Progress) -> Result<Report, StartError> {
    let start = |program: &Path| {
        let program = program.to_owned();
        move |source| StartError { program, source }
    };
    let mut report = run_native(options, executable, progress).map_err(start(executable))?;
    if let Some(python) = &options.python {
        backends::run(&mut report, python, options, progress).map_err(start(python))?;
    }
    Ok(report)
}

/// A program that could not be run.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {}", program.display())]
pub struct StartError {
    program: PathBuf,
    source: std::io::Error,
}

/// The child process: runs the native stages and prints an event a line.
pub fn run_child(device: usize, arch: Option<&str>) {
    child::end_with_parent();
    let mut emit = |event: Event| {
        // Events are plain data, which always serialises; a closed pipe means that nobody listens any more.
        if let Ok(line) = serde_json::to_string(&event) {
            println!("{line}");
        }
    };
    native::Native::new(device, arch, &mut emit).run();
}

fn run_native(options: &Options, executable: &Path, progress: &Progress) -> std::io::Result<Report> {
    let mut command = Command::new(executable);
    command.arg(CHILD_COMMAND).arg("--device").arg(options.device.to_string());
    if let Some(arch) = &options.arch {
        command.args(["--arch", arch]);
    }
    number_gpus_as_nvidia_smi(&mut command);
    // The driver must compile the kernel now and as a whole, not fetch it from its cache or wait for the first launch.
    command.env("CUDA_CACHE_DISABLE", "1").env("CUDA_MODULE_LOADING", "EAGER");
    let mut report = Report::new();
    let mut current = None;
    let ended = child::supervise(command, options.timeout, |line| {
        match serde_json::from_str(line) {
            Ok(Event::Begin { stage }) => {
                progress.stage(stage.doing());
                current = Some(stage);
            }
            Ok(Event::End { stage }) => {
                current = None;
                report.stages.push(stage);
            }
            Ok(Event::Found { device }) => report.device = Some(device),
            Ok(Event::Computed { case }) => report.cases.push(case),
            Ok(Event::Timed { throughput }) => report.throughput = Some(throughput),
            // The driver may print to standard output too.
            Err(_) => return false,
        }
        true
    })?;
    let finished = current.is_none() && ended.status.is_some_and(|status| status.success());
    if !finished {
        report.stages.push(abnormal_end(current.unwrap_or(StageName::Library), &ended, options.timeout));
    }
    skip_the_rest(&mut report);
    Ok(report)
}

/// Left alone, the driver numbers GPUs by speed, and `nvidia-smi` by slot.
fn number_gpus_as_nvidia_smi(command: &mut Command) {
    if std::env::var_os("CUDA_DEVICE_ORDER").is_none() {
        command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    }
}

/// The stage in which the child hung or died.
fn abnormal_end(name: StageName, ended: &child::Ended, limit: Duration) -> Stage {
    let fail = |message: String, advice: &str, unchecked| Stage {
        name,
        verdict: Verdict::Fail,
        message,
        advice: Some(advice.to_owned()),
        unchecked,
    };
    let doing = name.doing();
    let Some(status) = ended.status else {
        let seconds = limit.as_secs_f64();
        let killed = match ended.stuck {
            None => "its process was killed".to_owned(),
            Some(pid) => format!("process {pid} hangs in the kernel driver and cannot be killed"),
        };
        let advice = "See what hangs: nvidia-smi; dmesg | grep -i xid. If the machine is merely slow, allow more time: \
                      fa-doctor smoke --timeout 600";
        return fail(format!("no answer after {seconds} s while {doing}; {killed}"), advice, false);
    };
    if let Some((_, rest)) = ended.stderr.split_once("Missing symbol ") {
        let symbol: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let advice = "The driver library is very old, or something else that calls itself libcuda. See which one is \
                      used: ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH";
        return fail(format!("the driver library has no {symbol}, needed for {doing}"), advice, true);
    }
    let last = ended.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    let advice =
        "The driver library crashed. See why: dmesg | tail; the driver's version: cat /proc/driver/nvidia/version";
    fail(format!("the process ended with {status} while {doing}: {last}"), advice, false)
}

/// Names the stages that a failure kept from running.
fn skip_the_rest(report: &mut Report) {
    let Some(failed) = report.stages.iter().find(|stage| stage.verdict == Verdict::Fail).map(|stage| stage.name) else {
        return;
    };
    let ran: Vec<StageName> = report.stages.iter().map(|stage| stage.name).collect();
    for name in StageName::ALL {
        // Packages are compared, or not, in a stage of their own.
        if name != StageName::Backends && !ran.contains(&name) {
            let message = format!("not run: {} failed", failed.text());
            report.stages.push(Stage { name, verdict: Verdict::Skipped, message, advice: None, unchecked: false });
        }
    }
}
