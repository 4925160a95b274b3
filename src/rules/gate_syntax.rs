//! What gates are made of, read off the syntax: asserts, early raises, predicates that answer False, and their messages.

use crate::python::Module;
use crate::python::ir::{Comparison, Constant, ExprId, ExprKind, FStringPart, GuardId, GuardKind, Span, StmtKind};

/// `x is None`, `self.x is None`: a feature that a kernel does without.
pub(super) fn is_absence(module: &Module, test: ExprId) -> bool {
    let ExprKind::Compare(left, rest) = &module[test].kind else { return false };
    let named = matches!(module[*left].kind, ExprKind::Name(_) | ExprKind::Attribute(..));
    let none = |expr: ExprId| matches!(module[expr].kind, ExprKind::Constant(Constant::None));
    named && matches!(rest[..], [(Comparison::Is, right)] if none(right))
}

/// The test of an assert: what follows it is not a branch.
pub(super) fn is_asserted(module: &Module, test: ExprId) -> bool {
    module.stmts.iter().any(|stmt| matches!(stmt.kind, StmtKind::Assert(t, _) if t == test))
}

pub(super) fn innermost_test(module: &Module, guard: GuardId) -> Option<ExprId> {
    module.conditions(guard).take_while(|kind| !matches!(kind, GuardKind::Body(_))).find_map(|kind| match kind {
        GuardKind::Test { test, .. } if !is_asserted(module, test) => Some(test),
        _ => None,
    })
}

/// The head of the `if` that has this test.
pub(super) fn if_span(module: &Module, test: ExprId) -> Span {
    let head = module.stmts.iter().find(|stmt| matches!(stmt.kind, StmtKind::If(t) if t == test));
    let end = module[test].span.end;
    head.map_or(module[test].span, |stmt| Span { start: stmt.span.start, end })
}

/// `return False`, `return False, "why"`.
pub(super) fn is_refusal(module: &Module, value: ExprId) -> bool {
    match &module[value].kind {
        ExprKind::Constant(Constant::Bool(false)) => true,
        ExprKind::Tuple(items) => {
            items.first().is_some_and(|&item| matches!(module[item].kind, ExprKind::Constant(Constant::Bool(false))))
        }
        _ => false,
    }
}

/// The literal text of a message.
pub(super) fn text_of(module: &Module, expr: ExprId) -> String {
    match &module[expr].kind {
        ExprKind::Constant(Constant::Str(text)) => one_line(text),
        ExprKind::FString(parts) => {
            let text: String = parts
                .iter()
                .map(|part| match part {
                    FStringPart::Text(text) => text.to_string(),
                    FStringPart::Value { value, .. } => format!("{{{}}}", module.slice(module[*value].span)),
                })
                .collect();
            one_line(&text)
        }
        _ => String::new(),
    }
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The opposite of a test, as one would write it.
pub(super) fn negation(module: &Module, test: ExprId) -> String {
    let text = |expr: ExprId| one_line(module.slice(module[expr].span));
    match &module[test].kind {
        ExprKind::Not(inner) => text(*inner),
        ExprKind::Compare(left, rest) if let [(op, right)] = rest[..] => {
            let opposite = match op {
                Comparison::Eq => "!=",
                Comparison::NotEq => "==",
                Comparison::Lt => ">=",
                Comparison::LtE => ">",
                Comparison::Gt => "<=",
                Comparison::GtE => "<",
                Comparison::Is => "is not",
                Comparison::IsNot => "is",
                Comparison::In => "not in",
                Comparison::NotIn => "in",
            };
            format!("{} {opposite} {}", text(*left), text(right))
        }
        ExprKind::Name(_) | ExprKind::Attribute(..) | ExprKind::Call(_) | ExprKind::Subscript(..) => {
            format!("not {}", text(test))
        }
        _ => format!("not ({})", text(test)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::RootId;
    use crate::python::{self, Origin, Symbol};

    #[test]
    fn opposites_read_as_one_writes_them() {
        let opposite = |test: &str| {
            let origin = Origin { name: Symbol::new("m"), is_package: false, root: RootId(0), path: "m.py".to_owned() };
            let module = python::index(format!("assert {test}\n").as_bytes(), origin).unwrap();
            let asserted = module.stmts.iter().find_map(|stmt| match stmt.kind {
                StmtKind::Assert(test, _) => Some(test),
                _ => None,
            });
            negation(&module, asserted.unwrap())
        };
        assert_eq!(opposite("page_table is None"), "page_table is not None");
        assert_eq!(opposite("not is_split_kv"), "is_split_kv");
        assert_eq!(opposite("num_splits == 1"), "num_splits != 1");
        assert_eq!(opposite("head_dim <= 128"), "head_dim > 128");
        assert_eq!(opposite("self.pack_gqa"), "not self.pack_gqa");
        assert_eq!(opposite("a < b < c"), "not (a < b < c)");
        assert_eq!(opposite("a or b"), "not (a or b)");
    }
}
