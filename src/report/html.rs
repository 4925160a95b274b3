//! A page of its own: no script, no request, light and dark, usable with the keyboard alone.

use std::collections::BTreeMap;
use std::io::{self, Write};

use similar::{ChangeTag, TextDiff};

use super::excerpt::{Excerpt, Place};
use super::markup::escape;
use super::{Report, View, count};
use crate::capability::Matrix;
use crate::environment::RootId;
use crate::finding::{Applicability, Edit, Finding, Fix, Severity};
use crate::fix::apply::apply;
use crate::native::coverage::Verdict;
use crate::native::table::{Cell, Row};

/// The style sheet.
const CSS: &str = include_str!("html.css");
/// With more errors than this, or with more findings where they are no errors, all start closed.
const OPEN: usize = 20;

/// Writes the page.
pub fn write(report: &Report, view: &dyn View, out: &mut dyn Write) -> io::Result<()> {
    let headline = report.headline();
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>fa-doctor: {}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#findings\">Skip to the findings</a>\n",
        escape(&headline)
    )?;
    let code = view.device_code();
    header(report, &headline, !code.is_empty(), out)?;
    findings(report, view, out)?;
    incomplete(report, out)?;
    gates(report, out)?;
    device_code(&code, out)?;
    capabilities(&report.capabilities, out)?;
    packages(report, out)?;
    let tool = &report.tool;
    writeln!(
        out,
        "<footer>{} {}, {} in {:.2} s. Nothing on this page was loaded from elsewhere.</footer>\n</body>\n</html>",
        escape(&tool.name),
        escape(&tool.version),
        count(report.summary.files, "source file"),
        report.summary.elapsed_ms as f64 / 1000.0
    )
}

/// What was looked at, what came of it, and where on the page things are.
fn header(report: &Report, headline: &str, code: bool, out: &mut dyn Write) -> io::Result<()> {
    let class = match report.worst() {
        None if report.incomplete.is_empty() => "good",
        None => "warning",
        Some(severity) => severity.as_str(),
    };
    writeln!(out, "<header>\n<h1>fa-doctor</h1>\n<p class=\"verdict {class}\"><b>{}</b></p>", escape(headline))?;
    let environment = &report.environment;
    writeln!(out, "<table>")?;
    let mut row = |name: &str, values: &[String]| -> io::Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        let values: Vec<_> = values.iter().map(|value| format!("<code>{}</code>", escape(value))).collect();
        writeln!(out, "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>", values.join("<br>"))
    };
    row("Environment", &environment.roots)?;
    row("Python", environment.python.as_slice())?;
    row("Architecture", &environment.arch)?;
    let stack = environment.packages.iter().filter(|package| package.stack);
    row("Attention stack", &stack.map(|p| format!("{} {}", p.name, p.version)).collect::<Vec<_>>())?;
    writeln!(out, "</table>")?;
    for note in &report.notes {
        writeln!(out, "<p class=\"quiet\">{}</p>", escape(note))?;
    }
    writeln!(out, "<nav aria-label=\"On this page\">")?;
    let sections = [
        (true, "findings", "Findings"),
        (!report.incomplete.is_empty(), "incomplete", "Not checked"),
        (!gate_chain(report).is_empty(), "gates", "Architecture gates"),
        (code, "device-code", "Device code"),
        (!report.capabilities.functions.is_empty(), "capabilities", "Capabilities"),
        (!environment.packages.is_empty(), "packages", "Packages"),
    ];
    for (_, id, title) in sections.iter().filter(|(shown, ..)| *shown) {
        writeln!(out, "<a href=\"#{id}\">{title}</a>")?;
    }
    writeln!(out, "</nav>\n</header>")
}

/// Findings that are gates, a file and an architecture at a time; their order in a file is the order in which they are
/// met.
fn gate_chain(report: &Report) -> Vec<&Finding> {
    let mut gates: Vec<_> = report.findings.iter().filter(|finding| finding.name == "arch-gate").collect();
    gates.sort_by_key(|gate| (gate.root, &gate.path, &gate.arch, gate.line));
    gates
}

