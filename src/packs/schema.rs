//! What a pack file may say: the shape of `rules/*.toml`. Unknown keys are errors.
//!
//! The same shape as JSON Schema is in `docs/pack-schema.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

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
    pub decorators: BTreeMap<String, Decorator>,
    #[serde(default)]
    pub platforms: Platforms,
    #[serde(default)]
    pub consumed_keywords: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub arguments: BTreeMap<String, Argument>,
}

/// What belongs to the attention stack.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Stack {
    #[serde(default)]
    pub distributions: Vec<String>,
    #[serde(default)]
    pub audited: Vec<String>,
    #[serde(default)]
    pub attention_modules: Vec<String>,
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
