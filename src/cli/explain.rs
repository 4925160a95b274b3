//! `fa-doctor explain`: the documentation of one rule, from the rule's own source.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;

use super::args::GlobalArgs;
use super::{Failure, Status};
use crate::report::Style;
use crate::rules::registry;

/// Arguments of `fa-doctor explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Code or name of a rule, such as FA001 or undefined-name
    #[arg(value_name = "CODE")]
    pub rule: String,
}

/// Prints the documentation of a rule.
pub fn run(args: &ExplainArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let wanted =
        |code: &str, name: &str| code.eq_ignore_ascii_case(&args.rule) || name.eq_ignore_ascii_case(&args.rule);
    let info = registry::all().iter().map(|rule| rule.info()).find(|info| wanted(info.code, info.name));
    let info = info.ok_or_else(|| {
        Failure::new(format!("there is no rule `{}`", args.rule), "`fa-doctor rules` lists all of them")
    })?;
    let style = Style::stdout(global.color);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", style.bold(&format!("{} {}", info.code, info.name)))?;
    for line in info.docs().lines() {
        match line.strip_prefix('#') {
            Some(heading) => writeln!(out, "{}", style.bold(heading.trim_start_matches('#').trim_start()))?,
            None => writeln!(out, "{line}")?,
        }
    }
    Ok(Status::Clean.into())
}
