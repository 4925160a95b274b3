//! `fa-doctor pin`: prints a coherent constraints file, or checks a file that pins versions.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use super::args::{CheckArgs, GlobalArgs, HardwareArgs, TargetArgs, heading};
use super::output::OutputArgs;
use super::scan::status;
use super::{Failure, Status};
use crate::environment::{Environment, Root, RootKind, Tree};
use crate::finding::Incomplete;
use crate::packs::{Machines, Packs};
use crate::pin::{self, PinError};
use crate::report::{Report, Style, Workplace};

/// Arguments of `fa-doctor pin`.
#[derive(Debug, Args)]
pub struct PinArgs {
    /// Which environment.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Check FILE instead: requirements or constraints, pyproject.toml, uv.lock or pylock.toml
    #[arg(long, value_name = "FILE", conflicts_with = "targets", help_heading = heading::CHECKS)]
    pub check: Option<PathBuf>,
    /// Folder with more rule packs (repeatable)
    #[arg(long, value_name = "DIR", help_heading = heading::CHECKS)]
    pub rules: Vec<PathBuf>,
    /// Where the findings of --check go.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Prints constraints, or checks a file.
pub fn run(args: &PinArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let checks = CheckArgs { rules: args.rules.clone(), ..CheckArgs::default() };
    let settings = checks.settings(&HardwareArgs::default(), None)?;
    let packs = Packs::with_directories(&settings.packs.value)?;
    if let Some(file) = &args.check {
        return check(args, file, &packs, global);
    }
    let environment = Environment::load(&args.target.request(&settings))?;
    match pin::constraints(&environment, &packs) {
        Ok(text) => {
            std::io::stdout().lock().write_all(text.as_bytes())?;
            Ok(Status::Clean.into())
        }
        Err(PinError::NoneFits { subject, reasons }) => {
            let style = Style::stderr(global.color);
            eprintln!("{} {}", style.bad("error:"), PinError::NoneFits { subject, reasons: Vec::new() });
            for reason in reasons {
                eprintln!("  {reason}");
            }
            Ok(Status::Findings.into())
        }
        Err(error) => {
            let looked = environment.labels().join(", ");
            let message = format!("{error} (looked at {looked})");
            Err(Failure::unchecked(message, "name the environment: `fa-doctor pin .venv`").into())
        }
    }
}

fn check(args: &PinArgs, file: &Path, packs: &Packs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let plan = args.output.plan()?;
    let pin::Pins { pins, notes } = pin::read(file).map_err(|error| {
        let hint = "requirements and constraints files, pyproject.toml, uv.lock and pylock.toml can be checked";
        Failure::unchecked(format!("{}: {error}", file.display()), hint)
    })?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let root = Root::new(folder, RootKind::Checkout, Tree::folder(folder)?);
    let environment = Environment { roots: vec![root], sys_platform: "linux".to_owned(), ..Environment::default() };
    let findings = pin::check(&pins, &name, packs, &Machines::of(&environment));
    let note =
        |(line, reason): (u32, String)| Incomplete { path: name.clone(), reason: format!("line {line}: {reason}") };
    let incomplete = notes.into_iter().map(note).collect();
    let report = Report::new(&environment, |name| packs.in_stack(name), findings, incomplete, 1, start.elapsed());
    plan.write(&report, &Workplace::new(&environment, packs), global.color)?;
    Ok(status(&report).into())
}
