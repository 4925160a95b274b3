//! # What it does
//!
//! Compares the number of targets of an unpacking with the number of values that the installed callee returns, on every
//! path that the call can take.
//!
//! # Why is this bad
//!
//! The line raises ValueError after the kernel has run. The forward functions of flash-attention returned two values,
//! then four, then five.
//!
//! # Example
//!
//! ```python
//! out, lse, p, rng = _flash_attn_fwd(q, k, v)
//! # ValueError: too many values to unpack (expected 4)
//! ```
//!
//! # Fix
//!
//! A surplus is starred away: `out, lse, p, rng, *_ = ..`. Unsafe: whether the first ones still mean the same is a
//! judgement. Where values are missing there is nothing to derive.
//!
//! # References
//!
//! - <https://docs.python.org/3/reference/simple_stmts.html#assignment-statements>

use super::sources::{finding, over, related, report};
use super::{Context, Rule, RuleInfo, Sink};
use crate::finding::Finding;
use crate::link::{Arity, Linker, ModId, Protection, Truth};
use crate::python::ir::{ExprId, ExprKind, StmtKind};

static INFO: RuleInfo = RuleInfo {
    code: "FA006",
    name: "return-arity",
    summary: "unpacks another number of values than the installed callee returns",
    source: include_str!("fa006_return_arity.rs"),
};

/// FA006.
pub struct ReturnArity;

impl Rule for ReturnArity {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let program = context.program;
        let mut found = over(context, &program.audited, |linker, id| check_module(context, linker, id, false));
        found.extend(over(context, &program.importers, |linker, id| check_module(context, linker, id, true)));
        report(context, sink, found);
    }
}

fn check_module(context: &Context<'_>, linker: &Linker<'_>, id: ModId, attention_only: bool) -> Vec<Finding> {
    let module = linker.module(id);
    let mut found = Vec::new();
    for stmt in &module.stmts {
        let StmtKind::Assign(targets, value) = &stmt.kind else { continue };
        for &target in targets {
            let Some((least, exact)) = wanted(linker, id, target) else { continue };
            if attention_only && !linker.touches_attention(id, *value) {
                continue;
            }
            let Some(arity) = linker.arity(id, *value) else { continue };
            if attention_only && !linker.program.packs.is_attention(&linker.program.node(arity.callee.module).name) {
                continue;
            }
            let fits = |count: &usize| if exact { *count == least } else { *count >= least };
            if arity.counts.iter().any(fits) {
                continue;
            }
            if linker.truth_of_guard(id, stmt.guard, stmt.span.start) == Truth::No
                || linker.is_protected(id, stmt.guard, Protection::Unpack)
                || linker.is_behind_open_question(id, stmt.guard)
            {
                continue;
            }
            found.push(describe(context, linker, id, *value, least, exact, &arity));
        }
    }
    found
}

/// How many values an unpacking takes: at least, and whether exactly.
fn wanted(linker: &Linker<'_>, id: ModId, target: ExprId) -> Option<(usize, bool)> {
    let module = linker.module(id);
    let (ExprKind::Tuple(items) | ExprKind::List(items)) = &module[target].kind else { return None };
    let starred = items.iter().filter(|&&item| matches!(module[item].kind, ExprKind::Starred(_))).count();
    Some((items.len() - starred, starred == 0))
}

fn describe(
    context: &Context<'_>,
    linker: &Linker<'_>,
    id: ModId,
    call: ExprId,
    least: usize,
    exact: bool,
    arity: &Arity,
) -> Finding {
    let module = linker.module(id);
    let expected = if exact { format!("expected {least}") } else { format!("expected at least {least}") };
    let smallest = arity.counts.iter().min().copied().unwrap_or_default();
    let message = if smallest > least {
        format!("ValueError: too many values to unpack ({expected})")
    } else {
        format!("ValueError: not enough values to unpack ({expected}, got {smallest})")
    };
    let mut item = finding(context, &INFO, id, module[call].span, arity.path.clone(), message);
    let counts: Vec<String> = arity.counts.iter().map(usize::to_string).collect();
    let owner = linker.module(arity.callee.module);
    let function = &owner[arity.callee.function];
    let values = if counts == ["1"] { "value" } else { "values" };
    let note = format!("`{}` returns {} {values}", function.name, counts.join(" or "));
    item.related.push(related(context, arity.callee.module, arity.shown_at.unwrap_or(function.span.start), note));
    item.help = context.packs.arity_history(&arity.path, &arity.counts);
    item
}
