//! # What it does
//!
//! Binds calls of `torch.ops.<namespace>.<op>(..)` to the schema that the installed extension registers, which stands as
//! text in the library: the number of arguments, the keywords, the number of values unpacked.
//!
//! # Why is this bad
//!
//! The call raises RuntimeError when it runs. It happens when the Python files and the compiled extension come from
//! different builds: an editable checkout over an installed wheel, or a wheel laid over another.
//!
//! # Example
//!
//! ```text
//! RuntimeError: _vllm_fa2_C::varlen_fwd() expected at most 22 argument(s) but received 23 argument(s)
//! ```
//!
//! # Fix
//!
//! Reinstall the package, so that sources and extension are of one build; no source is changed.
//!
//! An operator whose schema is not found in full is not judged.
//!
//! # References
//!
//! - <https://docs.pytorch.org/docs/stable/library.html>

use std::collections::BTreeMap;

use super::sources::{finding, over, report};
use super::{Context, Rule, RuleInfo, Sink};
use crate::finding::Finding;
use crate::link::{Linker, ModId, Protection, Truth};
use crate::native::schema::{self, Schema};
use crate::native::stack;
use crate::python::ir::{ArgumentKind, BindingKind, Call, ExprId, ExprKind, Span, StmtKind};

static INFO: RuleInfo = RuleInfo {
    code: "FA007",
    name: "op-schema",
    summary: "a call that the schema in the installed extension does not take",
    source: include_str!("fa007_op_schema.rs"),
};

/// FA007.
pub struct OpSchema;

impl Rule for OpSchema {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let calls = over(context, &context.program.audited, op_calls);
        if calls.is_empty() {
            return;
        }
        let schemas = schemas(context, &calls);
        let findings = calls.iter().filter_map(|call| judge(context, call, &schemas)).collect();
        report(context, sink, findings);
    }
}

/// A call of an operator.
struct OpCall {
    module: ModId,
    expr: ExprId,
    namespace: String,
    op: String,
}

/// Libraries inside a wheel up to this size are decompressed for their schemas.
const DECOMPRESSED: u64 = 64 << 20;

/// The schemas of an operator, by namespace and name; empty where the library does not show them.
type Schemas = BTreeMap<(String, String), Vec<Schema>>;

fn op_calls(linker: &Linker<'_>, id: ModId) -> Vec<OpCall> {
    let module = linker.module(id);
    let mut calls = Vec::new();
    for (index, expr) in module.exprs.iter().enumerate() {
        let ExprKind::Call(call) = &expr.kind else { continue };
        if !matches!(module[call.callee].kind, ExprKind::Name(_) | ExprKind::Attribute(..)) {
            continue;
        }
        let Some(path) = path_of(linker, id, call.callee, 12) else { continue };
        let Some(rest) = path.strip_prefix("torch.ops.") else { continue };
        let parts: Vec<&str> = rest.split('.').collect();
        let (namespace, op) = match parts[..] {
            [namespace, op] | [namespace, op, "default"] => (namespace.to_owned(), op.to_owned()),
            _ => continue,
        };
        if linker.truth_of_guard(id, expr.guard, expr.span.start) != Truth::No
            && !linker.is_protected(id, expr.guard, Protection::Type)
            && !linker.is_behind_open_question(id, expr.guard)
        {
            calls.push(OpCall { module: id, expr: ExprId(index as u32), namespace, op });
        }
    }
    calls
}

/// The dotted path that an expression comes down to through imports and names that are bound once:
/// `fa2 = torch.ops._vllm_fa2_C`.
fn path_of(linker: &Linker<'_>, id: ModId, expr: ExprId, depth: u32) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    let module = linker.module(id);
    match module[expr].kind {
        ExprKind::Attribute(value, attr) => Some(format!("{}.{attr}", path_of(linker, id, value, depth)?)),
        ExprKind::Name(name) => {
            let scope = linker.binding_scope(module, module[expr].scope, name)?;
            match module[scope].names[&name].as_slice() {
                [only] => match module[*only].kind {
                    BindingKind::Value(value) => path_of(linker, id, value, depth),
                    _ => linker.spelled(id, expr),
                },
                _ => linker.spelled(id, expr),
            }
        }
        _ => None,
    }
}

