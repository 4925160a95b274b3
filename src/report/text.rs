//! For people: the source with the place marked, the reason, the places that explain it, what to do, and a summary.

use std::io::{self, Write};
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::excerpt::{Excerpt, Place};
use super::style::{printable, printable_lines, wrap, wrap_after, wrap_help};
use super::{Package, Report, Style, Summary, View, count};
use crate::finding::{Applicability, Finding, Fix, Related, Severity};

/// Room that a note beside its line needs for the gutter and the code before the mark.
const BESIDE: usize = 32;
/// So many packages are listed in full.
const FEW: usize = 8;
/// A space at which no line is broken.
const NO_BREAK: &str = "\u{a0}";
/// Cells that stand before the text of a `note:` or `help:` line: the gutter and the word.
const INDENT: usize = 15;

/// Writes the report for people.
pub fn write(report: &Report, view: &dyn View, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let brief = |finding: &Finding| {
        finding.severity == Severity::Info && !report.in_full && !report.fail_on.includes(Severity::Info)
    };
    // What is merely good to know comes first and short: it is the end that people see.
    let mut first: Vec<(&Finding, usize)> = Vec::new();
    for finding in report.findings.iter().filter(|finding| brief(finding)) {
        let alike = |(other, _): &&mut (&Finding, usize)| {
            other.code == finding.code && other.root == finding.root && other.path == finding.path
        };
        match first.iter_mut().find(alike) {
            Some((_, more)) => *more += 1,
            None => first.push((finding, 0)),
        }
    }
    let shortened = !first.is_empty();
    for (finding, more) in first {
        let path = printable(&view.place(finding.root, &finding.path));
        let group = titled(finding, style).element(origin(path, finding.line));
        writeln!(out, "{}", renderer(style).render(&[group]))?;
        if more > 0 {
            writeln!(out, "    and {more} more of the kind in this file")?;
        }
    }
    if shortened {
        writeln!(out)?;
    }
    for finding in report.findings.iter().filter(|finding| !brief(finding)) {
        finding_block(finding, view, style, out)?;
        writeln!(out)?;
    }
    for gap in &report.incomplete {
        let text = printable(&format!("{}: {}", gap.path, gap.reason));
        writeln!(out, "{}", wrap_after("not checked:", &style.caution("not checked:"), &text, style.width))?;
    }
    if !report.incomplete.is_empty() {
        writeln!(out)?;
    }
    for note in &report.notes {
        writeln!(out, "{}", wrap_after("note:", &style.bold("note:"), &printable(note), style.width))?;
    }
    if shortened {
        let text = "findings of severity info are shortened; --verbose shows them in full";
        writeln!(out, "{}", wrap_after("note:", &style.bold("note:"), text, style.width))?;
    }
    if shortened || !report.notes.is_empty() {
        writeln!(out)?;
    }
    summary(report, style, out)
}

/// One finding: excerpt, related places, help.
pub(super) fn finding_block(finding: &Finding, view: &dyn View, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut group = titled(finding, style);
    let (beside, below): (Vec<_>, Vec<_>) =
        notes(finding).into_iter().partition(|note| note.fits_beside(finding, style));
    group = primary(group, finding, &beside, view);
    for note in &below {
        let message = wrap(&printable_lines(&note.text), style.width.saturating_sub(INDENT)).join("\n");
        group = elsewhere(group.element(Level::NOTE.message(message)), note.place, finding, view);
    }
    let on = (!finding.arch.is_empty()).then(|| finding.arch.join(", "));
    for (label, text) in [("on", on), ("fix", finding.fix.as_ref().map(fix_line)), ("help", finding.help.clone())] {
        if let Some(text) = text {
            let message = wrap_help(&printable_lines(&text), style.width.saturating_sub(INDENT)).join("\n");
            group = group.element(Level::HELP.with_name(label).message(message));
        }
    }
    writeln!(out, "{}", renderer(style).render(&[group]))
}

fn renderer(style: Style) -> Renderer {
    let renderer = if style.color { Renderer::styled() } else { Renderer::plain() };
    renderer.term_width(style.width)
}

