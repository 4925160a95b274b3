//! # What it does
//!
//! Finds attributes read from a module that the installed module does not have: `cute.make_fragment` where
//! `cutlass.cute` defines, imports and generates no such name.
//!
//! # Why is this bad
//!
//! The line raises AttributeError, at import for an annotation or a decorator, at the first compilation for a kernel. It
//! happens when the CuTe DSL is newer or older than the kernels that use it.
//!
//! # Example
//!
//! ```python
//! acc = cute.make_fragment(shape, dtype)
//! # AttributeError: module 'cutlass.cute' has no attribute 'make_fragment'
//! ```
//!
//! # Fix
//!
//! Install the version of the package that the caller was written for; no source is changed.
//!
//! Packages that the audited modules stand on (`carrying` in the rule packs) are checked for what they read while an
//! audited module imports them.
//!
//! Modules that make names at run time (`__getattr__`, extensions, star imports of what is not here) are not judged.
//!
//! # References
//!
//! - <https://docs.python.org/3/reference/datamodel.html#module-attributes>

use super::fa001_undefined_name::is_evaluated;
use super::sources::{Extent, finding, over_program, related, report_merged};
use super::{Context, Rule, RuleInfo, Sink};
use crate::finding::Finding;
use crate::link::{Linker, Located, ModId, Protection, Resolution, Truth, Value};
use crate::python::ir::{ExprId, ExprKind, Stmt, StmtKind, Usage};

static INFO: RuleInfo = RuleInfo {
    code: "FA005",
    name: "missing-module-attribute",
    summary: "an attribute that the installed module does not have",
    source: include_str!("fa005_missing_module_attribute.rs"),
};

/// FA005.
pub struct MissingModuleAttribute;

impl Rule for MissingModuleAttribute {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let found = over_program(context, |linker, id, extent| check_module(context, linker, id, extent));
        report_merged(context, sink, found, "read here too");
    }
}

/// One cause: the attribute, for the package that reads it.
type Cause = (String, Option<String>);

fn check_module(context: &Context<'_>, linker: &Linker<'_>, id: ModId, extent: Extent) -> Vec<(Cause, Finding)> {
    let module = linker.module(id);
    let attention_only = extent == Extent::Attention;
    let mut found = Vec::new();
    for (index, expr) in module.exprs.iter().enumerate() {
        let ExprKind::Attribute(object, attr) = expr.kind else { continue };
        if expr.usage != Usage::Load
            || !is_evaluated(expr.phase, linker.program.environment.python)
            || !matches!(module[object].kind, ExprKind::Name(_) | ExprKind::Attribute(..))
        {
            continue;
        }
        if attention_only && !linker.touches_attention(id, object) {
            continue;
        }
        let resolved = linker.eval(id, object);
        let Some(Value::Module(target)) = resolved.single() else { continue };
        let node = linker.program.node(*target);
        if attention_only && !linker.program.packs.is_attention(&node.name) {
            continue;
        }
        if linker.module_attribute(*target, attr) != Resolution::Missing {
            continue;
        }
        let spelled = module.slice(module[object].span);
        let truth = linker.truth_of_guard(id, expr.guard, expr.span.start);
        if truth == Truth::No
            || extent == Extent::Import && !(truth == Truth::Yes && module.runs_at_import(expr.scope))
            || linker.is_protected(id, expr.guard, Protection::Attribute)
            || linker.is_known_attribute(id, expr.guard, spelled, attr)
            || linker.is_behind_open_question(id, expr.guard)
            || is_imported_as_module(linker, id, &format!("{}.{attr}", node.name))
        {
            continue;
        }
        let at = ExprId(index as u32);
        let symbol = format!("{}.{attr}", node.name);
        let message = format!("AttributeError: module '{}' has no attribute '{attr}'", node.name);
        let mut item = finding(context, &INFO, id, module.attribute_span(at), symbol.clone(), message);
        if let Some(source) = linker.program.module(*target) {
            let version = context
                .package_of(source.root, &source.path)
                .map(|(name, version)| format!("{name} {version}"))
                .unwrap_or_else(|| "the installed package".to_owned());
            item.related.push(related(context, *target, 0, format!("`{}`, from {version}", node.name)));
        }
        if extent == Extent::Import {
            item.help = Some("`fa-doctor pin` lists versions that fit together".to_owned());
        }
        found.push(((symbol, item.package.clone()), item));
    }
    found.sort_by_key(|(_, item)| (item.line, item.column));
    found
}

/// The module imports it as a module itself, which is FA004's to judge: where that fails, the read is never reached.
fn is_imported_as_module(linker: &Linker<'_>, id: ModId, name: &str) -> bool {
    let module = linker.module(id);
    let leads_to = |import: &str| import == name || import.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let as_such = |stmt: &Stmt| matches!(&stmt.kind, StmtKind::Import(import) if leads_to(&import.module));
    module.stmts.iter().any(as_such)
        || crate::link::imports(module).any(|import| leads_to(&import))
            && linker.program.locate(name) != Located::Missing
}
