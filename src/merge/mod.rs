//! Many nodes, one report: JSON results of scan, probe and smoke, grouped by what the nodes have in common.

pub mod nodes;
mod result;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::finding::Severity;
use crate::report::Tool;
pub use result::{MergeError, NodeResult};

/// The merged report; field order and names are its JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// 1.
    pub schema: u32,
    /// Which fa-doctor merged.
    pub tool: Tool,
    /// Every node, sorted by name.
    pub nodes: Vec<Node>,
    /// What is not the same everywhere.
    pub differences: Vec<Difference>,
    /// What is wrong, the worst and most frequent first.
    pub causes: Vec<Cause>,
}

/// A node and how it fared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// From the name of its files.
    pub name: String,
    /// The whole of its results.
    pub status: NodeStatus,
}

/// How a node fared; the greater the worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// Nothing is wrong.
    Clean,
    /// Something could not be checked.
    Unchecked,
    /// Something is wrong.
    Failing,
}

/// A fact that differs between nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `vllm`, `Python`, `GPU`, ..
    pub what: String,
    /// The most frequent value first.
    pub values: Vec<Value>,
}

/// One value of a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Value {
    /// The value; null where it is absent.
    pub value: Option<String>,
    /// The nodes that have it.
    pub nodes: Vec<String>,
}

/// One thing that is wrong, on all its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// `scan`, `probe` or `smoke`.
    pub source: &'static str,
    /// How bad it is; null for what could not be checked.
    pub severity: Option<Severity>,
    /// `FA001`, the stage of smoke, the verdict of probe.
    pub code: String,
    /// Where, if there is a place.
    pub place: Option<String>,
    /// The message of the first node.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// The nodes that have it, sorted.
    pub nodes: Vec<String>,
}

/// What makes two nodes' problems the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    source: &'static str,
    severity: Option<Severity>,
    code: String,
    place: Option<String>,
    what: String,
}