fn gates(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let gates = gate_chain(report);
    if gates.is_empty() {
        return Ok(());
    }
    writeln!(out, "<section id=\"gates\">\n<h2>Architecture gates, in the order they are met</h2>")?;
    for file in gates.chunk_by(|a, b| (a.root, &a.path) == (b.root, &b.path)) {
        writeln!(out, "<h3><code>{}</code></h3>", escape(file.first().map_or("", |gate| &gate.path)))?;
        for chain in file.chunk_by(|a, b| a.arch == b.arch) {
            let arch = chain.first().map_or(String::new(), |gate| gate.arch.join(", "));
            writeln!(out, "<h4>{}</h4>\n<ul class=\"gates\">", escape(&arch))?;
            for gate in chain {
                writeln!(
                    out,
                    "<li class=\"{kind}\"><b class=\"tag\">{kind}</b> {} <a href=\"#{}\">line {}</a></li>",
                    inline(&gate.message),
                    anchor(report, gate),
                    gate.line,
                    kind = gate.severity.as_str(),
                )?;
            }
            writeln!(out, "</ul>")?;
        }
    }
    writeln!(out, "</section>")
}

/// Which argument is accepted by which installed function.
fn capabilities(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    if matrix.functions.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<section id=\"capabilities\">\n<h2>What the installed functions accept</h2>\n\
         <div class=\"wide\" tabindex=\"0\"><table>\n<tr><th scope=\"col\">argument</th>"
    )?;
    for function in &matrix.functions {
        let name = function.path.rsplit('.').next().unwrap_or(&function.path);
        let version = function.version.as_deref().unwrap_or_default();
        writeln!(
            out,
            "<th scope=\"col\" title=\"{}\">{}<br><code>{}</code><br>{}</th>",
            escape(&function.path),
            escape(&function.title),
            escape(name),
            escape(version)
        )?;
    }
    writeln!(out, "</tr>")?;
    for argument in &matrix.arguments {
        let cells: String = argument
            .accepted
            .iter()
            .map(|accepted| if *accepted { "<td class=\"yes\">yes</td>" } else { "<td class=\"quiet\">no</td>" })
            .collect();
        writeln!(
            out,
            "<tr><th scope=\"row\" title=\"{}\"><code>{}</code></th>{cells}</tr>",
            escape(&argument.consequence),
            escape(&argument.name)
        )?;
    }
    writeln!(out, "</table></div>\n</section>")
}

/// Which library runs on which GPU.
fn device_code(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let heads: String =
        first.devices.iter().map(|cell| format!("<th scope=\"col\">{}</th>", escape(&cell.arch))).collect();
    writeln!(
        out,
        "<section id=\"device-code\">\n<h2>Device code</h2>\n<div class=\"wide\" tabindex=\"0\"><table>\n\
         <tr><th scope=\"col\">library</th>{heads}<th scope=\"col\">built for</th></tr>"
    )?;
    for row in rows {
        let package = match (&row.package, &row.version) {
            (Some(name), Some(version)) => {
                format!("<br><span class=\"quiet\">{} {}</span>", escape(name), escape(version))
            }
            _ => String::new(),
        };
        let cells: String = row.devices.iter().map(cell).collect();
        writeln!(
            out,
            "<tr><th scope=\"row\"><code>{}</code>{package}</th>{cells}<td class=\"quiet\">{}</td></tr>",
            escape(row.path.rsplit('/').next().unwrap_or(&row.path)),
            escape(&row.targets.join(", "))
        )?;
    }
    writeln!(out, "</table></div>\n</section>")
}

/// How a library runs on one GPU: a word, never colour alone.
fn cell(cell: &Cell) -> String {
    let (class, word) = match cell.verdict {
        Verdict::Native => ("yes", "native"),
        Verdict::SameFamily => ("yes", "same family"),
        Verdict::Jit => ("", "compiled by the driver"),
        Verdict::Partial => ("no", "in part"),
        Verdict::None => ("no", "no"),
    };
    let driver = match &cell.driver {
        Some(version) => format!("<br><span class=\"quiet\">CUDA {} driver</span>", escape(version)),
        None => String::new(),
    };
    format!("<td class=\"{class}\">{word}{driver}</td>")
}

/// The id of a finding's section: its position, which the order of the report makes stable.
fn anchor(report: &Report, finding: &Finding) -> String {
    let position = report.findings.iter().position(|other| std::ptr::eq(other, finding)).unwrap_or(0);
    format!("f{}", position + 1)
}

