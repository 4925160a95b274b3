//! A library that comes as a stream (out of a wheel), kept only where it is read.
//!
//! Of hundreds of megabytes of machine code and kernels nothing is looked at. The file is read into anonymous memory, and
//! the pages of those parts are given back as soon as the stream has passed them; they read as zeros from then on.

use std::io::{self, Read};
use std::ops::Range;

use memmap2::MmapMut;
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use super::fatbin;
use crate::environment::Tree;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// The largest page among those of the systems we run on.
const PAGE: usize = 1 << 14;

/// Section names lie directly before the table of sections, behind tables for debuggers that nobody reads.
const NAMES: usize = 1 << 16;

/// Reads a library of a tree.
pub fn open(tree: &Tree, path: &str) -> io::Result<MmapMut> {
    let size = tree.size(path).ok_or(io::ErrorKind::NotFound)?;
    let mut map = None;
    tree.stream(path, &mut |reader| {
        map = Some(read(reader, size)?);
        // Only at the end of the stream is its checksum compared.
        reader.read(&mut [0; 1]).map(drop)
    })?;
    map.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Reads a library of `size` bytes.
pub fn read(reader: &mut dyn Read, size: u64) -> io::Result<MmapMut> {
    let size = usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let mut map = MmapMut::map_anon(size.max(1))?;
    let mut reaper = Reaper { unread: Vec::new(), fatbin: Cursor::Container(0) };
    let mut at = 0;
    while at < size {
        let end = size.min(at + CHUNK);
        reader.read_exact(&mut map[at..end])?;
        if at == 0 {
            reaper.unread = segments(&map[..end], size).unwrap_or_default();
        }
        at = end;
        reaper.reap(&map, at);
    }
    Ok(map)
}

/// Parts of a file that are never looked at: machine code, and what is not loaded.
fn segments(start: &[u8], size: usize) -> Option<Vec<Range<usize>>> {
    let header = FileHeader64::<Endianness>::parse(start).ok()?;
    let endian = header.endian().ok()?;
    let mut loaded = Vec::new();
    let mut unread = Vec::new();
    for segment in header.program_headers(endian, start).ok()? {
        if segment.p_type(endian) == elf::PT_LOAD {
            let from = usize::try_from(segment.p_offset(endian)).ok()?;
            let to = from.checked_add(usize::try_from(segment.p_filesz(endian)).ok()?)?.min(size);
            // Old linkers put the tables of symbols into the same segment as the code: the one at the start.
            if segment.p_flags(endian).contains(elf::PF_X) && from > 0 && from < to {
                unread.push(from..to);
            }
            loaded.push(from..to);
        }
    }
    // What lies between the loaded parts and the table of sections; patchelf loads a part behind that.
    let sections = usize::try_from(header.e_shoff(endian)).ok()?.checked_sub(NAMES)?;
    let before = loaded.iter().filter(|part| part.start < sections).map(|part| part.end).max()?;
    if before < sections {
        unread.push(before..sections);
    }
    Some(unread)
}

/// Where a header of device code is looked for.
enum Cursor {
    /// A container, from here on.
    Container(usize),
    /// An entry, in a container that ends there.
    Entry(usize, usize),
}

/// Gives back what the stream has passed and nobody reads.
struct Reaper {
    unread: Vec<Range<usize>>,
    fatbin: Cursor,
}

impl Reaper {
    fn reap(&mut self, map: &MmapMut, at: usize) {
        self.follow(&map[..at]);
        for range in &mut self.unread {
            let from = range.start.next_multiple_of(PAGE);
            let to = range.end.min(at) / PAGE * PAGE;
            if from < to {
                give_back(map, from..to);
                range.start = to;
            }
        }
        self.unread.retain(|range| range.end > at);
    }

    /// Follows the headers of device code as far as `bytes` go; the code between them is not read.
    fn follow(&mut self, bytes: &[u8]) {
        loop {
            self.fatbin = match self.fatbin {
                Cursor::Container(at) => {
                    if let Some(range) = self.unread.iter().find(|range| range.contains(&at)) {
                        let end = range.end.next_multiple_of(8);
                        self.fatbin = Cursor::Container(end);
                        continue;
                    }
                    if at + fatbin::CONTAINER_HEADER > bytes.len() {
                        return;
                    }
                    match fatbin::container(bytes, at) {
                        Some(container) => Cursor::Entry(container.start, container.end),
                        None => Cursor::Container(at + 8),
                    }
                }
                Cursor::Entry(at, end) if at + fatbin::ENTRY_HEADER > end => Cursor::Container(end.next_multiple_of(8)),
                Cursor::Entry(at, end) => {
                    if at + fatbin::ENTRY_HEADER > bytes.len() {
                        return;
                    }
                    match fatbin::entry(bytes, at) {
                        Some(entry) if entry.end <= end => {
                            self.unread.push(entry.clone());
                            Cursor::Entry(entry.end, end)
                        }
                        // Not device code after all, or damaged: keep what is left of it.
                        _ => Cursor::Container(at.next_multiple_of(8)),
                    }
                }
            };
        }
    }
}

#[cfg(unix)]
fn give_back(map: &MmapMut, range: Range<usize>) {
    // SAFETY: the pages are private anonymous memory, which may turn into zeros: nothing borrows from them, and what is
    // made of the file later does not depend on them.
    let advised =
        unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.end - range.start) };
    // Where the system does not take the advice, the file is kept whole.
    drop(advised);
}

#[cfg(not(unix))]
fn give_back(_map: &MmapMut, _range: Range<usize>) {}
