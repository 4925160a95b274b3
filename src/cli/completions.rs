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
    clap_complete::generate(args.shell, &mut visible(), "fa-doctor", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Status::Clean.into())
}

/// The command without what is hidden: completion scripts would offer it all the same.
fn visible() -> Command {
    let full = Cli::command();
    let subcommands = full.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    Command::new("fa-doctor")
        .version(env!("CARGO_PKG_VERSION"))
        .about(full.get_about().cloned().unwrap_or_default())
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .args(full.get_arguments().cloned())
        .subcommands(subcommands)
}

/// Prints or writes manual pages.
pub fn run_man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = visible();
    command.build();
    let Some(folder) = &args.folder else {
        std::io::stdout().lock().write_all(page(&command, "fa-doctor")?.as_bytes())?;
        return Ok(Status::Clean.into());
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    write_page(&command, "fa-doctor", folder)?;
    for subcommand in command.get_subcommands() {
        write_page(subcommand, &format!("fa-doctor-{}", subcommand.get_name()), folder)?;
    }
    Ok(Status::Clean.into())
}

fn write_page(command: &Command, name: &str, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page(command, name)?).with_context(|| format!("cannot write `{}`", path.display()))
}

/// A manual page. What the generator writes is mended where formatters warn: an empty date that is not quoted, so that
/// the program stands in its place, and line breaks around nothing.
fn page(command: &Command, name: &str) -> anyhow::Result<String> {
    let mut page = Vec::new();
    let source = concat!("fa-doctor ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command.clone()).title(name).source(source).render(&mut page)?;
    let page = String::from_utf8(page)?;
    Ok(page.replacen(" 1  \"", " 1 \"\" \"", 1).replace("\n.br\n\n.br\n", "\n.sp\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_neither_offered_nor_documented() {
        let mut command = visible();
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "fa-doctor", &mut script);
            let script = String::from_utf8(script).expect("UTF-8");
            assert!(script.contains("scan") && !script.contains(crate::smoke::CHILD_COMMAND), "{shell}");
        }
        let page = page(&command, "fa-doctor").expect("a page");
        assert!(page.contains(concat!(".TH fa-doctor 1 \"\" \"fa-doctor ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
        assert!(!page.contains(crate::smoke::CHILD_COMMAND));
    }
}
