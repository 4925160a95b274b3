//! `fa-doctor report`: a block for an issue, with what a maintainer asks for first.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::args::{CheckArgs, GlobalArgs, HardwareArgs, TargetArgs, heading};
use super::{Failure, Status};
use crate::progress::Progress;
use crate::report::Workplace;
use crate::report::issue::{self, Attachment};
use crate::scan::{Options, scan};

/// Arguments of `fa-doctor report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Which environment.
    #[command(flatten)]
    pub target: TargetArgs,
    /// What it is to run on.
    #[command(flatten)]
    pub hardware: HardwareArgs,
    /// Which rules.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Put in the result of `fa-doctor probe --format json`
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub probe: Option<PathBuf>,
    /// Put in the result of `fa-doctor smoke --format json`
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub smoke: Option<PathBuf>,
}

/// Prints the block. The exit code says whether there is a block, not what is in it.
pub fn run(args: &ReportArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let results = [("probe", "dsl", &args.probe), ("smoke", "stages", &args.smoke)];
    let attachments =
        results.into_iter().filter_map(|(title, part, path)| Some(attachment(title, part, path.as_deref()?)));
    let attachments = attachments.collect::<anyhow::Result<Vec<_>>>()?;
    let settings = args.checks.settings(&args.hardware, None)?;
    let request = args.target.request(&settings);
    let progress = Progress::new(global.quiet);
    let outcome = scan(&request, &Options { settings, ..Options::default() }, &progress);
    drop(progress);
    let outcome = outcome?;
    let mut block = Vec::new();
    issue::write(&outcome.report, &Workplace::new(&outcome.environment, &outcome.packs), &attachments, &mut block)?;
    std::io::stdout().lock().write_all(&block)?;
    Ok(Status::Clean.into())
}

/// The result of a subcommand, known by a `part` that it has.
fn attachment(title: &'static str, part: &str, path: &Path) -> anyhow::Result<Attachment> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("`{}` is not a JSON result of {title}", path.display()))?;
    // Whatever else a file holds is not for an issue.
    if value.get("schema").is_none() || value.get(part).is_none() {
        let hint = format!("`fa-doctor {title} --format json` prints one");
        return Err(Failure::new(format!("`{}` is not a JSON result of {title}", path.display()), hint).into());
    }
    Ok(Attachment { title, json: serde_json::to_string_pretty(&value)? })
}
