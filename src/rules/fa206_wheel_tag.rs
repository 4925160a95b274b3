//! # What it does
//!
//! Compares what the extension modules of the attention stack were built for with the environment: the Python version in
//! their names (`.cpython-310-..`), the processor, and the C library (glibc or musl).
//!
//! # Why is this bad
//!
//! The import system does not even see a module that is named for another Python; the loader refuses one for another
//! processor or C library. Wheels unpacked by hand, copied environments and images for another platform end like this.
//!
//! # Example
//!
//! ```text
//! ModuleNotFoundError: No module named 'flash_attn_2_cuda'
//! ```
//!
//! beside a `flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so` in an environment of Python 3.12.
//!
//! # Fix
//!
//! Let pip choose the build that fits this environment.
//!
//! Where other modules of the package do fit, it may never import the one that does not: that is a warning.
//!
//! # References
//!
//! - <https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/>
//! - <https://peps.python.org/pep-3149/>

use std::collections::BTreeMap;

use super::libraries::{distribution_of, file_name, finding};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::{Environment, RootId, RootKind};
use crate::finding::{Finding, Severity};
use crate::native::elf::Machine;
use crate::native::inspection::{Extension, Inspection};
use crate::native::stack::{module, python_of};

static INFO: RuleInfo = RuleInfo {
    code: "FA206",
    name: "wheel-tag",
    summary: "an extension is built for another Python, processor or C library",
    source: include_str!("fa206_wheel_tag.rs"),
};

/// FA206.
pub struct WheelTag;

impl Rule for WheelTag {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let inspection = context.inspection();
        sink.findings.extend(report(context.environment, inspection, Machine::host()));
    }
}

fn report(environment: &Environment, inspection: &Inspection, host: Option<Machine>) -> Vec<Finding> {
    let mut found = other_pythons(environment, inspection);
    for extension in &inspection.extensions {
        let installed = environment.root(extension.subject.root).kind == RootKind::SitePackages;
        let why = if installed { foreign(extension, inspection, host) } else { None };
        if let Some(why) = why {
            found.push(one(environment, extension, &format!("cannot be loaded: {why}")));
        }
    }
    found
}

/// Why the loader of this machine refuses an installed extension.
fn foreign(extension: &Extension, inspection: &Inspection, host: Option<Machine>) -> Option<String> {
    let host = host?;
    if extension.machine != host {
        return Some(format!("it is built for {}, this machine is {}", extension.machine.name(), host.name()));
    }
    // Only musl's libc is named like this.
    let musl = extension.needed.iter().any(|name| name.starts_with("libc.musl-"));
    (musl && inspection.libc.is_some()).then(|| "it is built for musl, this system has glibc".to_owned())
}

/// Modules of which there is no build for the environment's Python, at their last one.
fn other_pythons(environment: &Environment, inspection: &Inspection) -> Vec<Finding> {
    let Some((major, minor)) = environment.python else { return Vec::new() };
    let mut modules: BTreeMap<(RootId, String), Vec<&Extension>> = BTreeMap::new();
    for extension in &inspection.extensions {
        modules.entry(module(&extension.subject)).or_default().push(extension);
    }
    // Where other modules of the package fit, it may well do without this one.
    let has_others = |build: &Extension| {
        let fits = |other: &&Extension| python_of(&other.subject.path).is_none_or(|tag| tag == (major, minor));
        let of_package = |other: &&Extension| other.subject.distribution == build.subject.distribution;
        inspection.extensions.iter().filter(of_package).any(|other| fits(&other))
    };
    let mut found = Vec::new();
    for builds in modules.into_values() {
        let tags: Vec<Option<(u32, u32)>> = builds.iter().map(|build| python_of(&build.subject.path)).collect();
        // A name without a version (or with `abi3`) is loaded by every Python.
        if tags.iter().all(|tag| tag.is_some_and(|tag| tag != (major, minor))) {
            let tags: Vec<String> = tags.iter().flatten().map(|(major, minor)| format!("{major}.{minor}")).collect();
            let why =
                format!("is built for Python {}, this is {major}.{minor}: the import does not see it", tags.join(", "));
            found.extend(builds.last().map(|build| {
                let mut finding = one(environment, build, &why);
                if has_others(build) {
                    finding.severity = Severity::Warning;
                }
                finding
            }));
        }
    }
    found
}

fn one(environment: &Environment, extension: &Extension, why: &str) -> Finding {
    let mut found = finding(&INFO, environment, &extension.subject);
    found.message = format!("{} {why}", file_name(&extension.subject.path));
    found.help = distribution_of(environment, &extension.subject).map(|distribution| {
        let version = distribution.raw_version.split('+').next().unwrap_or_default();
        let name = &distribution.display_name;
        format!(
            "let pip choose the build for this environment: pip install --force-reinstall --no-deps {name}=={version}"
        )
    });
    found
}
