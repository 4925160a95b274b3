use std::collections::BTreeMap;

use crate::fault::{Fault, FaultKind};

/// Device memory: separate buffers at made-up addresses with gaps between, so that every stray access is seen.
#[derive(Debug, Default)]
pub struct Memory {
    buffers: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

/// Where the first buffer lies: nothing that a 32-bit computation could hit by accident.
const FIRST: u64 = 0x7f00_0000_0000;
/// Buffers start at multiples of this, with at least as much between them.
const GAP: u64 = 4096;

impl Memory {
    /// A buffer with these contents; its address.
    pub fn allocate(&mut self, contents: Vec<u8>) -> u64 {
        let address = self.next.max(FIRST);
        self.next = address + (contents.len() as u64 + GAP).next_multiple_of(GAP);
        self.buffers.insert(address, contents);
        address
    }

    /// Gives a buffer back; false if none starts there.
    pub fn free(&mut self, address: u64) -> bool {
        self.buffers.remove(&address).is_some()
    }

    /// Bytes in all buffers.
    pub fn used(&self) -> usize {
        self.buffers.values().map(Vec::len).sum()
    }

    /// `length` bytes, which must lie in one buffer.
    pub fn read(&self, address: u64, length: usize) -> Result<&[u8], Fault> {
        let (start, buffer) =
            self.buffers.range(..=address).next_back().ok_or_else(|| out_of_bounds(address, length, None))?;
        let offset = (address - start) as usize;
        offset
            .checked_add(length)
            .and_then(|end| buffer.get(offset..end))
            .ok_or_else(|| out_of_bounds(address, length, Some((*start, buffer.len()))))
    }

    /// `length` bytes to write to, which must lie in one buffer.
    pub fn write(&mut self, address: u64, length: usize) -> Result<&mut [u8], Fault> {
        let (start, buffer) =
            self.buffers.range_mut(..=address).next_back().ok_or_else(|| out_of_bounds(address, length, None))?;
        let (offset, size) = ((address - start) as usize, buffer.len());
        offset
            .checked_add(length)
            .and_then(|end| buffer.get_mut(offset..end))
            .ok_or_else(|| out_of_bounds(address, length, Some((*start, size))))
    }
}

/// An address that a kernel may use for an access of that many bytes.
pub(crate) fn aligned(address: u64, bytes: u64) -> Result<u64, Fault> {
    if address.is_multiple_of(bytes) {
        Ok(address)
    } else {
        Err(Fault::new(FaultKind::Misaligned, format!("{bytes} bytes at {address:#x}")))
    }
}

fn out_of_bounds(address: u64, length: usize, near: Option<(u64, usize)>) -> Fault {
    let near = match near {
        Some((start, size)) => format!(", {} past the start of a buffer of {size} bytes", address - start),
        None => String::new(),
    };
    Fault::new(FaultKind::OutOfBounds, format!("{length} bytes at {address:#x}{near}"))
}
