//! Which modules anything imports: a defect in one that nothing does is dead code.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Located, ModId, Program, absolute};
use crate::python::Module;
use crate::python::ir::{Constant, ExprKind, StmtKind};

/// Importers by module, over what is loaded and what else mentions a module in question.
#[derive(Debug, Default)]
pub struct Reach {
    importers: FxHashMap<String, FxHashSet<ModId>>,
}

impl Reach {
    /// Reads the imports of the audited modules and of every file that mentions one of `questioned` (dotted names).
    pub fn build(program: &Program<'_>, questioned: &[String]) -> Reach {
        let mut reach = Reach::default();
        let needles: Vec<&str> = questioned.iter().filter_map(|name| name.rsplit('.').next()).collect();
        let mut ids: FxHashSet<ModId> = program.audited.iter().chain(&program.importers).copied().collect();
        if !needles.is_empty() {
            for (root, path) in program.environment.files_mentioning(&needles) {
                if let Some(name) = program.module_name(root, &path)
                    && let Located::Module(id) = program.locate(&name)
                {
                    ids.insert(id);
                }
            }
        }
        for id in ids {
            if let Some(module) = program.module(id) {
                for name in mentioned_modules(module) {
                    reach.importers.entry(name).or_default().insert(id);
                }
            }
        }
        reach
    }

    /// Whether something that is itself in use imports the module. Packages, and modules at the top of the search path,
    /// are for others to import.
    pub fn is_used(&self, program: &Program<'_>, id: ModId) -> bool {
        self.used(program, id, &mut FxHashSet::default())
    }

    fn used(&self, program: &Program<'_>, id: ModId, seen: &mut FxHashSet<ModId>) -> bool {
        if !seen.insert(id) {
            return false;
        }
        let node = program.node(id);
        let Some(module) = program.module(id) else { return true };
        let entry = !node.name.contains('.') || node.name.ends_with(".__main__");
        let package = module.is_package && node.name.matches('.').count() <= 1;
        if entry || package {
            return true;
        }
        let direct = self.importers.get(node.name.as_str()).into_iter().flatten();
        direct.copied().filter(|&importer| importer != id).any(|importer| self.used(program, importer, seen))
            // A package is imported along with any of its modules.
            || (module.is_package && {
                let prefix = format!("{}.", node.name);
                self.importers.iter().any(|(name, by)| {
                    name.starts_with(&prefix)
                        && by.iter().copied().any(|importer| {
                            !program.node(importer).name.starts_with(&prefix) && self.used(program, importer, seen)
                        })
                })
            })
    }
}

/// Dotted names of modules that a module imports, or names in a string (registries load by string).
fn mentioned_modules(module: &Module) -> Vec<String> {
    let mut names = Vec::new();
    for stmt in &module.stmts {
        match &stmt.kind {
            StmtKind::Import(import) => names.push(import.module.to_string()),
            StmtKind::ImportFrom(import) => {
                if let Some(base) = absolute(module, import.level, &import.module) {
                    names.push(format!("{base}.{}", import.name));
                    names.push(base);
                }
            }
            _ => {}
        }
    }
    for expr in &module.exprs {
        if let ExprKind::Constant(Constant::Str(text)) = expr.kind
            && text.contains('.')
            && text.len() < 200
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:".contains(&b))
        {
            let text = text.split(':').next().unwrap_or_default();
            names.push(text.to_owned());
            if let Some((parent, _)) = text.rsplit_once('.') {
                names.push(parent.to_owned());
            }
        }
        // A lazy table of names by module: "package.module" in pieces is not followed.
    }
    names
}
