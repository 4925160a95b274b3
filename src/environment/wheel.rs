//! A wheel as a [`Tree`](super::Tree), read in place through its central directory.
//!
//! The file is mapped once and the directory parsed once; every read works on a cheap clone of the archive, so
//! threads decompress side by side. Nothing is decompressed before it is asked for.

use std::fs;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::tree::{Bytes, EntryKind, LARGEST_SOURCE, join, missing, split, too_large};

/// The mapped file, shared by all readers.
#[derive(Clone)]
struct Shared(Arc<memmap2::Mmap>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

pub(super) struct Wheel {
    map: Shared,
    archive: ZipArchive<Cursor<Shared>>,
    /// Index in the archive by path.
    files: FxHashMap<Box<str>, usize>,
    /// Names by folder, sorted. Wheels rarely list their folders: they follow from the files.
    folders: FxHashMap<Box<str>, Vec<(Box<str>, EntryKind)>>,
}

impl std::fmt::Debug for Wheel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wheel").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl Wheel {
    pub(super) fn open(path: &Path) -> io::Result<Wheel> {
        // Before it is opened: opening a pipe waits for a writer.
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(invalid("is no regular file"));
        }
        if metadata.len() == 0 {
            return Err(invalid("is empty"));
        }
        let file = fs::File::open(path)?;
        // SAFETY: read-only, and nobody is expected to truncate a wheel while it is looked at.
        let map = Shared(Arc::new(unsafe { memmap2::Mmap::map(&file)? }));
        let archive = ZipArchive::new(Cursor::new(map.clone())).map_err(|error| diagnose(&map.0, &error))?;
        let mut wheel = Wheel { map, archive, files: FxHashMap::default(), folders: FxHashMap::default() };
        wheel.index();
        Ok(wheel)
    }

    fn index(&mut self) {
        let metadata = self.archive.metadata();
        self.files.reserve(metadata.len());
        self.folders.insert("".into(), Vec::new());
        for index in 0..metadata.len() {
            let Ok(entry) = metadata.entry(index) else { continue };
            let Ok(name) = std::str::from_utf8(entry.name_raw()) else { continue };
            let (path, kind) = match name.strip_suffix('/') {
                Some(folder) => (folder, EntryKind::Folder),
                None => (name, EntryKind::File),
            };
            if !is_harmless(path) {
                continue;
            }
            if kind == EntryKind::File {
                self.files.insert(path.into(), index);
            } else {
                self.folders.entry(path.into()).or_default();
            }
            self.add_to_parents(path, kind);
        }
        for names in self.folders.values_mut() {
            // Where one name is both, the folder sorts last and stays: it has files to offer.
            names.sort_unstable_by(|a, b| b.cmp(a));
            names.dedup_by(|a, b| a.0 == b.0);
            names.reverse();
        }
        let folders = &self.folders;
        self.files.retain(|path, _| !folders.contains_key(path));
    }

    /// Enters `path` in its folder, and that in its own, up to the first that is known.
    fn add_to_parents(&mut self, path: &str, kind: EntryKind) {
        let (mut path, mut kind) = (path, kind);
        loop {
            let (parent, name) = split(path);
            let known = self.folders.get_mut(parent);
            let is_known = known.is_some();
            let names = match known {
                Some(names) => names,
                None => self.folders.entry(parent.into()).or_default(),
            };
            names.push((name.into(), kind));
            if is_known {
                return;
            }
            (path, kind) = (parent, EntryKind::Folder);
        }
    }

    pub(super) fn kind(&self, path: &str) -> Option<EntryKind> {
        if self.files.contains_key(path) {
            return Some(EntryKind::File);
        }
        self.folders.contains_key(path).then_some(EntryKind::Folder)
    }

    pub(super) fn list(&self, folder: &str) -> Vec<(String, EntryKind)> {
        let names = self.folders.get(folder).map(Vec::as_slice).unwrap_or_default();
        names.iter().map(|(name, kind)| (name.to_string(), *kind)).collect()
    }

    pub(super) fn files_starting(&self, folder: &str, start: &str) -> Vec<String> {
        let names = self.folders.get(folder).map(Vec::as_slice).unwrap_or_default();
        let first = names.partition_point(|(name, _)| **name < *start);
        let hits = names[first..].iter().take_while(|(name, _)| name.starts_with(start));
        hits.filter(|(_, kind)| *kind == EntryKind::File).map(|(name, _)| name.to_string()).collect()
    }

    pub(super) fn walk(
        &self,
        folder: &str,
        enter: &(dyn Fn(&str) -> bool + Sync),
        keep: &(dyn Fn(&str) -> bool + Sync),
    ) -> Vec<String> {
        let mut files = Vec::new();
        if self.files.contains_key(folder) && keep(folder) {
            files.push(folder.to_owned());
        }
        let mut open = vec![folder.to_owned()];
        while let Some(folder) = open.pop() {
            for (name, kind) in self.folders.get(folder.as_str()).map(Vec::as_slice).unwrap_or_default() {
                let path = join(&folder, name);
                match kind {
                    EntryKind::File if keep(&path) => files.push(path),
                    EntryKind::Folder if enter(&path) => open.push(path),
                    _ => {}
                }
            }
        }
        files.sort_unstable();
        files
    }

    fn entry(&self, path: &str) -> io::Result<usize> {
        self.files.get(path).copied().ok_or_else(|| missing(path))
    }

    pub(super) fn read_scratch<'b>(&self, path: &str, scratch: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
        let size = self.size(path).ok_or_else(|| missing(path))?;
        if size > LARGEST_SOURCE {
            return Err(too_large(path, size));
        }
        scratch.clear();
        self.decompress(path, LARGEST_SOURCE, scratch)?;
        Ok(scratch)
    }

    /// Decompresses at most `limit` bytes: what the directory says about the size is a claim.
    fn decompress(&self, path: &str, limit: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut archive = self.archive.clone();
        let file = archive.by_index(self.entry(path)?).map_err(|error| unreadable(path, error))?;
        // Deflate expands at most 1032 times, so a claim beyond that earns no memory in advance.
        let plausible = file.size().min(file.compressed_size().saturating_mul(1032)).min(limit);
        buffer.reserve(plausible as usize);
        file.take(limit + 1).read_to_end(buffer).map_err(|error| damaged(path, &error))?;
        if buffer.len() as u64 > limit {
            return Err(too_large(path, buffer.len() as u64));
        }
        Ok(())
    }

    pub(super) fn map(&self, path: &str) -> io::Result<Bytes> {
        if let Some(range) = self.stored(path)? {
            return Ok(Bytes::Part(Arc::clone(&self.map.0), range));
        }
        let mut bytes = Vec::new();
        let size = self.size(path).ok_or_else(|| missing(path))?;
        self.decompress(path, size, &mut bytes)?;
        Ok(Bytes::Owned(bytes))
    }

    /// Where a file lies that is stored uncompressed.
    fn stored(&self, path: &str) -> io::Result<Option<std::ops::Range<usize>>> {
        let mut archive = self.archive.clone();
        let file = archive.by_index(self.entry(path)?).map_err(|error| unreadable(path, error))?;
        if file.compression() != CompressionMethod::Stored || file.encrypted() {
            return Ok(None);
        }
        let size = file.size();
        let range = file.data_start().and_then(|start| {
            let (start, length) = (usize::try_from(start).ok()?, usize::try_from(size).ok()?);
            let end = start.checked_add(length)?;
            (end <= self.map.0.len()).then_some(start..end)
        });
        Ok(range)
    }

    pub(super) fn stream(
        &self,
        path: &str,
        consume: &mut dyn FnMut(&mut dyn Read) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut archive = self.archive.clone();
        let mut file = archive.by_index(self.entry(path)?).map_err(|error| unreadable(path, error))?;
        let start = file.data_start().and_then(|start| usize::try_from(start).ok());
        let length = usize::try_from(file.compressed_size()).ok();
        let result = consume(&mut file);
        if let (Some(start), Some(length)) = (start, length) {
            self.give_back(start, length);
        }
        result
    }

    /// Takes pages of the archive out of this process: a wheel of libraries is hundreds of megabytes, read once.
    #[cfg(unix)]
    fn give_back(&self, start: usize, length: usize) {
        // SAFETY: the map is of a file and read-only: the pages come back from it if they are read again.
        let advised = unsafe { self.map.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, length) };
        // Where the system does not take the advice, the pages stay.
        drop(advised);
    }

    #[cfg(not(unix))]
    fn give_back(&self, _start: usize, _length: usize) {}

    pub(super) fn size(&self, path: &str) -> Option<u64> {
        let index = *self.files.get(path)?;
        Some(self.archive.by_index_data(index).ok()?.size())
    }
}

