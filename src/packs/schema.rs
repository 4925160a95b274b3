//! What a pack file may say: the shape of `rules/*.toml`. Unknown keys are errors.
//!
//! The same shape as JSON Schema is in `docs/pack-schema.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::history::Function;
use super::knowledge::{Gate, PinnedSource, ShownBy};
use crate::environment::Platform;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    /// Versions of fa-doctor that can read it (semver).
    pub requires: Spanned<String>,
    #[serde(default)]
    pub stack: Stack,
    #[serde(default)]
    pub releases: BTreeMap<String, Vec<Spanned<String>>>,
    #[serde(default)]
    pub decorators: BTreeMap<String, Decorator>,
    #[serde(default)]
    pub platforms: Platforms,
    #[serde(default)]
    pub capability: Capability,
    #[serde(default)]
    pub selection: Selection,
    #[serde(default)]
    pub consumed_keywords: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub arguments: BTreeMap<String, Argument>,
    #[serde(default)]
    pub function: Vec<Spanned<Function>>,
    #[serde(default)]
    pub source: Vec<PinnedSource>,
    #[serde(default)]
    pub defect: Vec<DefectEntry>,
    #[serde(default)]
    pub needs: Vec<NeedsEntry>,
    #[serde(default)]
    pub overlap: Vec<OverlapEntry>,
    #[serde(default)]
    pub gate: Vec<Gate>,
    #[serde(default)]
    pub native: Native,
}

/// Native libraries.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Native {
    #[serde(default)]
    pub distributions: Vec<String>,
    #[serde(default)]
    pub route: Vec<Route>,
}

/// Which GPUs a library is used on.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// The distribution that brings the library.
    pub distribution: String,
    /// Its name, without what follows the first dot: `_C` of `_C.abi3.so`.
    pub library: String,
    /// Major versions of the compute capabilities that the distribution uses it on.
    pub major: Vec<u32>,
    /// What it is used for, to be put between `takes` and `on compute capability 9.x alone`.
    pub purpose: String,
}

/// What belongs to the attention stack.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Stack {
    #[serde(default)]
    pub distributions: Vec<String>,
    #[serde(default)]
    pub general: Vec<String>,
    #[serde(default)]
    pub audited: Vec<String>,
    #[serde(default)]
    pub attention_modules: Vec<String>,
    #[serde(default)]
    pub version_names: Vec<String>,
    #[serde(default)]
    pub carrying: Vec<String>,
}

/// Objects whose predicates say which platform runs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Platforms {
    #[serde(default)]
    pub objects: Vec<String>,
    #[serde(default)]
    pub predicates: BTreeMap<String, Vec<PlatformName>>,
}

/// How sources ask for the compute capability.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Capability {
    /// Dotted paths of functions that return it as `(12, 0)`.
    #[serde(default)]
    pub tuple: Vec<String>,
    /// Methods of platform objects that compare it with their argument.
    #[serde(default)]
    pub predicates: BTreeMap<String, CapabilityTest>,
}

/// How sources choose between implementations by a number.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Selection {
    /// The argument of attention functions that names the implementation.
    pub argument: Option<String>,
    /// Dotted paths of predicates that say whether the device supports one.
    #[serde(default)]
    pub supported: Vec<String>,
    /// Dotted paths of functions that pick one.
    #[serde(default)]
    pub chosen_by: Vec<String>,
    /// Dotted paths of functions that list backends in the order in which they are tried.
    #[serde(default)]
    pub priorities: Vec<String>,
    /// Their argument that asks for the backends of MLA.
    pub mla_argument: Option<String>,
    /// The method by which a backend's class says whether it runs on a device.
    pub device_predicate: Option<String>,
    /// What a number stands for: "FA2".
    #[serde(default)]
    pub names: BTreeMap<String, String>,
}

/// How a predicate compares the device's capability with its argument, `(9, 0)` or `90`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapabilityTest {
    /// The device has it or more.
    AtLeast,
    /// The device has exactly it.
    Equal,
    /// The device has the same major version.
    SameMajor,
}

/// A platform, as packs spell it.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PlatformName {
    Cuda,
    Rocm,
    Xpu,
    Cpu,
}

impl From<PlatformName> for Platform {
    fn from(name: PlatformName) -> Self {
        match name {
            PlatformName::Cuda => Platform::Cuda,
            PlatformName::Rocm => Platform::Rocm,
            PlatformName::Xpu => Platform::Xpu,
            PlatformName::Cpu => Platform::Cpu,
        }
    }
}

/// What a decorator does to what it decorates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decorator {
    /// A call binds to the signature as written, and returns what the function returns.
    Keeps,
    /// Like `Keeps`, but the call gives a launcher: `kernel(..).launch(..)`.
    Kernel,
    /// Read as an attribute, not called.
    Property,
    /// A call binds to the signature as written and gives a context manager.
    ContextManager,
    /// A declaration that is never called.
    Overload,
    /// Decorates a class, and leaves its constructor and attributes as they are.
    Class,
    /// Makes an object of a class that keeps its attributes and is called in a way of its own.
    Storage,
    /// Makes the constructor of a class from its annotations.
    Dataclass,
}

/// What an argument of an attention function means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Argument {
    /// Values that change nothing, as Python writes them.
    pub neutral: Vec<String>,
    /// Whether it changes which scores count, or what they are.
    pub mask: bool,
    /// What dropping another value means, as the end of a sentence.
    pub consequence: String,
}

/// A defect, before it is validated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DefectEntry {
    pub id: Spanned<String>,
    pub package: String,
    pub versions: Spanned<String>,
    pub title: String,
    pub raises: Option<String>,
    #[serde(default)]
    pub arch: Vec<String>,
    pub path: String,
    pub shown_by: Option<ShownBy>,
    pub advice: String,
    #[serde(default)]
    pub references: Vec<String>,
    pub source: Option<Spanned<String>>,
    #[serde(default)]
    pub commits: Vec<Spanned<String>>,
    pub fixed_commit: Option<String>,
    pub valid: Spanned<Vec<String>>,
    pub invalid: Spanned<Vec<String>>,
}

/// What versions need of others, before it is validated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NeedsEntry {
    pub package: String,
    pub versions: Option<Spanned<String>>,
    pub requires: Vec<Spanned<String>>,
    pub because: Option<String>,
    #[serde(default)]
    pub modules: Vec<String>,
    #[serde(default)]
    pub references: Vec<String>,
}

/// Distributions that own the same paths, before it is validated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct OverlapEntry {
    pub packages: Spanned<Vec<String>>,
    pub versions: Option<Spanned<String>>,
    pub last: Option<Spanned<String>>,
    pub because: String,
}
