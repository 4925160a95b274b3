//! What the driver is asked to do, as the JSON that it reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use serde::Serialize;

use super::Options;
use super::cases::Case;
use super::packages::Package;
use crate::environment::tree::split;
use crate::environment::{Environment, RootId, RootKind};

/// More processes than this at once take more memory than small machines have.
const MOST_JOBS: usize = 8;

/// The request.
#[derive(Debug, Serialize)]
pub struct Request {
    arch: u32,
    target: String,
    package: String,
    path: Vec<PathBuf>,
    sources: BTreeMap<String, Source>,
    standin: bool,
    full: bool,
    cases: Vec<Case>,
    timeout: f64,
    memory: u64,
    jobs: usize,
    folder: PathBuf,
    /// What the files of the sources are called to Python, and where they are.
    #[serde(skip)]
    places: BTreeMap<PathBuf, (RootId, String)>,
    /// Where the roots are, to find the rest.
    #[serde(skip)]
    roots: Vec<(RootId, PathBuf)>,
}

/// A module whose text comes with the request.
#[derive(Debug, Serialize)]
struct Source {
    file: PathBuf,
    package: bool,
    text: String,
}

impl Request {
    /// What to ask for: modules that are not on disk as they are to be compiled come with it.
    pub fn new(
        environment: &Environment,
        package: &Package,
        cases: &[Case],
        options: &Options,
        folder: &Path,
    ) -> Request {
        let arch = options.arch.trim_start_matches("sm_").parse().unwrap_or_default();
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut request = Request {
            arch,
            // From Hopper on the kernels use instructions of exactly this architecture.
            target: if arch >= 90 { format!("sm_{arch}a") } else { format!("sm_{arch}") },
            package: package.module.clone(),
            path: Vec::new(),
            sources: BTreeMap::new(),
            standin: options.no_torch,
            full: options.full,
            cases: cases.to_vec(),
            timeout: options.timeout.as_secs_f64(),
            memory: options.memory,
            jobs: available_parallelism().map_or(1, usize::from).min(MOST_JOBS),
            folder: folder.to_owned(),
            places: BTreeMap::new(),
            roots: Vec::new(),
        };
        for entry in &environment.search_path {
            let root = environment.root(entry.root);
            if root.kind == RootKind::StandardLibrary {
                continue;
            }
            // Several targets are one root: each has its own folder of that name.
            let folders = root
                .parts
                .iter()
                .map(|part| if entry.prefix.is_empty() { part.clone() } else { part.join(&entry.prefix) });
            request.path.extend(folders.filter(|path| path.is_dir()).map(|path| absolute(&path)));
        }
        for (index, root) in environment.roots.iter().enumerate() {
            let id = RootId(index as u32);
            request.roots.extend(root.parts.iter().map(|part| (id, absolute(part))));
        }
        request.add_sources(environment, package);
        request
    }

    /// The modules below the package that are in a wheel, and those anywhere that a fix would change.
    fn add_sources(&mut self, environment: &Environment, package: &Package) {
        let tree = &environment.root(package.root).tree;
        let in_package = tree.walk(&package.folder, &|path| path.ends_with(".py"));
        let in_wheel = in_package.into_iter().filter(|path| tree.on_disk(path).is_none());
        let mut wanted: Vec<(RootId, String)> = in_wheel.map(|path| (package.root, path)).collect();
        for (index, root) in environment.roots.iter().enumerate() {
            let overlaid = root.tree.overlaid().filter(|path| path.ends_with(".py"));
            wanted.extend(overlaid.map(|path| (RootId(index as u32), path.to_owned())));
        }
        for (root, path) in wanted {
            let Some((module, is_package)) = module_of(environment, root, &path) else { continue };
            let tree = &environment.root(root).tree;
            // What cannot be read, the import will miss, and say so.
            let Ok(bytes) = tree.read(&path) else { continue };
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let file = tree.on_disk(&path).unwrap_or_else(|| environment.root(root).path.join(&path));
            let file = std::path::absolute(&file).unwrap_or(file);
            self.places.insert(file.clone(), (root, path));
            self.sources.insert(module, Source { file, package: is_package, text });
        }
    }

    /// The root and the path inside it of a file, as Python named it.
    pub fn place(&self, file: &str) -> Option<(RootId, String)> {
        let file = Path::new(file);
        if let Some(place) = self.places.get(file) {
            return Some(place.clone());
        }
        let inside = |file: &Path| {
            let found = self.roots.iter().filter_map(|(id, root)| Some((*id, root, file.strip_prefix(root).ok()?)));
            // A root may lie inside another: the innermost counts.
            let (id, _, path) = found.max_by_key(|(_, root, _)| root.components().count())?;
            let parts: Vec<&str> = path.components().filter_map(|part| part.as_os_str().to_str()).collect();
            Some((id, parts.join("/")))
        };
        inside(file).or_else(|| inside(&file.canonicalize().ok()?))
    }
}

/// The dotted name of a file, and whether it is a package's `__init__`.
fn module_of(environment: &Environment, root: RootId, path: &str) -> Option<(String, bool)> {
    let entries = environment.search_path.iter().filter(|entry| entry.root == root);
    let relative = entries
        .filter_map(|entry| match entry.prefix.as_str() {
            "" => Some(path),
            prefix => path.strip_prefix(prefix)?.strip_prefix('/'),
        })
        .min_by_key(|relative| relative.len())?;
    let (folder, file) = split(relative);
    match file.strip_suffix(".py")? {
        "__init__" if folder.is_empty() => None,
        "__init__" => Some((folder.replace('/', "."), true)),
        _ => Some((relative.strip_suffix(".py")?.replace('/', "."), false)),
    }
}
