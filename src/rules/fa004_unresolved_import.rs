//! # What it does
//!
//! Finds imports of modules and names that an installed package does not have, where nothing that holds guards them.
//!
//! # Why is this bad
//!
//! The import raises ModuleNotFoundError or ImportError. A guard must ask for what it protects: `find_spec("flash_attn")`
//! succeeds when only flash-attn-4 is installed, and `from flash_attn.ops import ..` behind it still fails.
//!
//! # Example
//!
//! ```python
//! if find_spec("flash_attn") is not None:
//!     from flash_attn.ops.triton.rotary import apply_rotary  # No module named 'flash_attn.ops'
//! ```
//!
//! # Fix
//!
//! The import is wrapped in `try`/`except ImportError` where a fallback is there to take over. Unsafe: whether the
//! fallback is wanted is a judgement.
//!
//! Packages that the audited modules stand on (`carrying` in the rule packs, quack for one) are checked as far as importing
//! an audited module imports them: whatever fails there fails the kernels.
//!
//! A package that is not installed at all is not reported: see FA102 for requirements.
//!
//! # References
//!
//! - <https://docs.python.org/3/reference/import.html#namespace-packages>

use super::sources::{Extent, finding, over_program, report_merged};
use super::{Context, Rule, RuleInfo, Sink};
use crate::finding::Finding;
use crate::link::{Linker, Located, ModId, Protection, Resolution, Truth, absolute};
use crate::python::Module;
use crate::python::ir::{ExprId, ExprKind, GuardKind, Span, StmtKind};

static INFO: RuleInfo = RuleInfo {
    code: "FA004",
    name: "unresolved-import",
    summary: "a module or name that the installed package does not have",
    source: include_str!("fa004_unresolved_import.rs"),
};

/// FA004.
pub struct UnresolvedImport;

impl Rule for UnresolvedImport {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let found = over_program(context, |linker, id, extent| check_module(context, linker, id, extent));
        report_merged(context, sink, found, "imported here too");
    }
}

/// One cause: a name in one module, or throughout a package that others stand on.
type Cause = (Option<ModId>, String);

/// Whether a test asks how the process was started, which says nothing about what is installed.
fn asks_the_process(module: &Module, test: ExprId) -> bool {
    let span = module[test].span;
    let inside = module.exprs.iter().filter(|expr| expr.span.start >= span.start && expr.span.end <= span.end);
    inside.into_iter().any(|expr| match expr.kind {
        ExprKind::Name(name) | ExprKind::Attribute(_, name) => {
            matches!(name.as_str(), "__name__" | "argv" | "environ" | "getenv")
        }
        _ => false,
    })
}

fn check_module(context: &Context<'_>, linker: &Linker<'_>, id: ModId, extent: Extent) -> Vec<(Cause, Finding)> {
    let module = linker.module(id);
    let mut found = Vec::new();
    for stmt in &module.stmts {
        let Some((span, symbol, message, raises)) = failing_import(linker, id, &stmt.kind, extent) else { continue };
        let truth = linker.truth_of_guard(id, stmt.guard, stmt.span.start);
        let at_import = module.runs_at_import(stmt.scope);
        // At module level an undecided test asks for what may not be there; in a function it is the call that decides.
        let undecided = |kind| match kind {
            GuardKind::Test { test, .. } => {
                linker.truth_of_kind(id, kind, stmt.span.start) == Truth::Maybe && !asks_the_process(module, test)
            }
            _ => false,
        };
        if truth == Truth::No
            || at_import && module.conditions(stmt.guard).any(undecided)
            || extent == Extent::Import && !(truth == Truth::Yes && at_import)
            || linker.is_protected(id, stmt.guard, raises)
            || linker.is_behind_open_question(id, stmt.guard)
        {
            continue;
        }
        let mut item = finding(context, &INFO, id, span, symbol.clone(), message);
        let cause = if extent == Extent::Import {
            item.help = Some("`fa-doctor pin` lists versions that fit together".to_owned());
            (None, symbol)
        } else {
            item.help = explain(linker, &symbol);
            (Some(id), symbol)
        };
        found.push((cause, item));
    }
    found
}

/// Place, symbol and message of an import that certainly fails, and what it raises.
fn failing_import(
    linker: &Linker<'_>,
    id: ModId,
    kind: &StmtKind,
    extent: Extent,
) -> Option<(Span, String, String, Protection)> {
    let module = linker.module(id);
    let concerns = |name: &str| extent != Extent::Attention || linker.program.packs.is_attention(name);
    match kind {
        StmtKind::Import(import) => {
            if linker.program.locate(&import.module) != Located::Missing || !concerns(&import.module) {
                return None;
            }
            Some((import.span, import.module.to_string(), no_module(linker, &import.module), Protection::Import))
        }
        StmtKind::ImportFrom(import) => {
            let source = absolute(module, import.level, &import.module)?;
            match linker.program.locate(&source) {
                Located::Missing if concerns(&source) => {
                    Some((import.module_span, source.clone(), no_module(linker, &source), Protection::Import))
                }
                Located::Module(from) if &import.name != "*" => {
                    let full = format!("{source}.{}", import.name);
                    if !(concerns(&source) || concerns(&full)) || from == id {
                        return None;
                    }
                    if linker.import_from(id, import) != Resolution::Missing {
                        return None;
                    }
                    let message = format!("ImportError: cannot import name '{}' from '{source}'", import.name);
                    Some((import.span, full, message, Protection::ImportName))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Python names the first package on the way that is missing.
fn no_module(linker: &Linker<'_>, name: &str) -> String {
    let mut end = 0;
    loop {
        end = name[end..].find('.').map_or(name.len(), |dot| end + dot);
        if linker.program.locate(&name[..end]) == Located::Missing || end == name.len() {
            return format!("ModuleNotFoundError: No module named '{}'", &name[..end]);
        }
        end += 1;
    }
}

/// What of the package is here instead.
fn explain(linker: &Linker<'_>, symbol: &str) -> Option<String> {
    let top = symbol.split('.').next()?;
    let Located::Module(id) = linker.program.locate(top) else { return None };
    let node = linker.program.node(id);
    if !matches!(node.kind, crate::link::NodeKind::Namespace) {
        return None;
    }
    let mut parts: Vec<String> = Vec::new();
    for (root, folder) in &node.folders {
        for (name, _) in linker.program.environment.root(*root).tree.list(folder) {
            let name = name.strip_suffix(".py").unwrap_or(&name).to_owned();
            if !name.starts_with('.') && name != "__pycache__" && !parts.contains(&name) {
                parts.push(name);
            }
        }
    }
    parts.sort();
    let has: Vec<String> = parts.iter().map(|part| format!("{top}.{part}")).collect();
    Some(format!("`{top}` is a namespace package here, with {} and nothing else", has.join(", ")))
}
