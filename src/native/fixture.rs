//! Libraries written by the tests: just enough of an ELF file for what is read of one.

use object::Endianness;
use object::elf;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, Verdef, Vernaux, Verneed, Writer};

/// Version indices 0 and 1 are local and global.
const FIRST_VERSION: u16 = 2;

/// A library to be written.
#[derive(Debug, Clone)]
pub struct Library {
    machine: elf::Machine,
    endian: Endianness,
    soname: Option<String>,
    needed: Vec<String>,
    runpath: Option<String>,
    /// Name, whether it is weak, version (index into `versions`).
    undefined: Vec<(String, bool, Option<usize>)>,
    exported: Vec<String>,
    /// Library and version.
    versions: Vec<(String, String)>,
    defined_versions: Vec<String>,
    sections: Vec<(String, Vec<u8>)>,
    hash: bool,
}

impl Default for Library {
    fn default() -> Self {
        Library {
            machine: match crate::native::elf::Machine::host() {
                Some(crate::native::elf::Machine::Aarch64) => elf::EM_AARCH64,
                _ => elf::EM_X86_64,
            },
            endian: Endianness::Little,
            soname: None,
            needed: Vec::new(),
            runpath: None,
            undefined: Vec::new(),
            exported: Vec::new(),
            versions: Vec::new(),
            defined_versions: Vec::new(),
            sections: Vec::new(),
            hash: true,
        }
    }
}

impl Library {
    pub fn machine(mut self, machine: elf::Machine) -> Self {
        self.machine = machine;
        self
    }

    pub fn big_endian(mut self) -> Self {
        self.endian = Endianness::Big;
        self
    }

    pub fn without_hash(mut self) -> Self {
        self.hash = false;
        self
    }

    pub fn soname(mut self, name: &str) -> Self {
        self.soname = Some(name.to_owned());
        self
    }

    pub fn needs(mut self, names: &[&str]) -> Self {
        self.needed.extend(names.iter().map(|name| (*name).to_owned()));
        self
    }

    pub fn runpath(mut self, path: &str) -> Self {
        self.runpath = Some(path.to_owned());
        self
    }

    pub fn undefined(mut self, names: &[&str]) -> Self {
        self.undefined.extend(names.iter().map(|name| ((*name).to_owned(), false, None)));
        self
    }

    pub fn weak(mut self, name: &str) -> Self {
        self.undefined.push((name.to_owned(), true, None));
        self
    }

    pub fn versioned(mut self, name: &str, library: &str, version: &str) -> Self {
        self.undefined.push((name.to_owned(), false, Some(self.versions.len())));
        self.versions.push((library.to_owned(), version.to_owned()));
        self
    }

    pub fn exports(mut self, names: &[&str]) -> Self {
        self.exported.extend(names.iter().map(|name| (*name).to_owned()));
        self
    }

    pub fn defines_versions(mut self, names: &[&str]) -> Self {
        self.defined_versions.extend(names.iter().map(|name| (*name).to_owned()));
        self
    }

    pub fn section(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.sections.push((name.to_owned(), bytes.into()));
        self
    }

    pub fn fatbin(self, containers: &[&str]) -> Self {
        let bytes = fatbin(containers, 24);
        self.section(".nv_fatbin", bytes)
    }

