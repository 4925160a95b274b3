//! `fa-doctor env`: what is installed, what it can do, and on which GPU.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::Status;
use super::args::{CheckArgs, GlobalArgs, HardwareArgs, TargetArgs, TextOrJson, heading};
use crate::capability::Matrix;
use crate::choice::{Backend, Choice, Place, choices};
use crate::environment::Environment;
use crate::environment::gpu::{Gpu, Hardware};
use crate::finding::Finding;
use crate::link::{Program, Scope};
use crate::native::inspection::Cache;
use crate::native::table::{self, Row};
use crate::packs::Packs;
use crate::progress::Progress;
use crate::report::style::{printable, printable_lines, wrap_after};
use crate::report::{Report, Style, Subject};
use crate::rules::{Context, Sink, registry};
use crate::scan::ScanError;

/// The rule that finds what stands between an architecture and the kernels.
const GATES: &str = "arch-gate";

/// Arguments of `fa-doctor env`.
#[derive(Debug, Args)]
pub struct EnvArgs {
    /// Which environment.
    #[command(flatten)]
    pub target: TargetArgs,
    /// What it is to run on.
    #[command(flatten)]
    pub hardware: HardwareArgs,
    /// Which packs and settings.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t, help_heading = heading::OUTPUT)]
    pub format: TextOrJson,
}

/// What `--format json` prints.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    environment: Subject,
    machine: Hardware,
    choices: Vec<Choice>,
    gates: Vec<Finding>,
    device_code: Vec<Row>,
    capabilities: Matrix,
}

/// Looks and tells.
pub fn run(args: &EnvArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let settings = args.checks.settings(&args.hardware, None)?;
    let request = args.target.request(&settings);
    let packs = Packs::with_directories(&settings.packs.value).map_err(ScanError::Pack)?;
    let progress = Progress::new(global.quiet).timed(global.verbose);
    progress.stage("looking at the environment");
    let environment = Environment::load(&request).map_err(ScanError::Environment)?;
    progress.stage("reading sources");
    let program = Program::load(&environment, &packs, Scope::default());
    let capabilities = Matrix::of(&program);
    let choices = choices(&program);
    let gates = gates(&program);
    progress.stage("reading libraries");
    let device_code = table::table(&environment, &packs);
    drop(progress);
    let stack = |name: &str| packs.in_stack(name);
    let report = Report::new(&environment, stack, Vec::new(), Vec::new(), program.files(), Duration::ZERO);
    let in_stack = report.environment.packages.iter().any(|package| package.stack);
    if !in_stack && capabilities.functions.is_empty() && device_code.is_empty() {
        return Err(ScanError::Environment(environment.nothing_to_scan()).into());
    }
    let machine = Hardware::detect().clone();
    let facts =
        Facts { schema: 1, environment: report.environment, machine, choices, gates, device_code, capabilities };
    let mut out = std::io::stdout().lock();
    match args.format {
        TextOrJson::Json => writeln!(out, "{}", serde_json::to_string_pretty(&facts)?)?,
        TextOrJson::Text => text(&facts, Style::stdout(global.color), &mut out)?,
    }
    Ok(Status::Clean.into())
}

/// The architecture gates on the way to the kernels, for the architectures asked for, in the order in which a call meets
/// them.
fn gates(program: &Program<'_>) -> Vec<Finding> {
    let Program { environment, packs, .. } = *program;
    let mut sink = Sink::default();
    let context = Context { environment, program, packs, glibc: None, native: Cache::default() };
    for rule in registry::all().iter().filter(|rule| rule.info().name == GATES) {
        rule.check(&context, &mut sink);
    }
    sink.findings
}

fn text(facts: &Facts, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let environment = &facts.environment;
    let mut line = |label: &str, text: &str| {
        let colon = if label.is_empty() { "" } else { ":" };
        let label = format!("{:<12}", format!("{label}{colon}"));
        writeln!(out, "{}", wrap_after(&label, &style.dim(&label), &printable(text), style.width))
    };
    line("environment", &environment.roots.join(", "))?;
    if let Some(python) = &environment.python {
        line("Python", python)?;
    }
    line("machine", &machine(&facts.machine))?;
    let stack = environment.packages.iter().filter(|package| package.stack);
    for (index, package) in stack.enumerate() {
        line(if index == 0 { "packages" } else { "" }, &format!("{} {}", package.name, package.version))?;
    }
    choice_list(&facts.choices, style, out)?;
    gate_list(facts, style, out)?;
    matrix(&facts.capabilities, style, out)?;
    device_code(&facts.device_code, style, out)
}

/// GPUs and driver of this machine.
fn machine(hardware: &Hardware) -> String {
    let gpu = |gpu: &Gpu| match &gpu.arch {
        Some(arch) => format!("{} ({arch})", gpu.name),
        None => gpu.name.clone(),
    };
    let mut parts: Vec<String> = hardware.gpus.iter().map(gpu).collect();
    if parts.is_empty() {
        parts.push("no GPU".to_owned());
    }
    parts.extend(hardware.driver.iter().map(|driver| format!("driver {driver}")));
    parts.extend(hardware.cuda.iter().map(|cuda| format!("for CUDA {cuda}")));
    parts.extend(hardware.trouble.iter().cloned());
    parts.join(", ")
}

