//! From the command line to an [`Environment`].

use std::path::{Path, PathBuf};

use super::paths::{Paths, is_everything};
use super::target::{self, Prefix, Target, classify};
use super::tree::join;
use super::{
    Distribution, Environment, LoadError, Platform, Root, RootKind, SearchEntry, Tree, arch, discover, distribution,
    interpreter, project,
};
use crate::finding::Incomplete;

/// What the command line asks for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The TARGETs; without one and without `python` the environment is discovered.
    pub targets: Vec<PathBuf>,
    /// `--python`: the interpreter to ask for its search path. With targets it comes behind them.
    pub python: Option<PathBuf>,
    /// `--arch`, as written.
    pub arch: Vec<String>,
    /// `--platform`.
    pub platform: Platform,
}

impl Environment {
    /// Looks at the targets, without importing anything.
    pub fn load(request: &Request) -> Result<Environment, LoadError> {
        let mut arch = request.arch.iter().map(|text| arch::normalize(text)).collect::<Result<Vec<_>, _>>()?;
        let mut seen = Vec::new();
        arch.retain(|name| {
            let is_new = !seen.contains(name);
            seen.push(name.clone());
            is_new
        });

        let mut targets = Vec::new();
        for path in &request.targets {
            targets.extend(classify(path)?);
        }
        if let Some(python) = &request.python {
            targets.push(Target::Interpreter(discover::interpreter(python)?));
        }
        if targets.is_empty() {
            targets = discover::without_target()?;
        }
        target::check_one_release_each(&targets)?;

        let environment = Environment { arch, platform: request.platform, ..Environment::default() };
        let mut loader = Loader { environment, paths: Paths::default(), projects: Vec::new() };
        let (wheels, others): (Vec<_>, Vec<_>) =
            targets.into_iter().enumerate().partition(|(_, t)| matches!(t, Target::Wheel(_) | Target::Unpacked(_)));
        // All wheels are one root, as if installed into one folder: packages are spread over several of them.
        let first_wheel = wheels.first().map(|(position, _)| *position);
        let mut wheels = Some(wheels.into_iter().map(|(_, target)| target).collect());
        for (position, target) in others {
            if first_wheel.is_some_and(|first| first < position) {
                loader.add_wheels(wheels.take().unwrap_or_default())?;
            }
            loader.add(target)?;
        }
        loader.add_wheels(wheels.take().unwrap_or_default())?;
        Ok(loader.finish())
    }
}

struct Loader {
    environment: Environment,
    paths: Paths,
    /// Source projects, by the folder that names them.
    projects: Vec<SearchEntry>,
}

impl Loader {
    fn add_wheels(&mut self, targets: Vec<Target>) -> Result<(), LoadError> {
        let mut layers = Vec::new();
        let mut parts = Vec::new();
        let mut kind = RootKind::Checkout;
        for target in targets {
            let (path, tree) = match target {
                Target::Wheel(path) => {
                    kind = RootKind::Wheel;
                    let tree = Tree::wheel(&path);
                    (path, tree)
                }
                Target::Unpacked(path) => {
                    let tree = Tree::folder(&path);
                    (path, tree)
                }
                _ => continue,
            };
            layers.push(tree.map_err(|error| LoadError::of_path(&path, error))?);
            parts.push(path);
        }
        let Some(first) = parts.first() else { return Ok(()) };
        let label = match parts.len() {
            1 => first.display().to_string(),
            several => format!("{} and {} more", first.display(), several - 1),
        };
        let root = Root { path: first.clone(), label, kind, tree: Tree::layered(layers), parts };
        let entry = self.paths.add_tree(root);
        self.paths.follow_pth(&entry);
        Ok(())
    }

    fn add(&mut self, target: Target) -> Result<(), LoadError> {
        match target {
            Target::Wheel(_) | Target::Unpacked(_) => self.add_wheels(vec![target]),
            Target::Site(path) => self.add_site(&path),
            Target::Prefix(prefix) => self.add_prefix(prefix),
            Target::Interpreter(python) => self.add_interpreter(&python),
            Target::Checkout(path) => self.add_checkout(&path),
        }
    }

    fn add_folder(&mut self, path: &Path, kind: RootKind) -> Result<SearchEntry, LoadError> {
        self.paths.add_folder(path, kind).map_err(|error| LoadError::of_path(path, error))
    }

    fn add_site(&mut self, path: &Path) -> Result<(), LoadError> {
        // `PREFIX/lib/python3.12/site-packages`: the prefix knows more. A relative path may not show it.
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let prefix = place.ancestors().nth(3).and_then(target::prefix);
        let prefix =
            prefix.filter(|prefix| prefix.site.iter().any(|site| site.canonicalize().ok() == Some(place.clone())));
        if let Some(prefix) = prefix {
            self.add_library(&prefix);
        } else {
            let library = place.parent().and_then(Path::file_name).and_then(|name| target::version(name.to_str()?));
            self.environment.python = self.environment.python.or(library);
        }
        let entry = self.add_folder(path, RootKind::SitePackages)?;
        self.paths.follow_pth(&entry);
        Ok(())
    }

    fn add_prefix(&mut self, prefix: Prefix) -> Result<(), LoadError> {
        self.add_library(&prefix);
        let entries = prefix.site.iter().map(|site| self.add_folder(site, RootKind::SitePackages));
        for entry in entries.collect::<Result<Vec<_>, _>>()? {
            self.paths.follow_pth(&entry);
        }
        Ok(())
    }

