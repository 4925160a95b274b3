//! # What it does
//!
//! Finds the assembler that Triton and the CuTe DSL would use and reads from its binary, without running it, whether it
//! knows the architecture given with `--arch`, or that of this machine's GPUs. Triton takes the `ptxas` it bundles (from
//! 10.0 on its `ptxas-blackwell`, where it has one) unless TRITON_PTXAS_PATH or TRITON_PTXAS_BLACKWELL_PATH name another;
//! the DSL carries its own inside.
//!
//! # Why is this bad
//!
//! Every kernel that is compiled at run time fails, the first one after the model has been loaded.
//!
//! # Example
//!
//! ```text
//! ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'
//! ```
//!
//! # Fix
//!
//! Point Triton at a newer `ptxas`; newer releases of torch and the packages `nvidia-cuda-nvcc` bring one. For the DSL
//! install a newer release.
//!
//! # References
//!
//! - <https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-feature-list>
//! - <https://github.com/triton-lang/triton/blob/main/python/triton/knobs.py>

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::libraries::{file_name, finding};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::tree::join;
use crate::environment::{Environment, Platform, RootId, RootKind, SearchEntry, Tree};
use crate::finding::Finding;
use crate::native::arch::Arch;
use crate::native::ptxas::Ptxas;
use crate::native::sparse;
use crate::native::stack::Subject;
use crate::native::table::devices;

static INFO: RuleInfo = RuleInfo {
    code: "FA302",
    name: "toolchain-too-old",
    summary: "the ptxas that Triton or the DSL would use does not know the architecture",
    source: include_str!("fa302_toolchain_too_old.rs"),
};

/// FA302.
pub struct ToolchainTooOld;

impl Rule for ToolchainTooOld {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let environment = context.environment;
        if environment.platform != Platform::Cuda {
            return;
        }
        let mut assemblers = Assemblers { environment, read: FxHashMap::default() };
        for device in devices(environment) {
            sink.findings.extend(triton(&mut assemblers, device.arch));
            sink.findings.extend(dsl(&mut assemblers, device.arch));
        }
    }
}

/// Triton's own assemblers, relative to where it is installed.
const TRITON_TOOLS: &str = "triton/backends/nvidia/bin";

/// An assembler of the environment.
struct Tool {
    entry: SearchEntry,
    path: String,
    variable: &'static str,
}

/// The assemblers of an environment, each read once.
struct Assemblers<'e> {
    environment: &'e Environment,
    read: FxHashMap<(RootId, String), Option<Ptxas>>,
}

impl Assemblers<'_> {
    fn inside(&mut self, root: RootId, path: &str) -> Option<&Ptxas> {
        let tree = &self.environment.root(root).tree;
        self.read.entry((root, path.to_owned())).or_insert_with(|| inside(tree, path)).as_ref()
    }
}

fn triton(assemblers: &mut Assemblers<'_>, arch: Arch) -> Option<Finding> {
    let environment = assemblers.environment;
    let tool = triton_tool(environment, arch)?;
    let installed = environment.root(tool.entry.root).kind == RootKind::SitePackages;
    if let Some(named) = std::env::var_os(tool.variable).filter(|_| installed)
        && let Some(ptxas) = read(Path::new(&named))
    {
        // Another one is named: that is the one to judge.
        return if ptxas.knows(arch.tuned()) { None } else { Some(one(environment, &tool, arch, &ptxas, true)) };
    }
    let ptxas = assemblers.inside(tool.entry.root, &tool.path)?;
    if ptxas.knows(arch.tuned()) { None } else { Some(one(environment, &tool, arch, ptxas, false)) }
}

/// The assembler that Triton takes for an architecture.
fn triton_tool(environment: &Environment, arch: Arch) -> Option<Tool> {
    let names: &[(&str, &str)] = if arch.major >= 10 {
        &[("ptxas-blackwell", "TRITON_PTXAS_BLACKWELL_PATH"), ("ptxas", "TRITON_PTXAS_PATH")]
    } else {
        &[("ptxas", "TRITON_PTXAS_PATH")]
    };
    for entry in &environment.search_path {
        let tree = &environment.root(entry.root).tree;
        for (name, variable) in names {
            let path = join(&join(&entry.prefix, TRITON_TOOLS), name);
            if tree.is_file(&path) {
                return Some(Tool { entry: entry.clone(), path, variable });
            }
        }
    }
    None
}

