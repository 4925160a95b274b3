//! A call with a keyword that the callee does not have goes through the compatibility adapter.

use std::collections::BTreeSet;

use super::{Deriver, Site};
use crate::environment::tree::{join, split};
use crate::finding::{Applicability, Edit, Fix};
use crate::fix::adapter;
use crate::link::{Arguments, Const, Mismatch, ModId, Resolution, Value, bind};
use crate::packs::Argument;
use crate::python::ir::{ArgumentKind, ExprId, ExprKind};

pub(super) fn derive(deriver: &Deriver<'_>, site: Site<'_>) -> Option<Fix> {
    let (expr, call) = site.call_of_argument()?;
    let surplus = unexpected(deriver, site.id, expr)?;
    if !is_attention(deriver, site.id, call.callee) || deriver.in_kernel(site.id, site.module[expr].scope) {
        return None;
    }
    // A call that could only ever fail, in other words than today, is not repaired.
    let passes = |&index: &usize| {
        let argument = &call.arguments[index];
        match argument.kind {
            ArgumentKind::Keyword(name) => {
                let facts = deriver.packs().arguments.get(name.as_str());
                may_be_neutral(deriver, site.id, argument.value, facts)
            }
            _ => true,
        }
    };
    if !deriver.degraded && !surplus.iter().all(passes) {
        return None;
    }
    let package = match (site.module.is_package, site.module.name.rsplit_once('.')) {
        (true, _) => site.module.name.as_str(),
        (false, Some((package, _))) => package,
        (false, None) => "",
    };
    let module = if package.is_empty() { adapter::MODULE.to_owned() } else { format!("{package}.{}", adapter::MODULE) };
    let path = join(split(&site.module.path).0, &format!("{}.py", adapter::MODULE));

    let mut edits = site.source.wrap_call(call, adapter::CALL);
    let scope = &site.module[crate::python::Module::SCOPE];
    if !scope.names.contains_key(&crate::python::Symbol::new(adapter::CALL)) {
        edits.push(site.source.insert_import(&format!("from {module} import {}", adapter::CALL)));
    }
    edits.extend(module_edit(deriver, site, path));
    let names = surplus.iter().map(|&index| match call.arguments[index].kind {
        ArgumentKind::Keyword(name) => format!("`{name}`"),
        _ => format!("`{}`", site.module.slice(call.arguments[index].span)),
    });
    let names: Vec<String> = names.collect();
    let callee = site.module.slice(site.module[call.callee].span);
    let names = names.join(" and ");
    let does = if deriver.degraded {
        format!("drops {names} with a warning")
    } else {
        format!("leaves out {names} where that changes nothing")
    };
    Some(Fix {
        applicability: Applicability::Safe,
        title: format!("Call `{callee}` through an adapter that {does}"),
        edits,
    })
}

/// The module itself, where it is not there yet, or was made for other keywords or in the other variant.
fn module_edit(deriver: &Deriver<'_>, site: Site<'_>, path: String) -> Option<Edit> {
    let folder = split(&path).0;
    let mut keywords = BTreeSet::new();
    for (id, _, call) in deriver.calls() {
        let module = deriver.linker.module(id);
        if module.root == site.module.root && split(&module.path).0 == folder {
            keywords.extend(call.arguments.iter().filter_map(|argument| match argument.kind {
                ArgumentKind::Keyword(name) => Some(name.as_str()),
                _ => None,
            }));
        }
    }
    let content = adapter::render(deriver.packs(), &keywords, deriver.degraded);
    let tree = &deriver.context.environment.root(site.module.root).tree;
    let there = tree.read(&path).unwrap_or_default();
    (there != content.as_bytes()).then_some(Edit { path, start: 0, end: there.len(), content, root: site.module.root })
}