/// The first lines of a finding: severity, code, message.
fn titled<'a>(finding: &Finding, style: Style) -> Group<'a> {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Info => Level::INFO,
    };
    let label = format!("{}[{}]: ", finding.severity.as_str(), finding.code).len();
    let title = wrap(&printable_lines(&finding.message), style.width.saturating_sub(label)).join("\n");
    Group::with_title(level.primary_title(title).id(finding.code.clone()))
}

/// A related place, with the other lines of its file that have the same to say.
struct Note<'f> {
    place: &'f Related,
    text: String,
}

impl Note<'_> {
    /// Whether it can be said beside a mark in the excerpt of the finding itself.
    fn fits_beside(&self, finding: &Finding, style: Style) -> bool {
        let same_file = self.place.root == finding.root && self.place.path == finding.path;
        same_file && self.place.line != finding.line && self.text.len() + BESIDE <= style.width
    }
}

/// Related places; those with the same thing to say in the same file are one note.
fn notes(finding: &Finding) -> Vec<Note<'_>> {
    let mut groups: Vec<(&Related, Vec<u32>)> = Vec::new();
    for related in &finding.related {
        let same = |(first, _): &&mut (&Related, Vec<u32>)| {
            first.root == related.root && first.path == related.path && first.message == related.message
        };
        match groups.iter_mut().find(same) {
            Some((_, also)) => also.push(related.line),
            None => groups.push((related, Vec::new())),
        }
    }
    let mut notes = Vec::new();
    for (place, mut also) in groups {
        also.sort_unstable();
        let lines = also.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let text = match also.len() {
            0 => place.message.clone(),
            1 => format!("{} (also line {lines})", place.message),
            _ => format!("{} (also lines {lines})", place.message),
        };
        notes.push(Note { place, text });
    }
    notes
}

/// Adds the source at the finding, with the notes of the same file beside their lines.
fn primary<'a>(group: Group<'a>, finding: &Finding, notes: &[Note<'_>], view: &dyn View) -> Group<'a> {
    let path = printable(&view.place(finding.root, &finding.path));
    let place = Place::of(finding);
    let all = notes.iter().map(|note| note.place.line as usize);
    let first = all.clone().min().unwrap_or(usize::MAX).min((place.line as usize).saturating_sub(1));
    let last = all.max().unwrap_or(0).max(place.line.max(place.end_line) as usize + 1);
    let source = if place.is_file() { None } else { view.source(finding.root, &finding.path) };
    let excerpt = source.and_then(|source| Excerpt::new(&source, first, last));
    let Some((excerpt, span)) = excerpt.and_then(|excerpt| excerpt.range(place).map(|span| (excerpt, span))) else {
        return group.element(origin(path, finding.line));
    };
    let context = [place.line.saturating_sub(1), place.line + 1].into_iter().filter_map(|line| excerpt.line(line));
    let mut marks: Vec<_> = context.map(|line| AnnotationKind::Visible.span(line)).collect();
    marks.push(AnnotationKind::Primary.span(span));
    for note in notes {
        if let Some(line) = excerpt.line(note.place.line) {
            let mark = mark(&excerpt, line, finding);
            marks.push(AnnotationKind::Context.span(mark).label(printable(&note.text)));
        }
    }
    group.element(Snippet::source(excerpt.text).line_start(excerpt.first).path(path).annotations(marks))
}

/// Adds the source of a related place in another file; line 1 stands for the file as a whole.
fn elsewhere<'a>(group: Group<'a>, place: &Related, finding: &Finding, view: &dyn View) -> Group<'a> {
    let path = printable(&view.place(place.root, &place.path));
    let line = place.line as usize;
    let source = if line > 1 { view.source(place.root, &place.path) } else { None };
    let excerpt = source.and_then(|source| Excerpt::new(&source, line, line));
    match excerpt.and_then(|excerpt| excerpt.line(place.line).map(|span| (excerpt, span))) {
        Some((excerpt, span)) => {
            let mark = mark(&excerpt, span, finding);
            let annotation = AnnotationKind::Context.span(mark);
            group.element(Snippet::source(excerpt.text).line_start(line).path(path).annotation(annotation))
        }
        None => group.element(origin(path, place.line)),
    }
}