/// Whether a name may be used as a path: hostile ones leave the tree, or mean different things on different systems.
fn is_harmless(path: &str) -> bool {
    // Each folder on the way is entered in the index: without a limit one name of 64 KB makes a gigabyte of it.
    const LONGEST: usize = 4096;
    const DEEPEST: usize = 64;
    path.len() <= LONGEST
        && path.split('/').count() <= DEEPEST
        && !path.contains(['\\', '\0'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}

/// What is wrong with a file that is no readable archive.
fn diagnose(bytes: &[u8], error: &ZipError) -> io::Error {
    const LOCAL_FILE: &[u8] = b"PK\x03\x04";
    const END_OF_DIRECTORY: &[u8] = b"PK\x05\x06";
    let start = bytes.trim_ascii_start();
    if start.starts_with(b"<") {
        return invalid("is a web page or XML, not a wheel: the download went wrong");
    }
    if start.starts_with(b"version https://git-lfs") {
        return invalid("is a Git LFS pointer, not the wheel itself");
    }
    if !bytes.starts_with(LOCAL_FILE) && !bytes.starts_with(END_OF_DIRECTORY) {
        return invalid("is no zip archive, so it is no wheel");
    }
    // The end record, with the longest comment that it can carry.
    let tail = &bytes[bytes.len().saturating_sub(22 + 0xffff)..];
    if memchr::memmem::find(tail, END_OF_DIRECTORY).is_none() {
        return io::Error::new(io::ErrorKind::UnexpectedEof, "is truncated: the directory at its end is missing");
    }
    invalid(&format!("is damaged: {error}"))
}

fn unreadable(path: &str, error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => damaged(path, &error),
        ZipError::CompressionMethodNotSupported(method) => {
            let reason = format!("`{path}` is compressed with method {method}; wheels use deflate");
            io::Error::new(io::ErrorKind::Unsupported, reason)
        }
        error => io::Error::new(io::ErrorKind::InvalidData, format!("`{path}` cannot be read: {error}")),
    }
}

fn damaged(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("`{path}` is damaged in the wheel: {error}"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;
    use rayon::prelude::*;

    use super::super::testing::{Files, files};
    use super::*;

    fn every(_: &str) -> bool {
        true
    }

    fn sample(files: &Files) -> PathBuf {
        let code = "x = 1\n".repeat(10_000);
        files.wheel(
            "a-1-py3-none-any.whl",
            &[("pkg/__init__.py", ""), ("pkg/sub/m.py", &code), ("pkg/lib.so.stored", "ELF")],
        )
    }

    #[test]
    fn folders_follow_from_the_files() {
        let files = files(&[]);
        let wheel = Wheel::open(&sample(&files)).unwrap();
        assert_eq!(wheel.kind(""), Some(EntryKind::Folder));
        assert_eq!(wheel.kind("pkg/sub"), Some(EntryKind::Folder));
        assert_eq!(wheel.kind("pkg/sub/m.py"), Some(EntryKind::File));
        assert_eq!(wheel.kind("pkg/sub/"), None);
        let names: Vec<_> = wheel.list("pkg").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["__init__.py", "lib.so.stored", "sub"]);
        assert_eq!(wheel.files_starting("pkg", "lib."), ["lib.so.stored"]);
        assert!(wheel.files_starting("pkg", "sub").is_empty() && wheel.files_starting("none", "").is_empty());
        assert_eq!(wheel.walk("pkg", &every, &|path| path.ends_with(".py")), ["pkg/__init__.py", "pkg/sub/m.py"]);
        assert_eq!(wheel.walk("", &|path| path != "pkg/sub", &every), ["pkg/__init__.py", "pkg/lib.so.stored"]);
        assert_eq!(wheel.walk("pkg/sub/m.py", &every, &every), ["pkg/sub/m.py"]);
    }

    #[test]
    fn files_are_read_from_many_threads() {
        let files = files(&[]);
        let wheel = Wheel::open(&sample(&files)).unwrap();
        let lengths: Vec<usize> = (0..64)
            .into_par_iter()
            .map_init(Vec::new, |scratch, _| wheel.read_scratch("pkg/sub/m.py", scratch).unwrap().len())
            .collect();
        assert_eq!(lengths, [60_000; 64]);
        assert_eq!(wheel.size("pkg/sub/m.py"), Some(60_000));
        assert!(wheel.map("pkg/sub/m.py").unwrap().starts_with(b"x = 1\n"));
        assert!(wheel.read_scratch("pkg/none.py", &mut Vec::new()).is_err());
    }

    #[test]
    fn stored_files_are_mapped_where_they_lie() {
        let files = files(&[]);
        let wheel = Wheel::open(&sample(&files)).unwrap();
        assert!(matches!(wheel.map("pkg/lib.so.stored").unwrap(), Bytes::Part(..)));
        assert_eq!(&*wheel.map("pkg/lib.so.stored").unwrap(), b"ELF");
        let mut streamed = Vec::new();
        wheel.stream("pkg/lib.so.stored", &mut |reader| reader.read_to_end(&mut streamed).map(drop)).unwrap();
        assert_eq!(streamed, b"ELF");
    }

    #[test]
    fn hostile_names_are_passed_over() {
        let files = files(&[]);
        let names = [
            ("../../etc/x.py", ""),
            ("/abs.py", ""),
            ("a/../b.py", ""),
            ("a\\b.py", ""),
            ("a//b.py", ""),
            ("./c.py", ""),
        ];
        let deep = "a/".repeat(20_000) + "e.py";
        let mut content = names.to_vec();
        content.extend([("ok/d.py", "pass"), (&*deep, "")]);
        let wheel = Wheel::open(&files.wheel("evil-1-py3-none-any.whl", &content)).unwrap();
        assert_eq!(wheel.walk("", &every, &every), ["ok/d.py"]);
    }

    #[test]
    fn a_name_that_is_file_and_folder_is_a_folder() {
        let files = files(&[]);
        let wheel = Wheel::open(&files.wheel("both-1-py3-none-any.whl", &[("a", "file"), ("a/b.py", "")])).unwrap();
        assert_eq!(wheel.kind("a"), Some(EntryKind::Folder));
        assert_eq!(wheel.list(""), [("a".to_owned(), EntryKind::Folder)]);
    }

    #[test]
    fn each_kind_of_bad_file_is_named() {
        let files = files(&[("empty.whl", ""), ("page.whl", "\n<!DOCTYPE html>"), ("text.whl", "hello")]);
        files.add("lfs.whl", "version https://git-lfs.github.com/spec/v1\noid sha256:0");
        let whole = fs::read(sample(&files)).unwrap();
        files.add("cut.whl", &whole[..whole.len() - 30]);
        let message = |name: &str| Wheel::open(&files.path().join(name)).unwrap_err();
        assert!(message("empty.whl").to_string().contains("empty"));
        assert!(message("page.whl").to_string().contains("web page"));
        assert!(message("text.whl").to_string().contains("no zip archive"));
        assert!(message("lfs.whl").to_string().contains("LFS"));
        assert_eq!(message("cut.whl").kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(message("none.whl").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn damage_inside_is_an_error_of_the_file() {
        let files = files(&[]);
        let mut bytes = fs::read(sample(&files)).unwrap();
        // Somewhere in the compressed stream of the long file.
        for byte in &mut bytes[130..150] {
            *byte ^= 0x5a;
        }
        let wheel = Wheel::open(&files.add("bad.whl", bytes)).unwrap();
        let error = wheel.read_scratch("pkg/sub/m.py", &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("`pkg/sub/m.py`"), "{error}");
    }

    #[test]
    fn a_bomb_is_refused() {
        let files = files(&[]);
        let zeros = "\0".repeat(LARGEST_SOURCE as usize + 1);
        let wheel = Wheel::open(&files.wheel("bomb-1-py3-none-any.whl", &[("a.py", &zeros)])).unwrap();
        let error = wheel.read_scratch("a.py", &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn no_damage_panics(position in 0usize..400, byte in any::<u8>(), keep in 0usize..2000) {
            let files = files(&[]);
            let mut bytes = fs::read(sample(&files)).unwrap();
            let position = position % bytes.len();
            // From both ends: the directory is at the back.
            bytes[position] = byte;
            let back = bytes.len() - 1 - position;
            bytes[back] = byte;
            bytes.truncate(keep.max(40));
            if let Ok(wheel) = Wheel::open(&files.add("bad.whl", bytes)) {
                for path in wheel.walk("", &every, &every) {
                    _ = wheel.read_scratch(&path, &mut Vec::new());
                    _ = wheel.map(&path);
                }
            }
        }
    }
}
