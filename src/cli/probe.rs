//! `fa-doctor probe`: compiles the installed kernels for an architecture, without a GPU.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::args::{CheckArgs, GlobalArgs, HardwareArgs, TargetArgs, TextOrJson, heading};
use super::fix::planned;
use super::{Failure, Status};
use crate::environment::{Environment, RootId, arch};
use crate::finding::Finding;
use crate::fix::engine::{Choice, Plan};
use crate::packs::Packs;
use crate::probe::report::{Outcome, Report};
use crate::probe::verify::worse;
use crate::probe::{self, Options, ProbeError};
use crate::progress::Progress;
use crate::report::Style;
use crate::scan::{self, check};

/// Arguments of `fa-doctor probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Which environment.
    #[command(flatten)]
    pub target: TargetArgs,
    /// GPU architecture to compile for, as `sm_120` or `12.0`
    #[arg(long, value_name = "ARCH", value_parser = arch::normalize, help_heading = heading::TARGET)]
    pub arch: String,
    /// Do without torch: a stand-in gives the same kernels
    #[arg(long, help_heading = heading::TARGET)]
    pub no_torch: bool,
    /// Compile the sources as `fix --write` would leave them
    #[arg(long, help_heading = heading::CHECKS)]
    pub overlay: bool,
    /// Compile down to machine code, and show registers and stack
    #[arg(long, help_heading = heading::CHECKS)]
    pub full: bool,
    /// Only these cases (repeatable)
    #[arg(long = "case", value_name = "CASE", value_delimiter = ',', help_heading = heading::CHECKS)]
    pub cases: Vec<String>,
    /// Only the kernels of these modules (repeatable)
    #[arg(long = "package", value_name = "MODULE", value_delimiter = ',', help_heading = heading::CHECKS)]
    pub packages: Vec<String>,
    /// Limit in seconds for each case
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..), help_heading = heading::CHECKS)]
    pub timeout: u64,
    /// Limit in GiB for what compiling a case may take
    #[arg(long, value_name = "GIB", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = heading::CHECKS)]
    pub memory: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t, help_heading = heading::OUTPUT)]
    pub format: TextOrJson,
}

/// Compiles and reports.
pub fn run(args: &ProbeArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let hardware = HardwareArgs { arch: vec![args.arch.clone()], platform: None };
    let settings = CheckArgs::default().settings(&hardware, None)?;
    let request = args.target.request(&settings);
    let packs = Packs::with_directories(&settings.packs.value)?;
    let scanning = scan::Options { settings, ..scan::Options::default() };
    let progress = Progress::new(global.quiet).timed(global.verbose);
    progress.stage("looking at the environment");
    let mut environment = Environment::load(&request)?;
    if args.overlay {
        let everything = |_: &Finding| true;
        let choice = Choice { unsafe_too: false, selected: &everything };
        let (with_plan, plan, _) = planned(environment, &packs, &scanning, &choice, &progress)?;
        environment = with_plan;
        lay_over(&mut environment, &plan);
    }
    let findings = findings(&environment, &packs, &scanning, &progress)?;
    let options = Options {
        arch: args.arch.clone(),
        full: args.full,
        no_torch: args.no_torch,
        timeout: Duration::from_secs(args.timeout),
        memory: args.memory << 30,
        cases: args.cases.clone(),
        packages: args.packages.clone(),
    };
    let mut report = probe::run(&environment, &packs, &findings, &options, &progress).map_err(failure)?;
    report.patched = args.overlay;
    drop(progress);
    let mut out = std::io::stdout().lock();
    match args.format {
        TextOrJson::Text => write!(out, "{}", report.text(Style::stdout(global.color)))?,
        TextOrJson::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
    }
    Ok(status(&report).into())
}

fn status(report: &Report) -> Status {
    match report.outcome() {
        Outcome::Good => Status::Clean,
        Outcome::Bad => Status::Findings,
        Outcome::Unchecked => Status::Unchecked,
    }
}

fn failure(error: ProbeError) -> Failure {
    let status = if error.is_usage() { Status::Error } else { Status::Unchecked };
    Failure { message: error.to_string(), hint: Some(error.hint()), status }
}

/// What a scan says about sources: what fails to compile is looked up there.
fn findings(
    environment: &Environment,
    packs: &Packs,
    options: &scan::Options,
    progress: &Progress,
) -> anyhow::Result<Vec<Finding>> {
    let of_sources = |rule: &crate::rules::RuleInfo| rule.code.starts_with("FA0");
    Ok(check(environment, packs, options, &of_sources, progress)?.findings)
}

/// Lays what a plan would write over the environment.
fn lay_over(environment: &mut Environment, plan: &Plan) {
    for (index, root) in environment.roots.iter_mut().enumerate() {
        let id = RootId(index as u32);
        let of_root = plan.files.iter().filter(|((root, _), _)| *root == id);
        let overlay: BTreeMap<String, Vec<u8>> =
            of_root.map(|((_, path), file)| (path.clone(), file.after.clone())).collect();
        root.tree.set_overlay(overlay);
    }
}

/// For `fix --write --verify`: compiles what is installed and what `plan` would make of it, and refuses if a case gets
/// worse or if nothing can be compiled. The text says what came out.
pub fn verify(
    environment: &mut Environment,
    packs: &Packs,
    scanning: &scan::Options,
    plan: &Plan,
    arch: &str,
    progress: &Progress,
) -> anyhow::Result<String> {
    let options = Options {
        arch: arch.to_owned(),
        full: false,
        no_torch: !has_torch(environment),
        timeout: Duration::from_secs(300),
        memory: 8 << 30,
        cases: Vec::new(),
        packages: Vec::new(),
    };
    let compile = |environment: &Environment| -> anyhow::Result<Report> {
        let findings = findings(environment, packs, scanning, progress)?;
        Ok(probe::run(environment, packs, &findings, &options, progress).map_err(failure)?)
    };
    lay_over(environment, &Plan::default());
    let before = compile(environment)?;
    lay_over(environment, plan);
    let after = compile(environment);
    lay_over(environment, &Plan::default());
    let after = after?;
    let worse = worse(&before, &after);
    if let Some(first) = worse.first() {
        let message = format!(
            "nothing was written: for {arch} the patch makes {} of {} worse ({} before, {} after: {})",
            first.after.name,
            first.after.package,
            first.before.verdict.text().to_lowercase(),
            first.after.verdict.text().to_lowercase(),
            first.after.message
        );
        let hint = format!("see it with: fa-doctor probe --overlay --arch {arch}");
        return Err(Failure::new(message, hint).into());
    }
    let good = |report: &Report| report.cases.iter().filter(|case| case.verdict.rank() == 0).count();
    Ok(format!(
        "verified for {arch}: {} of {} cases compile, {} before",
        good(&after),
        after.cases.len(),
        good(&before)
    ))
}

/// Whether torch lies in the environment.
fn has_torch(environment: &Environment) -> bool {
    environment.distribution("torch").is_some()
}
