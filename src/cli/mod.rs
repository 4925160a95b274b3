//! The command line: one file per subcommand, all of the same shape: `XArgs` and `run(&XArgs, &GlobalArgs) -> Result<ExitCode>`.

pub mod args;
pub mod completions;
pub mod config;
pub mod env;
pub mod explain;
pub mod fix;
pub mod merge;
pub mod output;
pub mod pin;
pub mod probe;
pub mod report;
pub mod rules;
pub mod scan;
pub mod smoke;
pub mod undo;

use std::fmt;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::report::style::{Style, printable_lines, wrap_after};
use crate::scan::ScanError;
use args::GlobalArgs;

/// Exit codes, the same for every subcommand and format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Nothing at or above `--fail-on`.
    Clean = 0,
    /// Findings.
    Findings = 1,
    /// Usage or internal error.
    Error = 2,
    /// Could not be checked: nothing to scan there, an unreadable attention file, no GPU, no DSL.
    Unchecked = 3,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status as u8)
    }
}

/// A failure that knows its exit code and what to do about it.
#[derive(Debug)]
pub struct Failure {
    /// What is wrong, without a full stop.
    pub message: String,
    /// What to do, as sentences.
    pub hint: Option<String>,
    /// The exit code.
    pub status: Status,
}

impl Failure {
    /// A usage or internal error with a hint.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { message: message.into(), hint: Some(hint.into()), status: Status::Error }
    }

    /// Something that could not be checked (exit 3), with a hint.
    pub fn unchecked(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { status: Status::Unchecked, ..Failure::new(message, hint) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "fa-doctor",
    version,
    about = "A link checker for installed attention stacks: vLLM, flash-attn, flash-attn-4, the CuTe DSL",
    after_help = "Example:\n  fa-doctor scan .venv --arch sm_120\n\n\
                  Exit codes:\n  0 nothing found   1 findings   2 usage or internal error   3 could not be checked",
    max_term_width = 100,
    arg_required_else_help = true,
    // One help, the short one: with grouped options there is nothing that a longer one would say.
    disable_help_flag = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Flags that every subcommand takes.
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// The subcommands, in the order of `--help`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Report what does not fit in an installed attention stack
    #[command(after_help = "Example:\n  fa-doctor scan .venv --arch sm_120")]
    Scan(scan::ScanArgs),
    /// Show the patches that follow from the sources, and apply them
    #[command(after_help = "Example:\n  fa-doctor fix .venv --write")]
    Fix(fix::FixArgs),
    /// Take back what `fix --write` did, to the exact bytes before
    #[command(after_help = "Example:\n  fa-doctor undo --list")]
    Undo(undo::UndoArgs),
    /// Compile the installed kernels for a GPU that need not be there
    #[command(
        after_help = "Examples:\n  fa-doctor probe .venv --arch sm_120\n  fa-doctor probe .venv --arch sm_120 --overlay --full"
    )]
    Probe(probe::ProbeArgs),
    /// Run the bundled attention kernel on the GPU and compare what is installed with it
    #[command(after_help = "Examples:\n  fa-doctor smoke --arch sm_120\n  fa-doctor smoke --python .venv/bin/python")]
    Smoke(smoke::SmokeArgs),
    /// Show what is installed, what it accepts, and what it runs on
    #[command(after_help = "Example:\n  fa-doctor env --arch sm_120")]
    Env(env::EnvArgs),
    /// Print versions that fit what is installed, or check a file that pins versions
    #[command(
        after_help = "Examples:\n  fa-doctor pin .venv > constraints.txt\n  fa-doctor pin --check requirements.txt"
    )]
    Pin(pin::PinArgs),
    /// Explain a rule: what it finds, why it matters, how to fix it
    #[command(after_help = "Example:\n  fa-doctor explain FA001")]
    Explain(explain::ExplainArgs),
    /// List the rules
    #[command(after_help = "Example:\n  fa-doctor rules --format json")]
    Rules(rules::RulesArgs),
    /// Print a block for an issue: environment, findings, machine
    #[command(after_help = "Example:\n  fa-doctor report .venv > issue.md")]
    Report(report::ReportArgs),
    /// Turn the JSON results of many nodes into one report
    #[command(after_help = "Example:\n  fa-doctor merge results/*.json")]
    Merge(merge::MergeArgs),
    /// Show the effective settings, and where each comes from
    #[command(after_help = "Example:\n  fa-doctor config")]
    Config(config::ConfigArgs),
    /// Print a completion script
    #[command(after_help = "Example:\n  source <(fa-doctor completions bash)")]
    Completions(completions::CompletionsArgs),
    /// Print or write the manual pages
    #[command(after_help = "Example:\n  fa-doctor man ~/.local/share/man/man1")]
    Man(completions::ManArgs),
    /// The child process of `smoke`
    #[command(name = crate::smoke::CHILD_COMMAND, hide = true)]
    SmokeChild(smoke::SmokeChildArgs),
}

