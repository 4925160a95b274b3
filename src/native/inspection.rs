//! Every extension of the attention stack, linked as the loader would: what the rules FA201 to FA206 report.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustc_hash::FxHashSet;

use super::elf::{Elf, ElfError, Machine, Undefined};
use super::libraries::{self, Libraries, LibraryError, LibraryId, Place};
use super::shelf::Shelf;
use super::stack::{self, Subject};
use super::symbols::{self, Family, Missing};
use super::system::System;
use super::table::{self, Found};
use crate::environment::{Environment, RootId};
use crate::finding::Incomplete;
use crate::packs::Packs;

/// What was found out about one extension.
#[derive(Debug)]
pub struct Extension {
    /// Where it is.
    pub subject: Subject,
    /// The processor it is for.
    pub machine: Machine,
    /// Names of the libraries it needs.
    pub needed: Vec<String>,
    /// Libraries that it or those it loads need and that are nowhere.
    pub missing_libraries: Vec<MissingLibrary>,
    /// Symbols that nothing defines.
    pub missing_symbols: Vec<Missing>,
    /// Symbol versions that it needs, by library.
    pub versions_needed: BTreeMap<String, BTreeSet<String>>,
    /// Versions of the system's libraries that it needs and this machine lacks: library and version.
    pub versions_missing: Vec<(String, String)>,
}

/// A library that is needed and nowhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingLibrary {
    /// Its name.
    pub name: String,
    /// Where the library is that needs it: root and path.
    pub needed_by: (RootId, String),
    /// Whether it belongs to torch itself.
    pub of_torch: bool,
    /// Where a CUDA toolkit keeps it, outside the loader's search path.
    pub toolkit: Option<PathBuf>,
}

/// The attention stack of an environment.
#[derive(Debug, Default)]
pub struct Inspection {
    /// Extensions that could be read, sorted by place.
    pub extensions: Vec<Extension>,
    /// What could not be read.
    pub incomplete: Vec<Incomplete>,
    /// Versions that the C library of this machine defines, if the environment is this machine's.
    pub libc: Option<String>,
}

/// What the rules on native libraries share of one environment, found out when the first of them asks.
#[derive(Debug, Default)]
pub struct Cache {
    shelf: OnceLock<Shelf>,
    inspection: OnceLock<Inspection>,
    kernels: OnceLock<Found>,
}

impl Cache {
    /// The inspection of `environment`: always the same one. `versions` are needed if they are to be compared with another
    /// machine's.
    pub fn inspection(&self, environment: &Environment, packs: &Packs, versions: bool) -> &Inspection {
        self.inspection.get_or_init(|| {
            let subjects = stack::extensions(environment, packs);
            if versions || can_judge(environment) {
                Inspection::link(environment, subjects, self.shelf(environment, packs))
            } else {
                Inspection::glance(environment, subjects)
            }
        })
    }

    /// The device code in `environment`: always the same one.
    pub fn kernels(&self, environment: &Environment, packs: &Packs) -> &Found {
        self.kernels.get_or_init(|| table::kernels(environment, packs, self.shelf(environment, packs)))
    }

    fn shelf(&self, environment: &Environment, packs: &Packs) -> &Shelf {
        self.shelf.get_or_init(|| {
            let subjects =
                stack::extensions(environment, packs).into_iter().map(|subject| (subject.root, subject.path));
            Shelf::fill(environment, subjects.chain(libraries::preloaded(environment)).collect())
        })
    }
}

/// Whether there is anything that extensions could be linked with.
fn can_judge(environment: &Environment) -> bool {
    libraries::is_local(environment)
        || libraries::preloaded(environment).iter().any(|(_, path)| libraries::is_torch(path))
}

impl Inspection {
    /// Looks at the first bytes of every extension: alone in its wheel, nothing can be said about it but what it is.
    fn glance(environment: &Environment, subjects: Vec<Subject>) -> Inspection {
        let mut inspection = Inspection::default();
        for subject in subjects {
            let mut start = Vec::new();
            let tree = &environment.root(subject.root).tree;
            let read = tree.stream(&subject.path, &mut |reader| reader.take(HEADER).read_to_end(&mut start).map(drop));
            match read.map_err(LibraryError::from).and_then(|()| Ok(Elf::machine_of(&start)?)) {
                Ok(machine) => inspection.extensions.push(Extension::unlinked(subject, machine)),
                Err(error) => inspection.incomplete.push(incomplete(&subject.path, &reason(&error))),
            }
        }
        inspection
    }

