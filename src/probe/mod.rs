//! Compiles the installed kernels for an architecture, in the user's Python, without a GPU.
//!
//! Data flows one way: which packages hold kernels ([`packages`]), what their Python is asked to do ([`request`]), what
//! it tells ([`driver`]), what that means ([`verdict`]), and the report.

pub mod cases;
pub mod cubin;
pub mod driver;
pub mod packages;
pub mod report;
pub mod request;
pub mod verdict;
pub mod verify;

use std::path::PathBuf;
use std::time::Duration;

use crate::environment::Environment;
use crate::finding::Finding;
use crate::packs::Packs;
use crate::progress::Progress;
use cases::Case;
use driver::{Driver, Event, Stage};
use packages::Package;
use report::Report;
use request::Request;
use verdict::Judge;

/// What to compile, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// `sm_120`.
    pub arch: String,
    /// Down to the cubin, not only to the intermediate code.
    pub full: bool,
    /// Use the stand-in instead of the environment's torch.
    pub no_torch: bool,
    /// Limit for each case.
    pub timeout: Duration,
    /// By how many bytes the process of a case may grow.
    pub memory: u64,
    /// Only these cases; all, if there are none.
    pub cases: Vec<String>,
    /// Only the kernels of these modules; all, if there are none.
    pub packages: Vec<String>,
}

/// Why nothing was compiled.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// None of the targets says which Python to run.
    #[error("it is not known which Python to compile with")]
    NoPython,
    /// No package with kernels.
    #[error("no CuTe attention kernels in {0}")]
    NoKernels(String),
    /// A `--package` that is not there.
    #[error("`{0}` has no CuTe attention kernels here; there are: {1}")]
    NoSuchPackage(String, String),
    /// A `--case` that does not exist.
    #[error("there is no case `{0}`; there are: {1}")]
    NoSuchCase(String, String),
    /// The DSL is not there.
    #[error("the CuTe DSL is not installed for {}", .0.display())]
    NoDsl(PathBuf),
    /// Torch is not there, or cannot be imported.
    #[error("torch cannot be imported by {}: {}", .0.display(), .1)]
    NoTorch(PathBuf, String),
    /// The driver ended before it could do anything.
    #[error("{} failed: {}", .0.display(), .1)]
    Driver(PathBuf, String),
    /// Temporary files or processes cannot be made.
    #[error("cannot run the compile check: {0}")]
    Io(#[from] std::io::Error),
}

impl ProbeError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            ProbeError::NoPython => "name it: fa-doctor probe --arch sm_120 --python .venv/bin/python".to_owned(),
            ProbeError::NoKernels(_) => {
                "give the environment that holds vLLM or flash-attn-4: fa-doctor probe .venv --arch sm_120".to_owned()
            }
            ProbeError::NoSuchPackage(..) | ProbeError::NoSuchCase(..) => {
                "without it, all are compiled: fa-doctor probe --arch sm_120".to_owned()
            }
            ProbeError::NoDsl(_) => "install it: pip install nvidia-cutlass-dsl quack-kernels".to_owned(),
            ProbeError::NoTorch(..) => "add --no-torch: the kernels are the same without it".to_owned(),
            ProbeError::Driver(python, _) => {
                format!("see whether the DSL can be imported: {} -c \"import cutlass.cute\"", python.display())
            }
            ProbeError::Io(_) => "temporary files go where TMPDIR says".to_owned(),
        }
    }

    /// Whether the command was wrong, rather than the environment.
    pub fn is_usage(&self) -> bool {
        matches!(self, ProbeError::NoPython | ProbeError::NoSuchPackage(..) | ProbeError::NoSuchCase(..))
    }
}

