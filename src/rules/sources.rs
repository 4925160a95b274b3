//! What the rules over Python sources share: findings at a span, grouping by cause, severity by reachability.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::{Context, RuleInfo, Sink};
use crate::finding::{Finding, Related, Severity};
use crate::link::{Linker, ModId, Reach, Reached, Usage};
use crate::python::ir::{GuardKind, ScopeId, Span};

/// A finding at `span` of a module: an error, without help, related places or fix.
pub(super) fn finding(
    context: &Context<'_>,
    info: &RuleInfo,
    id: ModId,
    span: Span,
    symbol: String,
    message: String,
) -> Finding {
    let module = context.program.source(id);
    let (line, column) = module.position(span.start);
    let (end_line, end_column) = module.position(span.end);
    let package = context.package_of(module.root, &module.path);
    Finding {
        code: info.code.to_owned(),
        name: info.name.to_owned(),
        severity: Severity::Error,
        package: package.as_ref().map(|(name, _)| name.clone()),
        version: package.map(|(_, version)| version),
        path: module.path.clone(),
        line,
        column,
        end_line,
        end_column,
        symbol,
        message,
        help: None,
        arch: Vec::new(),
        related: Vec::new(),
        fix: None,
        root: module.root,
    }
}

/// A place in a module that explains a finding.
pub(super) fn related(context: &Context<'_>, id: ModId, offset: u32, message: impl Into<String>) -> Related {
    let module = context.program.source(id);
    Related { path: module.path.clone(), line: module.position(offset).0, message: message.into(), root: module.root }
}

/// How much of a module is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Everything.
    Whole,
    /// What concerns attention modules.
    Attention,
    /// What certainly runs when it is imported.
    Import,
}

