//! What the dynamic loader would read of an ELF library: dependencies, search paths, symbols and their versions.
//!
//! Nothing is copied out of the file but short strings: a lookup goes through the library's own hash table, so a
//! library of 450 MB costs the few pages that are touched.

use std::collections::{BTreeMap, BTreeSet};

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::pod::bytes_of;
use object::read::elf::{Dyn as _, FileHeader as _, GnuHashTable, SectionHeader as _, SectionTable};
use object::read::elf::{Sym as _, SymbolTable, VersionTable};

type Header = FileHeader64<Endianness>;

/// Why a file could not be read as a library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// A Windows `.pyd` or `.dll`.
    #[error("Windows libraries are not supported yet")]
    Windows,
    /// A macOS `.dylib` or bundle.
    #[error("macOS libraries are not supported yet")]
    MacOs,
    /// Bytes of something else.
    #[error("not a shared library: it does not start like an ELF file")]
    NotElf,
    /// A 32-bit library.
    #[error("a 32-bit library")]
    Not64Bit,
    /// Truncated or damaged.
    #[error("damaged or truncated ELF file: {0}")]
    Malformed(String),
}

impl From<object::read::Error> for ElfError {
    fn from(error: object::read::Error) -> Self {
        ElfError::Malformed(error.to_string())
    }
}

/// The processor that a library is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
    /// `e_machine` of another one.
    Other(u16),
}

impl Machine {
    /// As Python's `platform.machine()` and wheel tags spell it.
    pub fn name(self) -> String {
        match self {
            Machine::X86_64 => "x86_64".to_owned(),
            Machine::Aarch64 => "aarch64".to_owned(),
            Machine::Other(number) => format!("ELF machine {number}"),
        }
    }

    /// The machine this program was built for, where libraries can be loaded by it.
    pub fn host() -> Option<Machine> {
        match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") => Some(Machine::X86_64),
            ("linux", "aarch64") => Some(Machine::Aarch64),
            _ => None,
        }
    }
}

/// A symbol that a library expects others to define.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undefined<'d> {
    /// As in the symbol table (mangled).
    pub name: &'d [u8],
    /// A missing weak symbol is no error.
    pub weak: bool,
    /// The library and version it is bound to (`libc.so.6`, `GLIBC_2.34`), if it is.
    pub version: Option<(String, String)>,
}

/// The dynamic part of a library.
#[derive(Debug)]
pub struct Elf<'d> {
    data: &'d [u8],
    endian: Endianness,
    sections: SectionTable<'d, Header>,
    symbols: SymbolTable<'d, Header>,
    versions: VersionTable<'d, Header>,
    hash: Option<GnuHashTable<'d, Header>>,
    /// The processor.
    pub machine: Machine,
    /// Libraries that it needs, in order.
    pub needed: Vec<String>,
    /// The name that others ask for it by.
    pub soname: Option<String>,
    /// DT_RPATH entries, unexpanded; the loader ignores them where there is a RUNPATH.
    pub rpath: Vec<String>,
    /// DT_RUNPATH entries, unexpanded.
    pub runpath: Vec<String>,
}

