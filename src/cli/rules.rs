//! `fa-doctor rules`: every rule and every known defect, one line each.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::Status;
use super::args::{GlobalArgs, TextOrJson, heading};
use crate::packs::Packs;
use crate::report::Style;
use crate::rules::registry;

/// Arguments of `fa-doctor rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t, help_heading = heading::OUTPUT)]
    pub format: TextOrJson,
}

/// One rule in `--format json`.
#[derive(Serialize)]
struct Listed {
    code: &'static str,
    name: &'static str,
    summary: &'static str,
}

/// Lists the rules.
pub fn run(args: &RulesArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let style = Style::stdout(global.color);
    let infos = registry::all().iter().map(|rule| rule.info());
    let mut out = std::io::stdout().lock();
    match args.format {
        TextOrJson::Text => {
            for info in infos {
                writeln!(out, "{}  {:<24} {}", style.bold(info.code), info.name, info.summary)?;
            }
            writeln!(out, "\n{}", style.bold("Known defects of released versions (FA104)"))?;
            for defect in &Packs::embedded().defects {
                writeln!(out, "{:<31} {} {}", defect.id, defect.package, defect.versions)?;
            }
        }
        TextOrJson::Json => {
            let listed = infos.map(|info| Listed { code: info.code, name: info.name, summary: info.summary });
            writeln!(out, "{}", serde_json::to_string_pretty(&listed.collect::<Vec<_>>())?)?;
        }
    }
    Ok(Status::Clean.into())
}
