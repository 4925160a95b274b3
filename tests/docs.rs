//! The documentation says what the program does: rule pages and tables are made from the rules, every command in it is
//! one that the program takes, and every link leads somewhere. `UPDATE_DOCS=1` writes what is generated.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};
use fa_doctor::cli::Cli;
use fa_doctor::config::Settings;
use fa_doctor::rules::registry;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn updating() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Markdown file of the documentation.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|name| root().join(name)).to_vec();
    for entry in walkdir::WalkDir::new(root().join("docs")).sort_by_file_name() {
        let path = entry.expect("an entry").into_path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

fn check(path: &Path, expected: &str) {
    if updating() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, expected).expect("a page");
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "{} is out of date: run `UPDATE_DOCS=1 cargo test --test docs`", path.display());
}

#[test]
fn the_readme_lists_every_rule_and_shows_what_the_program_prints() {
    let mut table = String::from("| code | name | finds |\n|---|---|---|\n");
    for info in registry::all().iter().map(|rule| rule.info()) {
        let page = format!("docs/rules/{}.md", info.code);
        table.push_str(&format!("| [{}]({page}) | {} | {} |\n", info.code, info.name, info.summary));
    }
    let place = tempfile::tempdir().expect("a folder");
    common::site(place.path(), common::BROKEN);
    let out = common::run(place.path(), "scan .").out;
    let (finding, _) = out.split_once("\n\n").expect("a finding and a summary");
    let path = root().join("README.md");
    let text = between(&read(&path), "rules", &table);
    check(&path, &between(&text, "example", &format!("```text\n{finding}\n```\n")));
}

/// `text` with what stands between `<!-- name -->` and `<!-- end of name -->` replaced.
fn between(text: &str, name: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(&begin).expect("the beginning of a generated part");
    let (_, after) = rest.split_once(&end).expect("the end of a generated part");
    format!("{before}{begin}{content}{end}{after}")
}

/// The lines of a page, and whether each is a heading: a `#` in a code block is not.
fn lines(markdown: &str) -> Vec<(&str, bool)> {
    let mut code = false;
    let mut lines = Vec::new();
    for line in markdown.lines() {
        code ^= line.starts_with("```");
        lines.push((line, !code && line.starts_with("# ")));
    }
    lines
}

#[test]
fn every_rule_has_its_page_and_no_page_is_left_over() {
    let mut expected = Vec::new();
    for info in registry::all().iter().map(|rule| rule.info()) {
        let mut docs = String::new();
        for (line, heading) in lines(&info.docs()) {
            docs.push_str(if heading { "#" } else { "" });
            docs.push_str(line);
            docs.push('\n');
        }
        let path = root().join(format!("docs/rules/{}.md", info.code));
        let (first, rest) = info.summary.split_at(1);
        let summary = format!("{}{rest}", first.to_uppercase());
        check(&path, &format!("# {} {}\n\n{summary}.\n\n{docs}", info.code, info.name));
        expected.push(path);
    }
    for entry in fs::read_dir(root().join("docs/rules")).expect("the pages") {
        let path = entry.expect("an entry").path();
        assert!(expected.contains(&path), "{} is of no rule", path.display());
    }
}

#[test]
fn every_rule_is_documented_in_the_same_sections() {
    for info in registry::all().iter().map(|rule| rule.info()) {
        let docs = info.docs();
        let headings = lines(&docs).into_iter().filter(|(_, heading)| *heading);
        let sections: Vec<&str> = headings.map(|(line, _)| line.trim_start_matches(['#', ' '])).collect();
        let expected = ["What it does", "Why is this bad", "Example", "Fix", "References"];
        assert_eq!(sections, expected, "{}", info.code);
        assert!(!info.summary.ends_with('.'), "{}", info.code);
    }
}

#[test]
fn every_command_in_the_documentation_is_one_that_the_program_takes() {
    let mut seen = 0;
    for page in pages() {
        for command in commands(&read(&page)) {
            seen += 1;
            // A subcommand that is merely named need not have its arguments.
            if command.len() == 2 && Cli::command().find_subcommand(&command[1]).is_some() {
                continue;
            }
            let parsed = Cli::try_parse_from(&command);
            assert!(
                parsed.is_ok(),
                "{}: {command:?}\n{}",
                page.display(),
                parsed.err().map(|e| e.to_string()).unwrap_or_default()
            );
        }
    }
    assert!(seen > 40, "only {seen} commands were found");
}

/// The fa-doctor commands in code of a page: up to a redirection, a pipe, a comment or the end of the code.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut fenced = false;
    // A backslash joins lines, as in a shell.
    for line in text.replace("\\\n", " ").lines() {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let code: Vec<&str> = match fenced || line.starts_with("    ") {
            true => vec![line],
            false => line.split('`').skip(1).step_by(2).collect(),
        };
        for code in code {
            let starts = code.match_indices("fa-doctor ").map(|(at, _)| at);
            for at in starts.filter(|at| {
                code[..*at].trim_end().ends_with(|c| "$;&'\"(|".contains(c))
                    || code[..*at].trim().is_empty()
                    || code[..*at].ends_with("RUN ")
            }) {
                let end = code[at..].find(|c| "><|;&#'\"`".contains(c)).map_or(code.len(), |end| at + end);
                let words: Vec<String> = code[at..end].split_whitespace().map(str::to_owned).collect();
                // `fa-doctor fix` is a command; "fa-doctor says" is a sentence in a code block of prose.
                if words.len() > 1 {
                    commands.push(words);
                }
            }
        }
    }
    commands
}

#[test]
fn every_settings_file_in_the_documentation_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for page in ["README.md", "docs/settings.md"] {
        let text = read(&root().join(page));
        let blocks: Vec<&str> =
            text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
        assert!(!blocks.is_empty(), "{page}");
        for block in blocks {
            let file = folder.path().join("fa-doctor.toml");
            fs::write(&file, block).expect("a file");
            if let Err(error) = Settings::load(Some(&file), folder.path()) {
                panic!("{page}: {error}");
            }
        }
    }
}

#[test]
fn links_lead_somewhere() {
    for page in pages() {
        let text = read(&page);
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split(')').next().unwrap_or_default();
            if target.contains("://") || target.starts_with('#') {
                continue;
            }
            let path = page.parent().expect("a folder").join(target.split('#').next().unwrap_or_default());
            assert!(path.exists(), "{}: {target}", page.display());
        }
    }
}

#[test]
fn lines_of_the_documentation_are_not_too_long() {
    for page in pages() {
        for line in read(&page).lines().filter(|line| !line.starts_with('|')) {
            assert!(line.chars().count() <= 125, "{}: {line}", page.display());
        }
    }
}
