//! Finding modules on the search path, as `import` does, and loading their index when it is first asked for.

use std::sync::{Arc, OnceLock, PoisonError};

use crate::environment::{EntryKind, RootId, RootKind};
use crate::finding::Incomplete;
use crate::python::{self, Module, Origin, Symbol};

use super::{ModId, Program};

/// A module of the program.
///
/// Finding one reads no file: its source is parsed when something first asks for it.
#[derive(Debug)]
pub struct Node {
    /// Dotted name.
    pub name: Symbol,
    /// What it is.
    pub kind: NodeKind,
    /// Folders that its submodules are looked for in; empty for a plain module.
    pub folders: Vec<(RootId, String)>,
}

/// What a module is.
#[derive(Debug)]
pub enum NodeKind {
    /// Python source.
    Source(Source),
    /// An extension module: its names are not known.
    Extension,
    /// A folder without `__init__.py`: it has nothing but its submodules.
    Namespace,
}

/// A source file, and its index once something has asked for it.
#[derive(Debug)]
pub struct Source {
    origin: Origin,
    index: OnceLock<Option<Box<Module>>>,
}

/// Where a dotted name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Located {
    /// A module of this environment.
    Module(ModId),
    /// The package around it is here, and it has no such module.
    Missing,
    /// The top-level package is not here at all: standard library, or not installed.
    Outside,
    /// The package around it is here, but what it contains is not certain.
    Unknown,
}

type Segment = Box<[OnceLock<Node>]>;

const SEGMENT: usize = 512;

/// Append-only storage that hands out references while others append.
#[derive(Debug)]
pub(super) struct Nodes {
    segments: Box<[OnceLock<Segment>]>,
    next: std::sync::atomic::AtomicU32,
}

impl Default for Nodes {
    fn default() -> Self {
        let segments = (0..SEGMENT).map(|_| OnceLock::new()).collect();
        Nodes { segments, next: std::sync::atomic::AtomicU32::new(0) }
    }
}

impl Nodes {
    fn slot(&self, id: ModId) -> Option<&OnceLock<Node>> {
        let segment = self.segments.get(id.0 as usize / SEGMENT)?;
        let slots = segment.get_or_init(|| (0..SEGMENT).map(|_| OnceLock::new()).collect());
        Some(&slots[id.0 as usize % SEGMENT])
    }

    /// Stores a node; `None` once 262,144 modules are loaded.
    fn push(&self, node: Node) -> Option<ModId> {
        let id = ModId(self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        self.slot(id)?.set(node).ok().map(|()| id)
    }

    pub(super) fn get(&self, id: ModId) -> &Node {
        let node = self.slot(id).and_then(OnceLock::get);
        node.expect("a ModId is only made by push, after the node is stored")
    }
}

/// What a path element may be in one folder.
enum Candidate {
    Package(String),
    File(String),
    Extension,
    Folder,
}

impl<'a> Program<'a> {
    /// Finds and, where it is source, loads the module with this dotted name.
    pub fn locate(&self, name: &str) -> Located {
        if name.is_empty() {
            return Located::Unknown;
        }
        let cell = {
            let known = self.names.read().unwrap_or_else(PoisonError::into_inner);
            known.get(&Symbol::new(name)).cloned()
        };
        let cell = cell.unwrap_or_else(|| {
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(names.entry(Symbol::new(name)).or_default())
        });
        *cell.get_or_init(|| self.search(name))
    }

    fn search(&self, name: &str) -> Located {
        let (parent, last) = match name.rsplit_once('.') {
            Some((parent, last)) => (Some(parent), last),
            None => (None, name),
        };
        let folders: Vec<(RootId, String)> = match parent {
            None => {
                let entries = self.environment.search_path.iter();
                let installed = entries.filter(|e| self.environment.root(e.root).kind != RootKind::StandardLibrary);
                installed.map(|entry| (entry.root, entry.prefix.clone())).collect()
            }
            Some(parent) => match self.locate(parent) {
                Located::Module(id) if matches!(self.node(id).kind, NodeKind::Extension) => return Located::Unknown,
                Located::Module(id) => self.node(id).folders.clone(),
                other => return other,
            },
        };
        let mut portions = Vec::new();
        for (root, folder) in folders {
            match self.candidate(root, &folder, last) {
                Some(Candidate::Package(path)) => {
                    let package = join(&folder, last);
                    return self.add_source(name, root, path, true, vec![(root, package)]);
                }
                Some(Candidate::File(path)) => return self.add_source(name, root, path, false, Vec::new()),
                Some(Candidate::Extension) => return self.add(name, NodeKind::Extension, Vec::new()),
                Some(Candidate::Folder) => portions.push((root, join(&folder, last))),
                None => {}
            }
        }
        if !portions.is_empty() {
            return self.add(name, NodeKind::Namespace, portions);
        }
        match parent {
            None => Located::Outside,
            Some(parent) => self.absence(parent, last),
        }
    }

