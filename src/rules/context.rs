//! What a rule sees, and where it reports.

use crate::environment::{Environment, RootId};
use crate::finding::{Finding, Incomplete};
use crate::link::Program;
use crate::native::inspection::{Cache, Inspection};
use crate::native::table;
use crate::packs::Packs;

/// What a rule sees.
pub struct Context<'a> {
    /// What is installed.
    pub environment: &'a Environment,
    /// The linked Python sources of the attention stack.
    pub program: &'a Program<'a>,
    /// Facts about named releases.
    pub packs: &'a Packs,
    /// `--glibc`: judge libraries against this libc instead of the machine's.
    pub glibc: Option<(u32, u32)>,
    /// Native libraries, linked when a rule first asks for them.
    pub native: Cache,
}

/// Where a rule reports.
#[derive(Debug, Default)]
pub struct Sink {
    /// What was found.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub incomplete: Vec<Incomplete>,
}

impl Context<'_> {
    /// The extension modules of the attention stack, linked.
    pub fn inspection(&self) -> &Inspection {
        self.native.inspection(self.environment, self.packs, self.glibc.is_some())
    }

    /// The device code of torch and of the attention stack.
    pub fn kernels(&self) -> &table::Found {
        self.native.kernels(self.environment, self.packs)
    }

    /// Display name and version of the distribution that holds `path` of `root`, if one does.
    pub fn package_of(&self, root: RootId, path: &str) -> Option<(String, String)> {
        self.environment.owner(root, path).map(|d| (d.display_name.clone(), d.raw_version.clone()))
    }
}
