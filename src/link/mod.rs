//! Resolution across modules: imports, names, attributes, classes and calls, over the index of `python`.
//!
//! [`Program`] holds the modules, loaded when they are first asked for; a [`Linker`] answers questions about them.
//! Every answer is Found, Missing or Unknown, and only Missing may become a finding.

mod arity;
mod bind;
mod capability;
mod carried;
mod classes;
mod condition;
mod eval;
mod fate;
mod flow;
mod guards;
mod linker;
mod modules;
mod names;
mod reach;
mod selection;
mod signature;
mod stores;
mod tables;
mod usage;
mod value;

pub use arity::Arity;
pub use bind::{Arguments, Mismatch, bind};
pub use carried::Carried;
pub use classes::{ClassTable, Mro};
pub use condition::Const;
pub use fate::{End, Fate, Follower};
pub use guards::{Protection, Truth};
pub use linker::{Before, Linker};
pub use modules::{Located, Node, NodeKind};
pub use names::is_ancestor;
pub use reach::{Reach, Reached};
pub use selection::{Backend, Choice, Order, Refusal};
pub use signature::{Callee, Signature};
pub use stores::{Read, SelfIndex, Store, Stores};
pub use usage::{Mentions, Usage};
pub use value::{ClassRef, ExprRef, FnRef, ModId, Partial, Resolution, Value};

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::environment::{Environment, RootId, RootKind};
use crate::finding::Incomplete;
use crate::packs::Packs;
use crate::python::{Module, Symbol};
use modules::Nodes;

/// The function of the compatibility adapter that passes a call on: what it returns is what its first argument returns.
pub const ADAPTER_CALL: &str = "_fa_doctor_call";

/// The modules of an environment, and which of them are audited.
pub struct Program<'a> {
    /// What is installed.
    pub environment: &'a Environment,
    /// Facts about named releases.
    pub packs: &'a Packs,
    /// Modules in which every finding is reported, sorted by path.
    pub audited: Vec<ModId>,
    /// Modules that import an attention module: their calls into it are audited. Sorted by path.
    pub importers: Vec<ModId>,
    /// Modules that the audited ones cannot be imported without: what they import themselves is audited.
    pub carried: Vec<Carried>,
    nodes: Nodes,
    names: RwLock<FxHashMap<Symbol, Arc<OnceLock<Located>>>>,
    notes: Mutex<Vec<(Symbol, Incomplete)>>,
    files: AtomicUsize,
    module_names: RwLock<FxHashMap<(ModId, Symbol), Resolution>>,
    classes: OnceLock<ClassTable>,
    stores: OnceLock<Stores>,
    reach: OnceLock<Reach>,
    mentions: OnceLock<Mentions>,
    mros: RwLock<FxHashMap<ClassRef, Option<Arc<Mro>>>>,
    self_indexes: RwLock<FxHashMap<ModId, Arc<SelfIndex>>>,
}

/// What to audit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope {
    /// `--all`: whole packages instead of their attention modules.
    pub all: bool,
}

