//! `fa-doctor merge`: which nodes differ, which fail, grouped by cause.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::Status;
use super::args::{GlobalArgs, heading};
use crate::finding::Severity;
use crate::merge::nodes::compress;
use crate::merge::{Cause, Merged, NodeStatus, merge};
use crate::report::style::{printable, printable_lines, wrap_after, wrap_help};
use crate::report::{Style, count, markdown};

/// Arguments of `fa-doctor merge`.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// JSON results of scan, probe and smoke; a node is named by its file: NODE.json, NODE.smoke.json
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = heading::OUTPUT)]
    pub format: MergeFormat,
}

/// How a merged report looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum MergeFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// For job summaries and issues.
    Markdown,
}

/// Merges and reports.
pub fn run(args: &MergeArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let mut files = Vec::with_capacity(args.files.len());
    for path in &args.files {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        files.push((path.as_path(), text));
    }
    let merged = merge(files)?;
    let mut out = std::io::stdout().lock();
    match args.format {
        MergeFormat::Text => text(&merged, Style::stdout(global.color), &mut out)?,
        MergeFormat::Json => writeln!(out, "{}", serde_json::to_string_pretty(&merged)?)?,
        MergeFormat::Markdown => {
            let mut block = Vec::new();
            text(&merged, Style::PLAIN, &mut block)?;
            writeln!(out, "### fa-doctor: {}\n", headline(&merged))?;
            markdown::fenced(&String::from_utf8_lossy(&block), &mut out)?;
        }
    }
    Ok(match (merged.count(NodeStatus::Failing), merged.count(NodeStatus::Unchecked)) {
        (0, 0) => Status::Clean,
        (0, _) => Status::Unchecked,
        _ => Status::Findings,
    }
    .into())
}

/// `1000 nodes: 987 clean, 13 failing`.
fn headline(merged: &Merged) -> String {
    let kinds =
        [(NodeStatus::Clean, "clean"), (NodeStatus::Failing, "failing"), (NodeStatus::Unchecked, "not fully checked")];
    let kinds = kinds.map(|(status, word)| (merged.count(status), word)).into_iter().filter(|(n, _)| *n > 0);
    let kinds: Vec<_> = kinds.map(|(n, word)| format!("{n} {word}")).collect();
    format!("{}: {}", count(merged.nodes.len(), "node"), kinds.join(", "))
}

fn text(merged: &Merged, style: Style, out: &mut dyn Write) -> io::Result<()> {
    for cause in &merged.causes {
        cause_block(cause, style, out)?;
    }
    if !merged.differences.is_empty() {
        writeln!(out, "{}", style.bold("not the same on all nodes"))?;
    }
    for difference in &merged.differences {
        writeln!(out, "  {}", printable(&difference.what))?;
        for (position, value) in difference.values.iter().enumerate() {
            let shown = value.value.as_deref().unwrap_or("not installed");
            let nodes = match position {
                // The majority is everybody else.
                0 if merged.nodes.len() > 2 => count(value.nodes.len(), "node"),
                _ => nodes(&value.nodes),
            };
            let label = format!("    {}:", printable(shown));
            writeln!(out, "{}", wrap_after(&label, &label, &nodes, style.width))?;
        }
    }
    if !merged.differences.is_empty() {
        writeln!(out)?;
    }
    let headline = headline(merged);
    let painted = match (merged.count(NodeStatus::Failing), merged.count(NodeStatus::Unchecked)) {
        (0, 0) => style.good(&headline),
        (0, _) => style.caution(&headline),
        _ => style.severity_color(Severity::Error, &headline),
    };
    writeln!(out, "{painted}")
}

fn cause_block(cause: &Cause, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let label = match cause.severity {
        Some(severity) => style.severity_color(severity, severity.as_str()),
        None => style.caution("unchecked"),
    };
    let width = cause.severity.map_or("unchecked".len(), |severity| severity.as_str().len());
    let title = format!("{}: {}", cause.code, cause.message);
    writeln!(out, "{}", wrap_after(&" ".repeat(width), &label, &printable_lines(&title), style.width))?;
    let place = cause.place.as_deref().map(printable);
    let where_ = [Some(cause.source.to_owned()), place].into_iter().flatten().collect::<Vec<_>>().join(" ");
    writeln!(out, "  {}", style.dim(&where_))?;
    let label = format!("  {}:", count(cause.nodes.len(), "node"));
    writeln!(out, "{}", wrap_after(&label, &style.bold(&label), &nodes(&cause.nodes), style.width))?;
    if let Some(help) = &cause.help {
        let lines = wrap_help(&printable_lines(help), style.width.saturating_sub(8));
        writeln!(out, "{} {}", style.hint("  help:"), lines.join("\n        "))?;
    }
    writeln!(out)
}

/// The nodes in few characters, with room to wrap.
fn nodes(names: &[String]) -> String {
    printable(&compress(names.iter().map(String::as_str)).replace(',', ", "))
}