    /// Links every extension of the attention stack.
    fn link(environment: &Environment, subjects: Vec<Subject>, shelf: &Shelf) -> Inspection {
        let mut inspection = Inspection::default();
        let libraries = Libraries::new(environment, shelf);
        let mut linker = Linker { environment, libraries, torch: Vec::new(), names: OnceCell::new() };
        let mut opened = Vec::new();
        for subject in subjects {
            match linker.libraries.open_subject(subject.root, &subject.path) {
                Ok(id) => opened.push((subject, id)),
                Err(error) => inspection.incomplete.push(incomplete(&subject.path, &reason(&error))),
            }
        }
        if opened.is_empty() {
            return inspection;
        }
        linker.torch = linker.libraries.torch();
        inspection.libc = linker.libc();
        let closures: Vec<Vec<LibraryId>> = opened.iter().map(|(_, id)| linker.libraries.closure(*id)).collect();
        for ((subject, id), closure) in opened.into_iter().zip(closures) {
            match linker.extension(subject.clone(), id, &closure) {
                Ok(extension) => inspection.extensions.push(extension),
                Err(error) => inspection.incomplete.push(incomplete(&subject.path, &error.to_string())),
            }
        }
        inspection.extensions.extend(linker.torch_itself());
        inspection
    }
}

/// Bytes of an ELF header.
const HEADER: u64 = 64;

impl Extension {
    fn unlinked(subject: Subject, machine: Machine) -> Extension {
        Extension {
            subject,
            machine,
            needed: Vec::new(),
            missing_libraries: Vec::new(),
            missing_symbols: Vec::new(),
            versions_needed: BTreeMap::new(),
            versions_missing: Vec::new(),
        }
    }
}

fn incomplete(path: &str, reason: &str) -> Incomplete {
    Incomplete { path: path.to_owned(), reason: reason.to_owned() }
}

fn reason(error: &LibraryError) -> String {
    match error {
        LibraryError::Elf(ElfError::NotElf) => {
            "is no library (an empty file, or a pointer that Git LFS left in its place)".to_owned()
        }
        error => error.to_string(),
    }
}