/// What vLLM takes, and why not the others.
fn choice_list(choices: &[Choice], style: Style, out: &mut dyn Write) -> io::Result<()> {
    for choice in choices {
        writeln!(out, "\n{}", style.bold(&format!("which attention vLLM takes on {}", choice.arch)))?;
        let mut line = |label: &str, text: &str, place: Option<&Place>| {
            let label = format!("  {label:<11}");
            writeln!(out, "{}", wrap_after(&label, &label, &printable(text), style.width))?;
            match place {
                Some(place) => {
                    writeln!(out, "      {}", style.dim(&printable(&format!("{}:{}", place.path, place.line))))
                }
                None => Ok(()),
            }
        };
        for version in &choice.versions {
            let text = match (version.supported, version.chosen) {
                (_, true) => "taken, unless a setting, ALiBi or the head size ask for another",
                (true, false) => "runs here, and is not what is taken by default",
                (false, false) => version.reason.as_deref().unwrap_or("not supported on this architecture"),
            };
            let not = if version.supported { "" } else { "not " };
            line(&format!("{not}{}", version.name), text, version.place.as_ref())?;
        }
        for backends in &choice.backends {
            let (never, tried): (Vec<&Backend>, Vec<&Backend>) =
                backends.order.iter().partition(|backend| backend.runs == Some(false));
            let names = |list: &[&Backend]| list.iter().map(|b| b.name.as_str()).collect::<Vec<_>>().join(", ");
            let mut text = match &tried[..] {
                [] => "nothing".to_owned(),
                [only] => only.name.clone(),
                _ => format!("the first that fits the model: {}", names(&tried)),
            };
            if !never.is_empty() {
                text += &format!("; not on {}: {}", choice.arch, names(&never));
            }
            line(backends.kind, &text, Some(&backends.place))?;
        }
    }
    Ok(())
}

fn gate_list(facts: &Facts, style: Style, out: &mut dyn Write) -> io::Result<()> {
    if facts.gates.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", style.bold(&format!("gates on the way of {}", facts.environment.arch.join(", "))))?;
    for gate in &facts.gates {
        let label = format!("  {}", gate.severity.as_str());
        let painted = style.severity_color(gate.severity, &label);
        writeln!(out, "{}", wrap_after(&label, &painted, &printable_lines(&gate.message), style.width))?;
        writeln!(out, "      {}", style.dim(&printable(&format!("{}:{}", gate.path, gate.line))))?;
    }
    Ok(())
}

/// The functions, each with a letter, and the arguments with the letters of those who accept them.
fn matrix(matrix: &Matrix, style: Style, out: &mut dyn Write) -> io::Result<()> {
    if matrix.functions.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", style.bold("attention functions"))?;
    let letters: Vec<String> = (0..matrix.functions.len()).map(letter).collect();
    for (letter, function) in letters.iter().zip(&matrix.functions) {
        writeln!(out, "  {letter:<2} {}", printable(&function.path))?;
        let version =
            function.package.iter().chain(&function.version).map(String::as_str).collect::<Vec<_>>().join(" ");
        writeln!(out, "     {}", style.dim(&printable(&format!("{}, {version}", function.title))))?;
    }
    writeln!(out, "\n{}", style.bold("arguments they accept"))?;
    let longest = matrix.arguments.iter().map(|argument| argument.name.len()).max().unwrap_or(0);
    for argument in &matrix.arguments {
        let cells: Vec<String> = letters
            .iter()
            .zip(&argument.accepted)
            .map(|(letter, accepted)| if *accepted { style.good(letter) } else { style.dim(&"-".repeat(letter.len())) })
            .collect();
        writeln!(out, "  {:<longest$}  {}", printable(&argument.name), cells.join(" "))?;
    }
    Ok(())
}

/// A, B, .., Z, AA, ..
fn letter(index: usize) -> String {
    let last = char::from(b'A' + u8::try_from(index % 26).unwrap_or(0));
    match index / 26 {
        0 => last.to_string(),
        more => format!("{}{last}", letter(more - 1)),
    }
}

fn device_code(rows: &[Row], style: Style, out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", style.bold("device code"))?;
    for row in rows {
        let package = row.package.iter().chain(&row.version).map(String::as_str).collect::<Vec<_>>().join(" ");
        writeln!(out, "  {} {}", printable(&row.path), style.dim(&printable(&package)))?;
        writeln!(out, "{}", wrap_after("    ", "    ", &row.sentence(), style.width))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::letter;

    #[test]
    fn letters_go_on_after_z() {
        assert_eq!([0, 25, 26, 51, 52].map(letter), ["A", "Z", "AA", "AZ", "BA"]);
    }
}