/// Runs the subcommand that was asked for.
pub fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let global = &cli.global;
    match &cli.command {
        Command::Scan(args) => scan::run(args, global),
        Command::Fix(args) => fix::run(args, global),
        Command::Undo(args) => undo::run(args, global),
        Command::Env(args) => env::run(args, global),
        Command::Pin(args) => pin::run(args, global),
        Command::Rules(args) => rules::run(args, global),
        Command::Explain(args) => explain::run(args, global),
        Command::Report(args) => report::run(args, global),
        Command::Merge(args) => merge::run(args, global),
        Command::Config(args) => config::run(args, global),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => completions::run_man(args),
        Command::Probe(args) => probe::run(args, global),
        Command::Smoke(args) => smoke::run(args, global),
        Command::SmokeChild(args) => Ok(smoke::run_child(args)),
    }
}

/// What to say and to exit with after a panic.
pub fn crashed() -> ExitCode {
    let hint = "report it, with the lines above and the file or package that it happened on";
    eprintln!("error: this is a defect of fa-doctor {}\nhint: {hint}", env!("CARGO_PKG_VERSION"));
    Status::Error.into()
}

/// Prints an error as `error:`, its causes and its hint, and gives the exit code.
pub fn fail(error: &anyhow::Error, global: &GlobalArgs) -> ExitCode {
    // A closed pipe (`fa-doctor scan | head`) is the reader's decision, not an error to talk about.
    let closed = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(closed)) {
        return Status::Error.into();
    }
    let style = Style::stderr(global.color);
    let mut causes = error.chain();
    // Messages name files and arguments, which may hold anything.
    let text = causes.next().map(|error| printable_lines(&error.to_string())).unwrap_or_default();
    // Typed errors carry their hint in their text, so that it is never lost.
    let (first, hint) = match text.split_once("\nhint: ") {
        Some((first, hint)) => (first.trim_end(), Some(hint)),
        None => (text.as_str(), None),
    };
    eprintln!("{}", wrap_after("error:", &style.bad("error:"), first, style.width));
    let mut told = text.clone();
    for cause in causes {
        let cause = printable_lines(cause.to_string().trim_end());
        // Many typed errors have their cause in their own text.
        if !told.contains(&cause) {
            eprintln!("  {}", wrap_after("caused by:", "caused by:", &cause, style.width));
            told = cause;
        }
    }
    let failure = error.downcast_ref::<Failure>();
    if let Some(hint) = failure.and_then(|failure| failure.hint.as_deref()).or(hint) {
        let hint: Vec<_> = hint.lines().map(str::trim).collect();
        eprintln!("{}", wrap_after("hint:", &style.hint("hint:"), &hint.join("\n"), style.width));
    }
    if let Some(ScanError::Environment(error)) = error.downcast_ref::<ScanError>() {
        return ExitCode::from(error.exit_code());
    }
    failure.map_or(Status::Error, |failure| failure.status).into()
}
