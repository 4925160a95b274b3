//! A folder on disk as a [`Tree`](super::Tree): listings are read once each, when first asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::target::is_importable;
use super::tree::{Bytes, EntryKind, LARGEST_SOURCE, is_below, join, missing, split, too_large};

type Predicate<'a> = &'a (dyn Fn(&str) -> bool + Sync);

#[derive(Debug)]
struct Entry {
    name: Box<str>,
    kind: EntryKind,
    /// A symbolic link: where it leads to a folder, a walk has to look out for cycles.
    link: bool,
}

type Listing = Vec<Entry>;

#[derive(Debug)]
pub(super) struct Folder {
    base: PathBuf,
    /// Places that the tree is limited to, by their path in it; empty for a plain folder.
    mounts: Vec<(String, PathBuf)>,
    listings: RwLock<FxHashMap<Box<str>, Arc<Listing>>>,
    unreadable: Mutex<BTreeMap<String, String>>,
}

impl Folder {
    pub(super) fn new(path: &Path) -> io::Result<Folder> {
        // The first listing is read here, so that a folder without permission is an error and not an empty tree.
        Ok(Folder::with(path, read_listing(path)?))
    }

    pub(super) fn importable(path: &Path) -> io::Result<Folder> {
        let mut listing = read_listing(path)?;
        listing.retain(|entry| is_importable(path, &entry.name, entry.kind));
        Ok(Folder::with(path, listing))
    }

    fn with(path: &Path, listing: Listing) -> Folder {
        let folder = Folder {
            base: path.to_owned(),
            mounts: Vec::new(),
            listings: RwLock::default(),
            unreadable: Mutex::default(),
        };
        folder.remember("", listing);
        folder
    }

    pub(super) fn mounted(path: &Path, mounts: Vec<(String, PathBuf)>) -> io::Result<Folder> {
        let mut virtual_folders: BTreeMap<String, BTreeMap<String, (EntryKind, bool)>> = BTreeMap::new();
        virtual_folders.entry(String::new()).or_default();
        let mut kept = Vec::new();
        for (at, target) in mounts {
            let Ok(metadata) = fs::metadata(&target) else { continue };
            let kind = if metadata.is_dir() { EntryKind::Folder } else { EntryKind::File };
            let (mut parent, name) = split(&at);
            virtual_folders.entry(parent.to_owned()).or_default().insert(name.to_owned(), (kind, false));
            while !parent.is_empty() {
                let (above, name) = split(parent);
                let siblings = virtual_folders.entry(above.to_owned()).or_default();
                siblings.entry(name.to_owned()).or_insert((EntryKind::Folder, false));
                parent = above;
            }
            kept.push((at, target));
        }
        // Of nested mounts the innermost decides.
        kept.sort_by_key(|(at, _)| std::cmp::Reverse(at.len()));
        let folder =
            Folder { base: path.to_owned(), mounts: kept, listings: RwLock::default(), unreadable: Mutex::default() };
        for (at, mut names) in virtual_folders {
            // A folder that is mounted and has further mounts inside shows both.
            let disk = folder.on_disk(&at).filter(|_| !at.is_empty());
            for entry in disk.map(|disk| read_listing(&disk)).transpose()?.unwrap_or_default() {
                names.entry(entry.name.into()).or_insert((entry.kind, entry.link));
            }
            let entries = names.into_iter().map(|(name, (kind, link))| Entry { name: name.into(), kind, link });
            folder.remember(&at, entries.collect());
        }
        Ok(folder)
    }

    pub(super) fn on_disk(&self, path: &str) -> Option<PathBuf> {
        if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        if self.mounts.is_empty() || path.is_empty() {
            return Some(if path.is_empty() { self.base.clone() } else { self.base.join(path) });
        }
        let (at, target) = self.mounts.iter().find(|(at, _)| is_below(path, at))?;
        let rest = path[at.len()..].trim_start_matches('/');
        Some(if rest.is_empty() { target.clone() } else { target.join(rest) })
    }

    pub(super) fn kind(&self, path: &str) -> Option<EntryKind> {
        if path.is_empty() {
            return Some(EntryKind::Folder);
        }
        if path.starts_with('/') {
            return None;
        }
        let (parent, name) = split(path);
        find(&*self.listing(parent)?, name).map(|entry| entry.kind)
    }

    /// The listing of a folder, `None` if it is none. A folder is only read if its parent lists it, so that
    /// questions about paths that do not exist cost no system call.
    fn listing(&self, folder: &str) -> Option<Arc<Listing>> {
        if let Some(listing) = self.cached(folder) {
            return Some(listing);
        }
        // From the top, in a loop: the depth of a path is in the hands of whoever wrote the file it comes from.
        let mut listing = self.cached("")?;
        let mut end = 0;
        for name in folder.split('/') {
            if find(&listing, name)?.kind != EntryKind::Folder {
                return None;
            }
            end += name.len() + usize::from(end > 0);
            let path = &folder[..end];
            listing = match self.cached(path) {
                Some(listing) => listing,
                None => self.remember(path, self.read_folder(path)),
            };
        }
        Some(listing)
    }