    /// The file.
    pub fn build(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::new(self.endian, true, &mut file);
        let versions = self.versions.len();
        let symbols = self.undefined.len() + self.exported.len();

        // Indices and strings.
        writer.reserve_null_section_index();
        writer.reserve_dynsym_section_index();
        writer.reserve_dynstr_section_index();
        if self.hash {
            writer.reserve_gnu_hash_section_index();
        }
        writer.reserve_gnu_versym_section_index();
        if !self.defined_versions.is_empty() {
            writer.reserve_gnu_verdef_section_index();
        }
        if versions > 0 {
            writer.reserve_gnu_verneed_section_index();
        }
        writer.reserve_dynamic_section_index();
        let mut custom = Vec::new();
        for (name, bytes) in &self.sections {
            let name = writer.add_section_name(name.as_bytes());
            writer.reserve_section_index();
            custom.push((name, bytes, 0));
        }
        writer.reserve_shstrtab_section_index();
        writer.reserve_null_dynamic_symbol_index();
        let names: Vec<&String> = self.undefined.iter().map(|symbol| &symbol.0).chain(&self.exported).collect();
        let mut ids = Vec::new();
        for name in &names {
            writer.reserve_dynamic_symbol_index();
            ids.push(writer.add_dynamic_string(name.as_bytes()));
        }
        let needed: Vec<_> = self.needed.iter().map(|name| writer.add_dynamic_string(name.as_bytes())).collect();
        let soname = self.soname.as_ref().map(|name| writer.add_dynamic_string(name.as_bytes()));
        let runpath = self.runpath.as_ref().map(|path| writer.add_dynamic_string(path.as_bytes()));
        let strings: Vec<_> = self
            .versions
            .iter()
            .map(|(library, version)| {
                (writer.add_dynamic_string(library.as_bytes()), writer.add_dynamic_string(version.as_bytes()))
            })
            .collect();
        let defined: Vec<_> =
            self.defined_versions.iter().map(|name| writer.add_dynamic_string(name.as_bytes())).collect();

        // Places. Machine code makes it three loaded parts: what is before it, itself, what is behind it.
        let text = self.sections.iter().position(|(name, _)| name == ".text");
        writer.reserve_file_header();
        if text.is_some() {
            writer.reserve_program_headers(3);
        }
        writer.reserve_dynsym();
        writer.reserve_dynstr().expect("strings");
        let exported = u32::try_from(self.exported.len()).expect("few");
        if self.hash {
            writer.reserve_gnu_hash(1, 1, exported);
        }
        writer.reserve_gnu_versym();
        writer.reserve_gnu_verdef(u16::try_from(defined.len()).expect("few"), defined.len());
        writer.reserve_gnu_verneed(u16::try_from(versions).expect("few"), versions);
        let tags = needed.len() + usize::from(soname.is_some()) + usize::from(runpath.is_some()) + 1;
        writer.reserve_dynamic(tags);
        for (_, bytes, offset) in &mut custom {
            *offset = writer.reserve(bytes.len() as u64, 16);
        }
        let loaded = writer.reserved_len();
        writer.reserve_shstrtab().expect("names");
        writer.reserve_section_headers();

        // Contents.
        let header = FileHeader {
            os_abi: elf::ELFOSABI_SYSV,
            abi_version: 0,
            e_type: elf::ET_DYN,
            e_machine: self.machine,
            e_entry: 0,
            e_flags: elf::FileFlags(0),
        };
        writer.write_file_header(&header).expect("a header");
        if let Some(at) = text {
            let (start, length) = (custom[at].2, custom[at].1.len() as u64);
            writer.write_align_program_headers();
            for (from, to, flags) in [
                (0, start, elf::PF_R),
                (start, start + length, elf::PF_R | elf::PF_X),
                (start + length, loaded, elf::PF_R | elf::PF_W),
            ] {
                writer.write_program_header(&ProgramHeader {
                    p_type: elf::PT_LOAD,
                    p_flags: flags,
                    p_offset: from,
                    p_vaddr: from,
                    p_paddr: from,
                    p_filesz: to - from,
                    p_memsz: to - from,
                    p_align: 16,
                });
            }
        }
        writer.write_null_dynamic_symbol();
        for (at, id) in ids.iter().enumerate() {
            let is_weak = self.undefined.get(at).is_some_and(|symbol| symbol.1);
            let bind = if is_weak { elf::STB_WEAK } else { elf::STB_GLOBAL };
            let is_defined = at >= self.undefined.len();
            writer.write_dynamic_symbol(&Sym {
                section: None,
                st_name: writer.dynamic_string_offset(Some(*id)),
                st_info: elf::SymbolInfo::new(bind, elf::STT_FUNC),
                st_other: elf::SymbolOther(0),
                st_shndx: if is_defined { elf::SHN_ABS } else { elf::SHN_UNDEF },
                st_value: u64::from(is_defined),
                st_size: 0,
            });
        }
        writer.write_dynstr();
        if self.hash {
            let base = u32::try_from(1 + self.undefined.len()).expect("few");
            let exports = &self.exported;
            writer.write_gnu_hash(base, 5, 1, 1, exported, |at| elf::gnu_hash(exports[at as usize].as_bytes()));
        }
        if symbols > 0 {
            writer.write_null_gnu_versym();
            let first_needed = FIRST_VERSION + u16::try_from(defined.len()).expect("few");
            for at in 0..symbols {
                let version = self.undefined.get(at).and_then(|symbol| symbol.2);
                let index = version.map_or(1, |version| first_needed + u16::try_from(version).expect("few"));
                writer.write_gnu_versym(elf::VersymIndex(index));
            }
        }
        writer.write_align_gnu_verdef();
        for (at, id) in defined.iter().enumerate() {
            writer.write_gnu_verdef(&Verdef {
                version: 1,
                flags: elf::VersionFlags(0),
                index: elf::VersionIndex(FIRST_VERSION + u16::try_from(at).expect("few")),
                aux_count: 1,
                name: writer.dynamic_string_offset(Some(*id)),
                hash: elf::hash(self.defined_versions[at].as_bytes()),
            });
        }
        writer.write_align_gnu_verneed();
        for (at, (library, version)) in strings.iter().enumerate() {
            let index = FIRST_VERSION + u16::try_from(defined.len() + at).expect("few");
            writer.write_gnu_verneed(&Verneed {
                version: 1,
                aux_count: 1,
                file: writer.dynamic_string_offset(Some(*library)),
            });
            writer.write_gnu_vernaux(&Vernaux {
                flags: elf::VersionFlags(0),
                index: elf::VersionIndex(index),
                name: writer.dynamic_string_offset(Some(*version)),
                hash: elf::hash(self.versions[at].1.as_bytes()),
            });
        }
        writer.write_align_dynamic();
        for id in needed {
            writer.write_dynamic_string(elf::DT_NEEDED, id).expect("an entry");
        }
        if let Some(id) = soname {
            writer.write_dynamic_string(elf::DT_SONAME, id).expect("an entry");
        }
        if let Some(id) = runpath {
            writer.write_dynamic_string(elf::DT_RUNPATH, id).expect("an entry");
        }
        writer.write_dynamic(elf::DT_NULL, 0).expect("an entry");
        for (_, bytes, offset) in &custom {
            writer.pad_until(*offset);
            writer.write(bytes);
        }
        writer.write_shstrtab();
        writer.write_null_section_header();
        writer.write_dynsym_section_header(0, 1);
        writer.write_dynstr_section_header(0);
        writer.write_gnu_hash_section_header(0);
        writer.write_gnu_versym_section_header(0);
        writer.write_gnu_verdef_section_header(0);
        writer.write_gnu_verneed_section_header(0);
        writer.write_dynamic_section_header(0);
        for (name, bytes, offset) in &custom {
            writer.write_section_header(&SectionHeader {
                sh_name: writer.section_name_offset(Some(*name)),
                sh_type: elf::SHT_PROGBITS,
                sh_flags: elf::SHF_ALLOC,
                sh_addr: 0,
                sh_offset: *offset,
                sh_size: bytes.len() as u64,
                sh_link: 0,
                sh_info: 0,
                sh_addralign: 16,
                sh_entsize: 0,
            });
        }
        writer.write_shstrtab_section_header();
        file
    }
}

