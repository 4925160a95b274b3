//! What the rules on native libraries share: how a finding on a library looks.

use super::RuleInfo;
use crate::environment::{Distribution, Environment, RootId};
use crate::finding::{Finding, Related, Severity};
use crate::native::stack::Subject;

/// A finding on a whole library: an error with nothing said yet.
pub fn finding(info: &RuleInfo, environment: &Environment, subject: &Subject) -> Finding {
    let distribution = distribution_of(environment, subject);
    Finding {
        code: info.code.to_owned(),
        name: info.name.to_owned(),
        severity: Severity::Error,
        package: distribution.map(|distribution| distribution.display_name.clone()),
        version: distribution.map(|distribution| distribution.raw_version.clone()),
        path: subject.path.clone(),
        line: 1,
        column: 1,
        end_line: 1,
        end_column: 1,
        symbol: file_name(&subject.path).to_owned(),
        message: String::new(),
        help: None,
        arch: Vec::new(),
        related: Vec::new(),
        fix: None,
        root: subject.root,
    }
}

/// A library that explains a finding.
pub fn related(root: RootId, path: &str, message: String) -> Related {
    Related { path: path.to_owned(), line: 1, message, root }
}

/// The distribution that brought a library.
pub fn distribution_of<'a>(environment: &'a Environment, subject: &Subject) -> Option<&'a Distribution> {
    subject.distribution.and_then(|index| environment.distributions.get(index))
}

/// `_C.abi3.so` of `vllm/_C.abi3.so`.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `a`, `a and b`, `a, b and c`.
pub fn list<T: AsRef<str>>(items: &[T]) -> String {
    match items {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [first @ .., last] => {
            format!("{} and {}", first.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", "), last.as_ref())
        }
    }
}

/// The version of torch that a distribution was built for: what it pins, or what its local version says.
pub fn torch_built_for(distribution: &Distribution) -> Option<String> {
    let pinned = |requirement: &str| {
        let rest = requirement.strip_prefix("torch")?.trim_start().trim_start_matches('(');
        let version = rest.strip_prefix("==")?.trim_start();
        leading_version(version)
    };
    let local = || {
        let (_, local) = distribution.raw_version.split_once('+')?;
        let (_, version) = local.split_once("torch").or_else(|| local.split_once("pt"))?;
        leading_version(version)
    };
    distribution.requires.iter().find_map(|(requirement, _)| pinned(requirement)).or_else(local)
}

/// `2.6` of `2.6cxx11abiFALSE`.
fn leading_version(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let version = text[..end].trim_end_matches('.');
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distribution(version: &str, requires: &[&str]) -> Distribution {
        Distribution {
            raw_version: version.to_owned(),
            requires: requires.iter().map(|line| ((*line).to_owned(), 1)).collect(),
            ..Distribution::default()
        }
    }

    #[test]
    fn what_a_build_was_for() {
        let built_for = |version, requires: &[&str]| torch_built_for(&distribution(version, requires));
        assert_eq!(built_for("1", &["numpy", "torchaudio==1.0", "torch==2.11.0"]).as_deref(), Some("2.11.0"));
        assert_eq!(built_for("1", &["torch (==2.6.0) ; extra == 'x'"]).as_deref(), Some("2.6.0"));
        assert_eq!(built_for("2.8.3+cu12torch2.6cxx11abiFALSE", &["torch"]).as_deref(), Some("2.6"));
        assert_eq!(built_for("2.8.3", &["torch>=2.0"]), None);
    }

    #[test]
    fn words() {
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
        assert_eq!(list(&["a"]), "a");
    }
}
