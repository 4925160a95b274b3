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
use crate::native::coverage::{Coverage, Verdict, targets};
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
        let mut groups: Vec<(CudaVersion, Option<CudaVersion>, Verdict, Vec<String>)> = Vec::new();
        for device in devices {
            let coverage = Coverage::of(&library.codes, device.arch);
            let Some(needed) = coverage.driver else { continue };
            let verdict = coverage.verdict();
            let known_to_work = device.driver.is_some_and(|driver| driver >= needed);
            // With an unknown driver, only a library that depends on it altogether is worth a word.
            if known_to_work || (device.driver.is_none() && verdict != Verdict::Jit) {
                continue;
            }
            let name = device.arch.to_string();
            match groups.iter_mut().find(|group| (group.0, group.1, group.2) == (needed, device.driver, verdict)) {
                Some(group) => group.3.push(name),
                None => groups.push((needed, device.driver, verdict, vec![name])),
            }
        }
        found.extend(groups.into_iter().map(|group| one(environment, library, group)));
    }
    found
}

fn one(
    environment: &Environment,
    library: &Kernels,
    (needed, driver, verdict, archs): (CudaVersion, Option<CudaVersion>, Verdict, Vec<String>),
) -> Finding {
    let mut found = finding(&INFO, environment, &library.subject);
    let (file, on) = (file_name(&library.subject.path), list(&archs));
    let built_for = list(&targets(&library.codes));
    let part = if verdict == Verdict::Jit { "" } else { "some kernels of " };
    match driver {
        Some(driver) => {
            found.severity = if verdict == Verdict::Jit { Severity::Error } else { Severity::Warning };
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
