//! `fa-doctor explain`: the documentation of one rule, from the rule's own source, or what packs know of a defect.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;

use super::args::GlobalArgs;
use super::{Failure, Status};
use crate::packs::Packs;
use crate::report::Style;
use crate::report::style::wrap;
use crate::rules::registry;

/// Arguments of `fa-doctor explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Code or name of a rule, or of a known defect: FA001, undefined-name, vllm-fa4-sm80-is-split-kv
    #[arg(value_name = "CODE")]
    pub rule: String,
}

/// Prints the documentation of a rule.
pub fn run(args: &ExplainArgs, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let wanted = |text: &str| text.eq_ignore_ascii_case(&args.rule);
    let style = Style::stdout(global.color);
    let info = registry::all().iter().map(|rule| rule.info()).find(|info| wanted(info.code) || wanted(info.name));
    let packs = Packs::embedded();
    let (title, markdown) = match (info, packs.defects.iter().find(|defect| wanted(&defect.id))) {
        (Some(info), _) => (format!("{} {}", info.code, info.name), info.docs()),
        (None, Some(defect)) => (defect.id.clone(), defect.docs()),
        (None, None) => {
            let message = format!("there is no rule or known defect `{}`", args.rule);
            return Err(Failure::new(message, "`fa-doctor rules` lists all of them").into());
        }
    };
    let text = format!("{}\n\n{}", style.bold(&title), render(&markdown, style));
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Status::Clean.into())
}

/// Markdown for a terminal: headings bold, paragraphs and list items wrapped, code as it is.
fn render(markdown: &str, style: Style) -> String {
    let mut out = String::new();
    let mut paragraph = String::new();
    let mut code = false;
    for line in markdown.lines() {
        let fence = line.trim_start().starts_with("```");
        let item = line.starts_with("- ");
        if fence || code || item || line.is_empty() || line.starts_with('#') {
            flush(&mut paragraph, style, &mut out);
        }
        if fence {
            code = !code;
        } else if code {
            out.push_str(&style.dim(&format!("    {line}")));
            out.push('\n');
        } else if line.starts_with('#') {
            out.push_str(&style.bold(line.trim_start_matches('#').trim()));
            out.push('\n');
        } else if line.is_empty() {
            out.push('\n');
        } else {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line.trim());
        }
    }
    flush(&mut paragraph, style, &mut out);
    out
}

/// Writes what has been collected of a paragraph or list item.
fn flush(paragraph: &mut String, style: Style, out: &mut String) {
    if paragraph.is_empty() {
        return;
    }
    let indent = if paragraph.starts_with("- ") { "  " } else { "" };
    let lines = wrap(paragraph, style.width - indent.len());
    out.push_str(&lines.join(&format!("\n{indent}")));
    out.push('\n');
    paragraph.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_readable_text() {
        let markdown =
            "# What\n\nOne long line that\nis two.\n\n```python\nx  =  1\n\n```\n- an item\n- another\n  goes on";
        let text = "What\n\nOne long line that is two.\n\n    x  =  1\n    \n- an item\n- another goes on\n";
        assert_eq!(render(markdown, Style::PLAIN), text);
    }
}
