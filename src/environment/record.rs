//! RECORD: the list of a distribution's files, in Python's CSV.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::tree::join;

/// One line of RECORD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordEntry {
    /// Relative to the distribution's root, `/`-separated, normalised; entries that leave the root are dropped.
    pub path: String,
    /// SHA-256 of the bytes, if RECORD gives one.
    pub sha256: Option<[u8; 32]>,
    /// Size in bytes, if RECORD gives one.
    pub size: Option<u64>,
    /// Line in RECORD, from 1.
    pub line: u32,
}

/// The entries of RECORD, for files installed into `base`.
pub(super) fn entries(bytes: &[u8], base: &str) -> Vec<RecordEntry> {
    rows(bytes).filter_map(|(row, line)| entry(row, line, base)).collect()
}

/// The first component of every path, each once in a row; much cheaper than the entries.
pub(super) fn top_level(bytes: &[u8]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(memchr::memchr(b'\n', rest).unwrap_or(rest.len()));
        rest = tail.get(1..).unwrap_or_default();
        let line = line.strip_prefix(b"\"").unwrap_or(line);
        let name = &line[..memchr::memchr3(b'/', b',', b'\\', line).unwrap_or(line.len())];
        let is_new = names.last().is_none_or(|last| last.as_bytes() != name);
        if is_new && !matches!(name, b"" | b"." | b"..") {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn entry(row: &[u8], line: u32, base: &str) -> Option<RecordEntry> {
    let row = String::from_utf8_lossy(row);
    let mut fields = fields(&row);
    let path = within(base, &fields.next()?)?;
    let sha256 = fields.next().and_then(|field| {
        let digest = URL_SAFE_NO_PAD.decode(field.strip_prefix("sha256=")?.trim_end_matches('=')).ok()?;
        digest.try_into().ok()
    });
    let size = fields.next().and_then(|field| field.trim().parse().ok());
    Some(RecordEntry { path, sha256, size, line })
}

/// `path` seen from the root of the tree, if it stays in there.
fn within(base: &str, path: &str) -> Option<String> {
    // Windows writes `\`; no wheel has it in a name.
    let path = path.replace('\\', "/");
    if path.is_empty() || path.starts_with('/') || path.as_bytes().get(1) == Some(&b':') || path.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    let joined = parts.iter().fold(String::new(), |path, part| join(&path, part));
    (!joined.is_empty()).then_some(joined)
}

/// The rows of a CSV file, with their first line: a quoted field may hold line breaks, up to a point.
fn rows(bytes: &[u8]) -> impl Iterator<Item = (&[u8], u32)> {
    let mut rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut line = 1;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = row_end(rest);
        let (row, tail) = rest.split_at(end);
        let number = line;
        line += 1 + memchr::memchr_iter(b'\n', row).count() as u32;
        rest = tail.strip_prefix(b"\n").unwrap_or(tail);
        Some((row.strip_suffix(b"\r").unwrap_or(row), number))
    })
}

fn row_end(bytes: &[u8]) -> usize {
    let line_end = |from: usize| memchr::memchr(b'\n', &bytes[from..]).map_or(bytes.len(), |at| from + at);
    let first = line_end(0);
    // Almost always there is no quote. A quote that is never closed must not swallow the file: the row ends with the
    // line then.
    const LONGEST_ROW: usize = 4 << 10;
    let quotes = |from: usize, to: usize| memchr::memchr_iter(b'"', &bytes[from..to]).count();
    let (mut end, mut open) = (first, quotes(0, first) % 2 == 1);
    while open {
        if end == bytes.len() || end > LONGEST_ROW {
            return first;
        }
        let next = line_end(end + 1);
        open = quotes(end, next) % 2 == 0;
        end = next;
    }
    end
}