/// Runs a check over everything that is audited, each module to its extent.
pub(super) fn over_program<T: Send>(
    context: &Context<'_>,
    check: impl Fn(&Linker<'_>, ModId, Extent) -> Vec<T> + Sync,
) -> Vec<T> {
    let program = context.program;
    let carried: Vec<ModId> = program.carried.iter().map(|carried| carried.module).collect();
    let mut found = over(context, &program.audited, |linker, id| check(linker, id, Extent::Whole));
    found.extend(over(context, &program.importers, |linker, id| check(linker, id, Extent::Attention)));
    found.extend(over(context, &carried, |linker, id| check(linker, id, Extent::Import)));
    found
}

/// Runs `check` over modules in parallel, in a stable order.
pub(super) fn over<T: Send>(
    context: &Context<'_>,
    modules: &[ModId],
    check: impl Fn(&Linker<'_>, ModId) -> Vec<T> + Sync,
) -> Vec<T> {
    let parts: Vec<Vec<T>> = modules.par_iter().map(|&id| check(&Linker::new(context.program), id)).collect();
    parts.into_iter().flatten().collect()
}

/// Merges findings with one cause into the first of them; the others become related places.
fn merge<K: Ord>(findings: Vec<(K, Finding)>, again: &str) -> Vec<Finding> {
    let mut order: Vec<Finding> = Vec::new();
    let mut first: BTreeMap<K, usize> = BTreeMap::new();
    for (key, finding) in findings {
        match first.get(&key) {
            Some(&index) => {
                let known = &mut order[index];
                let place =
                    Related { path: finding.path, line: finding.line, message: again.to_owned(), root: finding.root };
                let same_line = place.path == known.path && place.line == known.line;
                if !same_line && !known.related.contains(&place) {
                    known.related.push(place);
                }
            }
            None => {
                first.insert(key, order.len());
                order.push(finding);
            }
        }
    }
    order
}

/// Judges findings in Python sources by reachability: info in a module that nothing imports, a warning in a function that
/// nothing refers to.
pub(super) fn judge<K>(context: &Context<'_>, findings: &mut [(K, Finding)]) {
    if findings.is_empty() {
        return;
    }
    let program = context.program;
    let mut modules: BTreeMap<String, ModId> = BTreeMap::new();
    for &id in program.audited.iter().chain(&program.importers) {
        if let Some(module) = program.module(id)
            && findings.iter().any(|(_, f)| f.path == module.path && f.root == module.root)
        {
            modules.insert(module.path.clone(), id);
        }
    }
    let reach = program.reach();
    let usage = Usage::new(program);
    for (_, finding) in findings {
        let Some(&id) = modules.get(&finding.path) else {
            judge_carried(context, reach, finding);
            continue;
        };
        let reached = reach.of(program, id);
        let (severity, note) = if reached == Reached::Never {
            (Severity::Info, "nothing that is installed imports this module")
        } else if reached == Reached::Conditionally {
            (Severity::Warning, "this module is imported only under a condition that is not known to hold")
        } else if is_script(context, id, finding) {
            (Severity::Warning, "this runs only where the module is started as a script")
        } else if !usage.is_referred_to(id, scope_at(context, id, finding)) {
            (Severity::Warning, "nothing that is installed calls this function")
        } else {
            continue;
        };
        finding.severity = severity;
        finding.help = Some(match finding.help.take() {
            Some(help) => format!("{note}; {help}"),
            None => note.to_owned(),
        });
    }
}

/// Judges a finding in a module that audited ones stand on by the one in use that needs it.
fn judge_carried(context: &Context<'_>, reach: &Reach, finding: &mut Finding) {
    let program = context.program;
    let levels = [
        (Reached::Normally, Severity::Error),
        (Reached::Conditionally, Severity::Warning),
        (Reached::Never, Severity::Info),
    ];
    for (least, severity) in levels {
        let roots: Vec<ModId> = program.audited.iter().copied().filter(|&id| reach.of(program, id) >= least).collect();
        let carried = program.carried_by(&roots).into_iter().find(|carried| {
            program.module(carried.module).is_some_and(|m| m.path == finding.path && m.root == finding.root)
        });
        if let Some(carried) = carried {
            finding.severity = severity;
            let name = program.node(carried.by).name;
            finding.related.push(related(
                context,
                carried.by,
                carried.offset,
                format!("`{name}` cannot be imported without it"),
            ));
            return;
        }
    }
}

/// The place of a finding is below `if __name__ == "__main__":`.
fn is_script(context: &Context<'_>, id: ModId, finding: &Finding) -> bool {
    let module = context.program.source(id);
    let around = module.stmts.iter().filter(|stmt| {
        let (first, last) = (module.position(stmt.span.start).0, module.position(stmt.span.end).0);
        (first..=last).contains(&finding.line)
    });
    let innermost = around.min_by_key(|stmt| stmt.span.end - stmt.span.start);
    innermost.is_some_and(|stmt| {
        module.conditions(stmt.guard).any(|kind| match kind {
            GuardKind::Test { test, holds: true } => {
                let text = module.slice(module[test].span);
                text.contains("__name__") && text.contains("__main__")
            }
            _ => false,
        })
    })
}

/// The innermost scope around the place of a finding.
fn scope_at(context: &Context<'_>, id: ModId, finding: &Finding) -> ScopeId {
    let module = context.program.source(id);
    let start = module.line_starts[finding.line as usize - 1] as usize;
    let column = finding.column as usize - 1;
    let offset = start + module.text[start..].char_indices().nth(column).map_or(0, |(at, _)| at);
    let around = module
        .functions
        .iter()
        .filter(|f| f.lambda.is_none() && (f.body_start as usize) <= offset && offset < f.whole.end as usize);
    around.min_by_key(|f| f.whole.end - f.whole.start).map_or(crate::python::Module::SCOPE, |f| f.scope)
}

/// Reports findings, each with its own cause.
pub(super) fn report(context: &Context<'_>, sink: &mut Sink, findings: Vec<Finding>) {
    let mut findings: Vec<((), Finding)> = findings.into_iter().map(|finding| ((), finding)).collect();
    judge(context, &mut findings);
    sink.findings.extend(findings.into_iter().map(|(_, finding)| finding));
}

/// Reports one finding a cause, at the first of the places that matter most.
pub(super) fn report_merged<K: Ord>(
    context: &Context<'_>,
    sink: &mut Sink,
    mut findings: Vec<(K, Finding)>,
    again: &str,
) {
    judge(context, &mut findings);
    findings.sort_by(|(_, a), (_, b)| {
        b.severity.cmp(&a.severity).then_with(|| (&a.path, a.line, a.column).cmp(&(&b.path, b.line, b.column)))
    });
    sink.findings.extend(merge(findings, again));
}
