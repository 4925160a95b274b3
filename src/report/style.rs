//! Colours and line wrapping for people: whether to use colour at all, what each colour means, how wide a line is.

use std::io::IsTerminal;
use std::sync::Once;

use clap::ValueEnum;
use colored::{ColoredString, Colorize};
use unicode_width::UnicodeWidthStr;

use crate::finding::Severity;

/// The widest a report gets, however wide the terminal: longer lines are hard to read.
const WIDEST: usize = 100;
/// The width without a terminal: what people paste into issues.
const DEFAULT: usize = 80;

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR or CLICOLOR say otherwise.
    #[default]
    Auto,
    /// Always, also into a file.
    Always,
    /// Never.
    Never,
}

/// How text for people looks on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether escape sequences are written.
    pub color: bool,
    /// Cells in a line.
    pub width: usize,
}

impl Style {
    /// No colour, 80 columns: files and tests.
    pub const PLAIN: Style = Style { color: false, width: DEFAULT };

    /// The style for standard output.
    pub fn stdout(choice: ColorChoice) -> Style {
        let width = terminal_size::terminal_size().map_or(DEFAULT, |(width, _)| usize::from(width.0).clamp(40, WIDEST));
        Style { color: wants_color(choice, std::io::stdout().is_terminal(), |name| std::env::var(name).ok()), width }
    }

    /// The style for standard error.
    pub fn stderr(choice: ColorChoice) -> Style {
        let color = wants_color(choice, std::io::stderr().is_terminal(), |name| std::env::var(name).ok());
        Style { color, ..Style::stdout(choice) }
    }

    /// `text` in the colour of a severity.
    pub fn severity_color(self, severity: Severity, text: &str) -> String {
        match severity {
            Severity::Error => self.paint(text, |text| text.red().bold()),
            Severity::Warning => self.paint(text, |text| text.yellow().bold()),
            Severity::Info => self.paint(text, |text| text.blue().bold()),
        }
    }

    /// Headings, codes, what the eye should find first.
    pub fn bold(self, text: &str) -> String {
        self.paint(text, |text| text.bold())
    }

    /// What can be skipped.
    pub fn dim(self, text: &str) -> String {
        self.paint(text, |text| text.dimmed())
    }

    /// Good news, and lines added.
    pub fn good(self, text: &str) -> String {
        self.paint(text, |text| text.green())
    }

    /// Bad news, and lines removed.
    pub fn bad(self, text: &str) -> String {
        self.paint(text, |text| text.red())
    }

    /// Neither good nor bad.
    pub fn caution(self, text: &str) -> String {
        self.paint(text, |text| text.yellow())
    }

    /// `hint:`, `help:` and commands to copy.
    pub fn hint(self, text: &str) -> String {
        self.paint(text, |text| text.cyan())
    }

    /// `text` in the colours of `paint`, if this stream takes colour.
    pub fn paint(self, text: &str, paint: fn(&str) -> ColoredString) -> String {
        // The decision is made per stream above; `colored` would make its own, once for all streams.
        static DECIDED_HERE: Once = Once::new();
        DECIDED_HERE.call_once(|| colored::control::set_override(true));
        if self.color { paint(text).to_string() } else { text.to_owned() }
    }
}

/// Whether to write colour: the flag, then NO_COLOR, CLICOLOR_FORCE, CLICOLOR and TERM, then whether it is a terminal.
fn wants_color(choice: ColorChoice, terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let set = |name| variable(name).is_some_and(|value| !value.is_empty());
            let on = |name| variable(name).is_some_and(|value| !value.is_empty() && value != "0");
            let off = |name, value: &str| variable(name).is_some_and(|found| found == value);
            if set("NO_COLOR") {
                false
            } else if on("CLICOLOR_FORCE") {
                true
            } else {
                terminal && !off("CLICOLOR", "0") && !off("TERM", "dumb")
            }
        }
    }
}

/// Breaks `text` at spaces into lines of at most `width` cells. Words that are longer (paths) and commands between
/// backticks stay whole, so that they can be copied. Newlines in `text` are kept.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in words(paragraph) {
            if !line.is_empty() && line.width() + 1 + word.width() > width {
                lines.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

/// Splits at the spaces that are not between backticks.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '`';
        c == ' ' && !quoted
    })
}

/// Wraps the text of a help, whose last line, if there are several, is a command to copy: that one stays whole.
pub fn wrap_help(text: &str, width: usize) -> Vec<String> {
    match text.trim_end().rsplit_once('\n') {
        Some((text, command)) => {
            let mut lines = wrap(text, width);
            lines.push(command.to_owned());
            lines
        }
        None => wrap(text, width),
    }
}

/// Wraps `text` after a label, continuation lines indented under the text: `help: run this` ...
pub fn wrap_after(label: &str, painted: &str, text: &str, width: usize) -> String {
    let indent = label.width() + 1;
    let lines = wrap(text, width.saturating_sub(indent).max(20));
    format!("{painted} {}", lines.join(&format!("\n{}", " ".repeat(indent))))
}

/// Replaces control characters, so that a file name or a source line cannot move the cursor or change colours.
pub fn printable(text: &str) -> String {
    text.chars().map(shown).collect()
}

/// As [`printable`], for text of several lines.
pub fn printable_lines(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { "\n".to_owned() } else { shown(c) }).collect()
}

fn shown(c: char) -> String {
    match c {
        '\t' => "    ".to_owned(),
        c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => "\u{fffd}".to_owned(),
        c => c.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_the_flag_then_the_environment_then_the_terminal() {
        let ask = |choice, terminal, set: &[(&str, &str)]| {
            wants_color(choice, terminal, |name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert!(ask(ColorChoice::Auto, true, &[]));
        assert!(!ask(ColorChoice::Auto, false, &[]));
        assert!(!ask(ColorChoice::Auto, true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]));
        assert!(ask(ColorChoice::Auto, true, &[("NO_COLOR", "")]));
        assert!(ask(ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!ask(ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!ask(ColorChoice::Auto, true, &[("CLICOLOR", "0")]));
        assert!(!ask(ColorChoice::Auto, true, &[("TERM", "dumb")]));
        assert!(ask(ColorChoice::Always, false, &[("NO_COLOR", "1")]));
        assert!(!ask(ColorChoice::Never, true, &[("CLICOLOR_FORCE", "1")]));
    }

    #[test]
    fn wrapping_keeps_long_words_and_newlines() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a/very/long/path is here", 6), ["a/very/long/path", "is", "here"]);
        assert_eq!(wrap("one\n\ntwo", 10), ["one", "", "two"]);
        assert_eq!(wrap("then run `pip install x`.", 10), ["then run", "`pip install x`."]);
        assert_eq!(wrap_help("one two\npip install x y", 5), ["one", "two", "pip install x y"]);
        assert_eq!(wrap_help("one two", 5), ["one", "two"]);
        assert_eq!(wrap_after("help:", "help:", "one two three", 25), "help: one two three");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\u{202e}c\td\n"), "a\u{fffd}[31mb\u{fffd}c    d\u{fffd}");
        assert_eq!(printable_lines("a\r\nb"), "a\u{fffd}\nb");
    }
}
