//! One JSON result, of scan, probe or smoke, as facts about a node and problems of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::finding::Severity;
use crate::report::Report;

/// Facts that are not packages.
const PYTHON: &str = "Python";
const GPU: &str = "GPU";
const DRIVER: &str = "CUDA driver";

/// A file that is no result.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Not JSON, or not of the right shape.
    #[error("`{}` is not a result of fa-doctor: {source}\nhint: make results with `fa-doctor scan --format json --output NODE.json`", path.display())]
    NotAResult {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A later contract.
    #[error("`{}` has schema {schema}, and this fa-doctor reads schema 1\nhint: install the newest fa-doctor", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        schema: Value,
    },
}

/// What a result says of its node.
#[derive(Debug, Default)]
pub struct NodeResult {
    /// Whether it lists the installed packages.
    pub is_scan: bool,
    /// Versions and the like.
    pub facts: BTreeMap<String, String>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong with a node.
#[derive(Debug)]
pub struct Problem {
    pub(super) source: &'static str,
    pub(super) severity: Option<Severity>,
    pub(super) code: String,
    pub(super) place: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) symbol: Option<String>,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

#[derive(Deserialize)]
struct Smoke {
    device: Option<Device>,
    stages: Vec<Stage>,
    #[serde(default)]
    backends: Vec<Backend>,
}

#[derive(Deserialize)]
struct Device {
    name: String,
    driver: String,
}

#[derive(Deserialize)]
struct Stage {
    name: String,
    verdict: String,
    message: String,
    advice: Option<String>,
    #[serde(default)]
    unchecked: bool,
}

#[derive(Deserialize)]
struct Backend {
    name: String,
    version: Option<String>,
    verdict: String,
    message: String,
}

#[derive(Deserialize)]
struct Probe {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    verdict: String,
    message: String,
    path: Option<String>,
    line: Option<u32>,
}

impl NodeResult {
    /// Reads a result; which kind it is shows in its keys.
    pub fn parse(path: &Path, text: &str) -> Result<NodeResult, MergeError> {
        let not_a_result = |source| MergeError::NotAResult { path: path.to_owned(), source };
        let value: Value = serde_json::from_str(text).map_err(not_a_result)?;
        if !value.is_object() {
            return Err(not_a_result(serde::de::Error::custom("it holds no object")));
        }
        if let Some(schema) = value.get("schema").filter(|schema| **schema != 1) {
            return Err(MergeError::Schema { path: path.to_owned(), schema: schema.clone() });
        }
        let result = if value.get("stages").is_some() {
            serde_json::from_value(value).map(smoke)
        } else if value.get("dsl").is_some() {
            serde_json::from_value(value).map(probe)
        } else {
            serde_json::from_value(value).map(scan)
        };
        result.map_err(not_a_result)
    }
}

/// Whether a fact comes from a scan: a node that was scanned and lacks it does not have the package.
pub fn of_scan(what: &str) -> bool {
    ![PYTHON, GPU, DRIVER].contains(&what)
}

fn scan(report: Report) -> NodeResult {
    let mut facts: BTreeMap<_, _> =
        report.environment.packages.into_iter().map(|package| (package.name, package.version)).collect();
    facts.extend(report.environment.python.map(|python| (PYTHON.to_owned(), python)));
    let findings = report.findings.into_iter().map(|finding| Problem {
        source: "scan",
        severity: Some(finding.severity),
        code: finding.code,
        place: Some(finding.path),
        line: Some(finding.line),
        symbol: Some(finding.symbol),
        message: finding.message,
        help: finding.help,
    });
    let gaps = report.incomplete.into_iter().map(|gap| Problem {
        source: "scan",
        severity: None,
        code: "not checked".to_owned(),
        place: Some(gap.path),
        line: None,
        symbol: None,
        message: gap.reason,
        help: None,
    });
    NodeResult { is_scan: true, facts, problems: findings.chain(gaps).collect() }
}

fn smoke(result: Smoke) -> NodeResult {
    let mut facts = BTreeMap::new();
    if let Some(device) = result.device {
        facts.insert(GPU.to_owned(), device.name);
        facts.insert(DRIVER.to_owned(), device.driver);
    }
    let broken = result.backends.into_iter().filter(|backend| matches!(backend.verdict.as_str(), "wrong" | "raises"));
    let broken: Vec<_> = broken.collect();
    // Packages that fail are told one by one; the stage that sums them up adds what to do.
    let failed = result.stages.into_iter().filter(|stage| stage.verdict == "fail");
    let (sum, failed): (Vec<_>, Vec<_>) = failed.partition(|stage| stage.name == "backends" && !broken.is_empty());
    let advice = sum.into_iter().find_map(|stage| stage.advice);
    let stages = failed.into_iter().map(|stage| Problem {
        source: "smoke",
        severity: (!stage.unchecked).then_some(Severity::Error),
        code: stage.name,
        place: None,
        line: None,
        symbol: None,
        message: stage.message,
        help: stage.advice,
    });
    let backends = broken.into_iter().map(|backend| Problem {
        source: "smoke",
        severity: Some(Severity::Error),
        code: format!("{} {}", backend.name, backend.verdict),
        place: None,
        line: None,
        symbol: backend.version.map(|version| format!("{} {version}", backend.name)),
        message: backend.message,
        help: advice.clone(),
    });
    NodeResult { is_scan: false, facts, problems: stages.chain(backends).collect() }
}

fn probe(result: Probe) -> NodeResult {
    let severity = |verdict: &str| match verdict {
        "defect" | "over-capacity" | "mismatch" => Some(Some(Severity::Error)),
        "not-checked" => Some(None),
        _ => None,
    };
    let problem = |case: Case| {
        Some(Problem {
            source: "probe",
            severity: severity(&case.verdict)?,
            code: case.verdict,
            place: case.path,
            line: case.line,
            symbol: None,
            message: format!("{}: {}", case.name, case.message),
            help: None,
        })
    };
    let problems = result.cases.into_iter().filter_map(problem).collect();
    NodeResult { is_scan: false, facts: BTreeMap::new(), problems }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused_with_their_name() {
        let parse = |text: &str| NodeResult::parse(Path::new("x.json"), text).expect_err(text).to_string();
        for text in ["", "[]", "{}", "{\"schema\": 1}", "{\"stages\": 1}", "{\"dsl\": null}"] {
            assert!(parse(text).starts_with("`x.json` is not a result of fa-doctor"), "{text}");
        }
        assert!(parse("{\"schema\": 2}").starts_with("`x.json` has schema 2"));
    }

    #[test]
    fn a_package_that_fails_is_told_once() {
        let text = r#"{"schema": 1, "device": null, "stages": [
            {"name": "cases", "verdict": "pass", "message": "", "advice": null},
            {"name": "backends", "verdict": "fail", "message": "1 of 2 is wrong", "advice": "replace it"}],
            "backends": [{"name": "fa4", "version": "4.0", "verdict": "wrong", "message": "off by 1"},
            {"name": "fa2", "version": "2.8", "verdict": "right", "message": ""}]}"#;
        let result = NodeResult::parse(Path::new("x"), text).expect("a result");
        let shown: Vec<_> = result.problems.iter().map(|p| (p.code.as_str(), p.help.as_deref())).collect();
        assert_eq!(shown, [("fa4 wrong", Some("replace it"))]);
    }

    #[test]
    fn probe_results() {
        let text = r#"{"schema": 1, "arch": "sm_120", "dsl": "4.6.0", "cases": [
            {"name": "a", "verdict": "compiles", "message": "", "path": null, "line": null},
            {"name": "b", "verdict": "gate", "message": "", "path": null, "line": null},
            {"name": "c", "verdict": "defect", "message": "NameError", "path": "p.py", "line": 3},
            {"name": "d", "verdict": "not-checked", "message": "timeout", "path": null, "line": null}]}"#;
        let result = NodeResult::parse(Path::new("x"), text).expect("a result");
        let shown: Vec<_> = result.problems.iter().map(|p| (p.code.as_str(), p.severity)).collect();
        assert_eq!(shown, [("defect", Some(Severity::Error)), ("not-checked", None)]);
    }
}