/// The arguments of a call that no parameter of its callee takes, if the call fits without them.
pub(super) fn unexpected(deriver: &Deriver<'_>, id: ModId, expr: ExprId) -> Option<Vec<usize>> {
    let linker = &deriver.linker;
    let module = linker.module(id);
    let ExprKind::Call(call) = &module[expr].kind else { return None };
    let Resolution::Found(values) = linker.eval(id, call.callee) else { return None };
    let given = linker.arguments(id, &call.arguments);
    let mut surplus = Vec::new();
    for value in &values {
        let (target, mut arguments) = linker.flatten(value, &given);
        let callee = linker.callee(target)?;
        // What is missing shows only once the rest fits.
        while let Err(mismatches) = bind(&callee.signature, &arguments) {
            for mismatch in mismatches {
                // Otherwise something is missing, or too much in another way, or the keyword is hidden in a partial.
                let Mismatch::UnexpectedKeyword(name, Some(index)) = mismatch else { return None };
                arguments.keywords.retain(|(other, _)| *other != name);
                if !surplus.contains(&index) {
                    surplus.push(index);
                }
            }
        }
    }
    surplus.sort_unstable();
    (!surplus.is_empty()).then_some(surplus)
}

/// Whether the callee is a function of an attention module that runs as Python: what a compiler reads (a kernel) or
/// defines (an instruction) knows no neutral values.
fn is_attention(deriver: &Deriver<'_>, id: ModId, callee: ExprId) -> bool {
    let linker = &deriver.linker;
    let Resolution::Found(values) = linker.eval(id, callee) else { return false };
    let in_attention = |id: ModId| deriver.packs().is_attention(&deriver.context.program.node(id).name);
    values.iter().all(|value| match linker.flatten(value, &Arguments::default()).0 {
        Value::Function(f) | Value::Bound(f) => in_attention(f.module) && !deriver.is_kernel(*f),
        Value::Class(class) => in_attention(class.module),
        _ => false,
    })
}

/// Whether a value may be None, or one of those that change nothing.
fn may_be_neutral(deriver: &Deriver<'_>, id: ModId, value: ExprId, facts: Option<&Argument>) -> bool {
    let module = deriver.linker.module(id);
    let listed = |texts: &[&str]| {
        facts.is_some_and(|facts| facts.neutral.iter().any(|neutral| texts.contains(&neutral.as_str())))
    };
    if let Some(constant) = deriver.linker.constant(id, value) {
        return match constant {
            Const::None => true,
            Const::Bool(true) => listed(&["True"]),
            Const::Bool(false) => listed(&["False", "0", "0.0"]),
            Const::Int(number) => listed(&[&number.to_string(), &format!("{number}.0")]),
            _ => facts.is_some_and(|facts| facts.neutral.iter().any(|text| text == module.slice(module[value].span))),
        };
    }
    match &module[value].kind {
        ExprKind::If(parts) => parts[1..].iter().any(|&part| may_be_neutral(deriver, id, part, facts)),
        ExprKind::And(parts) | ExprKind::Or(parts) => {
            parts.iter().any(|&part| may_be_neutral(deriver, id, part, facts))
        }
        ExprKind::Compare(..) | ExprKind::Not(_) => listed(&["True", "False"]),
        ExprKind::Tuple(_) | ExprKind::List(_) => {
            facts.is_some_and(|facts| facts.neutral.iter().any(|neutral| neutral.starts_with(['(', '['])))
        }
        ExprKind::Constant(_) => {
            facts.is_some_and(|facts| facts.neutral.iter().any(|text| text == module.slice(module[value].span)))
        }
        // Of a keyword that no pack knows, only a plain name is likely to be None.
        ExprKind::Call(_) | ExprKind::Subscript(..) => facts.is_some(),
        ExprKind::Binary(..)
        | ExprKind::Negative(_)
        | ExprKind::Lambda(_)
        | ExprKind::Dict(_)
        | ExprKind::Set(_)
        | ExprKind::Comprehension(_)
        | ExprKind::FString(_) => false,
        _ => true,
    }
}
