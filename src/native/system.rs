//! Where the dynamic loader of this machine looks for libraries.

use std::path::{Path, PathBuf};

use memchr::memmem;

/// Folders that every loader knows.
const DEFAULT_FOLDERS: [&str; 8] = [
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// The loader's search path beyond what a library itself names.
#[derive(Debug, Default)]
pub struct System {
    /// LD_LIBRARY_PATH, and the library folders of the installation.
    folders: Vec<PathBuf>,
    /// ld.so.cache: name and path.
    cache: Vec<(String, PathBuf)>,
}

impl System {
    /// This machine, as an interpreter installed in one of `prefixes` sees it; `None` where libraries are no ELF files.
    pub fn of_this_machine(prefixes: &[PathBuf]) -> Option<System> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
            .map(|list| std::env::split_paths(&list).filter(|folder| folder.is_absolute()).collect())
            .unwrap_or_default();
        // conda's interpreter carries an RPATH of `$ORIGIN/../lib`.
        folders.extend(prefixes.iter().map(|prefix| prefix.join("lib")));
        let cache = std::fs::read("/etc/ld.so.cache").map(|bytes| read_cache(&bytes)).unwrap_or_default();
        Some(System { folders, cache })
    }

    /// Every file that the loader might take for `name`, best first.
    pub fn candidates(&self, name: &str) -> Vec<PathBuf> {
        let cached = self.cache.iter().filter(|(known, _)| known == name).map(|(_, path)| path.clone());
        let defaults = DEFAULT_FOLDERS.iter().map(|folder| Path::new(folder).join(name));
        let mut found: Vec<PathBuf> = Vec::new();
        for path in self.folders.iter().map(|folder| folder.join(name)).chain(cached).chain(defaults) {
            if path.is_file() && !found.contains(&path) {
                found.push(path);
            }
        }
        found
    }

    /// Where a CUDA toolkit keeps `name` outside the loader's search path.
    pub fn toolkit(name: &str) -> Option<PathBuf> {
        let mut folders: Vec<PathBuf> = std::fs::read_dir("/usr/local")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cuda")))
            .map(|path| path.join("lib64"))
            .collect();
        folders.sort();
        folders.into_iter().rev().find(|folder| folder.join(name).is_file())
    }
}

/// The entries of `ld.so.cache`, empty if it is none that we know.
fn read_cache(bytes: &[u8]) -> Vec<(String, PathBuf)> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    // Older systems put the table of an older format first.
    let Some(start) = memmem::find(bytes, MAGIC) else { return Vec::new() };
    let table = &bytes[start..];
    let number = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = table.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes) as usize)
    };
    let string = |at: usize| -> Option<String> {
        let rest = table.get(at..)?;
        let end = memchr::memchr(0, rest)?;
        String::from_utf8(rest[..end].to_vec()).ok()
    };
    let entry = |index: usize| -> Option<(String, PathBuf)> {
        let at = HEADER + index * ENTRY;
        Some((string(number(at + 4)?)?, string(number(at + 8)?)?.into()))
    };
    let count = number(MAGIC.len()).unwrap_or_default().min(table.len() / ENTRY);
    (0..count).map_while(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with one entry, as ldconfig writes it.
    fn cache() -> Vec<u8> {
        let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
        bytes.extend(1u32.to_ne_bytes());
        bytes.resize(48, 0);
        for field in [0x303u32, 72, 82, 0, 0, 0] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend(b"libx.so.1\0/opt/libx.so.1\0");
        bytes
    }

    #[test]
    fn reads_the_cache() {
        let expected = vec![("libx.so.1".to_owned(), PathBuf::from("/opt/libx.so.1"))];
        assert_eq!(read_cache(&cache()), expected);
        let mut behind_an_older_format = b"ld.so-1.7.0\0\0\0\0".to_vec();
        behind_an_older_format.extend(cache());
        assert_eq!(read_cache(&behind_an_older_format), expected);
    }

    #[test]
    fn a_damaged_cache_is_an_empty_one() {
        for length in 0..cache().len() {
            read_cache(&cache()[..length]);
        }
        assert_eq!(read_cache(b"something else"), []);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn finds_the_c_library_of_this_machine() {
        let system = System::of_this_machine(&[]).expect("linux");
        let found = system.candidates("libc.so.6");
        // Alpine and Nix have none where others do.
        assert!(found.iter().all(|path| path.is_file()));
        assert!(system.candidates("libno-such-library.so.0").is_empty());
    }
}
