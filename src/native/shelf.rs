//! Libraries inside wheels, each decompressed once: what is kept are their tables, and which device code they hold.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::elf::{Elf, ElfError, skeleton};
use super::fatbin::{self, Container, FatbinError};
use super::libraries::LibraryError;
use super::sparse;
use crate::environment::tree::Bytes;
use crate::environment::{Environment, RootId};

/// What is kept of a library.
#[derive(Debug)]
struct Kept {
    bones: Result<Vec<u8>, LibraryError>,
    codes: Result<Vec<Container>, FatbinError>,
}

/// The libraries of an environment that are not files of their own.
#[derive(Debug, Default)]
pub struct Shelf(FxHashMap<(RootId, String), Kept>);

impl Shelf {
    /// Decompresses those of `places` that are inside wheels, as many at once as there are processors.
    pub fn fill(environment: &Environment, mut places: Vec<(RootId, String)>) -> Shelf {
        places.sort();
        places.dedup();
        let inside = |(root, path): &(RootId, String)| environment.root(*root).tree.on_disk(path).is_none();
        let kept = places.into_par_iter().filter(inside).map(|place| {
            let kept = read(environment, &place);
            (place, kept)
        });
        Shelf(kept.collect())
    }

    /// The tables of a library: the file itself, or what was kept of it.
    pub fn tables(&self, environment: &Environment, root: RootId, path: &str) -> Result<Bytes, LibraryError> {
        match self.0.get(&(root, path.to_owned())) {
            Some(Kept { bones: Ok(bones), .. }) => Ok(Bytes::Owned(bones.clone())),
            Some(Kept { bones: Err(error), .. }) => Err(error.again()),
            None => Ok(environment.root(root).tree.map(path)?),
        }
    }

    /// The device code of a library.
    pub fn codes(&self, environment: &Environment, root: RootId, path: &str) -> Result<Vec<Container>, FatbinError> {
        if let Some(kept) = self.0.get(&(root, path.to_owned())) {
            return kept.codes.clone();
        }
        match environment.root(root).tree.map(path) {
            Ok(Bytes::Mapped(map)) => fatbin::read_passing(&Elf::parse(&map)?, &mut |passed| give_back(&map, passed)),
            Ok(bytes) => fatbin::read(&Elf::parse(&bytes)?),
            Err(error) => Err(ElfError::Malformed(error.to_string()).into()),
        }
    }
}

/// Takes pages of a file out of this process: headers are strewn over hundreds of megabytes, and with each the system
/// maps its surroundings.
#[cfg(unix)]
fn give_back(map: &memmap2::Mmap, passed: &[u8]) {
    let offset = passed.as_ptr().addr() - map.as_ptr().addr();
    // SAFETY: the map is of a file and read-only: the pages come back from it if they are read again.
    let advised = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, passed.len()) };
    // Where the system does not take the advice, the pages stay.
    drop(advised);
}

#[cfg(not(unix))]
fn give_back(_map: &memmap2::Mmap, _passed: &[u8]) {}

fn read(environment: &Environment, (root, path): &(RootId, String)) -> Kept {
    let map = match sparse::open(&environment.root(*root).tree, path) {
        Ok(map) => map,
        Err(error) => return Kept { bones: Err(error.into()), codes: Ok(Vec::new()) },
    };
    let codes = Elf::parse(&map).map_err(FatbinError::from).and_then(|elf| fatbin::read(&elf));
    Kept { bones: skeleton(&map).map_err(LibraryError::from), codes }
}