    fn cached(&self, folder: &str) -> Option<Arc<Listing>> {
        self.listings.read().unwrap_or_else(PoisonError::into_inner).get(folder).cloned()
    }

    fn remember(&self, folder: &str, listing: Listing) -> Arc<Listing> {
        let listing = Arc::new(listing);
        let mut listings = self.listings.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(listings.entry(folder.into()).or_insert(listing))
    }

    fn read_folder(&self, path: &str) -> Listing {
        let Some(disk) = self.on_disk(path) else { return Listing::new() };
        read_listing(&disk).unwrap_or_else(|error| {
            let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
            unreadable.insert(path.to_owned(), format!("cannot be listed: {error}"));
            Listing::new()
        })
    }

    pub(super) fn list(&self, folder: &str) -> Vec<(String, EntryKind)> {
        let Some(listing) = self.listing(folder) else { return Vec::new() };
        listing.iter().map(|entry| (entry.name.to_string(), entry.kind)).collect()
    }

    pub(super) fn files_starting(&self, folder: &str, start: &str) -> Vec<String> {
        let Some(listing) = self.listing(folder) else { return Vec::new() };
        let first = listing.partition_point(|entry| *entry.name < *start);
        let hits = listing[first..].iter().take_while(|entry| entry.name.starts_with(start));
        hits.filter(|entry| entry.kind == EntryKind::File).map(|entry| entry.name.to_string()).collect()
    }

    pub(super) fn walk(&self, folder: &str, enter: Predicate<'_>, keep: Predicate<'_>) -> Vec<String> {
        if self.kind(folder) == Some(EntryKind::File) {
            return if keep(folder) { vec![folder.to_owned()] } else { Vec::new() };
        }
        let (mut files, mut links) = self.walk_real(folder, enter, keep);
        // Linked folders come last and one after the other: the real ones are walked in any case, and each place
        // that links lead to is walked once, under the first name that leads there.
        let mut seen = BTreeSet::new();
        while let Some(link) = links.pop_first() {
            let (Some(parent), Some(target)) = (self.canonical(split(&link).0), self.canonical(&link)) else {
                continue;
            };
            if parent.starts_with(&target) || !seen.insert(target) {
                continue;
            }
            let (more, further) = self.walk_real(&link, enter, keep);
            files.extend(more);
            links.extend(further);
        }
        files.sort_unstable();
        files
    }

    fn canonical(&self, path: &str) -> Option<PathBuf> {
        self.on_disk(path)?.canonicalize().ok()
    }

    /// The files below `folder` through real folders, and the linked folders met on the way.
    fn walk_real(&self, folder: &str, enter: Predicate<'_>, keep: Predicate<'_>) -> (Vec<String>, BTreeSet<String>) {
        let (mut files, mut links, mut folders) = (Vec::new(), BTreeSet::new(), Vec::new());
        for entry in self.listing(folder).iter().flat_map(|listing| listing.iter()) {
            let path = join(folder, &entry.name);
            match entry.kind {
                EntryKind::File if keep(&path) => files.push(path),
                EntryKind::Folder if !enter(&path) => {}
                EntryKind::Folder if entry.link => _ = links.insert(path),
                EntryKind::Folder => folders.push(path),
                EntryKind::File => {}
            }
        }
        let below: Vec<_> = folders.par_iter().map(|path| self.walk_real(path, enter, keep)).collect();
        for (more, further) in below {
            files.extend(more);
            links.extend(further);
        }
        (files, links)
    }

    /// The place of a regular file. Asking the listing first keeps pipes and devices from being opened.
    fn file(&self, path: &str) -> io::Result<PathBuf> {
        let disk = self.on_disk(path).filter(|_| self.kind(path) == Some(EntryKind::File));
        disk.ok_or_else(|| missing(path))
    }

    pub(super) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let file = fs::File::open(self.file(path)?)?;
        let size = file.metadata()?.len();
        let mut bytes = Vec::with_capacity(size.min(LARGEST_SOURCE) as usize + 1);
        file.take(LARGEST_SOURCE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST_SOURCE {
            return Err(too_large(path, size));
        }
        Ok(bytes)
    }

