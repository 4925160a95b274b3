//! An import that fails behind a test which was meant to protect it is guarded by the exception that it raises.

use super::Site;
use crate::finding::{Applicability, Fix};
use crate::python::Module;
use crate::python::ir::{Constant, ExprKind, GuardKind, Span, Stmt, StmtKind};

pub(super) fn derive(site: Site<'_>) -> Option<Fix> {
    let module = site.module;
    let at = site.offset;
    let stmt = module.stmts.iter().find(|stmt| {
        matches!(stmt.kind, StmtKind::Import(_) | StmtKind::ImportFrom(_))
            && (stmt.span.start..stmt.span.end).contains(&at)
    })?;
    let target = imported(stmt)?;
    // Code that asks whether the package is there has something else to do when it is not.
    if !module
        .conditions(stmt.guard)
        .any(|kind| matches!(kind, GuardKind::Test { test, .. } if asks_for(module, module[test].span, target)))
    {
        return None;
    }
    let mut fallback = Vec::new();
    for other in module.stmts.iter().filter(|other| other.span == stmt.span) {
        fallback.push(format!("{} = None", bound_name(other)?));
    }
    let edits = site.source.guard_import(stmt.span, &fallback)?;
    Some(Fix {
        applicability: Applicability::Unsafe,
        title: format!("Catch the ImportError of `{target}`, as if the package were absent"),
        edits,
    })
}

/// The module that a statement imports from.
fn imported(stmt: &Stmt) -> Option<&'static str> {
    match &stmt.kind {
        StmtKind::Import(import) => Some(import.module.as_str()),
        StmtKind::ImportFrom(import) if import.level == 0 => Some(import.module.as_str()),
        _ => None,
    }
}

/// The name that a statement binds, where it binds a single plain one.
fn bound_name(stmt: &Stmt) -> Option<&'static str> {
    match &stmt.kind {
        StmtKind::Import(import) => Some(import.alias?.as_str()),
        StmtKind::ImportFrom(import) if &import.name != "*" => Some(import.alias.unwrap_or(import.name).as_str()),
        _ => None,
    }
}

/// Whether a test mentions the package, or one around the module, as a string: `find_spec("flash_attn")`.
fn asks_for(module: &Module, test: Span, target: &str) -> bool {
    module.exprs.iter().any(|expr| {
        test.start <= expr.span.start
            && expr.span.end <= test.end
            && match expr.kind {
                ExprKind::Constant(Constant::Str(text)) => {
                    target.strip_prefix(text.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                }
                _ => false,
            }
    })
}
