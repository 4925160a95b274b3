//! An unpacking of fewer values than the callee returns takes the surplus into a starred target.

use super::Site;
use crate::finding::{Applicability, Finding, Fix};
use crate::python::ir::{ExprKind, Span, StmtKind, Usage};
use crate::python::{Module, Symbol};

pub(super) fn derive(site: Site<'_>, finding: &Finding) -> Option<Fix> {
    if !finding.message.contains("too many values") {
        return None;
    }
    let module = site.module;
    let (list, items) = module.stmts.iter().find_map(|stmt| {
        let StmtKind::Assign(targets, value) = &stmt.kind else { return None };
        let ExprKind::Call(call) = &module[*value].kind else { return None };
        let [target] = targets[..] else { return None };
        let (ExprKind::Tuple(items) | ExprKind::List(items)) = &module[target].kind else { return None };
        (module[call.callee].span.start == site.offset).then_some((module[target].span, items))
    })?;
    if items.iter().any(|&item| matches!(module[item].kind, ExprKind::Starred(_))) {
        return None;
    }
    let spans: Vec<Span> = items.iter().map(|&item| module[item].span).collect();
    let last = spans.len().checked_sub(1)?;
    Some(Fix {
        applicability: Applicability::Unsafe,
        title: format!("Take the values after the first {} into a starred target", spans.len()),
        edits: site.source.insert_item(&spans, list, Some(last), &format!("*{}", unused_name(module)?)),
    })
}

/// `_`, unless the module reads it (gettext, or a target of another unpacking).
fn unused_name(module: &Module) -> Option<&'static str> {
    let read = |name: &str| {
        let name = Symbol::new(name);
        let is_read = |kind: &ExprKind| matches!(kind, ExprKind::Name(other) if *other == name);
        module.exprs.iter().any(|expr| expr.usage == Usage::Load && is_read(&expr.kind))
    };
    ["_", "_surplus", "_surplus_values"].into_iter().find(|name| !read(name))
}