    /// Reads into the front of a buffer that only ever grows, in two system calls beside opening.
    pub(super) fn read_scratch<'b>(&self, path: &str, scratch: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
        const STEP: usize = 256 << 10;
        let mut file = fs::File::open(self.file(path)?)?;
        let mut length = 0;
        // A regular file is read short only at its end.
        while length == scratch.len() || length == 0 {
            if length as u64 > LARGEST_SOURCE {
                return Err(too_large(path, length as u64));
            }
            scratch.resize(scratch.len().max(length + STEP), 0);
            match file.read(&mut scratch[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&scratch[..length])
    }

    pub(super) fn stream(
        &self,
        path: &str,
        consume: &mut dyn FnMut(&mut dyn Read) -> io::Result<()>,
    ) -> io::Result<()> {
        consume(&mut fs::File::open(self.file(path)?)?)
    }

    pub(super) fn map(&self, path: &str) -> io::Result<Bytes> {
        let file = fs::File::open(self.file(path)?)?;
        if file.metadata()?.len() == 0 {
            return Ok(Bytes::Owned(Vec::new()));
        }
        // SAFETY: the map is read-only; that nobody truncates an installed file meanwhile is assumed, as by every
        // dynamic loader.
        Ok(Bytes::Mapped(unsafe { memmap2::Mmap::map(&file)? }))
    }

    pub(super) fn size(&self, path: &str) -> Option<u64> {
        Some(fs::metadata(self.file(path).ok()?).ok()?.len())
    }

    pub(super) fn is_unreadable(&self, path: &str) -> bool {
        let unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        unreadable.keys().any(|folder| is_below(path, folder))
    }

    pub(super) fn unreadable(&self) -> Vec<(String, String)> {
        let unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        unreadable.iter().map(|(path, reason)| (path.clone(), reason.clone())).collect()
    }
}

fn find<'a>(listing: &'a Listing, name: &str) -> Option<&'a Entry> {
    listing.binary_search_by(|entry| (*entry.name).cmp(name)).ok().map(|index| &listing[index])
}