/// Merges the results of files; each file's text may come from anywhere.
pub fn merge<'a>(files: impl IntoIterator<Item = (&'a Path, String)>) -> Result<Merged, MergeError> {
    let mut statuses: BTreeMap<String, NodeStatus> = BTreeMap::new();
    let mut facts: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut scanned: BTreeSet<String> = BTreeSet::new();
    let mut causes: BTreeMap<Key, (Cause, BTreeSet<String>)> = BTreeMap::new();
    for (path, text) in files {
        let name = nodes::name_of(path);
        let result = NodeResult::parse(path, &text)?;
        if result.is_scan {
            scanned.insert(name.clone());
        }
        for (what, value) in result.facts {
            facts.entry(what).or_default().insert(name.clone(), value);
        }
        let status = statuses.entry(name.clone()).or_insert(NodeStatus::Clean);
        for problem in result.problems {
            *status = (*status).max(match problem.severity {
                Some(Severity::Error) => NodeStatus::Failing,
                None => NodeStatus::Unchecked,
                Some(_) => NodeStatus::Clean,
            });
            let key = Key {
                source: problem.source,
                severity: problem.severity,
                code: problem.code.clone(),
                place: problem.place.clone(),
                what: without_numbers(problem.symbol.as_deref().unwrap_or(&problem.message)),
            };
            let cause = || Cause {
                source: problem.source,
                severity: problem.severity,
                code: problem.code,
                place: problem.place.map(|place| problem.line.map_or(place.clone(), |line| format!("{place}:{line}"))),
                message: problem.message,
                help: problem.help,
                nodes: Vec::new(),
            };
            causes.entry(key).or_insert_with(|| (cause(), BTreeSet::new())).1.insert(name.clone());
        }
    }
    let mut causes: Vec<Cause> =
        causes.into_values().map(|(cause, nodes)| Cause { nodes: nodes.into_iter().collect(), ..cause }).collect();
    let rank = |severity: Option<Severity>| match severity {
        Some(Severity::Error) => 0,
        None => 1,
        Some(Severity::Warning) => 2,
        Some(Severity::Info) => 3,
    };
    causes.sort_by_key(|cause| (rank(cause.severity), std::cmp::Reverse(cause.nodes.len())));
    let differences = differences(&facts, &statuses, &scanned);
    let tool = Tool { name: env!("CARGO_PKG_NAME").to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let nodes = statuses.into_iter().map(|(name, status)| Node { name, status }).collect();
    Ok(Merged { schema: 1, tool, nodes, differences, causes })
}

impl Merged {
    /// How many nodes fared so.
    pub fn count(&self, status: NodeStatus) -> usize {
        self.nodes.iter().filter(|node| node.status == status).count()
    }
}

/// Facts with more than one value. A package that only some scanned nodes have differs too.
fn differences(
    facts: &BTreeMap<String, BTreeMap<String, String>>,
    statuses: &BTreeMap<String, NodeStatus>,
    scanned: &BTreeSet<String>,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (what, by_node) in facts {
        let mut values: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
        for node in statuses.keys() {
            let value = by_node.get(node).map(String::as_str);
            if value.is_some() || scanned.contains(node) && result::of_scan(what) {
                values.entry(value).or_default().push(node.clone());
            }
        }
        if values.len() > 1 {
            let value = |(value, nodes): (Option<&str>, _)| Value { value: value.map(str::to_owned), nodes };
            let mut values: Vec<Value> = values.into_iter().map(value).collect();
            values.sort_by_key(|value| std::cmp::Reverse(value.nodes.len()));
            differences.push(Difference { what: what.clone(), values });
        }
    }
    differences
}

/// Amounts of memory, process numbers and times must not make one cause into many.
fn without_numbers(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '0'..='9' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            c => shape.push(c),
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn scan(change: impl Fn(&mut crate::report::Report)) -> String {
        let mut report = sample::report();
        report.findings.clear();
        report.incomplete.clear();
        change(&mut report);
        serde_json::to_string(&report).expect("JSON")
    }

    #[test]
    fn a_thousand_nodes_become_a_few_lines() {
        let smoke = |free: usize| {
            format!(
                r#"{{"schema": 1, "device": {{"name": "GPU X", "arch": "sm_120", "driver": "13.0"}}, "stages":
                [{{"name": "memory", "verdict": "fail", "message": "{free} bytes are free, too few", "advice": "stop other jobs"}}],
                "cases": [], "backends": []}}"#
            )
        };
        let mut files = Vec::new();
        for node in 0..1000 {
            let text = scan(|report| {
                if node % 100 == 7 {
                    report.findings = sample::report().findings;
                    report.environment.packages[2].version = "0.98.0".into();
                }
                if node == 500 {
                    report.environment.packages.remove(1);
                }
            });
            files.push((format!("results/node-{node:04}.scan.json"), text));
            if (20..23).contains(&node) {
                files.push((format!("results/node-{node:04}.smoke.json"), smoke(node * 977)));
            }
        }
        let merged = merge(files.iter().map(|(name, text)| (Path::new(name), text.clone()))).expect("merged");
        assert_eq!(merged.nodes.len(), 1000);
        assert_eq!(merged.count(NodeStatus::Failing), 13);
        assert_eq!(merged.count(NodeStatus::Clean), 987);
        let packages: Vec<_> = merged.differences.iter().map(|difference| difference.what.as_str()).collect();
        assert_eq!(packages, ["torch", "vllm"]);
        assert_eq!(merged.differences[0].values[1].value, None);
        assert_eq!(merged.differences[1].values[1].nodes.len(), 10);
        let memory: Vec<_> = merged.causes.iter().filter(|cause| cause.source == "smoke").collect();
        assert_eq!(memory.len(), 1);
        assert_eq!(memory[0].nodes, ["node-0020", "node-0021", "node-0022"]);
        let findings = merged.causes.iter().filter(|cause| cause.source == "scan").count();
        assert_eq!(findings, sample::report().findings.len());
        assert_eq!(merged.causes[0].nodes.len(), 10);
    }

    #[test]
    fn what_could_not_be_checked_is_no_failure() {
        let text = scan(|report| report.incomplete = sample::report().incomplete);
        let merged = merge([(Path::new("a.json"), text)]).expect("merged");
        assert_eq!(merged.nodes, [Node { name: "a".into(), status: NodeStatus::Unchecked }]);
        assert_eq!(merged.causes[0].severity, None);
    }
}
