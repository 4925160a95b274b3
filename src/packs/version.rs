//! PEP 440 ranges, as pip judges what is installed.

use std::fmt;
use std::str::FromStr;

use pep440_rs::{Operator, Version, VersionSpecifier, VersionSpecifiers};
use serde::{Deserialize, Deserializer};

/// Whether an installed `version` meets `range`, as pip sees it: pre-releases count, and a local version
/// (`2.11.0+cu130`) meets what its public part meets.
pub fn satisfies(version: &Version, range: &VersionSpecifiers) -> bool {
    range.iter().all(|specifier| meets(version, specifier))
}

/// As `packaging` decides it; pep440_rs 0.7 departs from that where it is spelled out here.
fn meets(version: &Version, specifier: &VersionSpecifier) -> bool {
    let bound = specifier.version();
    match specifier.operator() {
        // `<4.0.0b5` takes in 4.0.0b3, and `<4.6` leaves out 4.6.0.dev0.
        Operator::LessThan => {
            let pre_release_of_bound =
                !bound.any_prerelease() && version.any_prerelease() && version.only_release() == bound.only_release();
            version < bound && !pre_release_of_bound
        }
        // `==2.11.*` leaves out 2.
        Operator::EqualStar => starts_with(version, bound),
        Operator::NotEqualStar => !starts_with(version, bound),
        _ => specifier.contains(version),
    }
}

/// Whether the release of `version`, padded with zeros, starts with that of `prefix`.
fn starts_with(version: &Version, prefix: &Version) -> bool {
    let mut padded = version.release().iter().copied().chain(std::iter::repeat(0));
    version.epoch() == prefix.epoch() && prefix.release().iter().all(|part| padded.next() == Some(*part))
}

/// Whether no version meets all of these ranges: of the known releases, or of any where none are known.
pub fn excluded(ranges: &[VersionSpecifiers], releases: &[Version]) -> bool {
    if !releases.is_empty() {
        return !releases.iter().any(|release| ranges.iter().all(|range| satisfies(release, range)));
    }
    let all: VersionSpecifiers = ranges.iter().flat_map(|range| range.iter().cloned()).collect();
    is_empty(&all, std::iter::empty())
}

/// Whether no version at all can meet `range`: each bound and its neighbours are tried, besides `known` releases.
pub(super) fn is_empty<'a>(range: &VersionSpecifiers, known: impl Iterator<Item = &'a Version>) -> bool {
    let mut candidates: Vec<Version> = known.cloned().collect();
    for specifier in range.iter() {
        let version = specifier.version();
        candidates.push(version.clone());
        let text = version.to_string();
        let neighbours =
            [format!("{text}.post1"), format!("{text}.1"), format!("{text}.dev0"), format!("{text}.post0.dev0")];
        candidates.extend(neighbours.iter().filter_map(|text| text.parse().ok()));
        if let Some((last, head)) = version.release().split_last() {
            let head: String = head.iter().map(|part| format!("{part}.")).collect();
            candidates.extend(format!("{head}{}", last + 1).parse().ok());
            candidates.extend(last.checked_sub(1).and_then(|last| format!("{head}{last}.99999").parse().ok()));
        }
    }
    candidates.extend(["0".parse().ok(), "99999".parse().ok()].into_iter().flatten());
    !candidates.iter().any(|version| satisfies(version, range))
}

/// A range of releases with at most one bound on each side: `>=A`, `<B`, `>=A,<B` or nothing at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    /// The first release in it.
    pub since: Option<Version>,
    /// The first release after it.
    pub before: Option<Version>,
}

impl Span {
    /// Whether `version` lies in it; a local version lies where its public part does.
    pub fn contains(&self, version: &Version) -> bool {
        let version = version.clone().without_local();
        self.since.as_ref().is_none_or(|since| version >= *since)
            && self.before.as_ref().is_none_or(|before| version < *before)
    }

