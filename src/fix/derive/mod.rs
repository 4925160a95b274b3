//! Fixes that follow from the sources themselves: one file per kind, each from a finding to its edits, or to nothing.

mod adapter;
mod drop_none;
mod guard_import;
mod init_attribute;
pub mod source;
mod star_unpack;
mod thread_name;

use rustc_hash::FxHashMap;

use crate::environment::RootId;
use crate::finding::{Applicability, Finding, Fix};
use crate::link::{FnRef, Linker, ModId};
use crate::packs::{Decorator, Packs};
use crate::python::Module;
use crate::python::ir::{Argument, Call, ExprId, ExprKind, ScopeId};
use crate::rules::Context;
use source::Source;

/// What a derivation sees.
struct Deriver<'c> {
    context: &'c Context<'c>,
    linker: Linker<'c>,
    /// The modules in which findings are reported.
    modules: FxHashMap<(RootId, String), ModId>,
    degraded: bool,
}

/// The place of a finding in the index.
#[derive(Clone, Copy)]
struct Site<'c> {
    id: ModId,
    module: &'c Module,
    source: Source<'c>,
    /// First byte, in the text of the module.
    offset: u32,
}

/// Gives every finding the fix that can be derived for it. With `degraded`, the adapter is the variant that drops
/// arguments that matter.
pub fn attach(context: &Context<'_>, degraded: bool, findings: &mut [Finding]) {
    let linker = Linker::new(context.program);
    let ids = context.program.audited.iter().chain(&context.program.importers);
    let modules = ids.filter_map(|&id| {
        let module = context.program.module(id)?;
        Some(((module.root, module.path.clone()), id))
    });
    let deriver = Deriver { context, modules: modules.collect(), linker, degraded };
    for finding in findings.iter_mut().filter(|finding| finding.fix.is_none()) {
        let Some(fix) = deriver.derive(finding) else { continue };
        let command = match fix.applicability {
            Applicability::Safe => "fa-doctor fix --write",
            Applicability::Unsafe => "fa-doctor fix --write --unsafe",
            Applicability::Manual => "fa-doctor fix",
        };
        finding.help = Some(match finding.help.take() {
            Some(help) => format!("{help}\n{command}"),
            None => format!("{}: {command}", fix.title),
        });
        finding.fix = Some(fix);
    }
}

impl<'c> Deriver<'c> {
    fn derive(&self, finding: &Finding) -> Option<Fix> {
        let site = self.site(finding)?;
        match finding.code.as_str() {
            "FA001" => thread_name::derive(self, site),
            "FA002" => init_attribute::derive(self, site, &finding.symbol),
            "FA003" => drop_none::derive(self, site).or_else(|| adapter::derive(self, site)),
            "FA004" => guard_import::derive(site),
            "FA006" => star_unpack::derive(site, finding),
            _ => None,
        }
    }

    fn packs(&self) -> &Packs {
        self.context.packs
    }

    fn site(&self, finding: &Finding) -> Option<Site<'c>> {
        let id = *self.modules.get(&(finding.root, finding.path.clone()))?;
        let module = self.context.program.module(id)?;
        let source = Source::of(module)?;
        Some(Site { id, module, source, offset: offset(module, finding.line, finding.column)? })
    }

    /// Whether a function is a kernel: a compiler reads it, and calls of it.
    fn is_kernel(&self, f: FnRef) -> bool {
        let decorators = &self.linker.module(f.module)[f.function].decorators;
        decorators.iter().any(|&at| self.linker.decorator_kind(f.module, at) == Some(Decorator::Kernel))
    }

    /// Whether code in `scope` is part of a kernel.
    fn in_kernel(&self, id: ModId, scope: ScopeId) -> bool {
        self.kernel_around(id, scope).is_some()
    }

    /// The kernel that `scope` is part of.
    fn kernel_around(&self, id: ModId, scope: ScopeId) -> Option<FnRef> {
        let module = self.linker.module(id);
        let mut function = module.enclosing_function(scope)?;
        loop {
            let f = FnRef { module: id, function };
            if self.is_kernel(f) {
                return Some(f);
            }
            function = module.enclosing_function(module[function].outer)?;
        }
    }

    /// Every call in the modules in which findings are reported.
    fn calls(&self) -> impl Iterator<Item = (ModId, ExprId, &'c Call)> + '_ {
        let program = self.context.program;
        program.audited.iter().chain(&program.importers).flat_map(move |&id| {
            let module = program.source(id);
            module.exprs.iter().enumerate().filter_map(move |(index, expr)| match &expr.kind {
                ExprKind::Call(call) => Some((id, ExprId(index as u32), &**call)),
                _ => None,
            })
        })
    }
}

impl<'c> Site<'c> {
    /// The call that has an argument at the place of the finding.
    fn call_of_argument(&self) -> Option<(ExprId, &'c Call)> {
        self.module.exprs.iter().enumerate().find_map(|(index, expr)| match &expr.kind {
            ExprKind::Call(call) if call.arguments.iter().any(|argument| argument.span.start == self.offset) => {
                Some((ExprId(index as u32), &**call))
            }
            _ => None,
        })
    }
}

/// The byte at a line and column, both from 1, the column in characters.
fn offset(module: &Module, line: u32, column: u32) -> Option<u32> {
    let start = *module.line_starts.get(line.checked_sub(1)? as usize)?;
    let rest = module.text.get(start as usize..)?;
    let at = rest.char_indices().nth(column.checked_sub(1)? as usize).map_or(rest.len(), |(at, _)| at);
    Some(start + at as u32)
}

/// Whether an argument is written as `name=None`.
fn is_literal_none(module: &Module, argument: &Argument) -> bool {
    use crate::python::ir::{ArgumentKind, Constant};
    matches!(argument.kind, ArgumentKind::Keyword(_))
        && matches!(module[argument.value].kind, ExprKind::Constant(Constant::None))
}
