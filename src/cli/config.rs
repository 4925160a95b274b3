//! `fa-doctor config`: the effective settings, and where each comes from.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;

use super::Status;
use super::args::{CheckArgs, GlobalArgs, HardwareArgs, heading};
use crate::config::ignore::Date;
use crate::config::{Origin, Setting, Settings};
use crate::report::{FailOn, Style};

/// Arguments of `fa-doctor config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What the environment is to run on.
    #[command(flatten)]
    pub hardware: HardwareArgs,
    /// Which rules.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Exit with 1 from this severity on [default: error]
    #[arg(long, value_enum, value_name = "SEVERITY", help_heading = heading::CHECKS)]
    pub fail_on: Option<FailOn>,
}

/// Prints the settings.
pub fn run(args: &ConfigArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let settings = args.checks.settings(&args.hardware, args.fail_on)?;
    let style = Style::stdout(global.color);
    let mut out = std::io::stdout().lock();
    for (key, value, origin) in rows(&settings) {
        writeln!(out, "{} = {value:<32} {}", style.bold(&format!("{key:<10}")), style.dim(&format!("# {origin}")))?;
    }
    let today = Date::today();
    for ignore in &settings.ignores {
        let end = ignore.until.map(|date| format!(", until {date}")).unwrap_or_default();
        let over = if ignore.expired(today) { " (over)" } else { "" };
        let what = [
            ("code", ignore.code.clone()),
            ("package", ignore.package.clone()),
            ("version", ignore.version.as_ref().map(ToString::to_string)),
            ("path", ignore.path.clone()),
            ("symbol", ignore.symbol.clone()),
        ];
        let what: Vec<_> =
            what.into_iter().filter_map(|(key, value)| value.map(|value| format!("{key} {value}"))).collect();
        writeln!(out, "{} {}{end}{over}: {}", style.bold("ignore"), what.join(", "), ignore.reason)?;
        writeln!(out, "       {}", style.dim(&format!("# {}", ignore.place)))?;
    }
    if settings.file.is_none() {
        let text = "no fa-doctor.toml and no [tool.fa-doctor] in a pyproject.toml, here or above";
        writeln!(out, "{}", style.dim(&format!("# {text}")))?;
    }
    Ok(Status::Clean.into())
}

/// Every setting as TOML, with where it comes from.
fn rows(settings: &Settings) -> Vec<(&'static str, String, &Origin)> {
    let list = |setting: &Setting<Vec<String>>| format!("{:?}", setting.value);
    let severity: Vec<_> =
        settings.severity.value.iter().map(|(code, severity)| format!("{code} = {:?}", severity.as_str())).collect();
    let severity = if severity.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", severity.join(", ")) };
    vec![
        ("select", list(&settings.select), &settings.select.origin),
        ("deselect", list(&settings.deselect), &settings.deselect.origin),
        ("severity", severity, &settings.severity.origin),
        ("fail-on", format!("{:?}", settings.fail_on.value.as_str()), &settings.fail_on.origin),
        ("platform", format!("{:?}", settings.platform.value.unwrap_or_default().as_str()), &settings.platform.origin),
        ("arch", list(&settings.arch), &settings.arch.origin),
        ("packs", format!("{:?}", settings.packs.value), &settings.packs.origin),
    ]
}
