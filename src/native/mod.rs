//! Native libraries: ELF symbols, needed versions, fat binaries, op schemas.
//!
//! Everything is read from mapped files: nothing is loaded, run or imported, and libraries for other processors are read
//! like those of this one.

pub mod arch;
pub mod coverage;
pub mod elf;
pub mod fatbin;
#[cfg(test)]
pub(crate) mod fixture;
pub mod inspection;
pub mod libraries;
pub mod ptxas;
pub mod schema;
pub mod shelf;
pub mod sparse;
pub mod stack;
pub mod symbols;
pub mod system;
pub mod table;

#[cfg(test)]
mod tests;