impl<'d> Elf<'d> {
    /// Reads the headers and tables of a library.
    pub fn parse(data: &'d [u8]) -> Result<Elf<'d>, ElfError> {
        check_format(data)?;
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let machine = machine(header, endian);
        let sections = header.sections(endian, data)?;
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
        let versions = sections.versions(endian, data)?.unwrap_or_default();
        // A shift by more than the width of a hash is damage, and would overflow in the lookup.
        let header = sections.gnu_hash_header(endian, data)?;
        let is_sound = header.is_some_and(|header| header.bloom_shift.get(endian) < 32);
        let hash = if is_sound { sections.gnu_hash(endian, data)?.map(|(table, _)| table) } else { None };
        let mut library = Elf {
            data,
            endian,
            sections,
            symbols,
            versions,
            hash,
            machine,
            needed: Vec::new(),
            soname: None,
            rpath: Vec::new(),
            runpath: Vec::new(),
        };
        library.read_dynamic()?;
        Ok(library)
    }

    /// The processor that a library is for, from its first bytes.
    pub fn machine_of(start: &[u8]) -> Result<Machine, ElfError> {
        check_format(start)?;
        let header = Header::parse(start)?;
        Ok(machine(header, header.endian()?))
    }

    fn read_dynamic(&mut self) -> Result<(), ElfError> {
        let Some((entries, link)) = self.sections.dynamic(self.endian, self.data)? else { return Ok(()) };
        let strings = self.sections.strings(self.endian, self.data, link)?;
        for entry in entries {
            let tag = entry.d_tag(self.endian);
            if tag == elf::DT_NULL {
                break;
            }
            if ![elf::DT_NEEDED, elf::DT_SONAME, elf::DT_RPATH, elf::DT_RUNPATH].contains(&tag) {
                continue;
            }
            let offset = u32::try_from(entry.d_val(self.endian))
                .map_err(|_| ElfError::Malformed("a name lies outside the string table".to_owned()))?;
            let text = strings
                .get(offset)
                .map_err(|()| ElfError::Malformed("a name lies outside the string table".to_owned()))?;
            let text = String::from_utf8_lossy(text).into_owned();
            match tag {
                elf::DT_NEEDED => self.needed.push(text),
                elf::DT_SONAME => self.soname = Some(text),
                elf::DT_RPATH => self.rpath.extend(split_path(&text)),
                _ => self.runpath.extend(split_path(&text)),
            }
        }
        Ok(())
    }

    /// The folders in which the loader looks for what this library needs, before the system's.
    pub fn search_folders(&self) -> &[String] {
        if self.runpath.is_empty() { &self.rpath } else { &self.runpath }
    }

    /// Every symbol that others must define.
    pub fn undefined(&self) -> Vec<Undefined<'d>> {
        let strings = self.symbols.strings();
        let mut found = Vec::new();
        for (index, symbol) in self.symbols.enumerate() {
            if index.0 == 0 || symbol.st_shndx(self.endian) != elf::SHN_UNDEF {
                continue;
            }
            let Ok(name) = symbol.name(self.endian, strings) else { continue };
            if name.is_empty() {
                continue;
            }
            let version = self.versions.version(self.versions.version_index(self.endian, index).index());
            let version = version.ok().flatten().map(|version| {
                let file = version.file().unwrap_or_default();
                (text(file), text(version.name()))
            });
            found.push(Undefined { name, weak: symbol.st_bind() == elf::STB_WEAK, version });
        }
        found
    }

    /// Whether this library defines `name` for others.
    pub fn exports(&self, name: &[u8]) -> bool {
        match &self.hash {
            Some(table) => {
                let hash = elf::gnu_hash(name);
                table.find(self.endian, name, hash, None, &self.symbols, &self.versions).is_some()
            }
            // Linkers have written GNU hash tables since 2006; without one a walk is good enough.
            None => self.exported().any(|exported| exported == name),
        }
    }

    /// Every symbol that this library defines for others.
    pub fn exported(&self) -> impl Iterator<Item = &'d [u8]> + '_ {
        let strings = self.symbols.strings();
        self.symbols.iter().filter_map(move |symbol| {
            let defined = symbol.st_shndx(self.endian) != elf::SHN_UNDEF && symbol.st_bind() != elf::STB_LOCAL;
            if defined { symbol.name(self.endian, strings).ok().filter(|name| !name.is_empty()) } else { None }
        })
    }

    /// Symbol versions that it needs, by library: `libc.so.6` -> `GLIBC_2.34`, ..
    pub fn versions_needed(&self) -> Result<BTreeMap<String, BTreeSet<String>>, ElfError> {
        let mut needed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let Some((mut files, link)) = self.sections.gnu_verneed(self.endian, self.data)? else { return Ok(needed) };
        let strings = self.sections.strings(self.endian, self.data, link)?;
        while let Some((file, mut versions)) = files.next()? {
            let name = text(file.file(self.endian, strings)?);
            let known = needed.entry(name).or_default();
            while let Some(version) = versions.next()? {
                // A weak need is one that the loader does not insist on.
                if !version.vna_flags.get(self.endian).contains(elf::VER_FLG_WEAK) {
                    known.insert(text(version.name(self.endian, strings)?));
                }
            }
        }
        Ok(needed)
    }

