//! Resolution across modules: imports, names, attributes, classes and calls, over the index of `python`.

use crate::environment::Environment;
use crate::finding::Incomplete;
use crate::packs::Packs;

/// The linked program.
pub struct Program<'a> {
    /// What is installed.
    pub environment: &'a Environment,
    /// Facts about named releases.
    pub packs: &'a Packs,
    /// Modules in which every finding is reported.
    pub audited: Vec<u32>,
    /// Modules whose calls into attention modules are audited.
    pub importers: Vec<u32>,
}

/// What to audit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope {
    /// `--all`: whole packages instead of their attention modules.
    pub all: bool,
}

impl<'a> Program<'a> {
    /// Finds and loads the modules to audit.
    pub fn load(environment: &'a Environment, packs: &'a Packs, _scope: Scope) -> Program<'a> {
        Program { environment, packs, audited: Vec::new(), importers: Vec::new() }
    }

    /// How many source files were read.
    pub fn files(&self) -> usize {
        0
    }

    /// What could not be read.
    pub fn incomplete(&self) -> Vec<Incomplete> {
        Vec::new()
    }
}