struct Linker<'e> {
    environment: &'e Environment,
    libraries: Libraries<'e>,
    /// The files of `torch/lib`; empty where that cannot be seen.
    torch: Vec<LibraryId>,
    /// The names of all libraries in the environment, once they are asked for.
    names: OnceCell<FxHashSet<String>>,
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Linker<'_> {
    fn extension(&mut self, subject: Subject, id: LibraryId, closure: &[LibraryId]) -> Result<Extension, ElfError> {
        let missing_libraries = self.missing_libraries(closure);
        let versions_needed = self.libraries.get(id).elf()?.versions_needed()?;
        let versions_missing = self.versions_missing(&versions_needed, self.libraries.get(id).machine);
        let missing_symbols = self.missing_symbols(id, closure, &missing_libraries)?;
        let library = self.libraries.get(id);
        let needed = library.needed.iter().map(|need| need.name.clone()).collect();
        let machine = library.machine;
        Ok(Extension {
            subject,
            machine,
            needed,
            missing_libraries,
            missing_symbols,
            versions_needed,
            versions_missing,
        })
    }

    /// Whether this machine's loader would load the environment's libraries of this machine type.
    fn is_native(&self, machine: Machine) -> bool {
        self.libraries.system().is_some() && Machine::host() == Some(machine)
    }

    fn missing_libraries(&self, closure: &[LibraryId]) -> Vec<MissingLibrary> {
        let mut missing = BTreeMap::new();
        for &id in closure {
            let library = self.libraries.get(id);
            let Place::Inside(root, path) = &library.place else { continue };
            for need in library.needed.iter().filter(|need| need.is_missing() && !is_driver(&need.name)) {
                let of_torch = is_torch(&need.name);
                let certain = if of_torch {
                    !self.torch.is_empty()
                } else {
                    // A package may load what it brings along by itself.
                    self.is_native(library.machine)
                        && self.environment.interpreter.is_some()
                        && !self.is_somewhere(&need.name)
                };
                if certain {
                    missing.entry(need.name.clone()).or_insert_with(|| MissingLibrary {
                        name: need.name.clone(),
                        needed_by: (*root, path.clone()),
                        of_torch,
                        toolkit: if of_torch { None } else { System::toolkit(&need.name) },
                    });
                }
            }
        }
        missing.into_values().collect()
    }

    /// Whether a file of this name is anywhere in the environment.
    fn is_somewhere(&self, name: &str) -> bool {
        let names = self.names.get_or_init(|| {
            let is_library = |path: &str| file_name(path).contains(".so");
            let places = self.environment.search_path.iter().flat_map(|entry| {
                let tree = &self.environment.root(entry.root).tree;
                tree.walk(&entry.prefix, &is_library)
            });
            places.map(|path| file_name(&path).to_owned()).collect()
        });
        names.contains(name)
    }

    fn missing_symbols(
        &self,
        id: LibraryId,
        closure: &[LibraryId],
        missing_libraries: &[MissingLibrary],
    ) -> Result<Vec<Missing>, ElfError> {
        let library = self.libraries.get(id);
        // Without torch nobody can say, and a missing library of torch is the finding.
        let judges_torch = !self.torch.is_empty()
            && self.torch.iter().any(|&id| self.libraries.get(id).machine == library.machine)
            && !missing_libraries.iter().any(|missing| missing.of_torch);
        let complete = self.is_native(library.machine)
            && closure.iter().all(|&id| {
                self.libraries.get(id).needed.iter().all(|need| !need.is_missing() || is_driver(&need.name))
            });
        if !judges_torch && !complete {
            return Ok(Vec::new());
        }
        let elf = library.elf()?;
        let undefined = elf.undefined();
        let torch: Vec<Elf<'_>> = self.elves(&self.torch)?;
        let providers: Vec<Elf<'_>> = self.elves(closure)?;
        let is_missing = |symbol: &&Undefined<'_>| {
            let judged = match Family::of(symbol.name) {
                Family::Torch => judges_torch,
                Family::StandardLibrary => complete,
                Family::Library(prefix) => {
                    closure.iter().any(|&id| self.libraries.get(id).file_name().starts_with(prefix))
                }
                Family::Open => false,
            };
            judged
                && !symbol.weak
                && symbol.version.is_none()
                && !providers.iter().chain(&torch).any(|library| library.exports(symbol.name))
        };
        let missing: Vec<&Undefined<'_>> = undefined.iter().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        Ok(symbols::explain(missing, &torch.iter().collect::<Vec<_>>()))
    }

    /// Libraries of torch that need what the libraries beside torch do not define: one of those has another version.
    fn torch_itself(&mut self) -> Vec<Extension> {
        let mut broken = Vec::new();
        let distribution = self.environment.distributions.iter().position(|distribution| distribution.name == "torch");
        for id in self.torch.clone() {
            let closure = self.libraries.closure(id);
            // A library of torch that cannot be read is none that others are judged by either.
            let Ok(missing_symbols) = self.missing_symbols(id, &closure, &[]) else { continue };
            let library = self.libraries.get(id);
            if let (false, Place::Inside(root, path)) = (missing_symbols.is_empty(), &library.place) {
                let subject = Subject { root: *root, path: path.clone(), distribution };
                broken.push(Extension { missing_symbols, ..Extension::unlinked(subject, library.machine) });
            }
        }
        broken
    }

    fn elves(&self, ids: &[LibraryId]) -> Result<Vec<Elf<'_>>, ElfError> {
        ids.iter().map(|&id| self.libraries.get(id).elf()).collect()
    }

    fn versions_missing(
        &mut self,
        needed: &BTreeMap<String, BTreeSet<String>>,
        machine: Machine,
    ) -> Vec<(String, String)> {
        if !self.is_native(machine) {
            return Vec::new();
        }
        let mut missing = Vec::new();
        for (file, versions) in needed {
            let wanted: Vec<&String> = versions.iter().filter(|version| is_of_the_system(version)).collect();
            if wanted.is_empty() {
                continue;
            }
            let defined = self.versions_defined(file, machine);
            // Nothing read: that the library is missing is another finding.
            if !defined.is_empty() {
                let lacking = wanted.into_iter().filter(|version| !defined.contains(*version));
                missing.extend(lacking.map(|version| (file.clone(), version.clone())));
            }
        }
        missing
    }

    /// What all of this machine's libraries of this name define together.
    fn versions_defined(&mut self, file: &str, machine: Machine) -> BTreeSet<String> {
        let ids = self.libraries.system_candidates(file);
        let fitting = ids.into_iter().map(|id| self.libraries.get(id)).filter(|library| library.machine == machine);
        fitting.filter_map(|library| library.elf().and_then(|elf| elf.versions_defined()).ok()).flatten().collect()
    }

    /// The newest version that this machine's C library defines: `GLIBC_2.36`.
    fn libc(&mut self) -> Option<String> {
        let defined = self.versions_defined("libc.so.6", Machine::host()?);
        defined.into_iter().filter_map(|version| Some((glibc(&version)?, version))).max().map(|(_, version)| version)
    }
}

/// `(2, 34)` of `GLIBC_2.34`.
pub fn glibc(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("GLIBC_")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Versions of the C and C++ runtime, which come with the system rather than with packages.
fn is_of_the_system(version: &str) -> bool {
    ["GLIBC_", "GLIBCXX_", "CXXABI_", "GCC_"].iter().any(|prefix| version.starts_with(prefix))
}

/// Libraries that come with the GPU driver: none on a machine without one.
fn is_driver(name: &str) -> bool {
    ["libcuda.so", "libnvidia-", "libnvcuvid.so"].iter().any(|prefix| name.starts_with(prefix))
}

/// Libraries that only torch brings.
fn is_torch(name: &str) -> bool {
    ["libtorch", "libc10", "libshm.so", "libcaffe2"].iter().any(|prefix| name.starts_with(prefix))
}
