//! # What it does
//!
//! Finds the libraries that the extension modules of the attention stack need, as the dynamic loader would: through the
//! RPATH or RUNPATH of each library, in `torch/lib` and `nvidia/*/lib`, which `import torch` loads first, in
//! LD_LIBRARY_PATH, and in what `ld.so.cache` and the system's folders hold.
//!
//! # Why is this bad
//!
//! A module whose library is missing cannot be loaded. Mostly it was built for another CUDA version than torch, or torch is
//! a build without CUDA.
//!
//! # Example
//!
//! ```text
//! ImportError: libcudart.so.12: cannot open shared object file: No such file or directory
//! ```
//!
//! # Fix
//!
//! Install a build of the extension for the CUDA version of the installed torch, or name the folder that has the library
//! in LD_LIBRARY_PATH.
//!
//! Libraries of torch are judged wherever torch is part of what is scanned, others only in an environment of this machine.
//! Libraries that come with the GPU driver are not judged.
//!
//! # References
//!
//! - <https://man7.org/linux/man-pages/man8/ld.so.8.html>

use super::libraries::{distribution_of, file_name, finding, list, related};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::Environment;
use crate::finding::Finding;
use crate::native::inspection::{Extension, Inspection, MissingLibrary};

static INFO: RuleInfo = RuleInfo {
    code: "FA202",
    name: "missing-library",
    summary: "a library that an extension needs is nowhere",
    source: include_str!("fa202_missing_library.rs"),
};

/// FA202.
pub struct MissingLibraryRule;

impl Rule for MissingLibraryRule {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        sink.findings.extend(report(context.environment, context.inspection()));
    }
}

/// One finding for each library, at the first extension that cannot be loaded without it.
fn report(environment: &Environment, inspection: &Inspection) -> Vec<Finding> {
    let mut names: Vec<&MissingLibrary> =
        inspection.extensions.iter().flat_map(|extension| &extension.missing_libraries).collect();
    names.sort_by(|a, b| a.name.cmp(&b.name));
    names.dedup_by(|a, b| a.name == b.name);
    names.into_iter().filter_map(|library| one(environment, inspection, library)).collect()
}

fn one(environment: &Environment, inspection: &Inspection, library: &MissingLibrary) -> Option<Finding> {
    let misses =
        |extension: &&Extension| extension.missing_libraries.iter().any(|missing| missing.name == library.name);
    let mut victims = inspection.extensions.iter().filter(misses);
    let first = victims.next()?;
    let mut found = finding(&INFO, environment, &first.subject);
    found.symbol.clone_from(&library.name);
    let through = match &library.needed_by {
        (root, path) if (*root, path) == (first.subject.root, &first.subject.path) => String::new(),
        (_, path) => format!(", which {} needs", file_name(path)),
    };
    found.message = format!(
        "{} cannot be loaded: {}{through}: cannot open shared object file: No such file or directory",
        file_name(&first.subject.path),
        library.name
    );
    found.related = victims
        .map(|victim| {
            let message = format!("{} needs it too", file_name(&victim.subject.path));
            related(victim.subject.root, &victim.subject.path, message)
        })
        .collect();
    found.help = Some(help(environment, first, library));
    Some(found)
}

fn help(environment: &Environment, extension: &Extension, library: &MissingLibrary) -> String {
    let torch = environment.distribution("torch").map_or("torch", |torch| torch.raw_version.as_str());
    let name = distribution_of(environment, &extension.subject).map_or("the extension", |d| d.display_name.as_str());
    if library.of_torch {
        let what = if library.name.contains("cuda") { "a build without CUDA" } else { "another release" };
        let version = torch.split('+').next().unwrap_or(torch);
        return format!(
            "the installed torch {torch} does not bring it: it is {what} than {name} was built for; \
             install the one with CUDA: pip install --force-reinstall torch=={version}"
        );
    }
    if let Some(folder) = &library.toolkit {
        return format!(
            "a CUDA toolkit has it, in a folder that the loader does not search: \
             export LD_LIBRARY_PATH={}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}",
            folder.display()
        );
    }
    let others = other_versions(environment, &library.name);
    if others.is_empty() {
        return format!("install the package that has it, or a build of {name} that does not need it: pip check");
    }
    format!(
        "{} is installed instead, so {name} was built for another CUDA version than torch {torch}; \
         install the build that fits: pip install --upgrade --force-reinstall --no-deps {name}",
        list(&others)
    )
}

/// Installed libraries of the same name with another version: `libcudart.so.13` for `libcudart.so.12`.
fn other_versions(environment: &Environment, name: &str) -> Vec<String> {
    let Some((stem, _)) = name.split_once(".so") else { return Vec::new() };
    let prefix = format!("{stem}.so");
    let mut found = Vec::new();
    for entry in &environment.search_path {
        let tree = &environment.root(entry.root).tree;
        let base = if entry.prefix.is_empty() { String::new() } else { format!("{}/", entry.prefix) };
        for (vendor, _) in tree.list(&format!("{base}nvidia")) {
            let names = tree.list(&format!("{base}nvidia/{vendor}/lib"));
            found.extend(names.into_iter().map(|(name, _)| name).filter(|name| name.starts_with(&prefix)));
        }
    }
    found.sort();
    found.dedup();
    found
}
