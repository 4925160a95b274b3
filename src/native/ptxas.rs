//! What a `ptxas` can assemble for, read from the binary without running it.

use std::collections::BTreeSet;

use memchr::memmem;

use super::arch::{Arch, CudaVersion, Variant};

/// What a `ptxas` says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ptxas {
    /// The toolkit it is of.
    pub release: Option<CudaVersion>,
    /// Architectures it accepts.
    pub targets: BTreeSet<Arch>,
}

impl Ptxas {
    /// Reads the names of architectures and the version out of a binary; `None` if these are not the bytes of a `ptxas`.
    pub fn read(bytes: &[u8]) -> Option<Ptxas> {
        // Names of virtual architectures: the table of real ones also lists those of the past.
        let targets: BTreeSet<Arch> =
            memmem::find_iter(bytes, b"compute_").filter_map(|at| target(&bytes[at + 8..])).collect();
        let release = memmem::find(bytes, b"Cuda compilation tools, release ").and_then(|at| release(&bytes[at + 32..]));
        (targets.len() > 1).then_some(Ptxas { release, targets })
    }

    /// Whether it assembles for `arch`.
    pub fn knows(&self, arch: Arch) -> bool {
        self.targets.contains(&arch)
    }
}

/// `120a` up to the end of a C string.
fn target(text: &[u8]) -> Option<Arch> {
    let digits = text.iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
    let (variant, end) = match text.get(digits) {
        Some(b'a') => (Variant::Specific, digits + 1),
        Some(b'f') => (Variant::Family, digits + 1),
        _ => (Variant::Portable, digits),
    };
    if !(2..=3).contains(&digits) || text.get(end) != Some(&0) {
        return None;
    }
    let number = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some(Arch::from_number(number, variant))
}

/// `12.8` at the start of a text.
fn release(text: &[u8]) -> Option<CudaVersion> {
    let text = std::str::from_utf8(text.get(..8)?).ok()?;
    let (major, rest) = text.split_once('.')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(CudaVersion { major: major.parse().ok()?, minor: rest[..end].parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_release() {
        let binary = b"\x7fELF..compute_90\0compute_90a\0compute_120f\0xcompute_1\0compute_99999\0compute_80 \0\
            Cuda compilation tools, release 12.8, V12.8.93\0";
        let ptxas = Ptxas::read(binary).expect("a ptxas");
        assert_eq!(ptxas.release, Some(CudaVersion { major: 12, minor: 8 }));
        let names: Vec<String> = ptxas.targets.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["sm_90", "sm_90a", "sm_120f"]);
        assert!(!ptxas.knows("sm_120a".parse().expect("an architecture")));
        assert_eq!(Ptxas::read(b"#!/bin/sh\nexec ptxas \"$@\"\n"), None);
        assert_eq!(Ptxas::read(b"compute_90\0compute_100\0release"), Ptxas::read(b"compute_90\0compute_100\0"));
    }
}
