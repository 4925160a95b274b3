//! Shared memory of one block, with the rules of who may touch it when.

use crate::fault::{Fault, FaultKind};

/// The granule of the bookkeeping: what one `cp.async` writes and one row of `ldmatrix` reads.
const CHUNK: usize = 16;

/// Static shared memory in chunks of 16 bytes. Every chunk knows who wrote it and who read it last, so that a missing
/// barrier is found whatever the order in which the threads happened to run.
#[derive(Debug)]
pub struct Shared {
    bytes: Vec<u8>,
    chunks: Vec<Chunk>,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    state: State,
    /// The barrier interval of the last read, and the thread, if it was one only.
    read: Option<(u32, Reader)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Unwritten,
    /// A copy by this thread is under way.
    InFlight {
        thread: u16,
    },
    /// Written by this thread, complete in this barrier interval.
    Written {
        thread: u16,
        interval: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reader {
    One(u16),
    Many,
}

/// A thread and how many barriers it has passed.
#[derive(Debug, Clone, Copy)]
pub struct Actor {
    pub thread: u16,
    pub interval: u32,
}

impl Shared {
    pub fn new(size: usize) -> Shared {
        // 0xff bytes are a NaN in every float format: what slips through the checks spoils the result.
        let chunk = Chunk { state: State::Unwritten, read: None };
        Shared { bytes: vec![0xff; size], chunks: vec![chunk; size.div_ceil(CHUNK)] }
    }

    /// A copy to that address begins.
    pub fn begin_copy(&mut self, address: u32, actor: Actor) -> Result<(), Fault> {
        let index = self.index(address)?;
        let chunk = &mut self.chunks[index];
        match chunk.state {
            State::InFlight { thread } => {
                return Err(race(address, format!("threads {thread} and {} copy to the same place", actor.thread)));
            }
            State::Written { thread, interval } if thread != actor.thread && interval == actor.interval => {
                return Err(race(address, format!("thread {} overwrites what thread {thread} wrote", actor.thread)));
            }
            _ => {}
        }
        if let Some((interval, reader)) = chunk.read
            && interval == actor.interval
            && reader != Reader::One(actor.thread)
        {
            return Err(race(address, format!("thread {} overwrites what others may still read", actor.thread)));
        }
        chunk.state = State::InFlight { thread: actor.thread };
        self.bytes[index * CHUNK..(index + 1) * CHUNK].fill(0xff);
        Ok(())
    }

    /// A copy has arrived.
    pub fn end_copy(&mut self, address: u32, contents: [u8; CHUNK], actor: Actor) -> Result<(), Fault> {
        let index = self.index(address)?;
        self.chunks[index].state = State::Written { thread: actor.thread, interval: actor.interval };
        self.bytes[index * CHUNK..(index + 1) * CHUNK].copy_from_slice(&contents);
        Ok(())
    }

    /// One row of eight elements, read by a warp together.
    pub fn read_row(&mut self, address: u32, actor: Actor) -> Result<[u16; 8], Fault> {
        let index = self.index(address)?;
        let chunk = &mut self.chunks[index];
        match chunk.state {
            State::Unwritten => {
                return Err(Fault::new(FaultKind::Uninitialised, format!("shared memory at {address:#x}")));
            }
            State::InFlight { thread } => {
                return Err(race(address, format!("read while the copy of thread {thread} is under way")));
            }
            // `ldmatrix` hands a row to other lanes than the one that names it: even a thread's own copy needs a
            // barrier before.
            State::Written { thread, interval } if interval == actor.interval => {
                return Err(race(address, format!("read with no barrier after the copy of thread {thread}")));
            }
            State::Written { .. } => {}
        }
        chunk.read = match chunk.read {
            Some((interval, reader)) if interval == actor.interval && reader != Reader::One(actor.thread) => {
                Some((interval, Reader::Many))
            }
            _ => Some((actor.interval, Reader::One(actor.thread))),
        };
        let mut row = [0; 8];
        for (element, bytes) in row.iter_mut().zip(self.bytes[index * CHUNK..].chunks_exact(2)) {
            *element = u16::from_le_bytes([bytes[0], bytes[1]]);
        }
        Ok(row)
    }

    fn index(&self, address: u32) -> Result<usize, Fault> {
        let start = address as usize;
        if !start.is_multiple_of(CHUNK) {
            Err(Fault::new(FaultKind::Misaligned, format!("{CHUNK} bytes of shared memory at {address:#x}")))
        } else if start + CHUNK > self.bytes.len() {
            Err(Fault::new(FaultKind::OutOfBounds, format!("{CHUNK} bytes of shared memory at {address:#x}")))
        } else {
            Ok(start / CHUNK)
        }
    }
}

fn race(address: u32, what: String) -> Fault {
    Fault::new(FaultKind::Race, format!("shared memory at {address:#x}: {what}"))
}
