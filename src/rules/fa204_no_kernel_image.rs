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
//! A library that its package uses on some GPUs only (a pack says which), or that holds nothing but code for exact
//! architectures (`sm_90a`, `sm_100f`), which callers choose by architecture, is reported as something to know, not as
//! an error.
//!
//! # References
//!
//! - <https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-compilation>
//! - <https://docs.nvidia.com/cuda/blackwell-compatibility-guide/>

use super::libraries::{distribution_of, file_name, finding, list, related};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::{Environment, Platform};
use crate::finding::{Finding, Incomplete, Severity};
use crate::native::coverage::{Coverage, Verdict, targets};
use crate::native::stack::module;
use crate::native::table::{Device, Kernels, devices};
use crate::packs::{Packs, Route};

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
            let found = context.kernels();
            sink.findings.extend(report(context.environment, context.packs, &found.kernels, &devices));
            // A library that could not be linked either is one gap.
            let is_new = |gap: &&Incomplete| !sink.incomplete.iter().any(|known| known.path == gap.path);
            let new: Vec<Incomplete> = found.incomplete.iter().filter(is_new).cloned().collect();
            sink.incomplete.extend(new);
        }
    }
}

/// A library that lacks code for some devices.
struct Lack<'a> {
    library: &'a Kernels,
    severity: Severity,
    lacking: Vec<Coverage>,
    route: Option<&'a Route>,
}

/// Errors and warnings once for each distribution, which was built as a whole; what is good to know for each library.
fn report(environment: &Environment, packs: &Packs, kernels: &[Kernels], devices: &[Device]) -> Vec<Finding> {
    let mut lacks: Vec<Lack<'_>> = Vec::new();
    for library in kernels {
        let route = route(environment, packs, library);
        for device in devices {
            let coverage = Coverage::of(&library.codes, device.arch);
            let Some(severity) = severity(&coverage, route) else { continue };
            match lacks.iter_mut().find(|lack| lack.library.subject == library.subject && lack.severity == severity) {
                Some(lack) => lack.lacking.push(coverage),
                None => lacks.push(Lack { library, severity, lacking: vec![coverage], route }),
            }
        }
    }
    let mut found: Vec<(Option<usize>, Finding)> = Vec::new();
    for lack in &lacks {
        let finding = one(environment, lack);
        let distribution = lack.library.subject.distribution;
        let same = |(other, earlier): &&mut (Option<usize>, Finding)| {
            *other == distribution
                && distribution.is_some()
                && earlier.severity == finding.severity
                && earlier.severity > Severity::Info
                && earlier.arch == finding.arch
        };
        match found.iter_mut().find(same) {
            Some((_, earlier)) => {
                let built_for = list(&targets(&lack.library.codes));
                let message = format!("{} is built for {built_for}", file_name(&lack.library.subject.path));
                earlier.related.push(related(finding.root, &finding.path, message));
            }
            None => found.push((distribution, finding)),
        }
    }
    found.into_iter().map(|(_, finding)| finding).collect()
}

/// What a pack says about where a library is used.
fn route<'a>(environment: &Environment, packs: &'a Packs, library: &Kernels) -> Option<&'a Route> {
    let distribution = distribution_of(environment, &library.subject)?;
    let (_, module) = module(&library.subject);
    let name = file_name(&module);
    packs.routes.iter().find(|route| route.distribution == distribution.name && route.library == name)
}

/// How bad it is that there is no code for a device; `None` if there is.
fn severity(coverage: &Coverage, route: Option<&Route>) -> Option<Severity> {
    match (coverage.verdict(), route) {
        (Verdict::None | Verdict::Partial, Some(route)) if !route.major.contains(&coverage.device.major) => {
            Some(Severity::Info)
        }
        (Verdict::None, None) if coverage.specialised => Some(Severity::Info),
        (Verdict::None, _) => Some(Severity::Error),
        (Verdict::Partial, _) => Some(Severity::Warning),
        _ => None,
    }
}

fn one(environment: &Environment, lack: &Lack<'_>) -> Finding {
    let library = lack.library;
    let mut found = finding(&INFO, environment, &library.subject);
    let file = file_name(&library.subject.path);
    let archs: Vec<String> = lack.lacking.iter().map(|coverage| coverage.device.to_string()).collect();
    let (on, built_for) = (list(&archs), list(&targets(&library.codes)));
    found.severity = lack.severity;
    found.message = match lack.severity {
        Severity::Error => format!(
            "nothing in {file} runs on {on}: no kernel image is available for execution on the device; it is built \
             for {built_for}"
        ),
        Severity::Warning => format!(
            "{} of {} groups of kernels in {file} have no code for {on}: no kernel image is available for execution on \
             the device; it is built for {built_for}",
            lack.lacking[0].none,
            lack.lacking[0].total()
        ),
        Severity::Info => format!("no code for {on} in {file}, which is made for {built_for} alone; {}", unused(lack)),
    };
    found.help = (lack.severity > Severity::Info).then(|| help(environment, library, &lack.lacking));
    found.arch = archs;
    found
}

/// Why it does not matter.
fn unused(lack: &Lack<'_>) -> String {
    match lack.route {
        Some(route) => {
            let majors: Vec<String> = route.major.iter().map(|major| format!("{major}.x")).collect();
            let (who, what, on) = (&route.distribution, &route.purpose, list(&majors));
            format!("no error, as {who} takes {what} on compute capability {on} alone")
        }
        None => "no error by itself, as code for single architectures is chosen by its callers".to_owned(),
    }
}

fn help(environment: &Environment, library: &Kernels, lacking: &[Coverage]) -> String {
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
