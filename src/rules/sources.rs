//! What the rules over Python sources share: findings at a span, grouping by cause, severity by reachability.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::{Context, RuleInfo, Sink};
use crate::finding::{Finding, Related, Severity};
use crate::link::{Linker, ModId, Reach};
use crate::python::ir::Span;

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
pub(super) fn merge<K: Ord>(findings: Vec<(K, Finding)>, again: &str) -> Vec<Finding> {
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

/// Reports findings in Python sources: what lies in a module that nothing imports is dead code.
pub(super) fn report(context: &Context<'_>, sink: &mut Sink, mut findings: Vec<Finding>) {
    if findings.is_empty() {
        return;
    }
    let program = context.program;
    let mut modules: BTreeMap<String, ModId> = BTreeMap::new();
    for &id in program.audited.iter().chain(&program.importers) {
        if let Some(module) = program.module(id)
            && findings.iter().any(|f| f.path == module.path && f.root == module.root)
        {
            modules.insert(module.path.clone(), id);
        }
    }
    let questioned: Vec<String> = modules.values().map(|&id| program.node(id).name.to_string()).collect();
    let reach = Reach::build(program, &questioned);
    for finding in &mut findings {
        if let Some(&id) = modules.get(&finding.path)
            && !reach.is_used(program, id)
        {
            finding.severity = Severity::Info;
            let note = "nothing that is installed imports this module";
            finding.help = Some(match finding.help.take() {
                Some(help) => format!("{note}; {help}"),
                None => note.to_owned(),
            });
        }
    }
    sink.findings.extend(findings);
}
