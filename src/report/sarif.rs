//! SARIF 2.1.0, as code scanning services read it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::excerpt::line_and_column;
use super::{Report, View};
use crate::environment::RootId;
use crate::finding::{Applicability, Edit, Finding, Related, Severity};
use crate::rules::{RuleInfo, registry};

/// Results in one run: GitHub shows the first 5,000 of each and drops the rest.
const RESULTS_PER_RUN: usize = 5_000;
/// Related places of one result; GitHub keeps 1,000 locations.
const RELATED: usize = 100;

/// Writes a log with one run, or with several where there are too many results for one.
pub fn write(report: &Report, view: &dyn View, out: &mut dyn Write) -> io::Result<()> {
    let rules = rules(report);
    let prints = fingerprints(&report.findings);
    let results: Vec<Value> =
        report.findings.iter().zip(prints).map(|(finding, print)| result(finding, print, &rules, view)).collect();
    let parts: Vec<&[Value]> = if results.is_empty() { vec![&[]] } else { results.chunks(RESULTS_PER_RUN).collect() };
    let runs: Vec<Value> = parts.iter().enumerate().map(|(part, results)| run(report, &rules, part, results)).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": runs,
    });
    serde_json::to_writer_pretty(&mut *out, &log)?;
    writeln!(out)
}

fn run(report: &Report, rules: &[Rule], part: usize, results: &[Value]) -> Value {
    let notifications: Vec<Value> = report
        .incomplete
        .iter()
        .map(|gap| {
            json!({
                "level": "warning",
                "message": {"text": format!("not checked: {}", gap.reason)},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(&gap.path)}}}],
            })
        })
        .collect();
    let packages: Vec<Value> =
        report.environment.packages.iter().map(|p| json!(format!("{}=={}", p.name, p.version))).collect();
    json!({
        "tool": {"driver": {
            "name": report.tool.name,
            "version": report.tool.version,
            "semanticVersion": report.tool.version,
            "rules": rules.iter().map(Rule::descriptor).collect::<Vec<_>>(),
        }},
        // Runs of one tool in one upload must differ in their category.
        "automationDetails": {"id": if part == 0 { "fa-doctor/".to_owned() } else { format!("fa-doctor-{}/", part + 1) }},
        "invocations": [{"executionSuccessful": true, "toolExecutionNotifications": notifications}],
        "columnKind": "unicodeCodePoints",
        "properties": {
            "roots": report.environment.roots,
            "python": report.environment.python,
            "arch": report.environment.arch,
            "packages": packages,
        },
        "results": results,
    })
}

/// A rule that some finding names: described where this fa-doctor knows it (a merged report may come from a newer one).
struct Rule {
    code: String,
    name: String,
    info: Option<&'static RuleInfo>,
}

impl Rule {
    fn descriptor(&self) -> Value {
        let summary = self.info.map_or(self.name.as_str(), |info| info.summary);
        let docs = self.info.map(RuleInfo::docs).unwrap_or_else(|| summary.to_owned());
        json!({
            "id": self.code,
            "name": self.name,
            "shortDescription": {"text": summary},
            "help": {"text": docs, "markdown": docs},
            "properties": {"tags": ["attention"]},
        })
    }
}

fn rules(report: &Report) -> Vec<Rule> {
    let used: BTreeMap<&str, &str> = report.findings.iter().map(|f| (f.code.as_str(), f.name.as_str())).collect();
    let info = |code: &str| registry::all().iter().map(|rule| rule.info()).find(|info| info.code == code);
    used.into_iter().map(|(code, name)| Rule { code: code.into(), name: name.into(), info: info(code) }).collect()
}

fn result(finding: &Finding, fingerprint: String, rules: &[Rule], view: &dyn View) -> Value {
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    };
    let message = match &finding.help {
        Some(help) => format!("{}\n{help}", finding.message),
        None => finding.message.clone(),
    };
    let here = json!({"physicalLocation": {
        "artifactLocation": {"uri": uri(&view.place(finding.root, &finding.path))},
        "region": {
            "startLine": finding.line, "startColumn": finding.column,
            "endLine": finding.end_line.max(finding.line), "endColumn": finding.end_column.max(1),
        },
    }});
    let related: Vec<Value> = finding.related.iter().take(RELATED).map(|place| location(place, view)).collect();
    let mut value = json!({
        "ruleId": finding.code,
        "ruleIndex": rules.iter().position(|rule| rule.code == finding.code),
        "level": level,
        "message": {"text": message},
        "locations": [here],
        "partialFingerprints": {"primaryLocationLineHash": fingerprint.clone(), "faDoctor/v1": fingerprint},
        "properties": {
            "symbol": finding.symbol, "arch": finding.arch,
            "package": finding.package, "version": finding.version,
        },
    });
    if !related.is_empty() {
        let mut step = here;
        step["message"] = json!({"text": finding.message});
        let steps: Vec<Value> = related.iter().cloned().chain([step]).map(|place| json!({"location": place})).collect();
        value["codeFlows"] = json!([{"threadFlows": [{"locations": steps}]}]);
        value["relatedLocations"] = Value::Array(related);
    }
    if let Some(fix) =
        finding.fix.as_ref().filter(|fix| fix.applicability != Applicability::Manual && !fix.edits.is_empty())
    {
        let mut files: BTreeMap<(RootId, &str), Vec<Value>> = BTreeMap::new();
        for edit in &fix.edits {
            files.entry((edit.root, &edit.path)).or_default().push(replacement(edit, view));
        }
        let changes: Vec<Value> = files
            .into_iter()
            .map(|((root, path), replacements)| {
                json!({"artifactLocation": {"uri": uri(&view.place(root, path))}, "replacements": replacements})
            })
            .collect();
        value["fixes"] = json!([{"description": {"text": fix.title}, "artifactChanges": changes}]);
    }
    value
}