    /// Symbol versions that it defines: `GLIBC_2.2.5`, .. `GLIBC_2.36`.
    pub fn versions_defined(&self) -> Result<BTreeSet<String>, ElfError> {
        let mut defined = BTreeSet::new();
        let Some((mut entries, link)) = self.sections.gnu_verdef(self.endian, self.data)? else { return Ok(defined) };
        let strings = self.sections.strings(self.endian, self.data, link)?;
        while let Some((_, mut names)) = entries.next()? {
            // The first name is the version, the others those it inherits from.
            if let Some(name) = names.next()? {
                defined.insert(text(name.name(self.endian, strings)?));
            }
        }
        Ok(defined)
    }

    /// The bytes of a section; `None` if there is none of that name.
    pub fn section(&self, name: &[u8]) -> Result<Option<&'d [u8]>, ElfError> {
        match self.sections.section_by_name(self.endian, name) {
            Some((_, section)) => Ok(Some(section.data(self.endian, self.data)?)),
            None => Ok(None),
        }
    }
}

fn check_format(start: &[u8]) -> Result<(), ElfError> {
    match start {
        [0x7f, b'E', b'L', b'F', 2, ..] => Ok(()),
        [0x7f, b'E', b'L', b'F', 1, ..] => Err(ElfError::Not64Bit),
        [b'M', b'Z', ..] => Err(ElfError::Windows),
        [0xcf, 0xfa, 0xed, 0xfe, ..] | [0xca, 0xfe, 0xba, 0xbe, ..] => Err(ElfError::MacOs),
        _ => Err(ElfError::NotElf),
    }
}

fn machine(header: &Header, endian: Endianness) -> Machine {
    match header.e_machine(endian) {
        elf::EM_X86_64 => Machine::X86_64,
        elf::EM_AARCH64 => Machine::Aarch64,
        other => Machine::Other(other.0),
    }
}

/// Copies the dynamic part of a library: a smaller library with the same tables, and nothing else in it.
///
/// A library inside a wheel is decompressed to be read; this is what is kept of it.
pub fn skeleton(data: &[u8]) -> Result<Vec<u8>, ElfError> {
    let library = Elf::parse(data)?;
    let header = Header::parse(data)?;
    let (endian, size) = (library.endian, size_of::<elf::SectionHeader64<Endianness>>());
    let names = usize::from(header.e_shstrndx(endian).0);
    let mut linked: BTreeSet<usize> = [names].into();
    for (_, section) in library.sections.enumerate() {
        if is_dynamic(section.sh_type(endian)) {
            linked.insert(section.sh_link(endian) as usize);
        }
    }
    let mut kept = bytes_of(header).to_vec();
    let mut table = Vec::new();
    for (index, section) in library.sections.enumerate() {
        let mut section = *section;
        if is_dynamic(section.sh_type(endian)) || linked.contains(&index.0) {
            kept.resize(kept.len().next_multiple_of(8), 0);
            let offset = kept.len() as u64;
            kept.extend_from_slice(section.data(endian, data)?);
            if kept.len() > data.len().saturating_mul(2) {
                return Err(ElfError::Malformed("its sections overlap".to_owned()));
            }
            section.sh_offset.set(endian, offset);
        } else if section.sh_type(endian) != elf::SHT_NULL {
            section.sh_type.set(endian, elf::SHT_NOBITS);
        }
        table.push(section);
    }
    kept.resize(kept.len().next_multiple_of(8), 0);
    let mut header = *header;
    header.e_shoff.set(endian, kept.len() as u64);
    header.e_phnum.set(endian, 0);
    kept[..size_of::<Header>()].copy_from_slice(bytes_of(&header));
    kept.reserve_exact(table.len() * size);
    for section in &table {
        kept.extend_from_slice(bytes_of(section));
    }
    Ok(kept)
}

/// Sections that the loader reads.
fn is_dynamic(kind: elf::SectionType) -> bool {
    [
        elf::SHT_DYNSYM,
        elf::SHT_DYNAMIC,
        elf::SHT_HASH,
        elf::SHT_GNU_HASH,
        elf::SHT_GNU_VERSYM,
        elf::SHT_GNU_VERDEF,
        elf::SHT_GNU_VERNEED,
    ]
    .contains(&kind)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn split_path(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned)
}
