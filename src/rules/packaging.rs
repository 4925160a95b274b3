//! What the packaging rules share: the copy of a distribution that imports find, findings about it, commands.

use std::cmp::Reverse;

use super::RuleInfo;
use crate::environment::{Distribution, Environment};
use crate::finding::{Finding, Related, Severity};

/// The distribution of this normalised name that imports find: the first on the search path. Of several in one folder,
/// which only a failed upgrade leaves, the newest.
pub(super) fn installed<'e>(environment: &'e Environment, name: &str) -> Option<&'e Distribution> {
    let place = |d: &Distribution| environment.search_path.iter().position(|entry| *entry == d.base);
    copies(environment, name).min_by_key(|d| (place(d).unwrap_or(usize::MAX), Reverse(d.version())))
}

/// Every installed distribution of this normalised name.
pub(super) fn copies<'e>(environment: &'e Environment, name: &str) -> impl Iterator<Item = &'e Distribution> {
    environment.distributions.iter().filter(move |d| d.name == name && !d.is_project())
}

/// `flash-attn-4 4.0.0b36`.
pub(super) fn named(distribution: &Distribution) -> String {
    format!("{} {}", distribution.display_name, distribution.raw_version)
}

/// `flash-attn-4==4.0.0b36`, which installs what is installed.
pub(super) fn pinned(distribution: &Distribution) -> String {
    format!("{}=={}", distribution.display_name, distribution.raw_version)
}

/// The installer's command, up to the arguments: `uv pip` where uv installed the distribution.
pub(super) fn installer(distribution: &Distribution) -> &'static str {
    if distribution.installer.as_deref() == Some("uv") { "uv pip" } else { "pip" }
}

/// A finding at a line of a file that belongs to `distribution`.
pub(super) fn finding(
    rule: &RuleInfo,
    severity: Severity,
    distribution: &Distribution,
    path: &str,
    line: u32,
    symbol: &str,
) -> Finding {
    Finding {
        code: rule.code.to_owned(),
        name: rule.name.to_owned(),
        severity,
        package: Some(distribution.display_name.clone()),
        version: Some(distribution.raw_version.clone()),
        path: path.to_owned(),
        line,
        column: 1,
        end_line: line,
        end_column: 1,
        symbol: symbol.to_owned(),
        message: String::new(),
        help: None,
        arch: Vec::new(),
        related: Vec::new(),
        fix: None,
        root: distribution.root,
    }
}

/// Another line of a file of `distribution`.
pub(super) fn related(distribution: &Distribution, path: &str, line: u32, message: impl Into<String>) -> Related {
    Related { path: path.to_owned(), line, message: message.into(), root: distribution.root }
}
