//! Which modules mention something: the quick search that finds the importers of attention packages in an
//! environment of many thousand files, without parsing one.

use memchr::memmem::Finder;
use rayon::prelude::*;

use super::pth::is_identifier;
use super::tree::{is_below, join, split};
use super::{Environment, RootId, RootKind};

impl Environment {
    /// Every module outside the standard library whose source contains one of the names as whole words, sorted by root
    /// and path. `flash_attn` is in `import flash_attn.cute`, and not in `_supports_flash_attn` or `flash_attn_func`.
    pub fn files_mentioning(&self, names: &[&str]) -> Vec<(RootId, String)> {
        let words = Words::new(names);
        let mut found = Vec::new();
        for (index, root) in self.roots.iter().enumerate() {
            if root.kind == RootKind::StandardLibrary {
                continue;
            }
            let entries: Vec<_> = self.search_path.iter().filter(|entry| entry.root.0 as usize == index).collect();
            let leads_to_entry = |path: &str| entries.iter().any(|entry| is_below(&entry.prefix, path));
            // torch and its like bring thousands of headers in hundreds of folders.
            let is_headers = |path: &str| split(path).1 == "include" && !root.tree.is_file(&join(path, "__init__.py"));
            let enter = |path: &str| can_be_package(path) && !is_headers(path) || leads_to_entry(path);
            let modules = root.tree.walk_into("", &enter, &|path| path.ends_with(".py"));
            let mentions = |scratch: &mut Vec<u8>, path: String| {
                // What cannot be read is reported by whoever wants to parse it.
                let source = root.tree.read_scratch(&path, scratch).unwrap_or_default();
                words.are_in(source).then_some(path)
            };
            let hits: Vec<_> = modules.into_par_iter().map_init(Vec::new, mentions).flatten().collect();
            found.extend(hits.into_iter().map(|path| (RootId(index as u32), path)));
        }
        found
    }
}

/// Names to be found as whole words. Names that contain another one are found by way of it, so that
/// `flash_attn`, `flash_attn_interface` and `vllm_flash_attn` cost one search.
struct Words<'a> {
    names: &'a [&'a str],
    finders: Vec<Finder<'a>>,
}

impl<'a> Words<'a> {
    fn new(names: &'a [&'a str]) -> Words<'a> {
        let covered = |name: &&str| names.iter().any(|other| other != name && name.contains(other));
        let mut parts: Vec<&str> = names.iter().filter(|name| !name.is_empty() && !covered(name)).copied().collect();
        parts.sort_unstable();
        parts.dedup();
        Words { names, finders: parts.into_iter().map(Finder::new).collect() }
    }

    fn are_in(&self, source: &[u8]) -> bool {
        self.finders.iter().any(|finder| finder.find_iter(source).any(|at| self.is_named_at(source, at)))
    }

    /// Whether one of the names covers the hit at `at` as a whole word.
    fn is_named_at(&self, source: &[u8], at: usize) -> bool {
        let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric() || !byte.is_ascii();
        self.names.iter().any(|name| {
            // The hit may be anywhere in the name; names are short.
            (0..name.len()).any(|offset| {
                let Some(start) = at.checked_sub(offset) else { return false };
                let end = start + name.len();
                source.get(start..end) == Some(name.as_bytes())
                    && !start.checked_sub(1).is_some_and(|before| is_word(source[before]))
                    && !source.get(end).is_some_and(|&after| is_word(after))
            })
        })
    }
}

/// Whether modules can be imported from a folder of this name: not from `vllm-0.26.0.dist-info`, `.git` or `__pycache__`.
fn can_be_package(path: &str) -> bool {
    let name = split(path).1;
    is_identifier(name) && name != "__pycache__"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_whole_words() {
        let words = ["flash_attn", "vllm_flash_attn", "v1.attention"];
        let words = Words::new(&words);
        assert_eq!(words.finders.len(), 2);
        let is_in = |text: &str| words.are_in(text.as_bytes());
        for text in ["flash_attn", "import flash_attn.cute", "x = 'flash_attn'", "from a import (\n vllm_flash_attn,)"]
        {
            assert!(is_in(text), "{text}");
        }
        assert!(is_in("_supports_flash_attn = 1\nimport flash_attn"));
        assert!(is_in("from vllm.v1.attention.backend import x"));
        for text in
            ["", "_supports_flash_attn", "flash_attn_func", "my_vllm_flash_attn", "v1.attentions", "éflash_attn"]
        {
            assert!(!is_in(text), "{text}");
        }
    }
}