fn read_listing(folder: &Path) -> io::Result<Listing> {
    let mut listing = Listing::new();
    for entry in fs::read_dir(folder)? {
        let Ok(entry) = entry else { continue };
        // A name that is no UTF-8 cannot be imported.
        let (Ok(name), Ok(mut kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
        let link = kind.is_symlink();
        if link {
            // A dangling link is nothing.
            let Ok(target) = fs::metadata(entry.path()) else { continue };
            kind = target.file_type();
        }
        let kind = match (kind.is_dir(), kind.is_file()) {
            (true, _) => EntryKind::Folder,
            (_, true) => EntryKind::File,
            _ => continue,
        };
        listing.push(Entry { name: name.into(), kind, link });
    }
    listing.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use super::super::testing::files;
    use super::*;

    fn walk(folder: &Folder, at: &str) -> Vec<String> {
        folder.walk(at, &|_| true, &|path| path.ends_with(".py"))
    }

    #[test]
    fn files_and_folders_are_told_apart() {
        let files = files(&[("a/b/c.py", "x = 1\n"), ("a/d.txt", ""), ("e.py", "")]);
        let folder = Folder::new(files.path()).unwrap();
        assert_eq!(folder.kind(""), Some(EntryKind::Folder));
        assert_eq!(folder.kind("a/b"), Some(EntryKind::Folder));
        assert_eq!(folder.kind("a/b/c.py"), Some(EntryKind::File));
        for path in ["b", "a/b/c.py/d", "a/../e.py", "/a", "a/", "a//b", "..", "."] {
            assert_eq!(folder.kind(path), None, "{path}");
            assert!(folder.list(path).is_empty(), "{path}");
            assert!(folder.read(path).is_err(), "{path}");
        }
        assert_eq!(folder.list("a"), [("b".to_owned(), EntryKind::Folder), ("d.txt".to_owned(), EntryKind::File)]);
        assert_eq!(folder.files_starting("a", "d."), ["d.txt"]);
        assert!(folder.files_starting("a", "b").is_empty() && folder.files_starting("x", "").is_empty());
        assert_eq!(walk(&folder, ""), ["a/b/c.py", "e.py"]);
        assert_eq!(walk(&folder, "a/b/c.py"), ["a/b/c.py"]);
        assert_eq!(folder.walk("", &|path| path != "a/b", &|_| true), ["a/d.txt", "e.py"]);
        assert_eq!(folder.read("a/b/c.py").unwrap(), b"x = 1\n");
        assert_eq!(&*folder.map("a/b/c.py").unwrap(), b"x = 1\n");
        assert_eq!(&*folder.map("e.py").unwrap(), b"");
        assert_eq!(folder.size("a/b/c.py"), Some(6));
        assert_eq!(folder.on_disk("new/file.py"), Some(files.path().join("new/file.py")));
        assert_eq!(folder.on_disk("../x"), None);
    }

    #[test]
    fn a_scratch_buffer_serves_files_of_every_size() {
        let files = files(&[("empty.py", ""), ("small.py", "small")]);
        for size in [256 << 10, (256 << 10) + 1, 1 << 20] {
            files.add(&format!("{size}.py"), vec![b'x'; size]);
        }
        let folder = Folder::new(files.path()).unwrap();
        let mut scratch = Vec::new();
        for name in walk(&folder, "").iter().cycle().take(12) {
            assert_eq!(folder.read_scratch(name, &mut scratch).unwrap(), folder.read(name).unwrap(), "{name}");
        }
    }

    #[test]
    fn a_path_of_any_depth_is_answered() {
        let files = files(&[("a/b.py", "")]);
        let folder = Folder::new(files.path()).unwrap();
        assert_eq!(folder.kind(&"a/".repeat(100_000)), None);
        assert_eq!(folder.kind(&"/".repeat(100_000)), None);
    }

    #[test]
    fn mounts_show_what_they_name_and_nothing_else() {
        let files = files(&[
            ("src/pkg/__init__.py", ""),
            ("src/pkg/m.py", ""),
            ("src/other/secret.py", ""),
            ("elsewhere/impl/x.py", "x"),
            ("one.py", ""),
        ]);
        let at = |name: &str| files.path().join(name);
        let mounts = vec![
            ("pkg".to_owned(), at("src/pkg")),
            ("pkg/inner".to_owned(), at("elsewhere/impl")),
            ("ns/one.py".to_owned(), at("one.py")),
            ("gone".to_owned(), at("gone")),
        ];
        let folder = Folder::mounted(&at("src"), mounts).unwrap();
        assert_eq!(walk(&folder, ""), ["ns/one.py", "pkg/__init__.py", "pkg/inner/x.py", "pkg/m.py"]);
        assert_eq!(folder.kind("other"), None);
        assert_eq!(folder.on_disk("pkg/inner/x.py"), Some(at("elsewhere/impl/x.py")));
        assert_eq!(folder.read("pkg/inner/x.py").unwrap(), b"x");
        assert_eq!(folder.on_disk("unmounted.py"), None);
    }

    #[cfg(unix)]
    mod unix {
        use std::os::unix::fs::{PermissionsExt, symlink};

        use super::*;

        #[test]
        fn links_are_followed_and_cycles_are_not() {
            let files = files(&[("real/a/m.py", ""), ("real/b.py", ""), ("outside/o.py", "")]);
            let at = |name: &str| files.path().join(name);
            symlink("..", at("real/a/up")).unwrap();
            symlink(".", at("real/self")).unwrap();
            symlink("../outside", at("real/linked")).unwrap();
            symlink("../outside", at("real/twice")).unwrap();
            symlink("b.py", at("real/file.py")).unwrap();
            symlink("nowhere", at("real/dangling.py")).unwrap();
            symlink("loop.py", at("real/loop.py")).unwrap();
            let folder = Folder::new(&at("real")).unwrap();
            assert_eq!(walk(&folder, ""), ["a/m.py", "b.py", "file.py", "linked/o.py"]);
            assert_eq!(folder.kind("twice/o.py"), Some(EntryKind::File));
            assert_eq!(folder.kind("a/up/a/up/b.py"), Some(EntryKind::File));
            assert_eq!(folder.kind("dangling.py"), None);
        }

        #[test]
        fn links_to_links_do_not_multiply() {
            let files = files(&[("m.py", "")]);
            for level in 0..24 {
                let folder = files.path().join(format!("d{level}"));
                fs::create_dir(&folder).unwrap();
                for name in ["x", "y"] {
                    symlink(format!("../d{}", level + 1), folder.join(name)).unwrap();
                }
            }
            files.add("d24/end.py", "");
            let folder = Folder::new(files.path()).unwrap();
            assert!(walk(&folder, "").len() < 60);
        }

        #[test]
        fn pipes_and_unreadable_folders_do_not_stop_anything() {
            let files = files(&[("a.py", ""), ("closed/b.py", "")]);
            let made = std::process::Command::new("mkfifo").arg(files.path().join("pipe.py")).status();
            assert!(made.is_ok_and(|status| status.success()));
            let closed = files.path().join("closed");
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
            let is_root = fs::read_dir(&closed).is_ok();
            let folder = Folder::new(files.path()).unwrap();
            let found = walk(&folder, "");
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
            assert!(folder.read("pipe.py").is_err());
            if is_root {
                assert_eq!(found, ["a.py", "closed/b.py"]);
            } else {
                assert_eq!(found, ["a.py"]);
                assert_eq!(folder.unreadable()[0].0, "closed");
                assert!(folder.is_unreadable("closed/b.py") && !folder.is_unreadable("a.py"));
            }
        }
    }
}
