//! A plan as a unified diff that `patch -p1` takes, with what each hunk does in its heading.

use std::fmt::Write as _;
use std::ops::Range;

use similar::{ChangeTag, TextDiff};

use super::engine::{Plan, PlannedFile};
use crate::report::style::{Style, printable};

/// Lines around a change.
const CONTEXT: usize = 3;

/// The diff of every file of a plan.
pub fn render(plan: &Plan, style: Style) -> String {
    let mut out = String::new();
    for ((_, path), file) in &plan.files {
        render_file(&mut out, path, file, plan, style);
    }
    out
}

fn render_file(out: &mut String, path: &str, file: &PlannedFile, plan: &Plan, style: Style) {
    let old = file.before.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let new = String::from_utf8_lossy(&file.after);
    let old_name = if file.before.is_some() { format!("a/{path}") } else { "/dev/null".to_owned() };
    line(out, &style.bold(&format!("--- {old_name}")));
    line(out, &style.bold(&format!("+++ b/{path}")));
    let starts: Vec<usize> =
        std::iter::once(0).chain(memchr::memchr_iter(b'\n', new.as_bytes()).map(|at| at + 1)).collect();
    let line_of = |byte: usize| starts.partition_point(|start| *start <= byte) - 1;

    let diff = TextDiff::configure().newline_terminated(true).diff_lines(old.as_ref(), new.as_ref());
    let mut unified = diff.unified_diff();
    for hunk in unified.context_radius(CONTEXT).iter_hunks() {
        let (Some(first), Some(last)) = (hunk.ops().first(), hunk.ops().last()) else { continue };
        let lines = first.new_range().start..last.new_range().end;
        let header = hunk.header().to_string();
        let heading = format!("{} {}", style.hint(header.trim_end()), titles(plan, file, &lines, &line_of));
        line(out, heading.trim_end());
        for change in hunk.iter_changes() {
            let text = change.value().strip_suffix('\n').unwrap_or(change.value());
            // A terminal gets what is safe to show, a patch what is there.
            let shown = if style.color { printable(text.trim_end_matches('\r')) } else { text.to_owned() };
            line(
                out,
                &match change.tag() {
                    ChangeTag::Equal => format!(" {shown}"),
                    ChangeTag::Delete => style.bad(&format!("-{shown}")),
                    ChangeTag::Insert => style.good(&format!("+{shown}")),
                },
            );
            if !change.value().ends_with('\n') {
                line(out, "\\ No newline at end of file");
            }
        }
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

/// What the fixes do whose text lies in these lines: each once.
fn titles(plan: &Plan, file: &PlannedFile, lines: &Range<usize>, line_of: &dyn Fn(usize) -> usize) -> String {
    let mut titles: Vec<String> = Vec::new();
    for mark in &file.marks {
        if line_of(mark.start) < lines.end && line_of(mark.end) >= lines.start {
            let finding = &plan.applied[mark.fix];
            let title = finding.fix.as_ref().map_or("", |fix| fix.title.as_str());
            let text = format!("{}: {title}", finding.code);
            if !titles.contains(&text) {
                titles.push(text);
            }
        }
    }
    titles.join("; ")
}
