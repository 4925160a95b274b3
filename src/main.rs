//! The binary: parses arguments, calls the subcommand and maps the exit code.

use std::process::ExitCode;

use clap::Parser;

use fa_doctor::cli;

fn main() -> ExitCode {
    let arguments = cli::Cli::parse();
    cli::run(&arguments).unwrap_or_else(|error| cli::fail(&error, &arguments.global))
}
