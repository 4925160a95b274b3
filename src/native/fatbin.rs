//! Fat binaries: which architectures a library holds device code for, read from the headers alone.
//!
//! A `.nv_fatbin` section is a row of containers, one for each translation unit, and each container a row of
//! entries: machine code (a cubin) for one architecture, or PTX that the driver compiles. The code itself, mostly
//! compressed, is never touched.

use std::ops::Range;

use super::arch::{Arch, Variant};
use super::elf::{Elf, ElfError};

/// Device code for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    /// What it was built for.
    pub arch: Arch,
    /// The ISA version of PTX; `None` for machine code.
    pub isa: Option<(u32, u32)>,
}

/// The device code of one translation unit: the driver picks the best entry for its device.
pub type Container = Vec<Code>;

/// Why a section could not be read as fat binaries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FatbinError {
    /// A container's size leaves the section.
    #[error("the device code at byte {0} runs past its section")]
    Overrun(usize),
    /// An entry's header does not make sense.
    #[error("the device code at byte {0} has a damaged header")]
    Entry(usize),
    /// The library around it.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

const MAGIC: u32 = 0xBA55_ED50;
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const FLAG_SPECIFIC: u64 = 0x10_0000;
const FLAG_FAMILY: u64 = 0x20_0000;
/// Bytes of an entry's header that are read.
pub(super) const ENTRY_HEADER: usize = 64;
/// Bytes of a container's header.
pub(super) const CONTAINER_HEADER: usize = 16;

/// The containers of a library's device code, empty if it has none.
///
/// `__nv_relfatbin` holds what `nvlink` has yet to link, or what was left after it did: it counts only where no
/// linked code is present.
pub fn read(library: &Elf<'_>) -> Result<Vec<Container>, FatbinError> {
    read_passing(library, &mut |_| {})
}

/// The same; `passed` is told of every few megabytes that are done with.
pub fn read_passing(library: &Elf<'_>, passed: &mut dyn FnMut(&[u8])) -> Result<Vec<Container>, FatbinError> {
    for section in [b".nv_fatbin".as_slice(), b"__nv_relfatbin"] {
        if let Some(bytes) = library.section(section)? {
            let containers = parse_passing(bytes, passed)?;
            if !containers.is_empty() {
                return Ok(containers);
            }
        }
    }
    Ok(Vec::new())
}

/// The containers of one section.
pub fn parse(section: &[u8]) -> Result<Vec<Container>, FatbinError> {
    parse_passing(section, &mut |_| {})
}

fn parse_passing(section: &[u8], passed: &mut dyn FnMut(&[u8])) -> Result<Vec<Container>, FatbinError> {
    const STEP: usize = 4 << 20;
    let mut containers = Vec::new();
    let (mut at, mut done) = (0, 0);
    while let Some(magic) = u32_at(section, at) {
        if magic != MAGIC {
            at += 8; // padding between containers
            continue;
        }
        let range =
            container(section, at).filter(|range| range.end <= section.len()).ok_or(FatbinError::Overrun(at))?;
        let end = range.end;
        containers.push(entries(&section[..end], range.start)?);
        at = end.next_multiple_of(8);
        if end - done > STEP {
            passed(&section[done..end]);
            done = end;
        }
    }
    Ok(containers)
}

/// The entries from `at` to the end of `bytes`.
fn entries(bytes: &[u8], mut at: usize) -> Result<Container, FatbinError> {
    let mut codes = Container::new();
    while at + ENTRY_HEADER <= bytes.len() {
        let code = entry(bytes, at).filter(|code| code.end <= bytes.len()).ok_or(FatbinError::Entry(at))?;
        codes.extend(Entry::read(bytes, at).and_then(|entry| entry.code()));
        at = code.end;
    }
    Ok(codes)
}

/// Where the entries of the container at `at` are, if there is one.
pub(super) fn container(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let header = usize::from(u16_at(bytes, at + 6)?);
    let payload = usize::try_from(u64_at(bytes, at + 8)?).ok()?;
    let start = at.checked_add(header)?;
    let sound = u32_at(bytes, at)? == MAGIC && header >= CONTAINER_HEADER;
    if sound { Some(start..start.checked_add(payload)?) } else { None }
}

/// Where the code of the entry at `at` is.
pub(super) fn entry(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let entry = Entry::read(bytes, at)?;
    let header = usize::try_from(entry.header).ok().filter(|&header| header >= ENTRY_HEADER)?;
    let start = at.checked_add(header)?;
    Some(start..start.checked_add(usize::try_from(entry.size).ok()?)?)
}

/// The fields of an entry's header that matter here.
struct Entry {
    kind: u16,
    header: u32,
    size: u64,
    isa: (u16, u16),
    arch: u32,
    flags: u64,
}

impl Entry {
    fn read(bytes: &[u8], at: usize) -> Option<Entry> {
        Some(Entry {
            kind: u16_at(bytes, at)?,
            header: u32_at(bytes, at + 4)?,
            size: u64_at(bytes, at + 8)?,
            isa: (u16_at(bytes, at + 26)?, u16_at(bytes, at + 24)?),
            arch: u32_at(bytes, at + 28)?,
            flags: u64_at(bytes, at + 40)?,
        })
    }

    fn code(&self) -> Option<Code> {
        let variant = match self.flags {
            flags if flags & FLAG_SPECIFIC != 0 => Variant::Specific,
            flags if flags & FLAG_FAMILY != 0 => Variant::Family,
            _ => Variant::Portable,
        };
        let arch = Arch::from_number(self.arch, variant);
        match self.kind {
            KIND_ELF => Some(Code { arch, isa: None }),
            KIND_PTX => Some(Code { arch, isa: Some((self.isa.0.into(), self.isa.1.into())) }),
            // Other kinds (intermediate code for link-time optimisation) are nothing that a driver runs.
            _ => None,
        }
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}
