//! Installed distributions: METADATA, RECORD, direct_url.json, WHEEL.

use super::{RootId, SearchEntry, Tree};

/// One installed distribution.
#[derive(Debug, Clone)]
pub struct Distribution {
    /// Normalised as PEP 503 says: lower case, runs of `-_.` as one `-`.
    pub name: String,
    /// As METADATA spells it.
    pub display_name: String,
    /// As METADATA spells it (`2.8.3+cu130torch2.11`); see [`Distribution::version`].
    pub raw_version: String,
    /// The root that holds it.
    pub root: RootId,
    /// Folder that RECORD's paths are relative to (usually the search entry that holds the `.dist-info`).
    pub base: SearchEntry,
    /// The `.dist-info` (or `.egg-info`) folder, relative to the root.
    pub info: String,
    /// Requires-Dist lines: text and line number (from 1) in METADATA.
    pub requires: Vec<(String, u32)>,
    /// Requires-Python, if given.
    pub requires_python: Option<String>,
    /// Tags of WHEEL (`cp38-abi3-manylinux_2_31_x86_64`), empty if it has none.
    pub tags: Vec<String>,
    /// Folder that an editable install points at (direct_url.json).
    pub editable: Option<String>,
}

/// One line of RECORD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordEntry {
    /// Relative to the distribution's root, `/`-separated, normalised; entries that leave the root are dropped.
    pub path: String,
    /// SHA-256 of the bytes, if RECORD gives one.
    pub sha256: Option<[u8; 32]>,
    /// Size in bytes, if RECORD gives one.
    pub size: Option<u64>,
    /// Line in RECORD, from 1.
    pub line: u32,
}

impl Distribution {
    /// The version as PEP 440 reads it, if it does.
    pub fn version(&self) -> Option<pep440_rs::Version> {
        self.raw_version.parse().ok()
    }

    /// RECORD, read when asked for (it can have 200,000 lines).
    pub fn record(&self, _tree: &Tree) -> Vec<RecordEntry> {
        unimplemented!()
    }
}
