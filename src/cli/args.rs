//! Arguments that several subcommands share, flattened into theirs.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::Failure;
use crate::config::{Origin, Settings, check_selector};
use crate::environment::{Platform, Request, arch};
use crate::report::FailOn;
pub use crate::report::style::ColorChoice;

/// Headings of `--help`, in the order they appear.
pub mod heading {
    /// Which environment.
    pub const TARGET: &str = "Environment";
    /// Which checks.
    pub const CHECKS: &str = "Checks";
    /// What is printed where.
    pub const OUTPUT: &str = "Output";
    /// Flags that every subcommand takes.
    pub const GLOBAL: &str = "Global options";
}

/// Flags that every subcommand takes.
#[derive(Debug, Clone, Default, Args)]
pub struct GlobalArgs {
    /// When to use colours
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, global = true, help_heading = heading::GLOBAL)]
    pub color: ColorChoice,
    /// Print the result and errors only
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = heading::GLOBAL)]
    pub quiet: bool,
    /// Say what is looked at, and where the time goes
    #[arg(short, long, global = true, help_heading = heading::GLOBAL)]
    pub verbose: bool,
    /// Print help
    #[arg(short, long, global = true, action = ArgAction::HelpShort, help_heading = heading::GLOBAL)]
    help: Option<bool>,
}

/// Which environment to look at.
#[derive(Debug, Clone, Default, Args)]
pub struct TargetArgs {
    /// Virtual environment, site-packages folder, python executable, wheel, or source checkout;
    /// several form one environment [default: --python, VIRTUAL_ENV, CONDA_PREFIX, ./.venv, python3]
    #[arg(value_name = "TARGET", help_heading = heading::TARGET)]
    pub targets: Vec<PathBuf>,
    /// Interpreter whose search path to use (asked for it, nothing is imported)
    #[arg(long, value_name = "PYTHON", help_heading = heading::TARGET)]
    pub python: Option<PathBuf>,
}

/// What the environment is to run on.
#[derive(Debug, Clone, Default, Args)]
pub struct HardwareArgs {
    /// GPU architecture to judge for, as `sm_120` or `12.0` (repeatable)
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = arch::normalize, help_heading = heading::TARGET)]
    pub arch: Vec<String>,
    /// Platform whose branches to follow [default: cuda]
    #[arg(long, value_enum, help_heading = heading::TARGET)]
    pub platform: Option<Platform>,
}

/// Which rules run, with which settings.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckArgs {
    /// Run only these rules: codes, their beginnings (FA1), or names
    #[arg(long, value_name = "CODE", value_delimiter = ',', help_heading = heading::CHECKS)]
    pub select: Vec<String>,
    /// Do not run these rules
    #[arg(long, value_name = "CODE", value_delimiter = ',', help_heading = heading::CHECKS)]
    pub ignore: Vec<String>,
    /// Folder with more rule packs (repeatable)
    #[arg(long, value_name = "DIR", help_heading = heading::CHECKS)]
    pub rules: Vec<PathBuf>,
    /// Settings [default: fa-doctor.toml or pyproject.toml, here or in a folder above]
    #[arg(long, value_name = "FILE", help_heading = heading::CHECKS)]
    pub config: Option<PathBuf>,
}

impl CheckArgs {
    /// The settings of the configuration file, with what the command line says instead.
    pub fn settings(&self, hardware: &HardwareArgs, fail_on: Option<FailOn>) -> anyhow::Result<Settings> {
        for code in self.select.iter().chain(&self.ignore) {
            check_selector(code).map_err(|message| Failure::new(message, "`fa-doctor rules` lists all of them"))?;
        }
        let folder = std::env::current_dir()?;
        let mut settings = Settings::load(self.config.as_deref(), &folder)?;
        let given = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        settings.select.set(given(&self.select), &Origin::CommandLine);
        settings.deselect.set(given(&self.ignore), &Origin::CommandLine);
        settings.arch.set(given(&hardware.arch), &Origin::CommandLine);
        settings.platform.set(hardware.platform.map(Some), &Origin::CommandLine);
        settings.fail_on.set(fail_on, &Origin::CommandLine);
        settings.packs.set((!self.rules.is_empty()).then(|| self.rules.clone()), &Origin::CommandLine);
        Ok(settings)
    }
}

impl TargetArgs {
    /// The environment that the command line and the settings ask for.
    pub fn request(&self, settings: &Settings) -> Request {
        Request {
            targets: self.targets.clone(),
            python: self.python.clone(),
            arch: settings.arch.value.clone(),
            platform: settings.platform.value.unwrap_or_default(),
        }
    }
}

/// Text or JSON, for the subcommands whose result is not a list of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum TextOrJson {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Parses `2.31` of `--glibc`.
pub fn parse_glibc(text: &str) -> Result<(u32, u32), String> {
    text.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| "a glibc version looks like `2.31`; `ldd --version` prints yours".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_versions() {
        assert_eq!(parse_glibc("2.31"), Ok((2, 31)));
        assert!(parse_glibc("2").is_err());
        assert!(parse_glibc("2.x").is_err());
    }
}
