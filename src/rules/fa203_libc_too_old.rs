//! # What it does
//!
//! Compares the versions of glibc and of the C++ runtime that the extension modules of the attention stack were linked
//! against with those of this machine, or with `--glibc` for another one.
//!
//! # Why is this bad
//!
//! The dynamic loader refuses a library that needs a newer version than the system has.
//!
//! # Example
//!
//! ```text
//! ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by flash_attn_2_cuda.so)
//! ```
//!
//! # Fix
//!
//! Use a newer system (or container image), or build the extension on the old one. A newer C++ runtime alone can come from
//! conda.
//!
//! Only an environment of this machine is compared with this machine: nothing is reported on a wheel without `--glibc`.
//!
//! # References
//!
//! - <https://peps.python.org/pep-0600/>
//! - <https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html>

use std::collections::BTreeMap;

use super::libraries::{file_name, finding, related};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::Environment;
use crate::finding::Finding;
use crate::native::inspection::{Extension, Inspection, glibc};

static INFO: RuleInfo = RuleInfo {
    code: "FA203",
    name: "libc-too-old",
    summary: "an extension needs a newer glibc or C++ runtime than the machine has",
    source: include_str!("fa203_libc_too_old.rs"),
};

/// FA203.
pub struct LibcTooOld;

impl Rule for LibcTooOld {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let inspection = context.inspection();
        sink.findings.extend(report(context.environment, inspection, context.glibc));
    }
}

/// What one extension lacks.
struct Lack<'a> {
    extension: &'a Extension,
    library: String,
    version: String,
}

/// One finding for each distribution and runtime: the newest version that is missing, at the module that needs it.
fn report(environment: &Environment, inspection: &Inspection, asked: Option<(u32, u32)>) -> Vec<Finding> {
    let mut lacks: BTreeMap<_, Vec<Lack<'_>>> = BTreeMap::new();
    for extension in &inspection.extensions {
        let missing: Vec<(&String, &String)> = match asked {
            Some(asked) => newer_than(extension, asked).collect(),
            None => extension.versions_missing.iter().map(|(library, version)| (library, version)).collect(),
        };
        for (library, version) in missing {
            let family = version.split('_').next().unwrap_or(version).to_owned();
            let lack = Lack { extension, library: library.clone(), version: version.clone() };
            lacks.entry((extension.subject.distribution, family)).or_default().push(lack);
        }
    }
    lacks.into_values().map(|lacks| one(environment, inspection, asked, &lacks)).collect()
}

fn newer_than(extension: &Extension, asked: (u32, u32)) -> impl Iterator<Item = (&String, &String)> {
    let all =
        extension.versions_needed.iter().flat_map(|(library, versions)| versions.iter().map(move |v| (library, v)));
    all.filter(move |(_, version)| glibc(version).is_some_and(|version| version > asked))
}

/// Numbers of a version, for comparing: `GLIBCXX_3.4.30` before `GLIBCXX_3.4.32`.
fn numbers(version: &str) -> Vec<u32> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn one(environment: &Environment, inspection: &Inspection, asked: Option<(u32, u32)>, lacks: &[Lack<'_>]) -> Finding {
    let worst = lacks.iter().max_by_key(|lack| numbers(&lack.version)).unwrap_or(&lacks[0]);
    let mut found = finding(&INFO, environment, &worst.extension.subject);
    found.symbol.clone_from(&worst.version);
    let has = match (asked, &inspection.libc) {
        (Some((major, minor)), _) => format!("; glibc {major}.{minor} was asked for"),
        (None, Some(libc)) if worst.version.starts_with("GLIBC_") => format!("; this machine has up to {libc}"),
        _ => "; this machine's is older".to_owned(),
    };
    found.message = format!(
        "{} cannot be loaded: {}: version `{}' not found{has}",
        file_name(&worst.extension.subject.path),
        worst.library,
        worst.version
    );
    let mut paths = vec![&worst.extension.subject.path];
    for lack in lacks {
        let subject = &lack.extension.subject;
        if !paths.contains(&&subject.path) {
            paths.push(&subject.path);
            found.related.push(related(subject.root, &subject.path, format!("needs {}", lack.version)));
        }
    }
    found.help = Some(if worst.version.starts_with("GLIBC_") {
        "use a system or a container image with a newer glibc, or build the package from source on this one; \
         what a system has: ldd --version"
            .to_owned()
    } else {
        "update the C++ runtime (the package libstdc++6 of the system); with conda: \
         conda install -c conda-forge libstdcxx-ng"
            .to_owned()
    });
    found
}
