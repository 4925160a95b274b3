//! From the bytes of a source file to text, as Python's tokenizer does it: BOM, coding cookie, UTF-8 by default.

/// A decoded source file.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The text, without a BOM.
    pub text: String,
    /// Bytes of the file in front of the text (3 for a BOM): added to an offset in `text`, they give the offset on disk.
    pub offset: usize,
    /// The file is UTF-8, so that offsets in `text` are offsets on disk and the file may be edited.
    pub utf8: bool,
}

/// Decodes a source file; the error says why Python could not either, or which encoding is not supported.
pub fn decode(bytes: &[u8]) -> Result<Decoded, String> {
    let (body, offset) = match bytes.strip_prefix(b"\xEF\xBB\xBF") {
        Some(body) => (body, 3),
        None => (bytes, 0),
    };
    let cookie = coding_cookie(body);
    let name = cookie.as_deref().map(|c| c.to_ascii_lowercase().replace('_', "-"));
    match name.as_deref() {
        None | Some("utf-8" | "utf8" | "ascii" | "us-ascii") => match std::str::from_utf8(body) {
            Ok(text) => Ok(Decoded { text: text.to_owned(), offset, utf8: true }),
            Err(error) => Err(format!("not UTF-8: invalid byte at offset {}", offset + error.valid_up_to())),
        },
        Some("latin-1" | "iso-8859-1" | "iso8859-1" | "latin1" | "l1") if offset == 0 => {
            let text = body.iter().map(|&byte| char::from(byte)).collect();
            Ok(Decoded { text, offset, utf8: body.is_ascii() })
        }
        Some(other) if body.is_ascii() && offset == 0 => {
            let _ = other; // every encoding that Python accepts for sources agrees with ASCII below 128
            Ok(Decoded { text: String::from_utf8_lossy(body).into_owned(), offset, utf8: true })
        }
        Some(other) => Err(format!("encoding {other} is not supported")),
    }
}

/// The encoding named in a comment of the first two lines (PEP 263).
fn coding_cookie(body: &[u8]) -> Option<String> {
    for line in body.split(|&b| b == b'\n').take(2) {
        let line = String::from_utf8_lossy(&line[..line.len().min(400)]);
        let trimmed = line.trim_start_matches([' ', '\t', '\x0c']);
        if let Some(comment) = trimmed.strip_prefix('#') {
            let mut rest = comment;
            while let Some(at) = rest.find("coding") {
                rest = &rest[at + "coding".len()..];
                if let Some(value) = rest.strip_prefix([':', '=']) {
                    let value = value.trim_start_matches([' ', '\t']);
                    let end = value.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
                    let name = &value[..end.unwrap_or(value.len())];
                    if !name.is_empty() {
                        return Some(name.to_owned());
                    }
                }
            }
        } else if !trimmed.trim().is_empty() {
            return None; // a statement on the first line ends the search
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn plain_and_bom() {
        assert_eq!(decode(b"x = 1\n").unwrap().text, "x = 1\n");
        let bom = decode(b"\xEF\xBB\xBFx = 1\n").unwrap();
        assert_eq!((bom.text.as_str(), bom.offset, bom.utf8), ("x = 1\n", 3, true));
    }

    #[test]
    fn cookies() {
        let latin = decode(b"#!/usr/bin/python\n# -*- coding: latin-1 -*-\nx = '\xE9'\n").unwrap();
        assert!(latin.text.ends_with("x = '\u{e9}'\n"));
        assert!(!latin.utf8);
        assert!(decode(b"# coding=utf_8\nx = '\xC3\xA9'\n").unwrap().utf8);
        assert_eq!(decode(b"# coding: koi8-r\nx = '\xE9'\n"), Err("encoding koi8-r is not supported".to_owned()));
        assert!(decode(b"# coding: koi8-r\nx = 1\n").unwrap().utf8);
        assert!(decode(b"x = 1\n# coding: latin-1\ny = '\xE9'\n").is_err());
    }

    #[test]
    fn invalid_utf8_says_where() {
        assert_eq!(decode(b"x = '\xFF'"), Err("not UTF-8: invalid byte at offset 5".to_owned()));
    }
}
