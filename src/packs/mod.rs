//! Facts about named releases, read from `rules/*.toml`: the attention stack, argument semantics, the history of its
//! functions, known defects, what releases need of each other.

mod history;
mod knowledge;
mod load;
mod requirement;
mod schema;
mod version;

pub use history::{Function, Returns};
pub use knowledge::{Defect, Gate, Need, Needs, Overlap, PinnedSource, ShownBy, Versions};
pub use load::PackError;
pub use requirement::{Machines, parse_requirement, required_name, required_range};
pub use schema::{Argument, Capability, CapabilityTest, Decorator, Route, Selection};
pub use version::{Span, excluded, satisfies};

use std::collections::BTreeMap;

use pep440_rs::Version;

use crate::environment::Platform;

/// All packs, embedded and added with `--rules`.
#[derive(Debug, Default)]
pub struct Packs {
    /// Distributions of the attention stack, normalised as PEP 503 says.
    pub distributions: Vec<String>,
    /// Distributions whose extension modules are checked, normalised as PEP 503 says.
    pub extensions: Vec<String>,
    /// Libraries that are used on some GPUs only.
    pub routes: Vec<Route>,
    /// Dotted names of modules that are audited by default, with everything below them.
    pub audited: Vec<String>,
    /// Dotted names of modules whose importers are audited at their calls into them.
    pub attention_modules: Vec<String>,
    /// Dotted names of modules that must be importable for the audited ones that import them.
    pub carrying: Vec<String>,
    /// Names of values by which packages say what they were built for.
    pub version_names: Vec<String>,
    /// Every release of known distributions, by normalised name.
    pub releases: BTreeMap<String, Vec<Version>>,
    /// What known decorators do, by dotted path.
    pub decorators: BTreeMap<String, Decorator>,
    /// Dotted paths of the objects that [`Packs::platform_predicate`] is about.
    pub platform_objects: Vec<String>,
    /// How sources ask for the compute capability.
    pub capability: Capability,
    /// How sources choose between implementations by a number.
    pub selection: Selection,
    /// Keywords that a preprocessor consumes, by dotted path of the callee.
    pub consumed_keywords: BTreeMap<String, Vec<String>>,
    /// What the arguments of attention functions mean, by name.
    pub arguments: BTreeMap<String, Argument>,
    /// The history of public attention functions.
    pub functions: Vec<Function>,
    /// Repositories that packages are built from.
    pub sources: Vec<PinnedSource>,
    /// Known defects.
    pub defects: Vec<Defect>,
    /// What releases need of each other.
    pub needs: Vec<Needs>,
    /// Distributions that own the same paths.
    pub overlaps: Vec<Overlap>,
    /// Gates that must stay.
    pub gates: Vec<Gate>,
    general: Vec<String>,
    predicates: BTreeMap<String, Vec<Platform>>,
}

impl Packs {
    /// Whether findings in `module` (dotted) are reported by default.
    pub fn is_audited(&self, module: &str) -> bool {
        self.audited.iter().any(|prefix| within(module, prefix))
    }

    /// Whether importing `module` (dotted) makes the importer's calls into it worth auditing.
    pub fn is_attention(&self, module: &str) -> bool {
        self.attention_modules.iter().any(|prefix| within(module, prefix))
    }

    /// Whether `module` (dotted) belongs to a package that audited modules stand on.
    pub fn is_carrying(&self, module: &str) -> bool {
        self.carrying.iter().any(|prefix| within(module, prefix))
    }

    /// What the decorator with this dotted path does, if it is known.
    pub fn decorator(&self, path: &str) -> Option<Decorator> {
        self.decorators.get(path).copied()
    }

    /// Whether `current_platform.<name>()` holds on `platform`, if it is known.
    pub fn platform_predicate(&self, name: &str, platform: Platform) -> Option<bool> {
        Some(self.predicates.get(name)?.contains(&platform))
    }

    /// Whether a preprocessor consumes `keyword` in calls of the callee with this dotted path.
    pub fn consumes(&self, callee: &str, keyword: &str) -> bool {
        self.consumed_keywords.get(callee).is_some_and(|keywords| keywords.iter().any(|k| k == keyword))
    }
}

/// Whether dotted `module` is `prefix` or lies below it.
fn within(module: &str, prefix: &str) -> bool {
    module.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_packs_load() {
        let packs = Packs::embedded();
        assert!(packs.is_audited("vllm.vllm_flash_attn.cute.flash_fwd"));
        assert!(!packs.is_audited("vllm.vllm_flash_attention"));
        assert_eq!(packs.decorator("cutlass.cute.kernel"), Some(Decorator::Kernel));
        assert_eq!(packs.platform_predicate("is_cuda_alike", Platform::Rocm), Some(true));
        assert_eq!(packs.platform_predicate("is_navi", Platform::Rocm), None);
        assert!(packs.consumes("cutlass.range_constexpr", "unroll_full"));
    }
}
