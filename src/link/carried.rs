//! Packages that the audited modules stand on: what they import when they are imported must be there too.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use super::{Linker, Located, ModId, Program, Protection, Truth, absolute};
use crate::python::ir::StmtKind;

/// A module outside the audit that an audited module cannot be imported without.
#[derive(Debug, Clone, Copy)]
pub struct Carried {
    /// The module.
    pub module: ModId,
    /// The audited module that it comes in with.
    pub by: ModId,
    /// Where that one imports what leads to it.
    pub offset: u32,
}

impl Program<'_> {
    /// Modules of the packages that packs name as carrying others, as far as importing `roots` certainly imports them.
    pub fn carried_by(&self, roots: &[ModId]) -> Vec<Carried> {
        let mut seen: FxHashSet<ModId> = FxHashSet::default();
        let mut found = Vec::new();
        let mut queue: VecDeque<(ModId, Option<Carried>)> = roots.iter().map(|&id| (id, None)).collect();
        let linker = Linker::new(self);
        while let Some((id, through)) = queue.pop_front() {
            for (name, offset) in imported_at_once(&linker, id) {
                // Every package on the way is imported first.
                for end in name.match_indices('.').map(|(dot, _)| dot).chain([name.len()]) {
                    let name = &name[..end];
                    if self.packs.is_carrying(name)
                        && let Located::Module(module) = self.locate(name)
                        && self.module(module).is_some()
                        && seen.insert(module)
                    {
                        let carried = match through {
                            Some(first) => Carried { module, ..first },
                            None => Carried { module, by: id, offset },
                        };
                        found.push(carried);
                        queue.push_back((module, Some(carried)));
                    }
                }
            }
        }
        found
    }
}

/// Dotted names that importing a module certainly imports, or takes from one that it does, and where.
fn imported_at_once(linker: &Linker<'_>, id: ModId) -> Vec<(String, u32)> {
    let Some(module) = linker.program.module(id) else { return Vec::new() };
    let mut names = Vec::new();
    for stmt in &module.stmts {
        if !module.runs_at_import(stmt.scope) {
            continue;
        }
        let name = match &stmt.kind {
            StmtKind::Import(import) => import.module.to_string(),
            StmtKind::ImportFrom(import) => match absolute(module, import.level, &import.module) {
                Some(base) => format!("{base}.{}", import.name),
                None => continue,
            },
            _ => continue,
        };
        if linker.program.packs.is_carrying(&name)
            && linker.truth_of_guard(id, stmt.guard, stmt.span.start) == Truth::Yes
            && !linker.is_protected(id, stmt.guard, Protection::Import)
        {
            names.push((name, stmt.span.start));
        }
    }
    names
}
