//! The binary: parses arguments, calls the subcommand and maps the exit code.

use std::process::ExitCode;

use clap::Parser;

use fa_doctor::cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Stack of the thread that everything runs on, and of every worker. The parser recurses as deep as a source nests, and
/// generated or hostile sources nest deep; what is not used is only reserved.
const STACK: usize = 256 << 20;

fn main() -> ExitCode {
    // Where so much cannot be reserved, the default has to do.
    let _ = rayon::ThreadPoolBuilder::new().stack_size(STACK).build_global();
    match std::thread::Builder::new().name("main".to_owned()).stack_size(STACK).spawn(run) {
        // What went wrong was printed when it did.
        Ok(thread) => thread.join().unwrap_or_else(|_| cli::crashed()),
        Err(_) => run(),
    }
}

fn run() -> ExitCode {
    let arguments = cli::Cli::parse();
    cli::run(&arguments).unwrap_or_else(|error| cli::fail(&error, &arguments.global))
}
