//! Libraries as the loader would find them: in the environment first, then on this machine.

use std::io;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::elf::{Elf, ElfError, Machine};
use super::shelf::Shelf;
use super::system::System;
use crate::environment::tree::{Bytes, join};
use crate::environment::{EntryKind, Environment, RootId, RootKind};

/// Where a library is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the environment.
    Inside(RootId, String),
    /// On this machine.
    System(PathBuf),
}

/// Why a library could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The file.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// What is in it.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

impl LibraryError {
    /// The same error once more, for another reader of it.
    pub(super) fn again(&self) -> LibraryError {
        match self {
            LibraryError::Io(error) => LibraryError::Io(io::Error::new(error.kind(), error.to_string())),
            LibraryError::Elf(error) => LibraryError::Elf(error.clone()),
        }
    }
}

/// Index into [`Libraries`].
pub type LibraryId = usize;

/// A library that was opened.
#[derive(Debug)]
pub struct Library {
    /// Where it is.
    pub place: Place,
    /// The processor it is for.
    pub machine: Machine,
    /// The libraries it needs.
    pub needed: Vec<Need>,
    folders: Vec<String>,
    bytes: Bytes,
}

impl Library {
    /// The last part of its path.
    pub fn file_name(&self) -> String {
        match &self.place {
            Place::Inside(_, path) => path.rsplit('/').next().unwrap_or(path).to_owned(),
            Place::System(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

    /// Its tables.
    pub fn elf(&self) -> Result<Elf<'_>, ElfError> {
        Elf::parse(&self.bytes)
    }
}

/// A library that another one needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Its name.
    pub name: String,
    /// The one that the loader takes, once it was looked for.
    found: Option<Option<LibraryId>>,
}

impl Need {
    /// Whether it was looked for and is nowhere.
    pub fn is_missing(&self) -> bool {
        self.found == Some(None)
    }
}

/// Every library that was opened so far, and where to look for more.
pub struct Libraries<'e> {
    environment: &'e Environment,
    shelf: &'e Shelf,
    /// The loader's search path, if the environment is this machine's.
    system: Option<System>,
    libraries: Vec<Library>,
    known: FxHashMap<Place, Option<LibraryId>>,
    /// Files of `torch/lib` and `nvidia/*/lib`, which `import torch` loads or looks through, by name.
    preloaded: FxHashMap<String, Place>,
}