    fn add_library(&mut self, prefix: &Prefix) {
        for library in &prefix.library {
            // Nothing depends on it that could not be told without: names of the standard library stay unknown then.
            _ = self.paths.add_folder(library, RootKind::StandardLibrary);
        }
        let environment = &mut self.environment;
        environment.python = environment.python.or(prefix.python);
        if environment.interpreter.is_none() {
            environment.interpreter = prefix.executable.clone();
        }
    }

    fn add_interpreter(&mut self, python: &Path) -> Result<(), LoadError> {
        let answer = interpreter::ask(python)?;
        let real = |path: &PathBuf| path.canonicalize().ok();
        let library: Vec<PathBuf> = answer.library.iter().filter_map(real).collect();
        let sites: Vec<PathBuf> = answer.sites.iter().filter_map(real).collect();
        let folders: Vec<(&PathBuf, RootKind)> = answer
            .path
            .iter()
            .filter_map(|path| {
                let place = real(path).filter(|place| place.is_dir() && !is_everything(place))?;
                let is_library =
                    library.iter().any(|library| place == *library || place == library.join("lib-dynload"));
                let kind = match is_library {
                    true => RootKind::StandardLibrary,
                    false if sites.contains(&place) => RootKind::SitePackages,
                    false => RootKind::Checkout,
                };
                Some((path, kind))
            })
            .collect();
        // A folder inside another one on the path may come first and is a part of its root all the same.
        let mut outermost_first = folders.clone();
        outermost_first.sort_by_key(|(path, _)| path.components().count());
        for (path, kind) in outermost_first {
            if let Err(error) = self.paths.folder(path, kind) {
                let reason = format!("is on the path of the interpreter and cannot be read: {error}");
                self.environment.incomplete.push(Incomplete { path: path.display().to_string(), reason });
            }
        }
        for path in &answer.path {
            if let Some((_, kind)) = folders.iter().find(|(folder, _)| *folder == path) {
                // What cannot be read has been noted above.
                _ = self.paths.add_folder(path, *kind);
            } else if path.is_file()
                && let Ok(tree) = Tree::wheel(path)
            {
                // An egg, or the standard library of an embedded Python.
                self.paths.add_tree(Root::new(path, RootKind::Wheel, tree));
            }
        }
        for site in &answer.sites {
            if let Ok(entry) = self.paths.folder(site, RootKind::SitePackages) {
                self.paths.follow_hooks(&entry);
            }
        }
        let environment = &mut self.environment;
        environment.python = environment.python.or(Some(answer.version));
        environment.interpreter = Some(answer.executable);
        environment.sys_platform = answer.platform;
        Ok(())
    }

    fn add_checkout(&mut self, path: &Path) -> Result<(), LoadError> {
        let entry = self.add_folder(path, RootKind::Checkout)?;
        let tree = &self.paths.roots[entry.root.0 as usize].tree;
        let at = |folder: String| SearchEntry { root: entry.root, prefix: join(&entry.prefix, &folder) };
        let imported: Vec<_> = project::import_folders(tree, path).into_iter().map(at).collect();
        self.projects.extend(imported.iter().cloned().chain(project::nested_packages(tree).into_iter().map(at)));
        for folder in imported {
            self.paths.append(folder);
        }
        Ok(())
    }

    fn finish(self) -> Environment {
        let Loader { mut environment, paths, projects } = self;
        (environment.roots, environment.search_path) = paths.finish();
        let mut distributions = Vec::new();
        for entry in &environment.search_path {
            let root = environment.root(entry.root);
            if root.kind != RootKind::StandardLibrary {
                distributions.extend(distribution::discover(&root.tree, entry));
            }
        }
        // A project that is installed (`pip install -e`, `setup.py develop`) has better metadata than its sources.
        for entry in &projects {
            let found = project::distribution(&environment.root(entry.root).tree, entry);
            let is_new = |found: &Distribution| !distributions.iter().any(|d| d.name == found.name);
            distributions.extend(found.filter(is_new));
        }
        distributions.sort_by(|a, b| (a.root, &a.name, &a.info).cmp(&(b.root, &b.name, &b.info)));
        let tags = || distributions.iter().flat_map(|d| &d.tags).map(String::as_str);
        environment.python = environment.python.or_else(|| python_of_tags(tags()));
        if environment.sys_platform.is_empty() {
            environment.sys_platform = platform_of_tags(tags()).unwrap_or("linux").to_owned();
        }
        environment.distributions = distributions;
        environment
    }
}

/// The Python that compiled wheels are for, if they agree: `cp312-cp312-..` fits no other.
fn python_of_tags<'a>(tags: impl Iterator<Item = &'a str>) -> Option<(u32, u32)> {
    let mut versions = tags.filter_map(|tag| {
        let mut parts = tag.split('-');
        let (python, abi) = (parts.next()?, parts.next()?);
        let digits = python.strip_prefix("cp").filter(|digits| abi.strip_prefix("cp") == Some(digits))?;
        Some((digits.get(..1)?.parse().ok()?, digits.get(1..)?.parse().ok()?))
    });
    let first = versions.next()?;
    versions.all(|version| version == first).then_some(first)
}

/// `sys.platform` of compiled wheels; without any, attention stacks run on Linux.
fn platform_of_tags<'a>(tags: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    tags.filter_map(|tag| tag.rsplit('-').next()).find_map(|platform| match platform {
        platform if platform.starts_with("win") => Some("win32"),
        platform if platform.starts_with("macosx") => Some("darwin"),
        platform if platform.contains("linux") => Some("linux"),
        _ => None,
    })
}