/// Looks the operators up in the extensions: in the one named like the namespace, if there is one.
fn schemas(context: &Context<'_>, calls: &[OpCall]) -> Schemas {
    let mut found = Schemas::new();
    let extensions = stack::extensions(context.environment, context.packs);
    for call in calls {
        found.entry((call.namespace.clone(), call.op.clone())).or_default();
    }
    for subject in &extensions {
        let file = subject.path.rsplit('/').next().unwrap_or_default();
        let stem = file.split('.').next().unwrap_or_default();
        if !found.keys().any(|(namespace, _)| namespace == stem) {
            continue;
        }
        // Inside a wheel a library of hundreds of megabytes would have to be decompressed, to be compared with sources
        // of the same build.
        let tree = &context.environment.root(subject.root).tree;
        let size = tree.size(&subject.path).unwrap_or(u64::MAX);
        if tree.on_disk(&subject.path).is_none() && size > DECOMPRESSED {
            continue;
        }
        let Ok(bytes) = tree.map(&subject.path) else { continue };
        for ((namespace, op), known) in &mut found {
            if namespace == stem {
                known.extend(schema::find(&bytes, op));
            }
        }
    }
    found
}

/// The finding of a call that no schema of its operator takes.
fn judge(context: &Context<'_>, op: &OpCall, schemas: &Schemas) -> Option<Finding> {
    let known = schemas.get(&(op.namespace.clone(), op.op.clone()))?;
    let module = context.program.source(op.module);
    let ExprKind::Call(call) = &module[op.expr].kind else { return None };
    let mut failure = None;
    for schema in known {
        let refused = mismatch(module, op, call, schema)
            .map(|(span, reason)| (span, format!("RuntimeError: {}::{}() {reason}", op.namespace, op.op)));
        failure = Some(refused.or_else(|| surplus(module, op, schema))?);
    }
    let (span, message) = failure?;
    let symbol = format!("{}.{}", op.namespace, op.op);
    let mut item = finding(context, &INFO, op.module, span, symbol, message);
    item.help = item.package.as_ref().map(|package| {
        let version = item.version.as_deref().map(|version| format!("=={version}")).unwrap_or_default();
        format!(
            "the sources and the extension are of different builds: pip install --force-reinstall --no-deps '{package}{version}'"
        )
    });
    Some(item)
}

/// What unpacking the result raises, where it takes another number of values than the operator returns.
fn surplus(module: &crate::python::Module, op: &OpCall, schema: &Schema) -> Option<(Span, String)> {
    let returned = schema.returns.len();
    // A single value may be a list of any length.
    if returned < 2 {
        return None;
    }
    let wanted = module.stmts.iter().find_map(|stmt| match &stmt.kind {
        StmtKind::Assign(targets, value) if *value == op.expr => targets.iter().find_map(|&target| {
            let (ExprKind::Tuple(items) | ExprKind::List(items)) = &module[target].kind else { return None };
            let starred = items.iter().any(|&item| matches!(module[item].kind, ExprKind::Starred(_)));
            (!starred).then_some(items.len())
        }),
        _ => None,
    })?;
    let span = module[op.expr].span;
    match wanted.cmp(&returned) {
        std::cmp::Ordering::Less => Some((span, format!("ValueError: too many values to unpack (expected {wanted})"))),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => {
            Some((span, format!("ValueError: not enough values to unpack (expected {wanted}, got {returned})")))
        }
    }
}

/// Why a schema does not take a call; `None` if it does, or if that is not known.
fn mismatch(module: &crate::python::Module, op: &OpCall, call: &Call, schema: &Schema) -> Option<(Span, String)> {
    let whole = module[op.expr].span;
    let positional = call.arguments.iter().filter(|a| a.kind == ArgumentKind::Positional).count();
    let open = call.arguments.iter().any(|a| matches!(a.kind, ArgumentKind::Star | ArgumentKind::DoubleStar));
    let by_position = schema.arguments.iter().filter(|a| !a.keyword_only).count();
    if positional > by_position {
        let surplus = call.arguments.iter().filter(|a| a.kind == ArgumentKind::Positional).nth(by_position);
        let received = call.arguments.len();
        return Some((
            surplus.map_or(whole, |argument| argument.span),
            format!("expected at most {} argument(s) but received {received} argument(s)", schema.arguments.len()),
        ));
    }
    for argument in &call.arguments {
        let ArgumentKind::Keyword(name) = argument.kind else { continue };
        match schema.arguments.iter().position(|a| a.name == name.as_str()) {
            None => return Some((argument.span, format!("got an unknown keyword argument '{name}'"))),
            Some(index) if index < positional && !schema.arguments[index].keyword_only => {
                return Some((argument.span, format!("got two values for argument '{name}'")));
            }
            Some(_) => {}
        }
    }
    if open {
        return None;
    }
    let given =
        |name: &str| call.arguments.iter().any(|a| matches!(a.kind, ArgumentKind::Keyword(k) if k.as_str() == name));
    let missing = schema.arguments.iter().enumerate().find(|(index, argument)| {
        let placed = !argument.keyword_only && *index < positional;
        !placed && argument.default.is_none() && !given(&argument.name)
    });
    missing.map(|(index, argument)| {
        (whole, format!("is missing value for argument '{}' (position {index})", argument.name))
    })
}