impl<'e> Libraries<'e> {
    /// Nothing opened yet.
    pub fn new(environment: &'e Environment, shelf: &'e Shelf) -> Libraries<'e> {
        let system = if is_local(environment) { System::of_this_machine(&prefixes(environment)) } else { None };
        let mut libraries = Libraries {
            environment,
            shelf,
            system,
            libraries: Vec::new(),
            known: FxHashMap::default(),
            preloaded: FxHashMap::default(),
        };
        libraries.find_preloaded();
        libraries
    }

    /// The loader's search path on this machine, if the environment is this machine's.
    pub fn system(&self) -> Option<&System> {
        self.system.as_ref()
    }

    /// The library with this id.
    pub fn get(&self, id: LibraryId) -> &Library {
        &self.libraries[id]
    }

    /// Opens a library of the environment.
    pub fn open_subject(&mut self, root: RootId, path: &str) -> Result<LibraryId, LibraryError> {
        let bytes = self.shelf.tables(self.environment, root, path)?;
        let place = Place::Inside(root, path.to_owned());
        let id = self.add(place.clone(), bytes)?;
        self.known.insert(place, Some(id));
        Ok(id)
    }

    /// Every file of `torch/lib`, opened; empty if torch is not in the environment, keeps its libraries elsewhere (as
    /// conda's does), or one of them cannot be read.
    pub fn torch(&mut self) -> Vec<LibraryId> {
        let is_whole = ["libc10.so", "libtorch_cpu.so"]
            .iter()
            .all(|name| matches!(self.preloaded.get(*name), Some(Place::Inside(_, path)) if is_torch(path)));
        if !is_whole {
            return Vec::new();
        }
        let places: Vec<Place> = self
            .preloaded
            .values()
            .filter(|place| matches!(place, Place::Inside(_, path) if is_torch(path)))
            .cloned()
            .collect();
        let opened: Option<Vec<LibraryId>> = places.into_iter().map(|place| self.open(place)).collect();
        let mut opened = opened.unwrap_or_default();
        opened.sort_unstable();
        opened
    }

    /// The libraries that are loaded with `start`, itself first, each once.
    pub fn closure(&mut self, start: LibraryId) -> Vec<LibraryId> {
        let mut queue = vec![start];
        let mut next = 0;
        while let Some(&id) = queue.get(next) {
            next += 1;
            for at in 0..self.libraries[id].needed.len() {
                let found = self.resolve(id, at);
                if let Some(found) = found
                    && !queue.contains(&found)
                {
                    queue.push(found);
                }
            }
        }
        queue
    }

    /// Every file on this machine that the loader might take for `name`, opened.
    pub fn system_candidates(&mut self, name: &str) -> Vec<LibraryId> {
        let paths = self.system.as_ref().map(|system| system.candidates(name)).unwrap_or_default();
        paths.into_iter().filter_map(|path| self.open(Place::System(path))).collect()
    }

    fn resolve(&mut self, id: LibraryId, at: usize) -> Option<LibraryId> {
        if let Some(found) = self.libraries[id].needed[at].found {
            return found;
        }
        let found = self.look_for(id, at);
        self.libraries[id].needed[at].found = Some(found);
        found
    }

    fn look_for(&mut self, id: LibraryId, at: usize) -> Option<LibraryId> {
        let name = self.libraries[id].needed[at].name.clone();
        let machine = self.libraries[id].machine;
        let mut places = self.beside(id, &name);
        places.extend(self.preloaded.get(&name).cloned());
        if let Some(system) = &self.system {
            places.extend(system.candidates(&name).into_iter().map(Place::System));
        }
        // The loader passes over libraries for other machines.
        places.into_iter().find_map(|place| self.open(place).filter(|&found| self.libraries[found].machine == machine))
    }

    /// Where the RPATH or RUNPATH of a library leads.
    fn beside(&self, id: LibraryId, name: &str) -> Vec<Place> {
        let library = &self.libraries[id];
        let mut places = Vec::new();
        for folder in &library.folders {
            match (&library.place, folder.strip_prefix("$ORIGIN").or_else(|| folder.strip_prefix("${ORIGIN}"))) {
                (Place::Inside(root, path), Some(rest)) => {
                    let origin = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    if let Some(path) = normalise(origin, &format!("{rest}/{name}")) {
                        places.push(Place::Inside(*root, path));
                    }
                }
                (Place::System(path), Some(rest)) => {
                    let origin = path.parent().unwrap_or(Path::new("/"));
                    places.push(Place::System(origin.join(rest.trim_start_matches('/')).join(name)));
                }
                (_, None) if self.system.is_some() && Path::new(folder).is_absolute() => {
                    places.push(Place::System(Path::new(folder).join(name)));
                }
                _ => {}
            }
        }
        // A library in the same folder has either been loaded by its package, or is found through an RPATH.
        if let Place::Inside(root, path) = &library.place {
            let origin = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            places.extend(normalise(origin, name).map(|path| Place::Inside(*root, path)));
        }
        places
    }

    /// Opens a library, once; `None` if there is none, or it cannot be read.
    fn open(&mut self, place: Place) -> Option<LibraryId> {
        if let Some(known) = self.known.get(&place) {
            return *known;
        }
        let bytes = match &place {
            Place::Inside(root, path) => {
                let is_file = self.environment.root(*root).tree.is_file(path);
                if is_file { self.shelf.tables(self.environment, *root, path).ok() } else { None }
            }
            Place::System(path) => map_file(path),
        };
        let opened = bytes.and_then(|bytes| self.add(place.clone(), bytes).ok());
        self.known.insert(place, opened);
        opened
    }

    fn add(&mut self, place: Place, bytes: Bytes) -> Result<LibraryId, LibraryError> {
        let elf = Elf::parse(&bytes)?;
        let needed = elf.needed.iter().map(|name| Need { name: name.clone(), found: None }).collect();
        let (machine, folders) = (elf.machine, elf.search_folders().to_vec());
        self.libraries.push(Library { place, machine, needed, folders, bytes });
        Ok(self.libraries.len() - 1)
    }

    fn find_preloaded(&mut self) {
        for (root, path) in preloaded(self.environment) {
            let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
            self.preloaded.entry(name).or_insert(Place::Inside(root, path));
        }
    }
}