impl<'a> Program<'a> {
    /// Finds and loads the modules to audit, in parallel.
    pub fn load(environment: &'a Environment, packs: &'a Packs, scope: Scope) -> Program<'a> {
        let mut program = Program {
            environment,
            packs,
            audited: Vec::new(),
            importers: Vec::new(),
            carried: Vec::new(),
            nodes: Nodes::default(),
            names: RwLock::default(),
            notes: Mutex::default(),
            files: AtomicUsize::new(0),
            module_names: RwLock::default(),
            classes: OnceLock::new(),
            stores: OnceLock::new(),
            reach: OnceLock::new(),
            mentions: OnceLock::new(),
            mros: RwLock::default(),
            self_indexes: RwLock::default(),
        };
        let audited = program.audited_names(scope);
        // The search for importers reads files while the audited ones are parsed.
        let (loaded, importers) =
            rayon::join(|| program.load_all(audited.iter().map(String::as_str)), || program.importer_names(&audited));
        program.audited = loaded;
        let loaded = program.load_all(importers.iter().map(String::as_str));
        program.importers = loaded.into_par_iter().filter(|&id| program.imports_attention(id)).collect();
        // Made here, in parallel, rather than inside the first rule that asks: a worker that waits for a cell that
        // another worker fills in parallel may be the one that has to fill it.
        let tables = || {
            program.stores();
            program.class_table();
        };
        rayon::join(tables, || program.mentions());
        program.carried = program.carried_by(&program.audited);
        program
    }

    fn load_all<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<ModId> {
        let names: Vec<&str> = names.collect();
        let mut ids: Vec<ModId> = names
            .into_par_iter()
            .filter_map(|name| match self.locate(name) {
                Located::Module(id) if self.module(id).is_some() => Some(id),
                _ => None,
            })
            .collect();
        ids.sort_by_key(|&id| self.module(id).map(|module| (module.path.clone(), module.root)));
        ids.dedup();
        ids
    }

    /// Dotted names of every module below the audited prefixes.
    fn audited_names(&self, scope: Scope) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for prefix in &self.packs.audited {
            let Located::Module(_) = self.locate(prefix) else { continue };
            let top = if scope.all { prefix.split('.').next().unwrap_or(prefix) } else { prefix };
            names.insert(top.to_owned());
            let Located::Module(id) = self.locate(top) else { continue };
            for (root, folder) in &self.node(id).folders {
                let tree = &self.environment.root(*root).tree;
                for path in tree.walk(folder, &|path| path.ends_with(".py")) {
                    let relative = path[folder.len()..].trim_start_matches('/');
                    if let Some(name) = dotted(top, relative) {
                        names.insert(name);
                    }
                }
            }
        }
        names
    }

    /// Dotted names of modules, outside the audited ones, whose text mentions an attention module.
    fn importer_names(&self, audited: &BTreeSet<String>) -> BTreeSet<String> {
        let needles: BTreeSet<&str> = self.packs.attention_modules.iter().map(|name| needle(name)).collect();
        let needles: Vec<&str> = needles.into_iter().collect();
        let mut names = BTreeSet::new();
        for (root, path) in self.environment.files_mentioning(&needles) {
            if let Some(name) = self.module_name(root, &path)
                && !audited.contains(&name)
            {
                names.insert(name);
            }
        }
        names
    }

    /// The dotted name by which `path` of `root` can be imported, if it can.
    pub fn module_name(&self, root: RootId, path: &str) -> Option<String> {
        if self.environment.root(root).kind == RootKind::StandardLibrary {
            return None;
        }
        let entries = self.environment.search_path.iter().filter(|entry| entry.root == root);
        let relative = entries
            .filter_map(|entry| match entry.prefix.as_str() {
                "" => Some(path),
                prefix => path.strip_prefix(prefix)?.strip_prefix('/'),
            })
            .min_by_key(|relative| relative.len())?;
        dotted("", relative)
    }

    fn imports_attention(&self, id: ModId) -> bool {
        let Some(module) = self.module(id) else { return false };
        imports(module).any(|name| self.packs.is_attention(&name))
    }

    /// A module's node.
    pub fn node(&self, id: ModId) -> &Node {
        self.nodes.get(id)
    }

    /// The module that holds a function, class or expression.
    ///
    /// References are only made for modules that are source, so there always is one.
    pub fn source(&self, id: ModId) -> &Module {
        self.module(id).expect("a reference into a module is only made where the module is source")
    }

    /// Files that were read and parsed so far.
    pub fn files(&self) -> usize {
        self.files.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Attention modules (audited ones) that could not be read or parsed, sorted.
    pub fn incomplete(&self) -> Vec<Incomplete> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut audited: Vec<Incomplete> =
            notes.iter().filter(|(name, _)| self.packs.is_audited(name)).map(|(_, note)| note.clone()).collect();
        audited.sort();
        audited.dedup();
        audited
    }

    /// Classes, subclasses and constructions of everything loaded for audit.
    pub fn class_table(&self) -> &ClassTable {
        self.classes.get_or_init(|| ClassTable::build(self))
    }

    /// Which modules anything imports.
    pub fn reach(&self) -> &Reach {
        self.reach.get_or_init(|| Reach::build(self))
    }

    /// Where names are mentioned.
    pub fn mentions(&self) -> &Mentions {
        self.mentions.get_or_init(|| Mentions::build(self))
    }

    /// Attributes that everything loaded for audit stores on objects.
    pub fn stores(&self) -> &Stores {
        self.stores.get_or_init(|| Stores::build(self))
    }
}

/// Absolute dotted names that a module imports: modules, and `module.name` for from-imports.
pub fn imports(module: &Module) -> impl Iterator<Item = String> + '_ {
    use crate::python::ir::StmtKind;
    module.stmts.iter().filter_map(|stmt| match &stmt.kind {
        StmtKind::Import(import) => Some(import.module.to_string()),
        StmtKind::ImportFrom(import) => {
            let base = absolute(module, import.level, &import.module)?;
            Some(if &import.name == "*" { base } else { format!("{base}.{}", import.name) })
        }
        _ => None,
    })
}

/// The absolute name of a relative import; `None` if it climbs out of the top-level package.
pub fn absolute(module: &Module, level: u32, name: &str) -> Option<String> {
    if level == 0 {
        return Some(name.to_owned());
    }
    let mut parts: Vec<&str> = module.name.split('.').collect();
    let drop = level as usize - usize::from(module.is_package);
    if drop >= parts.len() + usize::from(module.is_package && level == 1) {
        return None;
    }
    parts.truncate(parts.len() - drop);
    if !name.is_empty() {
        parts.push(name);
    }
    Some(parts.join("."))
}

/// `a/b.py` below `top` as a dotted name; `None` for files that no import can name.
fn dotted(top: &str, relative: &str) -> Option<String> {
    let stem = relative.strip_suffix(".py")?;
    let stem = stem.strip_suffix("/__init__").unwrap_or(stem);
    let mut name = top.to_owned();
    if stem != "__init__" {
        for part in stem.split('/') {
            let identifier =
                !part.is_empty() && !part.contains(['-', '.', ' ']) && !part.starts_with(|c: char| c.is_ascii_digit());
            if !identifier {
                return None;
            }
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(part);
        }
    }
    (!name.is_empty()).then_some(name)
}

/// The text that every import of an attention module contains: its last component, or for a module whose last
/// component is an ordinary word the last two.
fn needle(name: &str) -> &str {
    let last = name.rfind('.').map_or(0, |dot| dot + 1);
    if name[last..].contains('_') || last == 0 {
        return &name[last..];
    }
    let before = name[..last - 1].rfind('.').map_or(0, |dot| dot + 1);
    &name[before..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        assert_eq!(dotted("", "vllm/v1/__init__.py").as_deref(), Some("vllm.v1"));
        assert_eq!(dotted("vllm", "_C.py").as_deref(), Some("vllm._C"));
        assert_eq!(dotted("vllm", "__init__.py").as_deref(), Some("vllm"));
        assert_eq!(dotted("", "my-tool/x.py"), None);
        assert_eq!(needle("vllm.v1.attention"), "v1.attention");
        assert_eq!(needle("vllm.vllm_flash_attn"), "vllm_flash_attn");
        assert_eq!(needle("flash_attn"), "flash_attn");
    }
}
