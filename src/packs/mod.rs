//! Facts about named releases, read from `rules/*.toml`: floors, known defects, gates, argument semantics.

/// All packs, embedded and added with `--rules`.
#[derive(Debug, Default)]
pub struct Packs {}
