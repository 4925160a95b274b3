//! The one way from a command line to a report: environment, packs, program, rules, then what the settings say about
//! the findings. `scan`, `fix` and `report` all go through here.

use std::mem::ManuallyDrop;
use std::time::Instant;

use crate::capability::Matrix;
use crate::config::Settings;
use crate::config::baseline::{Baseline, Compared};
use crate::config::ignore::Date;
use crate::environment::{Environment, LoadError, Request};
use crate::finding::{Finding, Incomplete};
use crate::fix::derive;
use crate::link::{Program, Scope};
use crate::packs::{PackError, Packs};
use crate::progress::Progress;
use crate::report::{Report, count};
use crate::rules::{Context, RuleInfo, Sink, registry};

/// What to check, and how to judge it.
#[derive(Debug, Default)]
pub struct Options {
    /// Rules, ignores, severities, packs.
    pub settings: Settings,
    /// Audit whole packages, not only the attention stack.
    pub all: bool,
    /// Judge libraries against this libc instead of the machine's.
    pub glibc: Option<(u32, u32)>,
    /// Findings that were there before.
    pub baseline: Option<Baseline>,
    /// Also tell what the installed functions accept.
    pub capabilities: bool,
    /// Fixes may drop arguments that matter, with a warning at run time.
    pub degraded: bool,
}