/// What to mark of a line (bytes of the excerpt): what the finding is about, or else how the line begins.
fn mark(excerpt: &Excerpt, line: Range<usize>, finding: &Finding) -> Range<usize> {
    let text = &excerpt.text[line.clone()];
    let beginning = || {
        let word = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        0..word.max(text.chars().next().map_or(0, char::len_utf8))
    };
    let word = mentioned(text, finding).unwrap_or_else(beginning);
    line.start + word.start..line.start + word.end
}

/// A path without source: a library has no lines, a RECORD of a wheel has.
fn origin(path: String, line: u32) -> Origin<'static> {
    if line > 1 { Origin::path(path).line(line as usize) } else { Origin::path(path) }
}

/// Where `line` mentions what the finding is about, the last name of its symbol.
fn mentioned(line: &str, finding: &Finding) -> Option<Range<usize>> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let symbol = finding.symbol.trim_end_matches(|c| !word(c));
    let name = &symbol[symbol.rfind(|c| !word(c)).map_or(0, |at| at + 1)..];
    let whole = |at: &usize| !line[..*at].ends_with(word) && !line[at + name.len()..].starts_with(word);
    let at = line.match_indices(name).map(|(at, _)| at).find(whole)?;
    (!name.is_empty()).then_some(at..at + name.len())
}

/// What `fix` would do, and who decides.
fn fix_line(fix: &Fix) -> String {
    match fix.applicability {
        Applicability::Safe => format!("{} (safe)", fix.title),
        Applicability::Unsafe => format!("{} (a judgement: needs --unsafe)", fix.title),
        Applicability::Manual => format!("{} (by hand)", fix.title),
    }
}

/// What was looked at, and what came of it.
fn summary(report: &Report, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let environment = &report.environment;
    let mut facts = vec![match environment.roots.as_slice() {
        [] => "nothing".to_owned(),
        roots => roots.join(", "),
    }];
    facts.extend(environment.python.as_ref().map(|python| format!("Python {python}")));
    facts.extend((!environment.arch.is_empty()).then(|| environment.arch.join(", ")));
    let mut line = |label: &str, text: &str| {
        let text = wrap_after(label, &style.dim(label), &printable(text), style.width);
        writeln!(out, "{}", text.replace(NO_BREAK, " "))
    };
    line("environment:", &facts.join(" | "))?;
    let packages = packages(report);
    if !packages.is_empty() {
        // A name stays beside its version.
        let packages: Vec<_> = packages.iter().map(|package| package.replace(' ', NO_BREAK)).collect();
        line("packages:   ", &packages.join(", "))?;
    }
    let Summary { files, elapsed_ms, .. } = report.summary;
    let seconds = elapsed_ms as f64 / 1000.0;
    line("read:       ", &format!("{} in {seconds:.2} s", count(files, "source file")))?;
    let headline = report.headline();
    let verdict = match (report.worst(), report.incomplete.is_empty()) {
        (None, true) => style.good(&headline),
        (None, false) => style.caution(&headline),
        (Some(worst), _) => style.severity_color(worst, &headline),
    };
    writeln!(out, "{}       {verdict}", style.dim("found:"))
}

/// The packages that matter most: all if they are few, else those with findings and how many others there are.
pub(super) fn packages(report: &Report) -> Vec<String> {
    let packages = &report.environment.packages;
    let with_findings = |package: &Package| report.findings.iter().any(|f| f.package.as_ref() == Some(&package.name));
    let few = packages.len() <= FEW;
    let named = packages.iter().filter(|package| few || package.stack || with_findings(package));
    let mut named: Vec<_> = named.map(|package| format!("{} {}", package.name, package.version)).collect();
    let others = packages.len() - named.len();
    if others > 0 {
        named.push(if named.is_empty() { count(others, "package") } else { count(others, "other") });
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn at_80_columns() {
        insta::assert_snapshot!(sample::render(|report, view, out| write(report, view, Style::PLAIN, out)));
    }
}
