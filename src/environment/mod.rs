//! The environment under examination: which Python, which roots, which distributions, which GPUs.
//!
//! Everything behind [`Tree`] is read-only; a wheel is read in place through its central directory.

pub mod arch;
mod discover;
pub mod distribution;
mod error;
mod folder;
pub mod gpu;
pub mod interpreter;
mod load;
mod mention;
pub mod metadata;
mod ownership;
mod paths;
mod project;
mod pth;
pub mod record;
mod target;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod tree;
mod wheel;

pub use distribution::{Distribution, RecordEntry};
pub use error::LoadError;
pub use load::Request;
pub use metadata::normalize as normalize_name;
pub use tree::{EntryKind, Tree};

use std::path::{Path, PathBuf};

use crate::finding::Incomplete;

/// Index into [`Environment::roots`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RootId(pub u32);

/// A place that files come from: a site-packages folder, a wheel, a checkout.
#[derive(Debug)]
pub struct Root {
    /// Where it is on this machine.
    pub path: PathBuf,
    /// How reports name it: the path as the user gave it.
    pub label: String,
    /// What it is put together from, in the order of [`Tree::layer`]: several wheels given together are one root, as
    /// if they had been installed into one folder. Otherwise just `path`.
    pub parts: Vec<PathBuf>,
    /// What kind of place it is.
    pub kind: RootKind,
    /// Its files.
    pub tree: Tree,
}

/// What a root is, which decides whether it may be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKind {
    /// A site-packages folder, of a virtual environment or given directly.
    SitePackages,
    /// The standard library of the interpreter.
    StandardLibrary,
    /// A wheel file, read in place.
    Wheel,
    /// A source checkout, or an unpacked wheel.
    Checkout,
}

impl Root {
    /// A root of one part, named as its path.
    pub fn new(path: &Path, kind: RootKind, tree: Tree) -> Root {
        Root { path: path.to_owned(), label: path.display().to_string(), parts: vec![path.to_owned()], kind, tree }
    }
}

/// One entry of the module search path: a folder inside a root.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SearchEntry {
    /// The root.
    pub root: RootId,
    /// Folder inside the root, with `/`, empty for the root itself, no trailing slash.
    pub prefix: String,
}

/// The platform whose branch `current_platform.is_..()` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// NVIDIA.
    #[default]
    Cuda,
    /// AMD.
    Rocm,
    /// Intel GPUs.
    Xpu,
    /// No GPU.
    Cpu,
}

impl Platform {
    /// As on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Platform::Cuda => "cuda",
            Platform::Rocm => "rocm",
            Platform::Xpu => "xpu",
            Platform::Cpu => "cpu",
        }
    }
}

/// Everything that was found at the targets.
#[derive(Debug, Default)]
pub struct Environment {
    /// Every place that files come from.
    pub roots: Vec<Root>,
    /// Where `import` looks, in order.
    pub search_path: Vec<SearchEntry>,
    /// Every installed distribution, sorted by root and name.
    pub distributions: Vec<Distribution>,
    /// `(3, 12)`, where it is known.
    pub python: Option<(u32, u32)>,
    /// The interpreter, where there is one.
    pub interpreter: Option<PathBuf>,
    /// `sys.platform` of the target: `linux` unless the environment says otherwise.
    pub sys_platform: String,
    /// Platform branch to follow.
    pub platform: Platform,
    /// Architectures asked for with `--arch`, normalised to `sm_120`.
    pub arch: Vec<String>,
    /// What could not be read while looking.
    pub incomplete: Vec<Incomplete>,
    /// Filled when owners are asked for.
    pub(crate) ownership: ownership::Ownership,
}

impl Environment {
    /// The root with this id.
    pub fn root(&self, id: RootId) -> &Root {
        &self.roots[id.0 as usize]
    }

    /// Everything that an interpreter of this environment could import is on the search path: what is not there is not
    /// installed. A folder or wheel on its own says nothing about what lies beside it.
    pub fn is_complete(&self) -> bool {
        self.interpreter.is_some() && self.roots.iter().any(|root| root.kind == RootKind::SitePackages)
    }

    /// The distribution with this PEP 503-normalised name, if it is installed: as for an import, the first on the
    /// search path.
    pub fn distribution(&self, normalized: &str) -> Option<&Distribution> {
        let named = self.distributions.iter().filter(|d| d.name == normalized);
        named.min_by_key(|d| self.search_path.iter().position(|entry| *entry == d.base).unwrap_or(usize::MAX))
    }

    /// Every place that was looked at, as reports name it.
    pub fn labels(&self) -> Vec<String> {
        let seen = self.roots.iter().filter(|root| root.kind != RootKind::StandardLibrary);
        seen.flat_map(|root| &root.parts).map(|part| part.display().to_string()).collect()
    }

    /// The place that holds `path` of `root`, as reports name it: the wheel, where the root is several.
    pub fn label_of(&self, root: RootId, path: &str) -> String {
        let root = self.root(root);
        match root.parts.as_slice() {
            [] | [_] => root.label.clone(),
            parts => parts[root.tree.layer(path).min(parts.len() - 1)].display().to_string(),
        }
    }

    /// The folders that could not be listed up to now: folders are read when somebody asks for what is in them.
    pub fn unreadable(&self) -> Vec<Incomplete> {
        let folders = self.roots.iter().flat_map(|root| root.tree.unreadable());
        folders.map(|(path, reason)| Incomplete { path, reason }).collect()
    }

    /// The error for an environment with nothing in it that is audited.
    pub fn nothing_to_scan(&self) -> LoadError {
        let installed = self.distributions.len();
        let looked = self.labels().into_iter().map(|label| format!("{label}: no attention package"));
        let hint = match installed {
            0 => "give a virtual environment, a site-packages folder or a wheel:\nfa-doctor scan .venv".to_owned(),
            _ => format!("{installed} packages are installed there; to check one of them: fa-doctor scan --all"),
        };
        LoadError::NothingToScan { looked: looked.collect(), hint }
    }
}
