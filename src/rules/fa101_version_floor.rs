//! # What it does
//!
//! Compares installed versions with what the rule packs know to be needed beyond METADATA: floors and ceilings that a
//! release does not declare. Which keyword came with which release is told in the help of FA003, where the call is.
//!
//! # Why is this bad
//!
//! `pip` resolves what METADATA says. A package that only states a lower bound gets the newest of everything years
//! later, and a name that it uses may be gone by then.
//!
//! # Example
//!
//! flash-attn-4 4.0.0b15 declares `nvidia-cutlass-dsl>=4.4.2` and nothing above. Its kernels use `cute.make_fragment`,
//! which is gone from 4.6.0.dev0.
//!
//! # Fix
//!
//! Install a version in the range that the finding names.
//!
//! The rule is silent where a finding in the sources (FA001 to FA007) or an unmet declared requirement (FA102) shows the
//! same thing; the former then say in their help which version to install.
//!
//! # References
//!
//! - `rules/defects.toml`, the `[[needs]]` entries with a `because`

use super::packaging::{finding, installed, installer, named, related};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::Distribution;
use crate::finding::{Finding, Severity};
use crate::packs::{Machines, Needs, parse_requirement, required_name, required_range, satisfies};

static INFO: RuleInfo = RuleInfo {
    code: "FA101",
    name: "version-floor",
    summary: "an installed version is outside what another installed package needs",
    source: include_str!("fa101_version_floor.rs"),
};

/// FA101.
pub struct VersionFloor;

impl Rule for VersionFloor {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn builds_on(&self) -> &'static [&'static str] {
        &["FA001", "FA002", "FA003", "FA004", "FA005", "FA006", "FA007"]
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let machines = Machines::of(context.environment);
        let stack = context.packs.distributions.iter().filter_map(|name| installed(context.environment, name));
        for caller in stack {
            let Some(version) = caller.version() else { continue };
            for needs in context.packs.needs_of(&caller.name, &version) {
                let Some(because) = &needs.because else { continue };
                for requirement in needs.requires.iter().filter_map(|need| need.of(&version)) {
                    let Some(range) = required_range(&requirement).filter(|_| machines.apply(&requirement, &[])) else {
                        continue;
                    };
                    let Some(callee) = installed(context.environment, requirement.name.as_ref()) else { continue };
                    let fits = callee.version().is_none_or(|version| satisfies(&version, range));
                    if fits || declares_unmet(caller, callee) {
                        continue;
                    }
                    let asks = format!("{}{}", requirement.name, range.to_string().replace(", ", ","));
                    let shown = shown_in_sources(&mut sink.findings, caller, needs);
                    if !shown.is_empty() {
                        // What shows it concretely says what to do about it, too.
                        for found in shown {
                            let help = help(needs, callee, &asks);
                            found.help =
                                Some(found.help.take().map_or(help.clone(), |known| format!("{known}; {help}")));
                        }
                        continue;
                    }
                    let mut found =
                        finding(&INFO, Severity::Warning, callee, &callee.metadata_path, 1, requirement.name.as_ref());
                    found.message = format!(
                        "{} needs {asks}, which its METADATA does not say, but {} is installed: {because}",
                        named(caller),
                        callee.raw_version
                    );
                    found.related.push(related(
                        caller,
                        &caller.metadata_path,
                        1,
                        format!("{} is installed here", named(caller)),
                    ));
                    found.help = Some(help(needs, callee, &asks));
                    sink.findings.push(found);
                }
            }
        }
    }
}

/// Whether METADATA says so too: then it is FA102's.
fn declares_unmet(caller: &Distribution, callee: &Distribution) -> bool {
    let Some(version) = callee.version() else { return false };
    let about = caller.requires.iter().filter(|(text, _)| required_name(text) == callee.name);
    let mut parsed = about.filter_map(|(text, _)| parse_requirement(text).ok());
    parsed.any(|requirement| required_range(&requirement).is_some_and(|range| !satisfies(&version, range)))
}

/// The findings in the sources of `caller` that name a module of what it needs.
fn shown_in_sources<'f>(findings: &'f mut [Finding], caller: &Distribution, needs: &Needs) -> Vec<&'f mut Finding> {
    let names = |found: &Finding, module: &String| {
        let in_symbol = found.symbol.split(['(', ':']).next().unwrap_or_default();
        in_symbol == module || in_symbol.starts_with(&format!("{module}."))
    };
    findings
        .iter_mut()
        .filter(|found| found.code.starts_with("FA00") && found.package.as_ref() == Some(&caller.display_name))
        .filter(|found| needs.modules.iter().any(|module| names(found, module)))
        .collect()
}

fn help(needs: &Needs, callee: &Distribution, asks: &str) -> String {
    let command = format!("{} install '{asks}'", installer(callee));
    match needs.references.first() {
        Some(reference) => format!("install one that fits ({reference}): {command}"),
        None => format!("install one that fits: {command}"),
    }
}