fn one(environment: &Environment, tool: &Tool, arch: Arch, ptxas: &Ptxas, named: bool) -> Finding {
    let subject = subject_of(environment, tool.entry.clone(), tool.path.clone());
    let mut found = finding(&INFO, environment, &subject);
    let wanted = arch.tuned();
    let release = ptxas.release.map_or("".to_owned(), |release| format!(" of CUDA {release}"));
    let which = match named {
        true => format!("the ptxas{release} that {} names", tool.variable),
        false => format!("Triton's own {}{release}", file_name(&tool.path)),
    };
    found.symbol = wanted.to_string();
    found.message = format!(
        "{which} does not know {wanted}: every Triton kernel fails with \
         \"ptxas fatal: Value '{wanted}' is not defined for option 'gpu-name'\""
    );
    found.arch = vec![arch.to_string()];
    found.help = Some(match newer(environment, wanted) {
        Some(path) => format!("use one that does: export {}={}", tool.variable, path.display()),
        None => format!(
            "install a newer one and name it in {}; it is in the package nvidia-cuda-nvcc: pip install nvidia-cuda-nvcc",
            tool.variable
        ),
    });
    found
}

/// A `ptxas` on this machine that knows the architecture.
fn newer(environment: &Environment, wanted: Arch) -> Option<PathBuf> {
    let mut candidates = Vec::new();
    for entry in &environment.search_path {
        let tree = &environment.root(entry.root).tree;
        let vendors =
            tree.list(&join(&entry.prefix, "nvidia")).into_iter().map(|(name, _)| format!("nvidia/{name}/bin"));
        for folder in vendors.chain(["torch/bin".to_owned(), TRITON_TOOLS.to_owned()]) {
            for name in ["ptxas", "ptxas-blackwell"] {
                candidates.extend(tree.on_disk(&join(&join(&entry.prefix, &folder), name)));
            }
        }
    }
    let toolkits = std::fs::read_dir("/usr/local").into_iter().flatten().flatten().map(|entry| entry.path());
    candidates.extend(toolkits.map(|folder| folder.join("bin/ptxas")));
    candidates.into_iter().find(|path| read(path).is_some_and(|ptxas| ptxas.knows(wanted)))
}

fn read(path: &Path) -> Option<Ptxas> {
    Ptxas::read(&crate::native::libraries::map_file(path)?)
}

/// An assembler of a tree: mapped, or out of a wheel without the code in it.
fn inside(tree: &Tree, path: &str) -> Option<Ptxas> {
    match tree.on_disk(path) {
        Some(file) => read(&file),
        None => Ptxas::read(&sparse::open(tree, path).ok()?),
    }
}

/// The DSL's compiler library, with its assembler inside.
fn dsl(assemblers: &mut Assemblers<'_>, arch: Arch) -> Vec<Finding> {
    let environment = assemblers.environment;
    let mut found = Vec::new();
    for distribution in environment.distributions.iter().filter(|d| d.name.starts_with("nvidia-cutlass-dsl")) {
        let tree = &environment.root(distribution.root).tree;
        let is_compiler = |path: &str| file_name(path).starts_with("_cutlass_ir") && path.ends_with(".so");
        for entry in distribution.record(tree).into_iter().filter(|entry| is_compiler(&entry.path)) {
            let Some(ptxas) = assemblers.inside(distribution.root, &entry.path) else { continue };
            let wanted = arch.tuned();
            if ptxas.knows(wanted) || former_name(wanted).is_some_and(|former| ptxas.knows(former)) {
                continue;
            }
            let subject = subject_of(environment, distribution.base.clone(), entry.path);
            let mut finding = finding(&INFO, environment, &subject);
            finding.symbol = wanted.to_string();
            finding.message = format!(
                "the assembler inside {} {} does not know {wanted}: no kernel of the DSL compiles for it",
                distribution.display_name, distribution.raw_version
            );
            finding.help = Some("install a newer DSL: pip install --upgrade nvidia-cutlass-dsl".to_owned());
            finding.arch = vec![arch.to_string()];
            found.push(finding);
        }
    }
    found
}

/// CUDA 13 calls 11.0 what CUDA 12 called 10.1, and the DSL takes the name that its assembler knows.
fn former_name(arch: Arch) -> Option<Arch> {
    (arch.number() == 110).then_some(Arch { major: 10, minor: 1, ..arch })
}

fn subject_of(environment: &Environment, entry: SearchEntry, path: String) -> Subject {
    let owner = environment.owner(entry.root, &path).map(|owner| owner.name.clone());
    let distribution = owner.and_then(|name| environment.distributions.iter().position(|d| d.name == name));
    Subject { root: entry.root, path, distribution }
}