    /// A module that is not on disk: certainly missing, or made when the package is built.
    fn absence(&self, parent: &str, last: &str) -> Located {
        let Located::Module(id) = self.locate(parent) else { return Located::Unknown };
        if matches!(self.node(id).kind, NodeKind::Source(_)) {
            // A package that cannot be read, or that rewrites its __path__, may have modules anywhere.
            let path = Symbol::new("__path__");
            if self.module(id).is_none_or(|module| module[Module::SCOPE].names.contains_key(&path)) {
                return Located::Unknown;
            }
        }
        for (root, folder) in &self.node(id).folders {
            // A folder that this user may not list may hold it.
            let is_hidden = self.environment.root(*root).tree.is_unreadable(folder);
            if is_hidden || self.is_source_tree(*root, folder) || self.is_recorded(*root, &join(folder, last)) {
                return Located::Unknown;
            }
        }
        Located::Missing
    }

    /// A checkout lacks what its build generates: extensions, vendored code, version files.
    fn is_source_tree(&self, root: RootId, folder: &str) -> bool {
        let environment = self.environment;
        environment.root(root).kind == RootKind::Checkout
            && environment.owner(root, &join(folder, "__init__.py")).is_none_or(|d| d.is_project() || d.root != root)
    }

    /// RECORD lists a file of that name which is not there (an extension removed to save space).
    fn is_recorded(&self, root: RootId, stem: &str) -> bool {
        let tree = &self.environment.root(root).tree;
        let top = stem.split('/').next().unwrap_or_default();
        let owner = self.environment.owner(root, stem).map(|owner| &owner.info);
        self.environment.distributions.iter().filter(|d| d.root == root).any(|distribution| {
            (owner == Some(&distribution.info) || distribution.name.replace('-', "_") == top)
                && distribution.lists(tree, stem)
        })
    }

    fn candidate(&self, root: RootId, folder: &str, name: &str) -> Option<Candidate> {
        let tree = &self.environment.root(root).tree;
        let package = join(folder, name);
        let is_folder = tree.kind(&package) == Some(EntryKind::Folder);
        if is_folder {
            let init = join(&package, "__init__.py");
            if tree.kind(&init) == Some(EntryKind::File) {
                return Some(Candidate::Package(init));
            }
        }
        let files = tree.files_starting(folder, &format!("{name}."));
        if files.iter().any(|file| file.ends_with(".so") || file.ends_with(".pyd")) {
            return Some(Candidate::Extension);
        }
        let file = format!("{package}.py");
        if tree.kind(&file) == Some(EntryKind::File) {
            return Some(Candidate::File(file));
        }
        is_folder.then_some(Candidate::Folder)
    }

    fn add(&self, name: &str, kind: NodeKind, folders: Vec<(RootId, String)>) -> Located {
        let node = Node { name: Symbol::new(name), kind, folders };
        self.nodes.push(node).map_or(Located::Unknown, Located::Module)
    }

    fn add_source(
        &self,
        name: &str,
        root: RootId,
        path: String,
        is_package: bool,
        folders: Vec<(RootId, String)>,
    ) -> Located {
        let origin = Origin { name: Symbol::new(name), is_package, root, path };
        self.add(name, NodeKind::Source(Source { origin, index: OnceLock::new() }), folders)
    }

    /// A module's index, if it is source that can be read; parsed when it is first asked for.
    pub fn module(&self, id: ModId) -> Option<&Module> {
        match &self.node(id).kind {
            NodeKind::Source(source) => source.index.get_or_init(|| self.parse(&source.origin)).as_deref(),
            NodeKind::Extension | NodeKind::Namespace => None,
        }
    }

    fn parse(&self, origin: &Origin) -> Option<Box<Module>> {
        let tree = &self.environment.root(origin.root).tree;
        let indexed = match tree.read(&origin.path) {
            Ok(bytes) => python::index(&bytes, origin.clone()),
            Err(error) => Err(error.to_string()),
        };
        self.files.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match indexed {
            Ok(module) => {
                if let Some(error) = module.errors.first() {
                    let line = module.position(error.span.start).0;
                    self.note(origin, format!("line {line}: {}", error.message));
                }
                Some(Box::new(module))
            }
            Err(reason) => {
                self.note(origin, reason);
                None
            }
        }
    }

    fn note(&self, origin: &Origin, reason: String) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push((origin.name, Incomplete { path: origin.path.clone(), reason }));
    }
}

pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