/// Whether the environment's libraries would be loaded by this machine.
pub fn is_local(environment: &Environment) -> bool {
    let installed = environment.roots.iter().any(|root| root.kind == RootKind::SitePackages);
    installed && environment.sys_platform == "linux" && cfg!(target_os = "linux")
}

/// Prefixes of installations: of the interpreter, and of `lib/python3.12/site-packages` folders.
fn prefixes(environment: &Environment) -> Vec<PathBuf> {
    // A virtual environment's interpreter is a link to the real one, whose libraries count as well.
    let interpreter = environment.interpreter.as_deref();
    let links = interpreter.into_iter().flat_map(|path| [Some(path.to_owned()), path.canonicalize().ok()]).flatten();
    let mut prefixes: Vec<PathBuf> = links.filter_map(|python| Some(python.parent()?.parent()?.to_owned())).collect();
    let sites = environment.roots.iter().filter(|root| root.kind == RootKind::SitePackages);
    prefixes.extend(sites.filter_map(|root| Some(root.path.ancestors().nth(3)?.to_owned())));
    prefixes.dedup();
    prefixes
}

/// The files of `torch/lib` and `nvidia/*/lib`.
pub fn preloaded(environment: &Environment) -> Vec<(RootId, String)> {
    let mut places = Vec::new();
    for entry in &environment.search_path {
        let tree = &environment.root(entry.root).tree;
        let nvidia = join(&entry.prefix, "nvidia");
        let vendors = tree.list(&nvidia).into_iter().map(|(name, _)| join(&join(&nvidia, &name), "lib"));
        for folder in vendors.chain([join(&entry.prefix, TORCH)]) {
            let files =
                tree.list(&folder).into_iter().filter(|(name, kind)| *kind == EntryKind::File && name.contains(".so"));
            places.extend(files.map(|(name, _)| (entry.root, join(&folder, &name))));
        }
    }
    places
}

/// Where torch keeps its libraries.
const TORCH: &str = "torch/lib";

/// Whether a file is one of torch's libraries.
pub fn is_torch(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(folder, _)| folder == TORCH || folder.ends_with("/torch/lib"))
}

/// `path` seen from `folder`, without `.` and `..`; `None` if it leaves the tree.
fn normalise(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

pub(crate) fn map_file(path: &Path) -> Option<Bytes> {
    let file = std::fs::File::open(path).ok()?;
    // SAFETY: the map is only read. A library that is rewritten in place while it is mapped can fault, for every
    // program that uses it; package managers replace libraries instead.
    let map = unsafe { memmap2::Mmap::map(&file) }.ok()?;
    Some(Bytes::Mapped(map))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_left_upwards_but_not_past_the_root() {
        assert_eq!(normalise("torch/lib", "/../../nvidia/cu13/lib/x.so").as_deref(), Some("nvidia/cu13/lib/x.so"));
        assert_eq!(normalise("", "/./x.so").as_deref(), Some("x.so"));
        assert_eq!(normalise("torch", "../../x.so"), None);
    }
}
