//! Annotations of a GitHub Actions log.

use std::io::{self, Write};

use super::style::printable_lines;
use super::{Report, View};
use crate::finding::Severity;

/// Writes one workflow command per finding, the whole result first: GitHub shows only ten annotations of a kind.
pub fn write(report: &Report, view: &dyn View, out: &mut dyn Write) -> io::Result<()> {
    let looked_at = report.environment.roots.join(", ");
    let headline = format!("{} in {looked_at}", report.headline());
    writeln!(out, "::notice title=fa-doctor::{}", data(&headline))?;
    for finding in &report.findings {
        let kind = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "notice",
        };
        let place = property(&view.place(finding.root, &finding.path));
        let title = property(&format!("{} {}", finding.code, finding.name));
        let message = match &finding.help {
            Some(help) => format!("{}\n{help}", finding.message),
            None => finding.message.clone(),
        };
        write!(out, "::{kind} file={place},line={},col={},", finding.line, finding.column)?;
        // GitHub refuses columns on a span of several lines.
        if finding.end_line == finding.line {
            write!(out, "endColumn={},", finding.end_column)?;
        }
        writeln!(out, "endLine={},title={title}::{}", finding.end_line, data(&message))?;
    }
    for gap in &report.incomplete {
        writeln!(out, "::warning file={},title=not checked::{}", property(&gap.path), data(&gap.reason))?;
    }
    Ok(())
}

/// Escapes the text of a workflow command.
fn data(text: &str) -> String {
    printable_lines(&text.replace("\r\n", "\n")).replace('%', "%25").replace('\n', "%0A")
}

/// Escapes the value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn annotations() {
        insta::assert_snapshot!(sample::render(write));
    }

    #[test]
    fn text_cannot_start_another_command() {
        assert_eq!(data("50%\r\n::error::x\r"), "50%25%0A::error::x\u{fffd}");
        assert_eq!(property("a:b,c\n"), "a%3Ab%2Cc%0A");
    }
}