/// The fields of a row: quoted ones may contain commas and doubled quotes.
fn fields(row: &str) -> impl Iterator<Item = String> {
    let mut rest = Some(row);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(mut quoted) = text.strip_prefix('"') else {
            let (field, tail) = text.split_once(',').map_or((text, None), |(field, tail)| (field, Some(tail)));
            rest = tail;
            return Some(field.to_owned());
        };
        let mut field = String::new();
        while let Some((part, tail)) = quoted.split_once('"') {
            field.push_str(part);
            match tail.strip_prefix('"') {
                Some(tail) => {
                    field.push('"');
                    quoted = tail;
                }
                None => {
                    quoted = tail;
                    break;
                }
            }
        }
        rest = quoted.split_once(',').map(|(_, tail)| tail);
        Some(field)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn paths(text: &[u8], base: &str) -> Vec<String> {
        entries(text, base).into_iter().map(|entry| entry.path).collect()
    }

    #[test]
    fn digests_sizes_and_lines_are_read() {
        let text = b"flash_attn/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\r\n\
                     a-1.dist-info/RECORD,,\r\nx.py,md5=abc,12";
        let entries = entries(text, "");
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0].sha256.map(|digest| digest[..2].to_vec()), Some(vec![0xe3, 0xb0]));
        assert_eq!((entries[0].size, entries[0].line), (Some(0), 1));
        assert_eq!((entries[1].sha256, entries[1].size, entries[1].line), (None, None, 2));
        assert_eq!((entries[2].sha256, entries[2].size, entries[2].line), (None, Some(12), 3));
    }

    #[test]
    fn quoted_fields_keep_commas_quotes_and_line_breaks() {
        let text = b"\"a,b/c.py\",,1\n\"say \"\"hi\"\".py\",,2\n\"two\nlines.py\",,3\nlast.py,,4\n";
        let entries = entries(text, "");
        let read: Vec<_> = entries.iter().map(|entry| (entry.path.as_str(), entry.size, entry.line)).collect();
        let expected = [
            ("a,b/c.py", Some(1), 1),
            ("say \"hi\".py", Some(2), 2),
            ("two\nlines.py", Some(3), 3),
            ("last.py", Some(4), 5),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn an_open_quote_costs_its_line_only() {
        let mut text = b"\"open.py,,\n".to_vec();
        text.extend(b"a.py,,\n".repeat(5000));
        assert_eq!(entries(&text, "").len(), 5000);
        entries(&b"\"open.py,,\n\n".repeat(100_000), "");
    }

    #[test]
    fn what_leaves_the_root_is_dropped() {
        let text = b"/etc/passwd,,\nC:\\Windows\\x,,\n../../bin/vllm,,\n./a/./b.py,,\na\\b\\c.py,,\na/../..,,\n\n,,\n";
        assert_eq!(paths(text, ""), ["a/b.py", "a/b/c.py"]);
        assert_eq!(paths(b"../bin/x,,\n../../y,,\nz.py,,\n", "lib"), ["bin/x", "lib/z.py"]);
    }

    #[test]
    fn bytes_that_are_no_utf8_do_not_end_the_list() {
        assert_eq!(paths(b"caf\xe9.py,,\nb.py,,\n", ""), ["caf\u{fffd}.py", "b.py"]);
    }

    #[test]
    fn two_hundred_thousand_lines_are_no_effort() {
        let text = b"vllm/some/folder/of/medium/length.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,1234\n";
        assert_eq!(entries(&text.repeat(200_000), "").len(), 200_000);
        assert_eq!(top_level(&text.repeat(200_000)), ["vllm"]);
    }

    #[test]
    fn top_level_names_are_listed_once() {
        let text = b"a/b.py,,\na/c.py,,\nd.py,,\n../../bin/x,,\na/e.py,,\n\"q,r/s.py\",,\n/abs,,\n";
        assert_eq!(top_level(text), ["a", "d.py", "q"]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            for entry in entries(&bytes, "lib/site") {
                prop_assert!(!entry.path.starts_with('/'));
                prop_assert!(!entry.path.split('/').any(|part| matches!(part, "" | "." | "..")));
            }
            top_level(&bytes);
        }

        #[test]
        fn csv_like_text_does_not_panic(text in "[a\",\n\r./\\\\]{0,200}") {
            entries(text.as_bytes(), "");
        }
    }
}
