//! Registers and stack of the kernels in a cubin, as the assembler notes them; no CUDA tool is needed to read them.

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, SectionHeader as _};

/// What a kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread: spilled registers and arrays.
    pub stack: u32,
}

/// Attributes of `.nv.info`, each for a symbol.
const FRAME_SIZE: u8 = 0x11;
const REGISTERS: u8 = 0x2f;
/// The attribute is followed by so many bytes of value.
const SIZED: u8 = 4;

/// The most that any kernel of the cubin takes; `None` if it says nothing, or is none.
pub fn usage(bytes: &[u8]) -> Option<Usage> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, bytes).ok()?;
    let mut most: Option<Usage> = None;
    for section in sections.iter() {
        let name = sections.section_name(endian, section).ok()?;
        if name != b".nv.info" || section.sh_type(endian) == elf::SHT_NOBITS {
            continue;
        }
        for (attribute, value) in attributes(section.data(endian, bytes).ok()?) {
            let most = most.get_or_insert_default();
            match attribute {
                REGISTERS => most.registers = most.registers.max(value),
                FRAME_SIZE => most.stack = most.stack.max(value),
                _ => {}
            }
        }
    }
    most
}

/// Attribute and value of those entries that give a number for a symbol.
fn attributes(mut data: &[u8]) -> Vec<(u8, u32)> {
    let mut found = Vec::new();
    while let [format, attribute, low, high, rest @ ..] = data {
        data = rest;
        if *format != SIZED {
            continue;
        }
        let size = usize::from(u16::from_le_bytes([*low, *high]));
        let Some((value, rest)) = data.split_at_checked(size) else { break };
        if let [_, _, _, _, a, b, c, d] = value {
            found.push((*attribute, u32::from_le_bytes([*a, *b, *c, *d])));
        }
        data = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(attribute: u8, symbol: u32, value: u32) -> Vec<u8> {
        [&[SIZED, attribute, 8, 0][..], &symbol.to_le_bytes(), &value.to_le_bytes()].concat()
    }

    #[test]
    fn the_greatest_of_several_kernels_counts() {
        let info = [
            entry(REGISTERS, 3, 168),
            entry(FRAME_SIZE, 3, 0),
            // An entry without a value, and one that is not about a symbol.
            vec![2, 0x1d, 0, 0, SIZED, 0x37, 4, 0, 1, 2, 3, 4],
            entry(REGISTERS, 5, 255),
            entry(FRAME_SIZE, 5, 144),
        ];
        let cubin = cubin(&info.concat());
        assert_eq!(usage(&cubin), Some(Usage { registers: 255, stack: 144 }));
        for cut in 0..cubin.len() {
            usage(&cubin[..cut]);
        }
    }

    #[test]
    fn what_is_no_cubin_has_no_usage() {
        assert_eq!(usage(b""), None);
        assert_eq!(usage(b"\x7fELF and no more"), None);
        assert_eq!(usage(&cubin(&[])), None);
    }

    fn cubin(info: &[u8]) -> Vec<u8> {
        use object::write::Object;
        let mut file = Object::new(object::BinaryFormat::Elf, object::Architecture::X86_64, object::Endianness::Little);
        let id = file.add_section(Vec::new(), b".nv.info".to_vec(), object::SectionKind::Other);
        file.append_section_data(id, info, 4);
        file.write().expect("an ELF file")
    }
}
