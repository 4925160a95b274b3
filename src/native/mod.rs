//! Native libraries: ELF symbols, needed versions, fat binaries, op schemas.
