//! `fa-doctor smoke`: the bundled attention kernel on the GPU, and the installed attention beside it.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::args::{GlobalArgs, TextOrJson, heading};
use super::{Failure, Status};
use crate::environment::arch;
use crate::progress::Progress;
use crate::report::Style;
use crate::smoke::report::Outcome;
use crate::smoke::{self, Options};

/// Arguments of `fa-doctor smoke`.
#[derive(Debug, Args)]
pub struct SmokeArgs {
    /// Architecture that the GPU must have, as `sm_120` or `12.0`
    #[arg(long, value_name = "ARCH", value_parser = arch::normalize, help_heading = heading::TARGET)]
    pub arch: Option<String>,
    /// Number of the GPU, as `nvidia-smi -L` counts them
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = heading::TARGET)]
    pub device: usize,
    /// Interpreter whose attention packages to run on the same inputs (they are imported)
    #[arg(long, value_name = "PYTHON", help_heading = heading::TARGET)]
    pub python: Option<PathBuf>,
    /// Seconds without an answer after which the kernel, or a package, counts as hanging
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..), help_heading = heading::CHECKS)]
    pub timeout: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t, help_heading = heading::OUTPUT)]
    pub format: TextOrJson,
}

/// Arguments of the hidden subcommand that `smoke` runs in a child process.
#[derive(Debug, Args)]
pub struct SmokeChildArgs {
    /// Number of the GPU
    #[arg(long)]
    pub device: usize,
    /// Architecture that the GPU must have
    #[arg(long, value_parser = arch::normalize)]
    pub arch: Option<String>,
}

/// Runs the kernel, and the packages of `--python`.
pub fn run(args: &SmokeArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    if let Some(python) = &args.python
        && !python.is_file()
    {
        let hint = "Name the executable, as: fa-doctor smoke --python .venv/bin/python";
        return Err(Failure::new(format!("{} is not a python executable", python.display()), hint).into());
    }
    let executable = std::env::current_exe().map_err(|error| {
        let message = format!("cannot find this program, to run it as a child: {error}");
        Failure::unchecked(message, "Where /proc is not mounted, mount it: `mount -t proc proc /proc`")
    })?;
    let options = Options {
        device: args.device,
        arch: args.arch.clone(),
        python: args.python.clone(),
        timeout: Duration::from_secs(args.timeout),
    };
    let progress = Progress::new(global.quiet).timed(global.verbose);
    let report = smoke::run(&options, &executable, &progress)?;
    drop(progress);
    let mut out = std::io::stdout().lock();
    match args.format {
        TextOrJson::Text => write!(out, "{}", report.text(Style::stdout(global.color), global.quiet))?,
        TextOrJson::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
    }
    Ok(match report.outcome() {
        Outcome::Right => Status::Clean,
        Outcome::Wrong => Status::Findings,
        Outcome::Unchecked => Status::Unchecked,
    }
    .into())
}

/// The child process.
pub fn run_child(args: &SmokeChildArgs) -> ExitCode {
    smoke::run_child(args.device, args.arch.as_deref());
    Status::Clean.into()
}