fn findings(report: &Report, view: &dyn View, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<section id=\"findings\">\n<h2>Findings</h2>")?;
    if report.findings.is_empty() {
        let text = if report.incomplete.is_empty() {
            "Nothing was found: what was checked fits together."
        } else {
            "Nothing was found in what could be checked; see below for what could not."
        };
        return writeln!(out, "<p>{text}</p>\n</section>");
    }
    let kinds: Vec<_> = [Severity::Error, Severity::Warning, Severity::Info]
        .into_iter()
        .filter(|severity| report.findings.iter().any(|finding| finding.severity == *severity))
        .collect();
    if kinds.len() > 1 {
        writeln!(out, "<fieldset>\n<legend class=\"skip\">Hide</legend>")?;
        for kind in kinds {
            let name = kind.as_str();
            let plural = if kind == Severity::Info { "" } else { "s" };
            writeln!(out, "<label><input type=\"checkbox\" id=\"hide-{name}\"> hide {name}{plural}</label>")?;
        }
        writeln!(out, "</fieldset>")?;
    }
    // On a page the worst comes first; in a terminal it would scroll away.
    let mut sorted: Vec<_> = report.findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let errors = sorted.iter().take_while(|finding| finding.severity == Severity::Error).count();
    for finding in sorted {
        let few = match finding.severity {
            Severity::Error => errors <= OPEN,
            Severity::Warning => report.findings.len() <= OPEN,
            Severity::Info => false,
        };
        let open = if few { " open" } else { "" };
        writeln!(
            out,
            "<details class=\"finding {kind}\" id=\"{id}\"{open}>\n<summary><span class=\"tag\">{kind} {code}</span> {name} \
             <code class=\"place\">{place}</code><span class=\"message\">{message}</span></summary>\n<div class=\"body\">",
            kind = finding.severity.as_str(),
            id = anchor(report, finding),
            code = escape(&finding.code),
            name = escape(&finding.name),
            place = escape(&place(&finding.path, finding.line, Place::of(finding).is_file())),
            message = inline(&finding.message),
        )?;
        body(finding, view, out)?;
        writeln!(out, "</div>\n</details>")?;
    }
    writeln!(out, "</section>")
}

/// A path with its line, unless the file as a whole is meant.
fn place(path: &str, line: u32, whole: bool) -> String {
    if whole { path.to_owned() } else { format!("{path}:{line}") }
}

fn body(finding: &Finding, view: &dyn View, out: &mut dyn Write) -> io::Result<()> {
    let mut facts: Vec<String> = Vec::new();
    if let (Some(package), Some(version)) = (&finding.package, &finding.version) {
        facts.push(format!("{package} {version}"));
    }
    if !finding.arch.is_empty() {
        facts.push(format!("on {}", finding.arch.join(", ")));
    }
    if !facts.is_empty() {
        writeln!(out, "<p class=\"quiet\">{}</p>", escape(&facts.join(" | ")))?;
    }
    let span = Place::of(finding);
    let source = if span.is_file() { None } else { view.source(finding.root, &finding.path) };
    if let Some(excerpt) = source.as_deref().and_then(|source| Excerpt::around(source, span, 3)) {
        code(&excerpt, Some(span), finding.line, out)?;
    }
    for related in &finding.related {
        let at = place(&related.path, related.line, related.line <= 1);
        writeln!(out, "<h3>{} <code class=\"quiet\">{}</code></h3>", inline(&related.message), escape(&at))?;
        // Line 1 stands for the file as a whole.
        let source = if related.line > 1 { view.source(related.root, &related.path) } else { None };
        let line = related.line as usize;
        if let Some(excerpt) = source.and_then(|source| Excerpt::new(&source, line.saturating_sub(1), line + 1)) {
            code(&excerpt, None, related.line, out)?;
        }
    }
    if let Some(fix) = &finding.fix {
        repair(fix, view, out)?;
    }
    if let Some(help) = &finding.help {
        writeln!(out, "<p class=\"help\">{}</p>", inline(help))?;
    }
    Ok(())
}

