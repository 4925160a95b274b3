//! One line per finding, `path:line:column: CODE message`: what editors and terminals turn into links.

use std::io::{self, Write};

use super::style::printable;
use super::{Report, Style, View};

/// Writes one line per finding, and one per file that could not be checked.
pub fn write(report: &Report, view: &dyn View, style: Style, out: &mut dyn Write) -> io::Result<()> {
    for finding in &report.findings {
        let place = printable(&view.place(finding.root, &finding.path));
        let message = printable(&finding.message.replace('\n', " "));
        let code = style.severity_color(finding.severity, &finding.code);
        writeln!(out, "{place}:{}:{}: {code} {message}", finding.line, finding.column)?;
    }
    for gap in &report.incomplete {
        writeln!(out, "{}: {} {}", printable(&gap.path), style.caution("not checked:"), printable(&gap.reason))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn sample_report() {
        insta::assert_snapshot!(sample::render(|report, view, out| write(report, view, Style::PLAIN, out)));
    }
}
