//! Markdown: job summaries, pull request comments and issue reports.

use std::io::{self, Write};

use super::excerpt::Place;
use super::markup::escape;
use super::style::{printable, printable_lines};
use super::{Report, Style, View, text};
use crate::finding::Severity;

/// Findings beyond this are counted, not shown: a job summary is cut off at one megabyte.
const SHOWN: usize = 200;

/// Writes a heading, the environment, and one section per finding.
pub fn write(report: &Report, view: &dyn View, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### fa-doctor: {}\n", report.headline())?;
    environment(report, out)?;
    // A summary that is cut off must not lose the errors.
    let mut sorted: Vec<_> = report.findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in sorted.into_iter().take(SHOWN) {
        let title = format!("{} {} {}", finding.severity.as_str(), finding.code, finding.name);
        let place = match Place::of(finding).is_file() {
            true => finding.path.clone(),
            false => format!("{}:{}", finding.path, finding.line),
        };
        let open = if finding.severity == Severity::Error { " open" } else { "" };
        // A line end would end the summary.
        let (title, place) = (escape(&printable(&title)), escape(&printable(&place)));
        writeln!(out, "<details{open}><summary><b>{title}</b> <code>{place}</code></summary>\n")?;
        let mut block = Vec::new();
        text::finding_block(finding, view, Style::PLAIN, &mut block)?;
        fenced(&String::from_utf8_lossy(&block), out)?;
        writeln!(out, "</details>\n")?;
    }
    if report.findings.len() > SHOWN {
        writeln!(out, "{} more findings are not shown here.\n", report.findings.len() - SHOWN)?;
    }
    if !report.incomplete.is_empty() {
        writeln!(out, "Not checked:\n")?;
        for gap in &report.incomplete {
            writeln!(out, "- {}: {}", code(&gap.path), code(&gap.reason))?;
        }
        writeln!(out)?;
    }
    for note in &report.notes {
        writeln!(out, "Note: {}\n", code(note))?;
    }
    Ok(())
}

/// What was looked at, as a table.
fn environment(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let environment = &report.environment;
    writeln!(out, "| | |\n|---|---|")?;
    let list = |items: &[String]| items.iter().map(|item| code(item)).collect::<Vec<_>>().join("<br>");
    writeln!(out, "| environment | {} |", list(&environment.roots))?;
    if let Some(python) = &environment.python {
        writeln!(out, "| Python | {} |", code(python))?;
    }
    if !environment.arch.is_empty() {
        writeln!(out, "| architecture | {} |", list(&environment.arch))?;
    }
    let packages = text::packages(report);
    if !packages.is_empty() {
        writeln!(out, "| packages | {} |", packages.iter().map(|p| code(p)).collect::<Vec<_>>().join(", "))?;
    }
    let tool = &report.tool;
    writeln!(out, "| checked with | {} {}, {} files |\n", tool.name, tool.version, report.summary.files)
}

/// Text in a code block, whatever backticks it holds.
pub fn fenced(text: &str, out: &mut dyn Write) -> io::Result<()> {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    writeln!(out, "{fence}text\n{}\n{fence}\n", printable_lines(text.trim_end()))
}

/// Text as inline code, whatever backticks or pipes it holds: nothing in it is markup or mentions anybody.
pub fn code(text: &str) -> String {
    let text = printable(&text.replace('\n', " ")).replace('|', "\\|");
    let fence = "`".repeat(longest_run(&text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') || text.is_empty() { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn summary() {
        insta::assert_snapshot!(sample::render(write));
    }

    #[test]
    fn code_is_only_code() {
        assert_eq!(code("a|b"), "`a\\|b`");
        assert_eq!(code("`x`"), "`` `x` ``");
        assert_eq!(code("@someone"), "`@someone`");
        let mut out = Vec::new();
        fenced("````\nx", &mut out).expect("writing into memory");
        assert_eq!(String::from_utf8_lossy(&out), "`````text\n````\nx\n`````\n\n");
    }
}