fn location(place: &Related, view: &dyn View) -> Value {
    json!({
        "physicalLocation": {
            "artifactLocation": {"uri": uri(&view.place(place.root, &place.path))},
            "region": {"startLine": place.line},
        },
        "message": {"text": place.message},
    })
}

/// An edit, in lines and columns where the source is at hand, else in bytes.
fn replacement(edit: &Edit, view: &dyn View) -> Value {
    let region = view.source(edit.root, &edit.path).and_then(|source| {
        let (start_line, start_column) = line_and_column(&source, edit.start)?;
        let (end_line, end_column) = line_and_column(&source, edit.end)?;
        Some(json!({
            "startLine": start_line, "startColumn": start_column, "endLine": end_line, "endColumn": end_column,
        }))
    });
    let region = region.unwrap_or_else(|| json!({"byteOffset": edit.start, "byteLength": edit.end - edit.start}));
    json!({"deletedRegion": region, "insertedContent": {"text": edit.content}})
}

/// What stays the same when lines move: code, path, symbol, and a number where these are equal.
pub fn fingerprints(findings: &[Finding]) -> Vec<String> {
    let mut seen: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
    let mut prints = Vec::with_capacity(findings.len());
    for finding in findings {
        let count = seen.entry((&finding.code, &finding.path, &finding.symbol)).or_default();
        *count += 1;
        let digest = Sha256::digest(format!("{}\0{}\0{}", finding.code, finding.path, finding.symbol));
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        prints.push(format!("{hex}:{count}"));
    }
    prints
}

/// A path as a URI reference: absolute ones as `file:`, everything outside the unreserved set escaped.
fn uri(path: &str) -> String {
    let path = path.replace('\\', "/");
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b'+' => {
                escaped.push(char::from(byte))
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    match escaped.strip_prefix('/') {
        Some(rest) => format!("file:///{rest}"),
        // A drive letter of Windows: the colon was escaped above.
        None if escaped.get(1..4) == Some("%3A") => format!("file:///{}", escaped.replacen("%3A", ":", 1)),
        None => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn log() {
        let mut log: Value = serde_json::from_str(&sample::render(write)).expect("JSON");
        for rule in log["runs"][0]["tool"]["driver"]["rules"].as_array_mut().expect("rules") {
            // The documentation of the rules is tested where it is written.
            assert!(rule["help"]["markdown"].is_string() && rule["shortDescription"]["text"].is_string());
            rule["help"] = Value::Null;
            rule["shortDescription"] = Value::Null;
        }
        insta::assert_snapshot!(serde_json::to_string_pretty(&log).expect("JSON"));
    }

    #[test]
    fn fingerprints_survive_line_shifts_and_tell_equal_symbols_apart() {
        let mut findings = sample::report().findings;
        let before = fingerprints(&findings);
        for finding in &mut findings {
            finding.line += 7;
            finding.end_line += 7;
        }
        assert_eq!(fingerprints(&findings), before);
        let twice = [findings[0].clone(), findings[0].clone()];
        let [first, second] = fingerprints(&twice).try_into().expect("two");
        assert_ne!(first, second);
    }

    #[test]
    fn many_results_become_several_runs() {
        let mut report = sample::report();
        report.findings = vec![report.findings[0].clone(); RESULTS_PER_RUN + 1];
        let mut out = Vec::new();
        write(&report, &super::super::NoSources, &mut out).expect("writing into memory");
        let log: Value = serde_json::from_slice(&out).expect("JSON");
        let runs = log["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 2);
        assert_ne!(runs[0]["automationDetails"], runs[1]["automationDetails"]);
        assert_eq!(runs[1]["results"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("a b/c%.py"), "a%20b/c%25.py");
        assert_eq!(uri("/opt/ü.py"), "file:///opt/%C3%BC.py");
        assert_eq!(uri("C:\\x\\y.py"), "file:///C:/x/y.py");
    }
}