/// Source lines with numbers; the place marked, its line tinted.
fn code(excerpt: &Excerpt, place: Option<Place>, hit: u32, out: &mut dyn Write) -> io::Result<()> {
    let mark = place.and_then(|place| excerpt.range(place)).filter(|mark| !mark.is_empty());
    write!(out, "<pre tabindex=\"0\">")?;
    let mut start = 0;
    for (number, line) in excerpt.lines() {
        let class = if number == hit as usize { "l hit" } else { "l" };
        let end = start + line.len();
        write!(out, "<span class=\"{class}\"><span class=\"n\">{number}</span>")?;
        match mark.as_ref().map(|mark| (mark.start.clamp(start, end), mark.end.clamp(start, end))) {
            Some((from, to)) if from < to => write!(
                out,
                "{}<mark>{}</mark>{}",
                escape(&line[..from - start]),
                escape(&line[from - start..to - start]),
                escape(&line[to - start..])
            )?,
            _ => write!(out, "{}", escape(line))?,
        }
        write!(out, "</span>")?;
        start = end + 1;
    }
    writeln!(out, "</pre>")
}

/// What the fix does, with its diff where the source is at hand.
fn repair(fix: &Fix, view: &dyn View, out: &mut dyn Write) -> io::Result<()> {
    let who = match fix.applicability {
        Applicability::Safe => "safe: <code>fa-doctor fix --write</code> applies it",
        Applicability::Unsafe => "a judgement: <code>fa-doctor fix --write --unsafe</code> applies it",
        Applicability::Manual => "by hand",
    };
    writeln!(out, "<h3>Fix: {} <span class=\"quiet\">({who})</span></h3>", inline(&fix.title))?;
    let mut files: BTreeMap<(RootId, &str), Vec<&Edit>> = BTreeMap::new();
    for edit in &fix.edits {
        files.entry((edit.root, &edit.path)).or_default().push(edit);
    }
    for ((root, path), edits) in files {
        let old = view.source(root, path).unwrap_or_default();
        if let Ok((new, _)) = apply(&old, &edits) {
            writeln!(out, "<p class=\"quiet\"><code>{}</code></p>", escape(path))?;
            diff(&old, &new, out)?;
        }
    }
    Ok(())
}

fn diff(old: &str, new: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "<pre tabindex=\"0\">")?;
    let diff = TextDiff::from_lines(old, new);
    for hunk in diff.unified_diff().context_radius(2).iter_hunks() {
        for change in hunk.iter_changes() {
            let (class, sign) = match change.tag() {
                ChangeTag::Equal => ("l", ' '),
                ChangeTag::Delete => ("l del", '-'),
                ChangeTag::Insert => ("l add", '+'),
            };
            let number = change.new_index().or(change.old_index()).map_or(0, |index| index + 1);
            let line = escape(change.value().trim_end_matches(['\n', '\r']));
            write!(out, "<span class=\"{class}\"><span class=\"n\">{number}</span>{sign} {line}</span>")?;
        }
    }
    writeln!(out, "</pre>")
}

/// Text in which backticks mark code, if they come in pairs.
fn inline(text: &str) -> String {
    if !text.matches('`').count().is_multiple_of(2) {
        return escape(text);
    }
    let part = |(index, part): (usize, &str)| match index % 2 {
        1 => format!("<code>{}</code>", escape(part)),
        _ => escape(part),
    };
    text.split('`').enumerate().map(part).collect()
}

fn incomplete(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if report.incomplete.is_empty() {
        return Ok(());
    }
    writeln!(out, "<section id=\"incomplete\">\n<h2>Not checked</h2>\n<table>")?;
    for gap in &report.incomplete {
        writeln!(out, "<tr><td><code>{}</code></td><td>{}</td></tr>", escape(&gap.path), escape(&gap.reason))?;
    }
    writeln!(out, "</table>\n</section>")
}

fn packages(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let packages = &report.environment.packages;
    if packages.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<section id=\"packages\">\n<h2>Packages</h2>\n<details><summary>{}</summary>\n<table>\n\
         <tr><th scope=\"col\">name</th><th scope=\"col\">version</th><th scope=\"col\">where</th></tr>",
        count(packages.len(), "package")
    )?;
    for package in packages {
        let cells = [&package.name, &package.version, &package.root]
            .map(|cell| format!("<td><code>{}</code></td>", escape(cell)));
        writeln!(out, "<tr>{}</tr>", cells.concat())?;
    }
    writeln!(out, "</table></details>\n</section>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn page() {
        insta::assert_snapshot!(sample::render(write));
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_nothing_runs() {
        let page = sample::render(write);
        for forbidden in ["http:", "https:", "<script", "src=", "url(", "@import", "javascript:"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn backticks_mark_code_only_in_pairs() {
        assert_eq!(inline("a `b<c` d"), "a <code>b&lt;c</code> d");
        assert_eq!(inline("it`s"), "it`s");
    }
}
