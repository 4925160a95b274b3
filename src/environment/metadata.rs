//! The header files of a distribution: METADATA (or PKG-INFO), WHEEL, direct_url.json, requires.txt.
//!
//! All of them come from strangers: bytes that are no UTF-8, folded and repeated headers and absurd sizes are read
//! for what they are worth.

use serde::Deserialize;

/// A header as METADATA has it: key, value with folded lines joined, and the line of the key (from 1).
pub(super) struct Header {
    pub key: String,
    pub value: String,
    pub line: u32,
}

/// The headers of an e-mail-like file, up to the empty line before the description.
pub(super) fn headers(bytes: &[u8]) -> Vec<Header> {
    let mut headers: Vec<Header> = Vec::new();
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    for (line, number) in bytes.split(|&byte| byte == b'\n').zip(1..) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        let text = String::from_utf8_lossy(line);
        if text.starts_with([' ', '\t']) {
            if let Some(last) = headers.last_mut() {
                if !last.value.is_empty() {
                    last.value.push(' ');
                }
                last.value.push_str(text.trim());
            }
        } else if let Some((key, value)) = text.split_once(':') {
            headers.push(Header { key: key.trim().to_owned(), value: value.trim().to_owned(), line: number });
        }
    }
    headers
}

/// The first header of this name.
pub(super) fn first<'a>(headers: &'a [Header], key: &str) -> Option<&'a str> {
    let mut found = headers.iter().filter(|header| header.key.eq_ignore_ascii_case(key));
    found.find(|header| !header.value.is_empty()).map(|header| header.value.as_str())
}

/// Every header of this name.
pub(super) fn all<'a>(headers: &'a [Header], key: &'a str) -> impl Iterator<Item = &'a Header> {
    headers.iter().filter(move |header| header.key.eq_ignore_ascii_case(key))
}

/// The requirements of an egg's requires.txt as PEP 508 lines, with their line numbers. Sections such as
/// `[extra:marker]` become markers.
pub(super) fn requires_txt(bytes: &[u8]) -> Vec<(String, u32)> {
    let mut requires = Vec::new();
    let mut marker = String::new();
    for (line, number) in String::from_utf8_lossy(bytes).lines().zip(1..) {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (extra, condition) = section.split_once(':').unwrap_or((section, ""));
            let extra = if extra.is_empty() { String::new() } else { format!("extra == \"{extra}\"") };
            marker = match (condition.is_empty(), extra.is_empty()) {
                (true, _) => extra,
                (false, true) => condition.to_owned(),
                (false, false) => format!("({condition}) and {extra}"),
            };
        } else if !line.is_empty() && !line.starts_with('#') {
            let text = if marker.is_empty() { line.to_owned() } else { format!("{line} ; {marker}") };
            requires.push((text, number));
        }
    }
    requires
}

/// Name as PEP 503 normalises it: lower case, runs of `-_.` as one `-`.
pub fn normalize(name: &str) -> String {
    let mut normalized = String::with_capacity(name.len());
    for part in name.trim().split(['-', '_', '.']).filter(|part| !part.is_empty()) {
        if !normalized.is_empty() {
            normalized.push('-');
        }
        normalized.extend(part.chars().map(|c| c.to_ascii_lowercase()));
    }
    normalized
}

/// Name and version from a folder name such as `flash_attn_4-4.0.0b36.dist-info` or `flash_attn-2.6.3-py3.12.egg-info`.
pub(super) fn name_and_version(folder: &str) -> Option<(&str, &str)> {
    let stem = folder.strip_suffix(".dist-info").or_else(|| folder.strip_suffix(".egg-info"))?;
    let (name, rest) = stem.split_once('-')?;
    let version = rest.split('-').next()?;
    let plausible = !name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit());
    plausible.then_some((name, version))
}

#[derive(Deserialize)]
struct DirectUrl {
    url: String,
    #[serde(default)]
    dir_info: DirInfo,
}

#[derive(Deserialize, Default)]
struct DirInfo {
    #[serde(default)]
    editable: bool,
}

