//! Which library runs on which GPU: the table of `fa-doctor env` and of the HTML report.

use rayon::prelude::*;
use serde::Serialize;

use super::arch::{Arch, CudaVersion};
use super::coverage::{Coverage, Verdict, targets};
use super::elf::ElfError;
use super::fatbin::{Container, FatbinError};
use super::inspection::Cache;
use super::shelf::Shelf;
use super::stack::{self, Subject};
use crate::environment::Environment;
use crate::environment::gpu::Hardware;
use crate::finding::Incomplete;
use crate::packs::Packs;

/// Architectures that are judged where none is asked for and no GPU is here.
const COMMON: [(u32, u32); 9] = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)];

/// A GPU to judge for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// What it is.
    pub arch: Arch,
    /// The CUDA version of its driver, if it is in this machine.
    pub driver: Option<CudaVersion>,
}

/// The GPUs asked for with `--arch`, else those of this machine; empty if there is neither.
pub fn devices(environment: &Environment) -> Vec<Device> {
    let hardware = Hardware::detect();
    let here = hardware.architectures();
    let names = if environment.arch.is_empty() { &here } else { &environment.arch };
    let device = |name: &String| {
        let driver = if here.contains(name) { hardware.cuda } else { None };
        Some(Device { arch: name.parse().ok()?, driver })
    };
    names.iter().filter_map(device).collect()
}

/// A library with device code.
#[derive(Debug, Clone)]
pub struct Kernels {
    /// Which one.
    pub subject: Subject,
    /// Its device code.
    pub codes: Vec<Container>,
}

/// Device code of an environment.
#[derive(Debug, Default)]
pub struct Found {
    /// Libraries with device code, sorted by place.
    pub kernels: Vec<Kernels>,
    /// Libraries whose device code is damaged.
    pub incomplete: Vec<Incomplete>,
}

/// Every library of torch and of the attention stack that holds device code.
pub fn kernels(environment: &Environment, packs: &Packs, shelf: &Shelf) -> Found {
    let mut subjects = stack::torch_kernels(environment);
    subjects.extend(stack::extensions(environment, packs));
    subjects.sort_by(|a, b| (a.root, &a.path).cmp(&(b.root, &b.path)));
    let mut found = Found::default();
    let read = |subject: Subject| {
        let codes = shelf.codes(environment, subject.root, &subject.path);
        (subject, codes)
    };
    for (subject, codes) in subjects.into_par_iter().map(read).collect::<Vec<_>>() {
        match codes {
            Ok(codes) if codes.is_empty() => {}
            Ok(codes) => found.kernels.push(Kernels { subject, codes }),
            // What is no library at all is reported where libraries are linked.
            Err(FatbinError::Elf(error)) if !matches!(error, ElfError::Malformed(_)) => {}
            Err(error) => found.incomplete.push(Incomplete { path: subject.path, reason: error.to_string() }),
        }
    }
    found
}

/// One library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The distribution that brought it.
    pub package: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Relative to its root, with `/`.
    pub path: String,
    /// What it was built for: `sm_80`, `sm_90a`, `compute_80`.
    pub targets: Vec<String>,
    /// On each GPU.
    pub devices: Vec<Cell>,
}

/// One library on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// `sm_120`.
    pub arch: String,
    /// How it runs there.
    pub verdict: Verdict,
    /// The CUDA version that the driver needs for the parts it compiles.
    pub driver: Option<String>,
}

/// The table: on the GPUs of [`devices`], or on the common ones where there are none.
pub fn table(environment: &Environment, packs: &Packs) -> Vec<Row> {
    let mut archs: Vec<Arch> = devices(environment).into_iter().map(|device| device.arch).collect();
    if archs.is_empty() {
        archs = COMMON.map(|(major, minor)| Arch::device(major, minor)).to_vec();
    }
    let cache = Cache::default();
    let found = cache.kernels(environment, packs);
    found.kernels.iter().map(|kernels| row(environment, kernels, &archs)).collect()
}

fn row(environment: &Environment, kernels: &Kernels, archs: &[Arch]) -> Row {
    let distribution = kernels.subject.distribution.and_then(|index| environment.distributions.get(index));
    let cell = |arch: &Arch| {
        let coverage = Coverage::of(&kernels.codes, *arch);
        let driver = coverage.driver.map(|driver| driver.to_string());
        Cell { arch: arch.to_string(), verdict: coverage.verdict(), driver }
    };
    Row {
        package: distribution.map(|distribution| distribution.display_name.clone()),
        version: distribution.map(|distribution| distribution.raw_version.clone()),
        path: kernels.subject.path.clone(),
        targets: targets(&kernels.codes),
        devices: archs.iter().map(cell).collect(),
    }
}

impl Row {
    /// `runs natively on sm_80/86/89; JIT with a driver for CUDA 13.0 on sm_90/100/120; not on sm_75`.
    pub fn sentence(&self) -> String {
        let on = |wanted: &dyn Fn(&Cell) -> bool| -> Option<String> {
            let names: Vec<&str> =
                self.devices.iter().filter(|cell| wanted(cell)).map(|cell| cell.arch.as_str()).collect();
            let (first, rest) = names.split_first()?;
            let rest = rest.iter().map(|name| name.trim_start_matches("sm_"));
            Some(std::iter::once(*first).chain(rest).collect::<Vec<_>>().join("/"))
        };
        let mut parts = Vec::new();
        let native = |cell: &Cell| matches!(cell.verdict, Verdict::Native | Verdict::SameFamily);
        parts.extend(on(&native).map(|names| format!("runs natively on {names}")));
        let mut drivers: Vec<&String> = self
            .devices
            .iter()
            .filter(|cell| cell.verdict == Verdict::Jit)
            .filter_map(|cell| cell.driver.as_ref())
            .collect();
        drivers.sort();
        drivers.dedup();
        for driver in drivers {
            let jit = |cell: &Cell| cell.verdict == Verdict::Jit && cell.driver.as_ref() == Some(driver);
            parts.extend(on(&jit).map(|names| format!("JIT with a driver for CUDA {driver} on {names}")));
        }
        parts.extend(on(&|cell| cell.verdict == Verdict::Partial).map(|names| format!("only in part on {names}")));
        parts.extend(on(&|cell| cell.verdict == Verdict::None).map(|names| format!("not on {names}")));
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sentence_for_a_library() {
        let cell = |arch: &str, verdict, driver: Option<&str>| Cell {
            arch: arch.to_owned(),
            verdict,
            driver: driver.map(str::to_owned),
        };
        let row = Row {
            package: None,
            version: None,
            path: "x.so".to_owned(),
            targets: Vec::new(),
            devices: vec![
                cell("sm_75", Verdict::None, None),
                cell("sm_80", Verdict::Native, None),
                cell("sm_86", Verdict::SameFamily, None),
                cell("sm_90", Verdict::Jit, Some("13.0")),
                cell("sm_120", Verdict::Jit, Some("13.0")),
            ],
        };
        let expected = "runs natively on sm_80/86; JIT with a driver for CUDA 13.0 on sm_90/120; not on sm_75";
        assert_eq!(row.sentence(), expected);
    }
}