/// Compiles every case of every package, with the overlays of the environment's trees laid over what is installed.
/// `findings` are what a scan of the same environment says: what fails is mapped to them.
pub fn run(
    environment: &Environment,
    packs: &Packs,
    findings: &[Finding],
    options: &Options,
    progress: &Progress,
) -> Result<Report, ProbeError> {
    let python = environment.interpreter.clone().ok_or(ProbeError::NoPython)?;
    let cases = chosen_cases(options)?;
    let (packages, others) = chosen_packages(environment, packs, options)?;
    let mut report = Report::new(options, &python);
    report.notes.extend(others.iter().map(|other| {
        let module = &other.module;
        format!("{module} is for one model, and was left out; to compile it: --package {module}")
    }));
    progress.steps("compiling", packages.len() * cases.len());
    for package in &packages {
        let folder = tempfile::Builder::new().prefix("fa-doctor-probe-").tempdir()?;
        let request = Request::new(environment, package, &cases, options, folder.path());
        let judge = Judge { environment, packs, findings, package, request: &request, options };
        let (mut stopped, mut told) = (None, Vec::new());
        let driver = Driver { python: &python, folder: folder.path(), timeout: options.timeout };
        let ended = driver.run(&request, |event| match event {
            Event::Ready(ready) => report.ready(ready),
            Event::Begin { case } => progress.step(&format!("{} {case}", package.module)),
            Event::Case { case, outcome, seconds, stderr } => {
                match judge.case(&case, outcome, seconds, &stderr) {
                    Some(result) => report.cases.push(result),
                    None => report.notes.push(format!("{} does not offer {case}", package.module)),
                }
                told.push(case);
            }
            Event::Stopped { stage, dsl, raised } => stopped = Some((stage, dsl, raised)),
            Event::Done => {}
        })?;
        let untold: Vec<&Case> = cases.iter().filter(|case| !told.iter().any(|name| name == case.name)).collect();
        match stopped {
            Some((Stage::Dsl, _, raised)) if raised.error == "ModuleNotFoundError" && raised.is_about("cutlass") => {
                return Err(ProbeError::NoDsl(python));
            }
            Some((Stage::Torch, _, raised)) => return Err(ProbeError::NoTorch(python, raised.text())),
            Some((stage, dsl, raised)) => {
                report.dsl = report.dsl.take().or(dsl);
                let result = judge.import(stage, &raised);
                report.cases.extend(untold.into_iter().map(|case| result.of(case)));
            }
            None if untold.is_empty() => {}
            None if told.is_empty() => return Err(ProbeError::Driver(python, ended)),
            None => {
                let result = judge.unchecked(format!("the process that runs the cases ended: {ended}"));
                report.cases.extend(untold.into_iter().map(|case| result.of(case)));
            }
        }
    }
    report.sort(&packages, &cases);
    Ok(report)
}

fn chosen_cases(options: &Options) -> Result<Vec<Case>, ProbeError> {
    let all = cases::matrix();
    let names = || all.iter().map(|case| case.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = options.cases.iter().find(|name| !all.iter().any(|case| case.name == **name)) {
        return Err(ProbeError::NoSuchCase(unknown.clone(), names()));
    }
    let wanted = |case: &Case| options.cases.is_empty() || options.cases.iter().any(|name| name == case.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// The packages to compile, and those that were left out.
fn chosen_packages(
    environment: &Environment,
    packs: &Packs,
    options: &Options,
) -> Result<(Vec<Package>, Vec<Package>), ProbeError> {
    let all = packages::find(environment, packs);
    if all.is_empty() {
        return Err(ProbeError::NoKernels(environment.labels().join(", ")));
    }
    let names = || all.iter().map(|package| package.module.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = options.packages.iter().find(|name| !all.iter().any(|package| package.module == **name)) {
        return Err(ProbeError::NoSuchPackage(unknown.clone(), names()));
    }
    let any_whole = all.iter().any(|package| package.whole);
    let (chosen, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|package| match options.packages.as_slice() {
        [] => package.whole || !any_whole,
        named => named.contains(&package.module),
    });
    Ok((chosen, if options.packages.is_empty() { others } else { Vec::new() }))
}
