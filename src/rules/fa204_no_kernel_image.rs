//! # What it does
//!
//! Reads which architectures the libraries of torch and of the attention stack hold device code for, and judges it for the
//! architecture given with `--arch`, or for the GPUs of this machine. Machine code runs within its major version
//! (`sm_80` on `sm_86`, not on `sm_90`), `sm_90a` on exactly its own, `sm_100f` on its family; PTX on everything later.
//!
//! # Why is this bad
//!
//! A kernel without code for the GPU fails when it is launched, which may be long after the model was loaded.
//!
//! # Example
//!
//! ```text
//! RuntimeError: CUDA error: no kernel image is available for execution on the device
//! ```
//!
//! # Fix
//!
//! Install a build that has code for the GPU, or build it from source with TORCH_CUDA_ARCH_LIST.
//!
//! A library that holds nothing but code for exact architectures (`sm_90a`, `sm_100f`) is chosen by its callers where it
//! runs. For others it is reported as something to know, not as an error.
//!
//! # References
//!
//! - <https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-compilation>
//! - <https://docs.nvidia.com/cuda/blackwell-compatibility-guide/>

use super::libraries::{distribution_of, file_name, finding, list};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::{Environment, Platform};
use crate::finding::{Finding, Severity};
use crate::native::coverage::{Coverage, Verdict, targets};
use crate::native::table::{Device, Kernels, devices};

static INFO: RuleInfo = RuleInfo {
    code: "FA204",
    name: "no-kernel-image",
    summary: "no cubin or PTX in a library runs on this architecture",
    source: include_str!("fa204_no_kernel_image.rs"),
};

/// FA204.
pub struct NoKernelImage;

impl Rule for NoKernelImage {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let devices = devices(context.environment);
        if context.environment.platform == Platform::Cuda && !devices.is_empty() {
            let found = context.native.kernels(context.environment);
            sink.findings.extend(report(context.environment, &found.kernels, &devices));
            sink.incomplete.extend(found.incomplete.iter().cloned());
        }
    }
}

/// One finding for each library and reason, for all architectures that it has.
fn report(environment: &Environment, kernels: &[Kernels], devices: &[Device]) -> Vec<Finding> {
    let mut found = Vec::new();
    for library in kernels {
        let coverages: Vec<Coverage> = devices.iter().map(|device| Coverage::of(&library.codes, device.arch)).collect();
        for verdict in [Verdict::None, Verdict::Partial] {
            let lacking: Vec<&Coverage> = coverages.iter().filter(|coverage| coverage.verdict() == verdict).collect();
            if !lacking.is_empty() {
                found.push(one(environment, library, verdict, &lacking));
            }
        }
    }
    found
}

fn one(environment: &Environment, library: &Kernels, verdict: Verdict, lacking: &[&Coverage]) -> Finding {
    let mut found = finding(&INFO, environment, &library.subject);
    let file = file_name(&library.subject.path);
    let archs: Vec<String> = lacking.iter().map(|coverage| coverage.device.to_string()).collect();
    let (on, built_for) = (list(&archs), list(&targets(&library.codes)));
    let specialised = lacking[0].specialised;
    found.severity = match (verdict, specialised) {
        (Verdict::Partial, _) => Severity::Warning,
        (_, true) => Severity::Info,
        _ => Severity::Error,
    };
    found.message = match (verdict, specialised) {
        (Verdict::Partial, _) => format!(
            "{} of {} groups of kernels in {file} have no code for {on}: no kernel image is available for execution on \
             the device; it is built for {built_for}",
            lacking[0].none,
            lacking[0].total()
        ),
        (_, true) => format!(
            "no code for {on} in {file}: it is made for {built_for} alone, and its callers choose it by architecture"
        ),
        _ => format!(
            "nothing in {file} runs on {on}: no kernel image is available for execution on the device; it is built \
             for {built_for}"
        ),
    };
    found.help = (found.severity != Severity::Info).then(|| help(environment, library, lacking));
    found.arch = archs;
    found
}

fn help(environment: &Environment, library: &Kernels, lacking: &[&Coverage]) -> String {
    let Some(distribution) = distribution_of(environment, &library.subject) else {
        return "build it again for this architecture".to_owned();
    };
    let name = &distribution.display_name;
    if distribution.name == "torch" {
        return format!(
            "torch {} is too old for this GPU, or too new: install a release built for it: pip install --upgrade torch",
            distribution.raw_version
        );
    }
    let list = lacking.iter().map(|c| format!("{}.{}", c.device.major, c.device.minor)).collect::<Vec<_>>().join(";");
    format!(
        "install a release with code for it, or build it here: TORCH_CUDA_ARCH_LIST=\"{list}\" pip install \
         --force-reinstall --no-deps --no-cache-dir --no-build-isolation --no-binary {name} {name}"
    )
}
