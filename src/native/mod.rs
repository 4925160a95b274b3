//! Native libraries: ELF symbols, needed versions, fat binaries, op schemas.

pub mod arch;
pub mod coverage;
pub mod elf;
pub mod fatbin;
pub mod schema;
