//! Arguments that several subcommands share, flattened into theirs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::environment::Platform;
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
    /// Print findings and errors only
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = heading::GLOBAL)]
    pub quiet: bool,
    /// Say what is looked at, and where the time goes
    #[arg(short, long, global = true, help_heading = heading::GLOBAL)]
    pub verbose: bool,
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
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = parse_arch, help_heading = heading::TARGET)]
    pub arch: Vec<String>,
    /// Platform whose branches to follow [default: cuda]
    #[arg(long, value_enum, help_heading = heading::TARGET)]
    pub platform: Option<Platform>,
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

/// Normalises an architecture: `sm_120`, `sm120`, `compute_120`, `12.0` and `120` are all `sm_120`; a trailing `a` or `f`
/// (`sm_120a`) names a feature set of the same device and is dropped.
pub fn parse_arch(text: &str) -> Result<String, String> {
    let lower = text.trim().to_ascii_lowercase();
    let bare = ["sm_", "sm", "compute_"].iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower);
    let bare = bare.strip_suffix(['a', 'f']).unwrap_or(bare);
    let digits = match bare.split_once('.') {
        Some((major, minor)) if !major.is_empty() && minor.len() == 1 => format!("{major}{minor}"),
        Some(_) => String::new(),
        None => bare.to_owned(),
    };
    let plausible =
        (2..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    if plausible {
        Ok(format!("sm_{digits}"))
    } else {
        Err("an architecture looks like `sm_120` or `12.0`; `nvidia-smi --query-gpu=compute_cap --format=csv` prints yours".to_owned())
    }
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
    fn architectures_have_one_spelling() {
        for text in ["sm_120", "SM120", "sm_120a", "sm_120f", "compute_120", "12.0", "120"] {
            assert_eq!(parse_arch(text).as_deref(), Ok("sm_120"), "{text}");
        }
        assert_eq!(parse_arch("8.6").as_deref(), Ok("sm_86"));
        for text in ["", "sm_", "blackwell", "12.", ".0", "12.00", "5", "sm_1200", "sm_-1", "09"] {
            assert!(parse_arch(text).is_err(), "{text}");
        }
    }

    #[test]
    fn glibc_versions() {
        assert_eq!(parse_glibc("2.31"), Ok((2, 31)));
        assert!(parse_glibc("2").is_err());
        assert!(parse_glibc("2.x").is_err());
    }
}
