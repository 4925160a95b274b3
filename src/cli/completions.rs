//! `fa-doctor completions` and `fa-doctor man`: written from the same description as `--help`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Status};

/// Arguments of `fa-doctor completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `fa-doctor man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write a page for every subcommand into this folder, instead of the first page to standard output
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// Prints a completion script.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    // The generator panics on a closed pipe when it writes there itself.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fa-doctor", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Status::Clean.into())
}

/// Prints or writes manual pages.
pub fn run_man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    match &args.folder {
        None => clap_mangen::Man::new(command).render(&mut std::io::stdout().lock())?,
        Some(folder) => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
            page(&command, "fa-doctor", folder)?;
            for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
                page(subcommand, &format!("fa-doctor-{}", subcommand.get_name()), folder)?;
            }
        }
    }
    Ok(Status::Clean.into())
}

fn page(command: &Command, name: &str, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(format!("{name}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut page)?;
    std::fs::write(&path, page).with_context(|| format!("cannot write `{}`", path.display()))
}
