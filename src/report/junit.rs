//! JUnit XML: a test case per finding, failed where the exit code says so.

use std::io::{self, Write};

use super::{Report, View, markup};

/// Writes one test suite.
pub fn write(report: &Report, view: &dyn View, out: &mut dyn Write) -> io::Result<()> {
    let failures = report.findings.iter().filter(|finding| report.fail_on.includes(finding.severity)).count();
    let tests = (report.findings.len() + report.incomplete.len()).max(1);
    let seconds = report.summary.elapsed_ms as f64 / 1000.0;
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{}\"", report.incomplete.len());
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites name=\"fa-doctor\" {counts} time=\"{seconds:.3}\">")?;
    let name = escape(&report.environment.roots.join(", "));
    writeln!(out, "  <testsuite name=\"{name}\" {counts} time=\"{seconds:.3}\">")?;
    for finding in &report.findings {
        let place = view.place(finding.root, &finding.path);
        let name = escape(&format!("{} {}", finding.code, finding.symbol));
        let (class, line) = (escape(&finding.path), finding.line);
        writeln!(
            out,
            "    <testcase name=\"{name}\" classname=\"{class}\" file=\"{}\" line=\"{line}\">",
            escape(&place)
        )?;
        let mut text = format!("{place}:{line}:{}: {}", finding.column, finding.message);
        for related in &finding.related {
            text.push_str(&format!("\n  {}:{}: {}", related.path, related.line, related.message));
        }
        text.extend(finding.help.iter().map(|help| format!("\n{help}")));
        let text = escape(&text);
        if report.fail_on.includes(finding.severity) {
            let message = escape(&finding.message);
            writeln!(out, "      <failure type=\"{}\" message=\"{message}\">{text}</failure>", escape(&finding.code))?;
        } else {
            writeln!(out, "      <system-out>{text}</system-out>")?;
        }
        writeln!(out, "    </testcase>")?;
    }
    for gap in &report.incomplete {
        writeln!(out, "    <testcase name=\"not checked\" classname=\"{}\">", escape(&gap.path))?;
        writeln!(out, "      <error message=\"{}\"/>", escape(&gap.reason))?;
        writeln!(out, "    </testcase>")?;
    }
    if report.findings.is_empty() && report.incomplete.is_empty() {
        writeln!(out, "    <testcase name=\"nothing found\" classname=\"fa-doctor\"/>")?;
    }
    writeln!(out, "  </testsuite>")?;
    writeln!(out, "</testsuites>")
}

/// Escapes text, with line ends that survive in an attribute.
fn escape(text: &str) -> String {
    markup::escape(text).replace('\n', "&#10;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn suite() {
        insta::assert_snapshot!(sample::render(write));
    }

    #[test]
    fn nothing_found_is_one_passed_test() {
        let mut report = sample::report();
        report.findings.clear();
        report.incomplete.clear();
        let mut out = Vec::new();
        write(&report, &sample::Files, &mut out).expect("writing into memory");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.contains("tests=\"1\" failures=\"0\" errors=\"0\""), "{text}");
        assert!(text.contains("nothing found"), "{text}");
    }
}
