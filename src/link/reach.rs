//! Which modules anything imports: a defect in one that nothing does is dead code.

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Linker, Located, ModId, Program, Truth, absolute};
use crate::python::Module;
use crate::python::ir::{Constant, ExprKind, GuardKind, StmtKind};

/// How a module comes into a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// Nothing imports it.
    Never,
    /// Only imports under a condition that this environment is not known to meet.
    Conditionally,
    /// Something that is itself in use imports it.
    Normally,
}

/// Importers by module, over what is loaded and what else mentions a module in question.
#[derive(Debug, Default)]
pub struct Reach {
    importers: FxHashMap<String, FxHashMap<ModId, Reached>>,
    audited: FxHashSet<ModId>,
}

impl Reach {
    /// Reads the imports of the audited modules and their importers: whatever imports an audited module is among them.
    pub(super) fn build(program: &Program<'_>) -> Reach {
        let mut reach = Reach { audited: program.audited.iter().copied().collect(), ..Reach::default() };
        let modules: Vec<ModId> = program.audited.iter().chain(&program.importers).copied().collect();
        let mentioned: Vec<(ModId, Vec<(String, Reached)>)> = modules
            .into_par_iter()
            .filter_map(|id| Some((id, mentioned_modules(&Linker::new(program), id, program.module(id)?))))
            .collect();
        for (id, names) in mentioned {
            for (name, how) in names {
                let known = reach.importers.entry(name).or_default().entry(id).or_insert(how);
                *known = how.max(*known);
            }
        }
        reach
    }

    /// How the module is reached. Packages near the top, and modules at the top of the search path, are for others to
    /// import.
    pub fn of(&self, program: &Program<'_>, id: ModId) -> Reached {
        if !self.audited.contains(&id) {
            return mentioned_anywhere(program, id);
        }
        for least in [Reached::Normally, Reached::Conditionally] {
            if self.reached(program, id, least, &mut FxHashSet::default()) {
                return least;
            }
        }
        Reached::Never
    }

    fn reached(&self, program: &Program<'_>, id: ModId, least: Reached, seen: &mut FxHashSet<ModId>) -> bool {
        if !seen.insert(id) {
            return false;
        }
        let node = program.node(id);
        let Some(module) = program.module(id) else { return true };
        // Who imports a module outside the audit is not followed: it counts as in use.
        let beyond = !self.audited.contains(&id);
        let entry = !node.name.contains('.') || node.name.ends_with(".__main__");
        let package = module.is_package && node.name.matches('.').count() <= 1;
        if beyond || entry || package {
            return true;
        }
        let by_name = self.importers.get(node.name.as_str()).into_iter().flatten();
        let by_name = by_name.filter(|(_, how)| **how >= least).map(|(&importer, _)| importer);
        let direct: Vec<ModId> = by_name.chain(self.by_path(program, &node.name, least)).collect();
        if direct.iter().any(|&importer| importer != id && self.reached(program, importer, least, seen)) {
            return true;
        }
        if !module.is_package {
            return false;
        }
        // A package is imported along with any of its modules.
        let prefix = format!("{}.", node.name);
        let below = self.importers.iter().filter(|(name, _)| name.starts_with(&prefix));
        let outside: FxHashSet<ModId> = below
            .flat_map(|(_, by)| by.iter().filter(|(_, how)| **how >= least).map(|(&importer, _)| importer))
            .filter(|&importer| !program.node(importer).name.starts_with(&prefix))
            .collect();
        outside.into_iter().any(|importer| self.reached(program, importer, least, seen))
    }

    /// Importers that name the module from a folder of its own package, which something has put on `sys.path`.
    fn by_path(&self, program: &Program<'_>, name: &str, least: Reached) -> Vec<ModId> {
        let mut found = Vec::new();
        for (dot, _) in name.match_indices('.') {
            let (folder, short) = (&name[..dot], &name[dot + 1..]);
            let Some(importers) = self.importers.get(short) else { continue };
            if program.locate(short) != Located::Outside {
                continue;
            }
            for (&importer, &how) in importers {
                let other = program.node(importer).name;
                let package = other.rsplit_once('.').map_or("", |(package, _)| package);
                let inside = |outer: &str, inner: &str| {
                    !outer.is_empty() && inner.strip_prefix(outer).is_some_and(|r| r.is_empty() || r.starts_with('.'))
                };
                if how >= least && (inside(folder, package) || (package.contains('.') && inside(package, folder))) {
                    found.push(importer);
                }
            }
        }
        found
    }
}

/// A module outside the audit is in use if any other file so much as mentions its name.
fn mentioned_anywhere(program: &Program<'_>, id: ModId) -> Reached {
    let name = program.node(id).name;
    let last = name.rsplit('.').next().unwrap_or_default();
    let own = program.module(id).map(|module| module.path.as_str());
    let is_entry = !name.contains('.') || program.module(id).is_some_and(|module| module.is_package);
    if is_entry || program.environment.files_mentioning(&[last]).iter().any(|(_, path)| Some(path.as_str()) != own) {
        Reached::Normally
    } else {
        Reached::Never
    }
}

/// Dotted names of modules that a module imports, or names in a string (registries load by string), and how.
fn mentioned_modules(linker: &Linker<'_>, id: ModId, module: &Module) -> Vec<(String, Reached)> {
    let mut names = Vec::new();
    for stmt in &module.stmts {
        let mut imported = Vec::new();
        match &stmt.kind {
            StmtKind::Import(import) => imported.push(import.module.to_string()),
            StmtKind::ImportFrom(import) => {
                if let Some(base) = absolute(module, import.level, &import.module) {
                    imported.push(format!("{base}.{}", import.name));
                    imported.push(base);
                }
            }
            _ => continue,
        }
        // At module level an undecided test (an environment variable, say) is a choice that is not known to be made;
        // inside a function the call makes it.
        let undecided = module[stmt.scope].kind == crate::python::ir::ScopeKind::Module
            && module.conditions(stmt.guard).any(|kind| {
                matches!(kind, GuardKind::Test { .. })
                    && linker.truth_of_kind(id, kind, stmt.span.start) == Truth::Maybe
            });
        let dead = linker.truth_of_guard(id, stmt.guard, stmt.span.start) == Truth::No;
        let how = if undecided || dead { Reached::Conditionally } else { Reached::Normally };
        names.extend(imported.into_iter().map(|name| (name, how)));
    }
    for expr in &module.exprs {
        if let ExprKind::Constant(Constant::Str(text)) = expr.kind
            && text.contains('.')
            && text.len() < 200
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:".contains(&b))
        {
            let text = text.split(':').next().unwrap_or_default();
            names.push((text.to_owned(), Reached::Normally));
            if let Some((parent, _)) = text.rsplit_once('.') {
                names.push((parent.to_owned(), Reached::Normally));
            }
        }
    }
    names
}
