//! What a library's device code does on a GPU: runs as it is, is compiled by the driver, or does not run.

use std::collections::BTreeSet;

use super::arch::{Arch, CudaVersion, Variant, driver_for_isa};
use super::fatbin::{Code, Container};

/// How one container's code gets onto a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Run {
    /// Machine code for exactly this architecture.
    Native,
    /// Machine code for an earlier architecture of the same family.
    SameFamily,
    /// PTX that a driver of at least this CUDA version compiles when the kernel is loaded.
    Jit(CudaVersion),
    /// Nothing in it runs.
    None,
}

/// How the driver runs one container on `device`.
fn run(container: &[Code], device: Arch) -> Run {
    let cubins = container.iter().filter(|code| code.isa.is_none() && code.arch.cubin_runs_on(device));
    match cubins.map(|code| code.arch.minor == device.minor).max() {
        Some(true) => return Run::Native,
        Some(false) => return Run::SameFamily,
        None => {}
    }
    let ptx = container.iter().filter(|code| code.arch.ptx_runs_on(device)).filter_map(|code| code.isa);
    ptx.map(driver_for_isa).min().map_or(Run::None, Run::Jit)
}

/// All containers of a library on one device.
///
/// A container that holds nothing but code for exact architectures or families (`sm_90a`, `sm_100f`) is specialised:
/// its callers choose it by architecture, so it says nothing about others. Specialised containers count only in a
/// library that has no others, and so do those for later GPUs alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// The device.
    pub device: Arch,
    /// Every container is specialised.
    pub specialised: bool,
    /// Containers with machine code for exactly this architecture.
    pub native: usize,
    /// Containers with machine code of the same family.
    pub same_family: usize,
    /// Containers whose PTX the driver compiles.
    pub jit: usize,
    /// Containers of which nothing runs.
    pub none: usize,
    /// The CUDA version a driver must have for all of `jit`.
    pub driver: Option<CudaVersion>,
}

/// One word for a library on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Machine code for this architecture.
    Native,
    /// Machine code of the same family.
    SameFamily,
    /// Compiled by the driver from PTX.
    Jit,
    /// Some kernels run, but most have no code for this architecture.
    Partial,
    /// No kernel runs.
    None,
}

impl Coverage {
    /// Judges `containers` on `device`.
    pub fn of(containers: &[Container], device: Arch) -> Coverage {
        let portable = |container: &Container| container.iter().any(|code| code.arch.variant == Variant::Portable);
        let specialised = !containers.iter().any(portable);
        // Kernels for later GPUs only are chosen there only; where there are no others, they are what is missing.
        let is_later = |container: &Container| {
            let portable = container.iter().filter(|code| code.arch.variant == Variant::Portable);
            portable.map(|code| code.arch.number()).min().is_some_and(|earliest| earliest > device.number())
        };
        let mut later = 0;
        let mut coverage = Coverage { device, specialised, native: 0, same_family: 0, jit: 0, none: 0, driver: None };
        for container in containers.iter().filter(|container| specialised || portable(container)) {
            match run(container, device) {
                Run::Native => coverage.native += 1,
                Run::SameFamily => coverage.same_family += 1,
                Run::Jit(driver) => {
                    coverage.jit += 1;
                    coverage.driver = coverage.driver.max(Some(driver));
                }
                Run::None if is_later(container) => later += 1,
                Run::None => coverage.none += 1,
            }
        }
        if coverage.total() == 0 {
            coverage.none = later;
        }
        coverage
    }

    /// Containers that count.
    pub fn total(&self) -> usize {
        self.native + self.same_family + self.jit + self.none
    }

    /// The library as a whole.
    pub fn verdict(&self) -> Verdict {
        let machine = self.native + self.same_family;
        match self.total() {
            total if self.none == total => Verdict::None,
            // A specialised library holds variants for several GPUs, of which only one's are meant to run.
            total if self.none > total / 2 && !self.specialised => Verdict::Partial,
            _ if self.jit > machine => Verdict::Jit,
            _ if self.native >= self.same_family => Verdict::Native,
            _ => Verdict::SameFamily,
        }
    }
}

/// The architectures that machine code or PTX is there for, each once: `sm_80, sm_90a, compute_80`.
pub fn targets(containers: &[Container]) -> Vec<String> {
    let codes: BTreeSet<(bool, Arch)> =
        containers.iter().flatten().map(|code| (code.isa.is_some(), code.arch)).collect();
    codes.into_iter().map(|(ptx, arch)| if ptx { arch.compute() } else { arch.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(text: &str) -> Container {
        let code = |word: &str| match word.strip_prefix("ptx") {
            Some(arch) => Code { arch: arch.parse().expect(word), isa: Some((9, 0)) },
            None => Code { arch: word.parse().expect(word), isa: None },
        };
        text.split(' ').map(code).collect()
    }

    fn verdict(containers: &[&str], device: &str) -> Verdict {
        let containers: Vec<_> = containers.iter().map(|text| container(text)).collect();
        Coverage::of(&containers, device.parse().expect(device)).verdict()
    }

    #[test]
    fn machine_code_then_ptx_then_nothing() {
        let fa2 = ["80 ptx80"; 3];
        assert_eq!(verdict(&fa2, "sm_80"), Verdict::Native);
        assert_eq!(verdict(&fa2, "sm_89"), Verdict::SameFamily);
        assert_eq!(verdict(&fa2, "sm_120"), Verdict::Jit);
        assert_eq!(verdict(&fa2, "sm_75"), Verdict::None);
        assert_eq!(verdict(&["80 90"], "sm_120"), Verdict::None);
    }

    #[test]
    fn specialised_containers_do_not_speak_for_the_library() {
        assert_eq!(verdict(&["90a", "90a", "100f", "75 80 120"], "sm_120"), Verdict::Native);
        assert_eq!(verdict(&["90a", "90a", "100f"], "sm_100"), Verdict::Native);
        assert_eq!(verdict(&["90a", "100f"], "sm_120"), Verdict::None);
        assert_eq!(verdict(&["75 80 90", "75 80 90", "80 ptx80"], "sm_110"), Verdict::Partial);
        assert_eq!(verdict(&["75", "80 90", "80 ptx80"], "sm_75"), Verdict::Native, "the others are for later GPUs");
        assert_eq!(verdict(&["80 90", "80 ptx80"], "sm_75"), Verdict::None);
    }

    #[test]
    fn the_driver_must_take_all_of_it() {
        let isa = |minor| vec![Code { arch: Arch::device(8, 0), isa: Some((8, minor)) }];
        let coverage = Coverage::of(&[isa(4), isa(7)], Arch::device(12, 0));
        assert_eq!(coverage.driver, Some(CudaVersion { major: 12, minor: 8 }));
    }

    #[test]
    fn lists_targets_once() {
        assert_eq!(
            targets(&[container("90a 80 ptx80"), container("80 100")]),
            ["sm_80", "sm_90a", "sm_100", "compute_80"]
        );
    }
}
