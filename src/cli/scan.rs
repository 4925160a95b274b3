//! `fa-doctor scan`: reports what does not fit.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::Status;
use super::args::{CheckArgs, GlobalArgs, HardwareArgs, TargetArgs, heading, parse_glibc};
use super::output::{OutputArgs, Plan};
use crate::config::baseline::Baseline;
use crate::environment::{Environment, LoadError};
use crate::finding::Incomplete;
use crate::progress::Progress;
use crate::report::style::printable;
use crate::report::{FailOn, Format, NoSources, Report, Subject, Workplace};
use crate::scan::{Options, ScanError, scan};

/// Arguments of `fa-doctor scan`.
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// Which environment.
    #[command(flatten)]
    pub target: TargetArgs,
    /// What it is to run on.
    #[command(flatten)]
    pub hardware: HardwareArgs,
    /// C library to judge for, as `2.31` [default: this machine's]
    #[arg(long, value_name = "VERSION", value_parser = parse_glibc, help_heading = heading::TARGET)]
    pub glibc: Option<(u32, u32)>,
    /// Which rules.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Audit whole packages, not only the attention stack
    #[arg(long, help_heading = heading::CHECKS)]
    pub all: bool,
    /// Exit with 1 from this severity on [default: error]
    #[arg(long, value_enum, value_name = "SEVERITY", help_heading = heading::CHECKS)]
    pub fail_on: Option<FailOn>,
    /// Leave out the findings listed in FILE
    #[arg(long, value_name = "FILE", help_heading = heading::CHECKS)]
    pub baseline: Option<PathBuf>,
    /// List today's findings in FILE, to start from there
    #[arg(long, value_name = "FILE", conflicts_with = "baseline", help_heading = heading::CHECKS)]
    pub write_baseline: Option<PathBuf>,
    /// What is printed where.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Scans and reports.
pub fn run(args: &ScanArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let plan = args.output.plan()?;
    let settings = args.checks.settings(&args.hardware, args.fail_on)?;
    let request = args.target.request(&settings);
    let options = Options {
        settings,
        all: args.all,
        glibc: args.glibc,
        baseline: args.baseline.as_deref().map(Baseline::read).transpose()?,
        degraded: false,
        capabilities: plan.writes(Format::Html),
    };
    let progress = Progress::new(global.quiet).timed(global.verbose);
    let outcome = scan(&request, &options, &progress);
    drop(progress);
    let mut outcome = match outcome {
        Ok(outcome) => outcome,
        Err(ScanError::Environment(error)) if error.exit_code() == Status::Unchecked as u8 => {
            return unchecked(error, args, &plan, global);
        }
        Err(error) => return Err(error.into()),
    };
    outcome.report.in_full = global.verbose;
    if let Some(path) = &args.write_baseline {
        Baseline::new(&outcome.report.findings).write(path)?;
    }
    plan.write(&outcome.report, &Workplace::new(&outcome.environment, &outcome.packs), global.color)?;
    if global.verbose {
        search_path(&outcome.environment);
    }
    if plan.stdout.is_none() && !global.quiet {
        eprintln!("{}; wrote {}", outcome.report.headline(), plan.names());
    }
    if plan.stdout.is_none_or(|format| format != Format::Text) && !global.quiet {
        for note in &outcome.report.notes {
            eprintln!("note: {note}");
        }
    }
    if args.write_baseline.is_some() {
        return Ok(Status::Clean.into());
    }
    Ok(status(&outcome.report).into())
}

/// Where `import` looks, in order: the first question when something is resolved against the wrong file.
fn search_path(environment: &Environment) {
    eprintln!("search path:");
    for entry in &environment.search_path {
        let root = &environment.root(entry.root).label;
        let slash = if entry.prefix.is_empty() { "" } else { "/" };
        eprintln!("  {}", printable(&format!("{root}{slash}{}", entry.prefix)));
    }
}

/// There is nothing to report on, and programs that read reports must learn it: a missing file looks like a missing run.
fn unchecked(error: LoadError, args: &ScanArgs, plan: &Plan, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let targets: Vec<String> = args.target.targets.iter().map(|target| target.display().to_string()).collect();
    let text = error.to_string();
    let reason = text.lines().next().unwrap_or_default().to_owned();
    let path = if targets.is_empty() { "environment".to_owned() } else { targets.join(", ") };
    let subject = Subject { roots: targets, ..Subject::default() };
    let gaps = vec![Incomplete { path, reason }];
    let report = Report::of(subject, Vec::new(), gaps, 0, Duration::ZERO);
    let for_people = |format: Format| matches!(format, Format::Text | Format::Concise);
    let stdout = plan.stdout.filter(|format| !for_people(*format));
    let plan = Plan { stdout, files: plan.files.clone() };
    if plan.stdout.is_some() || !plan.files.is_empty() {
        plan.write(&report, &NoSources, global.color)?;
    }
    Err(ScanError::Environment(error).into())
}

/// The exit code that a report stands for.
pub fn status(report: &Report) -> Status {
    if report.findings.iter().any(|finding| report.fail_on.includes(finding.severity)) {
        Status::Findings
    } else if report.incomplete.is_empty() {
        Status::Clean
    } else {
        Status::Unchecked
    }
}