/// The folder that direct_url.json says an editable install points at.
pub(super) fn editable_folder(bytes: &[u8]) -> Option<String> {
    let direct: DirectUrl = serde_json::from_slice(bytes).ok()?;
    if !direct.dir_info.editable {
        return None;
    }
    let rest = direct.url.strip_prefix("file://")?;
    // `file:///src/vllm`, `file://localhost/src/vllm`, and on Windows `file:///C:/src/vllm`.
    let path = percent_decoded(&rest[rest.find('/')?..]);
    let is_drive = path.as_bytes().get(2) == Some(&b':') && path.as_bytes()[1].is_ascii_alphabetic();
    Some(if is_drive { path[1..].to_owned() } else { path })
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_what_strangers_write() {
        let text = b"\xef\xbb\xbfMetadata-Version: 2.1\r\nName: flash-attn\r\nSummary: one\r\n two\r\n\tthree\r\n\
                     Requires-Dist: torch\r\nnonsense\r\nVersion:\r\nversion: 2.8.3\r\nAuthor: \xff\xfe\r\n\r\nName: not this\r\n";
        let headers = headers(text);
        assert_eq!(first(&headers, "NAME"), Some("flash-attn"));
        assert_eq!(first(&headers, "Summary"), Some("one two three"));
        assert_eq!(first(&headers, "Version"), Some("2.8.3"));
        let requires: Vec<_> =
            all(&headers, "Requires-Dist").map(|header| (header.value.as_str(), header.line)).collect();
        assert_eq!(requires, [("torch", 6)]);
        assert_eq!(first(&headers, "Author"), Some("\u{fffd}\u{fffd}"));
    }

    #[test]
    fn ten_megabytes_of_metadata_are_read_at_once() {
        let mut text = b"Name: big\nVersion: 1\n".to_vec();
        while text.len() < 10 << 20 {
            text.extend_from_slice(b"Requires-Dist: torch\n folded\n");
        }
        assert!(all(&headers(&text), "Requires-Dist").count() > 300_000);
    }

    #[test]
    fn names_normalise_as_pep_503_says() {
        assert_eq!(normalize("Flash_Attn.4"), "flash-attn-4");
        assert_eq!(normalize("nvidia--cutlass__dsl"), "nvidia-cutlass-dsl");
        assert_eq!(normalize("_x_"), "x");
    }

    #[test]
    fn folder_names_tell_name_and_version() {
        assert_eq!(name_and_version("flash_attn_4-4.0.0b36.dist-info"), Some(("flash_attn_4", "4.0.0b36")));
        assert_eq!(name_and_version("flash_attn-2.6.3-py3.12.egg-info"), Some(("flash_attn", "2.6.3")));
        assert_eq!(name_and_version("~orch-2.1.dist-info"), Some(("~orch", "2.1")));
        assert_eq!(name_and_version("vllm.egg-info"), None);
        assert_eq!(name_and_version("x-y"), None);
    }

    #[test]
    fn sections_of_requires_txt_become_markers() {
        let text =
            b"torch\neinops>=0.7\n\n[dev]\npytest\n\n[:python_version<\"3.11\"]\ntomli\n\n[a:os_name==\"nt\"]\nb\n";
        let expected = [
            ("torch", 1),
            ("einops>=0.7", 2),
            ("pytest ; extra == \"dev\"", 5),
            ("tomli ; python_version<\"3.11\"", 8),
            ("b ; (os_name==\"nt\") and extra == \"a\"", 11),
        ];
        assert_eq!(requires_txt(text), expected.map(|(text, line)| (text.to_owned(), line)));
    }

    #[test]
    fn editable_installs_name_their_folder() {
        let read = |text: &str| editable_folder(text.as_bytes());
        let editable = r#"{"url": "file:///src/my%20vllm", "dir_info": {"editable": true}}"#;
        assert_eq!(read(editable).as_deref(), Some("/src/my vllm"));
        let windows = r#"{"url": "file:///C:/src/vllm", "dir_info": {"editable": true}}"#;
        assert_eq!(read(windows).as_deref(), Some("C:/src/vllm"));
        assert_eq!(read(r#"{"url": "file:///src/vllm", "dir_info": {}}"#), None);
        assert_eq!(read(r#"{"url": "https://example.org/vllm.git", "vcs_info": {}}"#), None);
        assert_eq!(read("[1, 2"), None);
    }
}
