//! What a `ptxas` can assemble for, read from the binary without running it.

use std::collections::BTreeSet;

use memchr::memmem;

use super::arch::{Arch, CudaVersion, Variant};
use super::elf::Elf;

/// What a `ptxas` says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ptxas {
    /// The toolkit it is of.
    pub release: Option<CudaVersion>,
    /// Architectures it accepts.
    pub targets: BTreeSet<Arch>,
}

impl Ptxas {
    /// Reads names of architectures and the version out of a binary that holds a `ptxas`; `None` if there is none in it.
    pub fn read(bytes: &[u8]) -> Option<Ptxas> {
        let texts = Elf::parse(bytes).ok()?.section(b".rodata").ok()??;
        Ptxas::of_texts(texts)
    }

    fn of_texts(texts: &[u8]) -> Option<Ptxas> {
        // The table of virtual architectures holds what is accepted, that of real ones also those of the past; in some
        // releases a name is in one of them only. Whatever is in neither is surely unknown.
        let named = |prefix: &'static str| {
            memmem::find_iter(texts, prefix).filter_map(|at| target(&texts[at + prefix.len()..]))
        };
        let virtual_targets = named("compute_").count();
        let targets: BTreeSet<Arch> = named("compute_").chain(named("sm_")).collect();
        let tools = "Cuda compilation tools, release ";
        let release = memmem::find(texts, tools.as_bytes()).and_then(|at| release(&texts[at + tools.len()..]));
        (virtual_targets > 1).then_some(Ptxas { release, targets })
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
        let texts = b"compute_90\0compute_90a\0compute_120f\0xcompute_1\0compute_99999\0compute_80 \0\
            Cuda compilation tools, release 12.8, V12.8.93\0";
        let ptxas = Ptxas::of_texts(texts).expect("a ptxas");
        assert_eq!(ptxas.release, Some(CudaVersion { major: 12, minor: 8 }));
        let names: Vec<String> = ptxas.targets.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["sm_90", "sm_90a", "sm_120f"]);
        assert!(!ptxas.knows("sm_120a".parse().expect("an architecture")));
        assert_eq!(Ptxas::read(b"#!/bin/sh\nexec ptxas \"$@\"\n"), None);
        assert_eq!(Ptxas::of_texts(b"sm_90\0sm_100\0"), None);
        assert_eq!(
            Ptxas::of_texts(b"compute_90\0compute_100\0Cuda compilation tools, release ").map(|p| p.release),
            Some(None)
        );
    }
}
