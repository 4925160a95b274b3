//! A few source lines around a place, with the place as a byte range in them.

use std::ops::Range;

use crate::finding::Finding;

/// A longer span is marked on its first line only: the reader wants to know where to look, not how far.
const LONGEST: usize = 4;

/// A place as findings give it: lines and columns from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
}

impl Place {
    /// Where a finding is.
    pub fn of(finding: &Finding) -> Place {
        let Finding { line, column, end_line, end_column, .. } = *finding;
        Place { line, column, end_line, end_column }
    }

    /// Whether it stands for the file as a whole: a point at its beginning.
    pub fn is_file(self) -> bool {
        self.line <= 1 && self.end_line <= 1 && self.end_column <= self.column
    }
}

/// Consecutive lines of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// Number of the first line, from 1.
    pub first: usize,
    /// The lines, joined with `\n`, control characters replaced.
    pub text: String,
    /// Where each line starts in `text`.
    starts: Vec<usize>,
}

impl Excerpt {
    /// Lines `first` to `last` (from 1, both included), as far as `source` has them; `None` if it has none.
    pub fn new(source: &str, first: usize, last: usize) -> Option<Excerpt> {
        let first = first.max(1);
        let mut text = String::new();
        let mut starts = Vec::new();
        for line in lines(source).skip(first - 1).take((last + 1).saturating_sub(first)) {
            if !starts.is_empty() {
                text.push('\n');
            }
            starts.push(text.len());
            text.push_str(&clean(line));
        }
        (!starts.is_empty()).then_some(Excerpt { first, text, starts })
    }

    /// The lines of `place`, with `context` lines before and after.
    pub fn around(source: &str, place: Place, context: usize) -> Option<Excerpt> {
        let line = place.line as usize;
        let last = line.max(last_marked(place));
        Excerpt::new(source, line.saturating_sub(context), last + context)
    }

    /// Numbers and texts of the lines.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (self.first..).zip(self.text.split('\n'))
    }

    /// The bytes of `text` that a line covers, without indentation and trailing space.
    pub fn line(&self, line: u32) -> Option<Range<usize>> {
        let index = (line as usize).checked_sub(self.first)?;
        let start = *self.starts.get(index)?;
        let end = self.starts.get(index + 1).map_or(self.text.len(), |next| next - 1);
        let content = &self.text[start..end];
        let indent = content.len() - content.trim_start().len();
        Some(start + indent..start + content.trim_end().len().max(indent))
    }

    /// The bytes of `text` that `place` covers; a long place is marked on its first line only.
    pub fn range(&self, place: Place) -> Option<Range<usize>> {
        let start = self.at(place.line, place.column)?;
        let end = match last_marked(place) {
            last if last == place.end_line as usize => self.at(place.end_line, place.end_column),
            _ => None,
        };
        let end = end.or_else(|| Some(self.line(place.line)?.end))?;
        Some(start..end.max(start))
    }

    /// The byte of `text` at which the character of this line and column starts.
    fn at(&self, line: u32, column: u32) -> Option<usize> {
        let index = (line as usize).checked_sub(self.first)?;
        let start = *self.starts.get(index)?;
        let end = self.starts.get(index + 1).map_or(self.text.len(), |next| next - 1);
        let column = (column as usize).saturating_sub(1);
        Some(self.text[start..end].char_indices().nth(column).map_or(end, |(at, _)| start + at))
    }
}

/// Line and column (from 1, in characters) of a byte of a source; `None` if a character does not start there.
pub fn line_and_column(source: &str, offset: usize) -> Option<(usize, usize)> {
    let before = source.get(..offset)?;
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next()?.chars().count() + 1;
    Some((line, column))
}

/// The last line that is marked.
fn last_marked(place: Place) -> usize {
    let (line, end) = (place.line as usize, place.end_line as usize);
    if end.saturating_sub(line) < LONGEST { end.max(line) } else { line }
}

/// The lines of a Python source: ended by `\n`, `\r\n` or `\r`, without a byte order mark.
fn lines(source: &str) -> impl Iterator<Item = &str> {
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let mut rest = Some(source);
    std::iter::from_fn(move || {
        let text = rest?;
        match text.find(['\n', '\r']) {
            Some(end) => {
                let skip = if text[end..].starts_with("\r\n") { 2 } else { 1 };
                rest = Some(&text[end + skip..]);
                Some(&text[..end])
            }
            None => rest.take(),
        }
    })
}

/// Control characters (but not tabs) become U+FFFD, one for one, so that columns stay.
fn clean(line: &str) -> String {
    let hostile =
        |c: char| (c.is_control() && c != '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    line.chars().map(|c| if hostile(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(source: &str, place: Place, context: usize) -> Option<(usize, String, String)> {
        let excerpt = Excerpt::around(source, place, context)?;
        let range = excerpt.range(place)?;
        Some((excerpt.first, excerpt.text.clone(), excerpt.text[range].to_owned()))
    }

    #[test]
    fn columns_are_characters_and_lines_end_in_any_way() {
        let source = "\u{feff}a = 1\r\nü = größe + b\rc = 2\n";
        let place = Place { line: 2, column: 5, end_line: 2, end_column: 10 };
        assert_eq!(marked(source, place, 0), Some((2, "ü = größe + b".into(), "größe".into())));
        assert_eq!(marked(source, place, 1), Some((1, "a = 1\nü = größe + b\nc = 2".into(), "größe".into())));
        assert_eq!(marked(source, Place { line: 9, ..place }, 1), None);
        assert_eq!(marked(source, Place { line: 0, ..place }, 1), None);
    }

    #[test]
    fn a_line_is_marked_without_its_indentation() {
        let excerpt = Excerpt::new("if a:\n    b()  \n\n", 2, 3).expect("two lines");
        assert_eq!(excerpt.line(2).map(|range| &excerpt.text[range]), Some("b()"));
        assert_eq!(excerpt.line(3).map(|range| &excerpt.text[range]), Some(""));
        assert_eq!(excerpt.line(1), None);
        assert_eq!(excerpt.line(4), None);
        assert_eq!(excerpt.lines().collect::<Vec<_>>(), [(2, "    b()  "), (3, "")]);
    }

    #[test]
    fn spans_over_lines() {
        let source = "f(\n  1,\n  2)\nx\ny\nz\n";
        let place = Place { line: 1, column: 1, end_line: 3, end_column: 5 };
        assert_eq!(marked(source, place, 0).map(|m| m.2), Some("f(\n  1,\n  2)".into()));
        let long = Place { line: 1, column: 1, end_line: 6, end_column: 2 };
        assert_eq!(marked(source, long, 0), Some((1, "f(".into(), "f(".into())));
        let beyond = Place { line: 1, column: 2, end_line: 1, end_column: 99 };
        assert_eq!(marked(source, beyond, 0).map(|m| m.2), Some("(".into()));
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(Excerpt::new("a\u{1b}b\tc", 1, 1).map(|e| e.text), Some("a\u{fffd}b\tc".into()));
    }
}