    /// "in 4.0.0b19", "from 4.0.0b20 to 4.0.0b32", "since 4.0.0b33", "before 4.0.0b19", "in every release".
    pub fn during(&self, releases: &[Version]) -> String {
        let (Some(since), Some(before)) = (&self.since, &self.before) else {
            return match (&self.since, &self.before) {
                (Some(since), _) => format!("since {since}"),
                (_, Some(before)) => format!("before {before}"),
                _ => "in every release".to_owned(),
            };
        };
        match releases.iter().filter(|release| self.contains(release)).max() {
            Some(last) if last == since => format!("in {since}"),
            Some(last) => format!("from {since} to {last}"),
            None => format!("from {since}, before {before}"),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.since, &self.before) {
            (Some(since), Some(before)) => write!(f, ">={since},<{before}"),
            (Some(since), None) => write!(f, ">={since}"),
            (None, Some(before)) => write!(f, "<{before}"),
            (None, None) => f.write_str("every release"),
        }
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let specifiers: VersionSpecifiers = text.parse().map_err(|_| format!("`{text}` is not a PEP 440 range"))?;
        let mut span = Span::default();
        for specifier in specifiers.iter() {
            let version = specifier.version().clone();
            let taken = match specifier.operator() {
                Operator::GreaterThanEqual => span.since.replace(version),
                Operator::LessThan => span.before.replace(version),
                _ => return Err(format!("`{text}` may only use >= and <")),
            };
            if taken.is_some() {
                return Err(format!("`{text}` has two bounds on one side"));
            }
        }
        match (&span.since, &span.before) {
            (Some(since), Some(before)) if since >= before => Err(format!("no release can match `{text}`")),
            _ => Ok(span),
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_versions_are_judged_as_pip_judges_them() {
        let table = [
            ("2.11.0+cu130", "==2.11.0", true),
            ("2.11.0", "==2.11.0+cu130", false),
            ("2.11.0+cu130", "==2.11.0+cu130", true),
            ("2.11.0+cu130", "==2.11.*", true),
            ("2.8.3+cu130torch2.11", ">=2.8.3", true),
            ("2.8.3+cu130torch2.11", "<=2.8.3", true),
            ("2.8.3+cu130torch2.11", ">2.8.3", false),
            ("2.8.3+cu130torch2.11", "!=2.8.3", false),
            ("2.8.3+cu130torch2.11", "~=2.8.3", true),
            ("2.8.3.post2", ">=2.8.3", true),
            ("2.8.3.post2", ">2.8.3", false),
            ("4.0.0b36", ">=4.0.0b10", true),
            ("4.0.0b9", ">=4.0.0b10", false),
            ("4.0.0b9", "<4.0.0b10", true),
            ("4.0.0b3", ">=4.0.0b3,<4.0.0b5", true),
            ("4.0.0b36", "<5", true),
            ("2", "==2.11.*", false),
            ("2", "==2.0.*", true),
            ("2", "!=2.11.*", true),
            ("2.11.0.dev20260101", "==2.11.*", true),
            ("4.6.0.dev0", "<4.6.0", false),
            ("4.6.0.dev0", "<4.6", false),
            ("4.6.0.dev0", "<4.6.1", true),
            ("4.6.0.dev0", ">=4.6.0", false),
            ("4.6.0.dev0", "==4.6.0.dev0", true),
            ("98.1", "!=97.*,>=96", true),
        ];
        for (version, range, expected) in table {
            let parsed: Version = version.parse().unwrap();
            assert_eq!(satisfies(&parsed, &range.parse().unwrap()), expected, "{version} {range}");
        }
    }

    #[test]
    fn ranges_that_nothing_can_meet_are_told_apart() {
        let empty = |range: &str| is_empty(&range.parse().unwrap(), std::iter::empty());
        for range in [">=2,<1", "==1.0,==2.0", ">1.0,<1.0", "==1.2.*,>=1.3", "<0.dev0"] {
            assert!(empty(range), "{range}");
        }
        for range in [">=0.24.0,<0.29", "<=4.0.0b19", "==4.6.0.dev0", "!=1.0", "", ">1.0,<1.1", "~=2.8.3"] {
            assert!(!empty(range), "{range}");
        }
    }

    #[test]
    fn spans_take_one_bound_a_side() {
        let span: Span = ">=4.0.0b5,<4.0.0b9".parse().unwrap();
        let inside = |text: &str| span.contains(&text.parse().unwrap());
        assert!(inside("4.0.0b5") && inside("4.0.0b8+local") && !inside("4.0.0b9") && !inside("4.0.0b3"));
        assert!(
            "==1".parse::<Span>().is_err() && ">=2,<1".parse::<Span>().is_err() && ">=1,>=2".parse::<Span>().is_err()
        );
    }
}