/// What came of a scan.
#[derive(Debug)]
pub struct ScanOutcome {
    /// What was looked at; fixes and source excerpts need its files.
    pub environment: Environment,
    /// What was known about releases.
    pub packs: Packs,
    /// What was found.
    pub report: Report,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The environment cannot be looked at.
    #[error(transparent)]
    Environment(#[from] LoadError),
    /// A pack is wrong.
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// What the rules say about an environment, after the settings have had their say.
#[derive(Debug)]
pub struct Checked {
    /// What was found.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub incomplete: Vec<Incomplete>,
    /// How many sources were read.
    pub files: usize,
    /// What the settings left out, and which of them no longer do anything.
    pub notes: Vec<String>,
    /// What the installed functions accept, if that was asked for.
    pub capabilities: Matrix,
}

/// Looks at an environment and reports what does not fit.
pub fn scan(request: &Request, options: &Options, progress: &Progress) -> Result<ScanOutcome, ScanError> {
    let start = Instant::now();
    let packs = Packs::with_directories(&options.settings.packs.value)?;
    progress.stage("looking at the environment");
    let environment = Environment::load(request)?;
    progress.stage("reading sources");
    // The process ends with the report: taking the index apart, a million pieces, would be a tenth of its time.
    let program = ManuallyDrop::new(Program::load(&environment, &packs, Scope { all: options.all }));
    let checked = check_program(&program, options, &|_| true, progress)?;
    let stack = |name: &str| packs.distributions.iter().any(|distribution| distribution == name);
    let Checked { findings, incomplete, files, notes, capabilities } = checked;
    let mut report = Report::new(&environment, stack, findings, incomplete, files, start.elapsed());
    report.notes = notes;
    report.capabilities = capabilities;
    report.fail_on = options.settings.fail_on.value;
    Ok(ScanOutcome { environment, packs, report })
}

/// Runs the selected rules for which `run` says yes.
pub fn check(
    environment: &Environment,
    packs: &Packs,
    options: &Options,
    run: &dyn Fn(&RuleInfo) -> bool,
    progress: &Progress,
) -> Result<Checked, ScanError> {
    progress.stage("reading sources");
    let program = Program::load(environment, packs, Scope { all: options.all });
    check_program(&program, options, run, progress)
}

fn check_program(
    program: &Program<'_>,
    options: &Options,
    run: &dyn Fn(&RuleInfo) -> bool,
    progress: &Progress,
) -> Result<Checked, ScanError> {
    let settings = &options.settings;
    let Program { environment, packs, .. } = *program;
    let mut sink = Sink { incomplete: environment.incomplete.clone(), ..Sink::default() };
    let context = Context { environment, program, packs, glibc: options.glibc, native: Default::default() };
    let all = registry::all();
    let wanted = |info: &RuleInfo| settings.selects(info.code, info.name) && run(info);
    // What a rule says must not depend on which others are selected.
    let needed = |info: &RuleInfo| {
        wanted(info) || all.iter().any(|rule| wanted(rule.info()) && rule.builds_on().contains(&info.code))
    };
    let rules: Vec<_> = all.iter().filter(|rule| needed(rule.info())).collect();
    progress.steps("checking", rules.len());
    for rule in rules {
        progress.step(rule.info().code);
        rule.check(&context, &mut sink);
    }
    let unwanted: Vec<&str> = all.iter().map(|rule| rule.info()).filter(|i| !wanted(i)).map(|i| i.code).collect();
    sink.findings.retain(|finding| !unwanted.contains(&finding.code.as_str()));
    // Modules are read when something asks for them: only now is it known which could not be.
    sink.incomplete.extend(program.incomplete());
    sink.incomplete.extend(environment.unreadable());
    // A folder with nothing to audit must never look like a clean one.
    let is_empty = program.audited.is_empty() && program.importers.is_empty() && sink.findings.is_empty();
    let has_specific = || environment.distributions.iter().any(|distribution| packs.is_specific(&distribution.name));
    if is_empty && !has_specific() && context.inspection().extensions.is_empty() {
        return Err(environment.nothing_to_scan().into());
    }
    let files = program.files();
    let capabilities = if options.capabilities { Matrix::of(program) } else { Matrix::default() };
    let Sink { mut findings, incomplete, .. } = sink;
    derive::attach(&context, options.degraded, &mut findings);
    let notes = judge(&mut findings, options);
    Ok(Checked { findings, incomplete, files, notes, capabilities })
}

/// Applies severities, ignores and the baseline; the notes say what was left out, and what no longer does anything.
fn judge(findings: &mut Vec<Finding>, options: &Options) -> Vec<String> {
    let settings = &options.settings;
    let mut notes = Vec::new();
    for finding in findings.iter_mut() {
        if let Some(severity) = settings.severity_of(&finding.code, &finding.name) {
            finding.severity = severity;
        }
    }
    let today = Date::today();
    let ran = |code: &str| {
        let info = registry::all().iter().map(|rule| rule.info()).find(|info| info.code == code);
        info.is_some_and(|info| settings.selects(info.code, info.name))
    };
    let any_ran = |concerns: &dyn Fn(&str, &str) -> bool| {
        registry::all().iter().map(|rule| rule.info()).any(|info| concerns(info.code, info.name) && ran(info.code))
    };
    let mut ignored = 0;
    for ignore in &settings.ignores {
        let matching = findings.iter().filter(|finding| ignore.matches(finding)).count();
        if ignore.expired(today) {
            let until = ignore.until.map(|date| date.to_string()).unwrap_or_default();
            notes.push(format!(
                "the ignore at {} ended on {until} and is not applied; remove or renew it",
                ignore.place
            ));
        } else if matching == 0 {
            if any_ran(&|code, name| ignore.concerns(code, name)) {
                notes.push(format!("the ignore at {} matches nothing; remove it", ignore.place));
            }
        } else {
            findings.retain(|finding| !ignore.matches(finding));
            ignored += matching;
        }
    }
    if ignored > 0
        && let Some(file) = &settings.file
    {
        notes.push(format!("{} ignored by {}", count(ignored, "finding"), file.display()));
    }
    if let Some(baseline) = &options.baseline {
        let Compared { known, gone } = baseline.apply(findings, ran);
        if known > 0 {
            notes.push(format!("{} already in the baseline", count(known, "finding")));
        }
        if gone > 0 {
            notes.push(format!("{gone} of the baseline's findings are gone; write it anew with --write-baseline"));
        }
    }
    notes
}
