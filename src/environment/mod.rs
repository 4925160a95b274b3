//! The environment under examination: which Python, which roots, which distributions, which GPUs.
//!
//! Everything behind [`Tree`] is read-only; a wheel is read in place through its central directory.

pub mod discover;
pub mod distribution;
pub mod gpu;
pub mod interpreter;
pub mod paths;
pub mod target;
pub mod tree;

pub use distribution::{Distribution, RecordEntry};
pub use tree::{EntryKind, Tree};

use std::path::PathBuf;

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

/// One entry of the module search path: a folder inside a root.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SearchEntry {
    /// The root.
    pub root: RootId,
    /// Folder inside the root, with `/`, empty for the root itself, no trailing slash.
    pub prefix: String,
}

/// The platform whose branch `current_platform.is_..()` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
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

/// Everything that was found at the targets.
#[derive(Debug)]
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
    pub incomplete: Vec<crate::finding::Incomplete>,
}

impl Environment {
    /// The root with this id.
    pub fn root(&self, id: RootId) -> &Root {
        &self.roots[id.0 as usize]
    }

    /// The distribution with this PEP 503-normalised name, if it is installed.
    pub fn distribution(&self, normalized: &str) -> Option<&Distribution> {
        self.distributions.iter().find(|d| d.name == normalized)
    }
}

impl Environment {
    /// The distribution that owns `path` of `root`: by RECORD for contested top-level names, else by the top-level
    /// folder that the distribution installs.
    pub fn owner(&self, _root: RootId, _path: &str) -> Option<&Distribution> {
        unimplemented!()
    }
}
