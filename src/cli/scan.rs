//! `fa-doctor scan`: reports what does not fit.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Status;
use super::args::{CheckArgs, GlobalArgs, HardwareArgs, TargetArgs, heading, parse_glibc};
use super::output::OutputArgs;
use crate::config::baseline::Baseline;
use crate::progress::Progress;
use crate::report::{FailOn, Format, Report, Workplace};
use crate::scan::{Options, scan};

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
    };
    let progress = Progress::new(global.quiet);
    let outcome = scan(&request, &options, &progress);
    drop(progress);
    let outcome = outcome?;
    if let Some(path) = &args.write_baseline {
        Baseline::new(&outcome.report.findings).write(path)?;
    }
    plan.write(&outcome.report, &Workplace::new(&outcome.environment), global)?;
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
