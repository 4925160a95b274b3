//! # What it does
//!
//! Where a library has no machine code for a GPU, but PTX, the driver compiles that when a kernel is first used. This rule
//! compares the ISA version of the PTX with what the driver of this machine understands.
//!
//! # Why is this bad
//!
//! An older driver refuses PTX of a newer ISA, whatever the GPU. Compiling also takes time: minutes for a large library,
//! until the driver's cache has it.
//!
//! # Example
//!
//! ```text
//! CUDA error: the provided PTX was compiled with an unsupported toolchain.
//! ```
//!
//! # Fix
//!
//! Update the driver, or install a build with machine code for the GPU.
//!
//! Where the driver is not known (`--arch` for another machine) the rule says which one it takes, as something to know.
//!
//! # References
//!
//! - <https://docs.nvidia.com/cuda/parallel-thread-execution/#release-notes>
//! - <https://docs.nvidia.com/deploy/cuda-compatibility/>

use super::libraries::{file_name, finding, list};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::{Environment, Platform};
use crate::finding::{Finding, Severity};
use crate::native::arch::CudaVersion;
use crate::native::coverage::{Coverage, targets};
use crate::native::table::{Device, Kernels, devices};

static INFO: RuleInfo = RuleInfo {
    code: "FA205",
    name: "ptx-needs-newer-driver",
    summary: "only PTX would run, and its ISA is newer than the driver",
    source: include_str!("fa205_ptx_needs_newer_driver.rs"),
};

/// FA205.
pub struct PtxNeedsNewerDriver;

impl Rule for PtxNeedsNewerDriver {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let devices = devices(context.environment);
        if context.environment.platform == Platform::Cuda && !devices.is_empty() {
            let found = context.kernels();
            sink.findings.extend(report(context.environment, &found.kernels, &devices));
        }
    }
}

/// One finding for each library, driver that it takes, and driver that is there.
fn report(environment: &Environment, kernels: &[Kernels], devices: &[Device]) -> Vec<Finding> {
    let mut found = Vec::new();
    for library in kernels {
        let mut groups: Vec<Group> = Vec::new();
        for device in devices {
            let coverage = Coverage::of(&library.codes, device.arch);
            let Some(needed) = coverage.driver else { continue };
            let whole = coverage.native + coverage.same_family == 0;
            let known_to_work = device.driver.is_some_and(|driver| driver >= needed);
            // With an unknown driver, only a library that depends on it altogether is worth a word.
            if known_to_work || (device.driver.is_none() && !whole) {
                continue;
            }
            let name = device.arch.to_string();
            let same = |group: &&mut Group| (group.needed, group.driver, group.whole) == (needed, device.driver, whole);
            match groups.iter_mut().find(same) {
                Some(group) => group.archs.push(name),
                None => groups.push(Group { needed, driver: device.driver, whole, archs: vec![name] }),
            }
        }
        found.extend(groups.into_iter().map(|group| one(environment, library, group)));
    }
    found
}

/// Architectures with one answer.
struct Group {
    /// What the PTX takes.
    needed: CudaVersion,
    /// What is there, if that is known.
    driver: Option<CudaVersion>,
    /// Nothing of the library runs without it.
    whole: bool,
    archs: Vec<String>,
}

fn one(environment: &Environment, library: &Kernels, group: Group) -> Finding {
    let Group { needed, driver, whole, archs } = group;
    let mut found = finding(&INFO, environment, &library.subject);
    let (file, on) = (file_name(&library.subject.path), list(&archs));
    let built_for = list(&targets(&library.codes));
    let part = if whole { "" } else { "some kernels of " };
    match driver {
        Some(driver) => {
            found.severity = if whole { Severity::Error } else { Severity::Warning };
            found.message = format!(
                "on {on} {part}{file} run only as PTX that takes a driver for CUDA {needed}, and this driver is for \
                 CUDA {driver}: the provided PTX was compiled with an unsupported toolchain"
            );
            found.help = Some(format!(
                "update the driver to one for CUDA {needed} or later (what is there now: nvidia-smi), or install a \
                 build with machine code for {on}"
            ));
        }
        None => {
            found.severity = Severity::Info;
            found.message = format!(
                "JIT, needs a driver for CUDA {needed}: {file} is built for {built_for}, so on {on} the driver compiles \
                 its PTX when it is first used"
            );
            found.help = Some(
                "compare with the CUDA version of the driver on that machine, in the first lines of: nvidia-smi"
                    .to_owned(),
            );
        }
    }
    found.arch = archs;
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::RootId;
    use crate::native::arch::Arch;
    use crate::native::fatbin::{Code, Container};
    use crate::native::stack::Subject;

    fn check(containers: &[&[&str]], driver: Option<(u32, u32)>) -> Vec<(Severity, String)> {
        let code = |text: &&str| match text.strip_prefix("compute_") {
            Some(arch) => Code { arch: arch.parse().expect("an architecture"), isa: Some((9, 0)) },
            None => Code { arch: text.parse().expect("an architecture"), isa: None },
        };
        let codes: Vec<Container> = containers.iter().map(|codes| codes.iter().map(code).collect()).collect();
        let subject = Subject { root: RootId(0), path: "vllm/_vllm_fa2_C.abi3.so".to_owned(), distribution: None };
        let driver = driver.map(|(major, minor)| CudaVersion { major, minor });
        let device = Device { arch: Arch::device(12, 0), driver };
        let found = report(&Environment::default(), &[Kernels { subject, codes }], &[device]);
        found.into_iter().map(|finding| (finding.severity, finding.message)).collect()
    }

    #[test]
    fn an_old_driver_breaks_a_library_or_some_of_its_kernels() {
        let fa2: &[&[&str]] = &[&["sm_80", "compute_80"]];
        let found = check(fa2, Some((12, 8)));
        assert_eq!(found[0].0, Severity::Error);
        assert!(
            found[0].1.contains("takes a driver for CUDA 13.0, and this driver is for CUDA 12.8"),
            "{}",
            found[0].1
        );
        assert!(check(fa2, Some((13, 0))).is_empty() && check(fa2, Some((13, 1))).is_empty());
        assert_eq!(check(fa2, None)[0].0, Severity::Info);
        let mixed: &[&[&str]] = &[&["sm_120"], &["compute_80"]];
        assert_eq!(check(mixed, Some((12, 9)))[0].0, Severity::Warning);
        assert!(check(mixed, None).is_empty() && check(&[&["sm_120", "compute_120"]], Some((12, 0))).is_empty());
    }
}