/// The bytes of a `.nv_fatbin` section: a container for each text, `sm_80 sm_90a compute_80@9.0` in it as entries, each
/// with so many bytes of code.
pub fn fatbin(containers: &[&str], code: usize) -> Vec<u8> {
    let mut section = Vec::new();
    for container in containers {
        let entries: Vec<u8> = container.split_whitespace().flat_map(|text| entry(text, code)).collect();
        section.extend(0xBA55_ED50u32.to_le_bytes());
        section.extend(1u16.to_le_bytes());
        section.extend(16u16.to_le_bytes());
        section.extend((entries.len() as u64).to_le_bytes());
        section.extend(entries);
        section.extend([0; 8]); // linkers align containers
    }
    section
}

fn entry(text: &str, code: usize) -> Vec<u8> {
    let (target, isa) = text.split_once('@').unwrap_or((text, "0.0"));
    let (kind, target) = match target.strip_prefix("compute_") {
        Some(target) => (1u16, target),
        None => (2, target.trim_start_matches("sm_")),
    };
    let (number, flags) = match target.as_bytes().last() {
        Some(b'a') => (&target[..target.len() - 1], 0x10_0000u64),
        Some(b'f') => (&target[..target.len() - 1], 0x20_0000),
        _ => (target, 0),
    };
    let (major, minor) = isa.split_once('.').expect("an ISA version");
    let payload = vec![0xAB; code];
    let mut bytes = vec![0; 64];
    bytes[0..2].copy_from_slice(&kind.to_le_bytes());
    bytes[4..8].copy_from_slice(&64u32.to_le_bytes());
    bytes[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes[24..26].copy_from_slice(&minor.parse::<u16>().expect("a number").to_le_bytes());
    bytes[26..28].copy_from_slice(&major.parse::<u16>().expect("a number").to_le_bytes());
    bytes[28..32].copy_from_slice(&number.parse::<u32>().expect("a number").to_le_bytes());
    bytes[40..48].copy_from_slice(&flags.to_le_bytes());
    bytes.extend(payload);
    bytes
}
