//! The binary: parses arguments, calls the subcommand and maps the exit code.

fn main() {}
