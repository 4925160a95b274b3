//! Which modules mention something: the quick search that finds the importers of attention packages in an
//! environment of many thousand files, without parsing one.

use memchr::memmem::Finder;
use rayon::prelude::*;

use super::pth::is_identifier;
use super::tree::{is_below, split};
use super::{Environment, RootId, RootKind};

impl Environment {
    /// Every module outside the standard library whose source contains one of the needles, sorted by root and path.
    pub fn files_mentioning(&self, needles: &[&str]) -> Vec<(RootId, String)> {
        let finders = finders(needles);
        let mut found = Vec::new();
        for (index, root) in self.roots.iter().enumerate() {
            if root.kind == RootKind::StandardLibrary {
                continue;
            }
            let entries: Vec<_> = self.search_path.iter().filter(|entry| entry.root.0 as usize == index).collect();
            let leads_to_entry = |path: &str| entries.iter().any(|entry| is_below(&entry.prefix, path));
            let enter = |path: &str| can_be_package(path) || leads_to_entry(path);
            let modules = root.tree.walk_into("", &enter, &|path| path.ends_with(".py"));
            let mentions = |buffer: &mut Vec<u8>, path: String| {
                // What cannot be read is reported by whoever wants to parse it.
                let is_read = root.tree.read_into(&path, buffer).is_ok();
                (is_read && finders.iter().any(|finder| finder.find(buffer).is_some())).then_some(path)
            };
            let hits: Vec<_> = modules.into_par_iter().map_init(Vec::new, mentions).flatten().collect();
            found.extend(hits.into_iter().map(|path| (RootId(index as u32), path)));
        }
        found
    }
}

/// Finders for the needles that no shorter one covers: what contains `vllm_flash_attn` contains `flash_attn`.
fn finders<'a>(needles: &[&'a str]) -> Vec<Finder<'a>> {
    let covered = |needle: &&&str| needles.iter().any(|other| other != *needle && needle.contains(other));
    let mut kept: Vec<&str> = needles.iter().filter(|needle| !covered(needle)).copied().collect();
    kept.sort_unstable();
    kept.dedup();
    kept.into_iter().map(Finder::new).collect()
}

/// Whether modules can be imported from a folder: not from `vllm-0.26.0.dist-info`, `.git` or `__pycache__`.
fn can_be_package(path: &str) -> bool {
    let name = split(path).1;
    is_identifier(name) && name != "__pycache__"
}
