//! Edits become text: which fixes go together, and the bytes that result.

use crate::environment::RootId;
use crate::finding::Edit;

/// The line ending that a file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnding {
    /// `\n`.
    Lf,
    /// `\r\n`.
    CrLf,
}

impl LineEnding {
    /// The ending of the first line; a file of one line counts as Unix.
    pub fn of(bytes: &[u8]) -> LineEnding {
        match memchr::memchr(b'\n', bytes) {
            Some(at) if at > 0 && bytes[at - 1] == b'\r' => LineEnding::CrLf,
            _ => LineEnding::Lf,
        }
    }

    /// `content`, written with `\n`, as this file ends its lines.
    pub fn adopt(self, content: &str) -> String {
        match self {
            LineEnding::Lf => content.to_owned(),
            LineEnding::CrLf => content.replace("\r\n", "\n").replace('\n', "\r\n"),
        }
    }
}

/// Edits that do not fit the file they are for.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ApplyError {
    /// Past the end, backwards, or inside a character.
    #[error("an edit of bytes {start}..{end} does not fit the text")]
    OutOfRange {
        /// First byte.
        start: usize,
        /// One past the last.
        end: usize,
    },
    /// Two edits of one file lie over each other.
    #[error("two edits overlap at byte {at}")]
    Overlap {
        /// Where the second begins.
        at: usize,
    },
}

/// What one edit became: where its text lies in the result, and by how much what follows moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// First byte replaced, in the old text.
    pub old_start: usize,
    /// One past the last byte replaced, in the old text.
    pub old_end: usize,
    /// First byte of the new text, in the result.
    pub start: usize,
    /// One past its last byte, in the result.
    pub end: usize,
}

/// Applies `edits` (of one file, in any order) to `text`.
///
/// Edits that are equal count once: several fixes may want the same import line. Content takes the file's line ending.
pub fn apply(text: &str, edits: &[&Edit]) -> Result<(String, Vec<Placed>), ApplyError> {
    let ending = LineEnding::of(text.as_bytes());
    let mut sorted: Vec<&Edit> = Vec::with_capacity(edits.len());
    for edit in edits {
        if !sorted.contains(edit) {
            sorted.push(edit);
        }
    }
    sorted.sort_by_key(|edit| (edit.start, edit.end));
    let mut result = String::with_capacity(text.len() + 256);
    let mut placed = Vec::with_capacity(sorted.len());
    let mut done = 0;
    for edit in sorted {
        let (start, end) = (edit.start, edit.end);
        if start > end || text.get(start..end).is_none() {
            return Err(ApplyError::OutOfRange { start, end });
        }
        if start < done {
            return Err(ApplyError::Overlap { at: start });
        }
        result.push_str(&text[done..start]);
        let at = result.len();
        result.push_str(&ending.adopt(&edit.content));
        placed.push(Placed { old_start: start, old_end: end, start: at, end: result.len() });
        done = end;
    }
    result.push_str(&text[done..]);
    Ok((result, placed))
}

/// Whether two edits of different fixes get in each other's way.
///
/// Edits that touch do: which text would come first is nobody's decision. Equal edits do not.
pub fn conflicts(a: &Edit, b: &Edit) -> bool {
    (a.root, &a.path) == (b.root, &b.path) && a != b && a.start <= b.end && b.start <= a.end
}

/// The indices of fixes that can be applied together, the earlier ones first; the rest waits for the next round.
pub fn compatible<'a>(fixes: impl IntoIterator<Item = &'a [Edit]>) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut taken: Vec<&Edit> = Vec::new();
    for (index, edits) in fixes.into_iter().enumerate() {
        if !edits.iter().any(|edit| taken.iter().any(|other| conflicts(edit, other))) {
            taken.extend(edits);
            chosen.push(index);
        }
    }
    chosen
}

/// The files that edits touch, sorted, each once.
pub fn files<'a>(edits: impl IntoIterator<Item = &'a Edit>) -> Vec<(RootId, &'a str)> {
    let mut files: Vec<_> = edits.into_iter().map(|edit| (edit.root, edit.path.as_str())).collect();
    files.sort_unstable();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(start: usize, end: usize, content: &str) -> Edit {
        Edit { path: "a.py".into(), start, end, content: content.into(), root: RootId(0) }
    }

    #[test]
    fn edits_apply_in_any_order_and_say_where_they_went() {
        let (text, placed) = apply("f(a, b)\n", &[&edit(6, 6, ", c"), &edit(0, 1, "gg")]).unwrap();
        assert_eq!(text, "gg(a, b, c)\n");
        assert_eq!(placed[0], Placed { old_start: 0, old_end: 1, start: 0, end: 2 });
        assert_eq!(&text[placed[1].start..placed[1].end], ", c");
    }

    #[test]
    fn equal_edits_count_once() {
        let line = edit(0, 0, "import x\n");
        assert_eq!(apply("y\n", &[&line, &line.clone()]).unwrap().0, "import x\ny\n");
    }

    #[test]
    fn windows_line_endings_are_kept() {
        let (text, _) = apply("a\r\nb\r\n", &[&edit(3, 3, "new\nline\n")]).unwrap();
        assert_eq!(text, "a\r\nnew\r\nline\r\nb\r\n");
    }

    #[test]
    fn edits_inside_a_character_or_past_the_end_are_refused() {
        assert_eq!(apply("é", &[&edit(1, 1, "x")]), Err(ApplyError::OutOfRange { start: 1, end: 1 }));
        assert_eq!(apply("e", &[&edit(0, 9, "x")]), Err(ApplyError::OutOfRange { start: 0, end: 9 }));
        assert_eq!(apply("abcd", &[&edit(0, 3, ""), &edit(2, 4, "")]), Err(ApplyError::Overlap { at: 2 }));
    }

    #[test]
    fn a_fix_that_touches_another_waits() {
        let (first, second, third) =
            (vec![edit(5, 5, "a")], vec![edit(9, 9, "x"), edit(5, 5, "b")], vec![edit(9, 9, "y")]);
        assert_eq!(compatible([&first[..], &second[..], &third[..]]), [0, 2]);
        assert_eq!(compatible([&first[..], &first.clone()[..]]), [0, 1]);
    }
}
