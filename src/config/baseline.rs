//! Baselines: the findings that were there when checking began, so that only new ones count.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::finding::Finding;

/// The findings that were there before.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// 1.
    schema: u32,
    /// Sorted.
    findings: Vec<Known>,
}

/// A finding by what survives line shifts and new releases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    code: String,
    path: String,
    symbol: String,
    /// How many there are.
    count: usize,
}

/// What a baseline made of the findings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Findings that were there before, now left out.
    pub known: usize,
    /// Entries of the baseline that nothing matches any more.
    pub gone: usize,
}

impl Baseline {
    /// A baseline of all `findings`.
    pub fn new(findings: &[Finding]) -> Baseline {
        let mut counts: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
        for finding in findings {
            *counts.entry((&finding.path, &finding.code, &finding.symbol)).or_default() += 1;
        }
        let known = |((path, code, symbol), count): ((&str, &str, &str), usize)| Known {
            code: code.to_owned(),
            path: path.to_owned(),
            symbol: symbol.to_owned(),
            count,
        };
        Baseline { schema: 1, findings: counts.into_iter().map(known).collect() }
    }

    /// Reads a baseline.
    pub fn read(path: &Path) -> anyhow::Result<Baseline> {
        use anyhow::Context;
        let cannot = || format!("cannot read the baseline `{}`", path.display());
        let text = std::fs::read_to_string(path).with_context(cannot)?;
        let baseline: Baseline = serde_json::from_str(&text).with_context(cannot)?;
        anyhow::ensure!(
            baseline.schema == 1,
            "`{}` is a baseline of schema {}; this fa-doctor reads schema 1",
            path.display(),
            baseline.schema
        );
        Ok(baseline)
    }

    /// Writes it.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        use anyhow::Context;
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, text).with_context(|| format!("cannot write the baseline `{}`", path.display()))
    }

    /// Takes the known findings out of `findings`. Entries of rules that did not run are not counted as gone.
    pub fn apply(&self, findings: &mut Vec<Finding>, ran: impl Fn(&str) -> bool) -> Compared {
        let mut left: BTreeMap<[String; 3], usize> = BTreeMap::new();
        for known in &self.findings {
            *left.entry([known.path.clone(), known.code.clone(), known.symbol.clone()]).or_default() += known.count;
        }
        let before = findings.len();
        findings.retain(|finding| {
            match left.get_mut(&[finding.path.clone(), finding.code.clone(), finding.symbol.clone()]) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    false
                }
                _ => true,
            }
        });
        let gone = left.iter().filter(|([_, code, _], count)| **count > 0 && ran(code)).count();
        Compared { known: before - findings.len(), gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn known_findings_are_left_out_and_gone_ones_counted() {
        let all = sample::report().findings;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("baseline.json");
        Baseline::new(&all).write(&path).expect("written");
        let baseline = Baseline::read(&path).expect("read");

        let mut findings = all.clone();
        findings.iter_mut().for_each(|finding| finding.line += 3);
        findings.push(all[0].clone());
        let compared = baseline.apply(&mut findings, |_| true);
        assert_eq!((findings.len(), compared), (1, Compared { known: all.len(), gone: 0 }));

        let mut findings = all[1..].to_vec();
        assert_eq!(baseline.apply(&mut findings, |_| true).gone, 1);
        let mut findings = all[1..].to_vec();
        assert_eq!(baseline.apply(&mut findings, |code| code != all[0].code).gone, 0);
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.json");
        for text in ["", "{}", "{\"schema\": 2, \"findings\": []}"] {
            std::fs::write(&path, text).expect("a file");
            assert!(Baseline::read(&path).is_err(), "{text}");
        }
    }
}
