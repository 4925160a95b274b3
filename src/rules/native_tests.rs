//! FA201 to FA206 and FA302 on miniature installations, one for each verdict.

use std::fs;
use std::path::PathBuf;

use object::elf::{EM_AARCH64, EM_X86_64};

use super::{Context, Sink, registry};
use crate::environment::{Environment, Platform, Request};
use crate::finding::{Finding, Incomplete, Severity};
use crate::link::{Program, Scope};
use crate::native::elf::Machine;
use crate::native::fixture::Library;
use crate::packs::Packs;

/// A symbol of torch that changed a parameter, as it was and as it is.
const CHECK_OLD: &str = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib";
const CHECK_NEW: &str = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb";
/// One with a string parameter, in both ABIs.
const FAIL_OLD: &str = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs";
const FAIL_NEW: &str = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

/// A site-packages folder in the making.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Site {
        Site(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("site-packages")
    }

    fn file(self, path: &str, bytes: impl AsRef<[u8]>) -> Site {
        let file = self.path().join(path);
        fs::create_dir_all(file.parent().expect("a parent")).expect("a folder");
        fs::write(file, bytes).expect("a file");
        self
    }

    /// A distribution with these libraries.
    fn package(self, name: &str, version: &str, requires: &[&str], files: &[(&str, &Library)]) -> Site {
        let info = format!("{}-{version}.dist-info", name.replace('-', "_"));
        let mut metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        for requirement in requires {
            metadata += &format!("Requires-Dist: {requirement}\n");
        }
        let mut record: String = files.iter().map(|(path, _)| format!("{path},,\n")).collect();
        record += &format!("{info}/METADATA,,\n{info}/RECORD,,\n");
        let mut site = self.file(&format!("{info}/METADATA"), metadata);
        site = site.file(&format!("{info}/RECORD"), record).file(&format!("{info}/INSTALLER"), "pip\n");
        for (path, library) in files {
            site = site.file(path, library.build());
        }
        site
    }

    /// A torch that exports these symbols.
    fn torch(self, version: &str, exports: &[&str]) -> Site {
        let core = Library::default().soname("libc10.so").exports(exports);
        let cpu = Library::default().soname("libtorch_cpu.so").needs(&["libc10.so"]);
        self.package("torch", version, &[], &[("torch/lib/libc10.so", &core), ("torch/lib/libtorch_cpu.so", &cpu)])
    }

    fn load(&self, arch: &[&str]) -> Environment {
        let request = Request {
            targets: vec![self.path()],
            arch: arch.iter().map(|text| (*text).to_owned()).collect(),
            platform: Platform::Cuda,
            ..Request::default()
        };
        Environment::load(&request).expect("an environment")
    }

    fn check(&self, arch: &[&str]) -> Vec<Finding> {
        check(&self.load(arch), None).0
    }
}

fn check(environment: &Environment, glibc: Option<(u32, u32)>) -> (Vec<Finding>, Vec<Incomplete>) {
    let packs = Packs::embedded();
    let program = Program::load(environment, &packs, Scope { all: false });
    let context = Context { environment, program: &program, packs: &packs, glibc, native: Default::default() };
    let mut sink = Sink::default();
    for rule in registry::all() {
        if rule.info().code.starts_with("FA2") || rule.info().code == "FA302" {
            rule.check(&context, &mut sink);
        }
    }
    (sink.findings, sink.incomplete)
}

fn codes(findings: &[Finding]) -> Vec<(&str, Severity)> {
    findings.iter().map(|finding| (finding.code.as_str(), finding.severity)).collect()
}

/// An extension that needs torch.
fn extension(undefined: &[&str]) -> Library {
    Library::default().needs(&["libc10.so"]).undefined(undefined)
}

#[test]
fn an_extension_that_fits_is_silent() {
    let site = Site::new().torch("2.11.0", &[CHECK_NEW, FAIL_NEW]).package(
        "flash-attn",
        "2.8.3",
        &["torch"],
        &[(
            "flash_attn_2_cuda.so",
            &extension(&[CHECK_NEW, FAIL_NEW, "PyFloat_FromDouble", "cuLaunchKernel"]).weak("_ZN3c101xEv"),
        )],
    );
    assert_eq!(codes(&site.check(&[])), []);
}

#[test]
fn a_changed_signature_is_told() {
    let site = Site::new().torch("2.11.0", &[CHECK_NEW]).package(
        "flash-attn",
        "2.8.3+cu12torch2.9",
        &["torch"],
        &[("flash_attn_2_cuda.so", &extension(&[CHECK_OLD]))],
    );
    let found = site.check(&[]);
    assert_eq!(codes(&found), [("FA201", Severity::Error)]);
    assert_eq!(found[0].symbol, "c10::cuda::c10_cuda_check_implementation");
    assert!(found[0].message.contains(CHECK_OLD) && found[0].message.contains("int, bool)`"), "{}", found[0].message);
    let help = found[0].help.as_deref().unwrap_or_default();
    assert!(help.contains("unsigned int, bool)`") && help.ends_with("pip install torch==2.9"), "{help}");
    assert_eq!((found[0].package.as_deref(), found[0].path.as_str()), (Some("flash-attn"), "flash_attn_2_cuda.so"));
}

#[test]
fn the_old_string_abi_is_one_finding_for_a_distribution() {
    let broken = extension(&[FAIL_OLD, "_ZN3c104goneEv"]);
    let site = Site::new().torch("2.11.0", &[FAIL_NEW]).package("vllm", "1.0", &["torch==2.11.0"], &[]).package(
        "xformers",
        "0.0.29",
        &["torch==2.6.0"],
        &[("xformers/_C.so", &broken), ("xformers/_D.so", &broken)],
    );
    let found = site.check(&[]);
    assert_eq!(codes(&found), [("FA201", Severity::Error)]);
    assert!(found[0].message.ends_with("and 1 more"), "{}", found[0].message);
    assert_eq!(found[0].related.len(), 2);
    let help = found[0].help.as_deref().unwrap_or_default();
    assert!(help.contains("_GLIBCXX_USE_CXX11_ABI=0") && help.contains("vllm needs torch 2.11.0"), "{help}");
    assert!(help.ends_with("pip install --upgrade xformers"), "{help}");
}

#[test]
fn without_torch_nothing_is_known() {
    let site = Site::new().package("flash-attn", "2.8.3", &[], &[("flash_attn_2_cuda.so", &extension(&[CHECK_OLD]))]);
    assert_eq!(codes(&site.check(&[])), []);
}

#[test]
fn a_torch_that_keeps_its_libraries_elsewhere_is_not_judged_by() {
    let core = Library::default().soname("libc10.so");
    let site = Site::new().package("torch", "2.11.0", &[], &[("torch/lib/libc10.so", &core)]).package(
        "flash-attn",
        "2.8.3",
        &[],
        &[("flash_attn_2_cuda.so", &extension(&[CHECK_OLD]).needs(&["libtorch_cpu.so"]))],
    );
    assert_eq!(codes(&site.check(&[])), []);
}

#[test]
fn what_torch_exports_anywhere_counts() {
    let elsewhere = Library::default().soname("libtorch_more.so").exports(&["_ZN2at3addEv"]);
    let site = Site::new().torch("2.11.0", &[]).file("torch/lib/libtorch_more.so", elsewhere.build()).package(
        "flash-attn",
        "2.8.3",
        &[],
        &[("flash_attn_2_cuda.so", &extension(&["_ZN2at3addEv"]))],
    );
    assert_eq!(codes(&site.check(&[])), []);
}

#[test]
fn a_library_of_torch_that_is_not_there_is_a_torch_without_cuda() {
    let needs = Library::default().needs(&["libc10.so", "libtorch_cuda.so"]).undefined(&["_ZN2at4cuda4initEv"]);
    let site = Site::new().torch("2.11.0+cpu", &[]).package(
        "flash-attn",
        "2.8.3",
        &[],
        &[("flash_attn_2_cuda.so", &needs), ("flash_attn_3_cuda.so", &needs)],
    );
    let found = site.check(&[]);
    assert_eq!(codes(&found), [("FA202", Severity::Error)], "the missing symbol is the same defect");
    assert_eq!((found[0].symbol.as_str(), found[0].related.len()), ("libtorch_cuda.so", 1));
    assert!(found[0].help.as_deref().is_some_and(|help| help.contains("without CUDA")), "{:?}", found[0].help);
}

#[test]
fn a_library_beside_torch_of_another_release() {
    let nccl = |exports: &[&str]| Library::default().soname("libnccl.so.2").exports(exports).build();
    let cuda = Library::default().needs(&["libnccl.so.2"]).undefined(&["ncclSend", "ncclCommShrink", "cublasCreate"]);
    let requires = ["nvidia-nccl-cu13==2.28.9; platform_system == \"Linux\""];
    let any = Library::default();
    let site = Site::new()
        .torch("2.11.0", &[])
        .package("torch", "2.11.0", &requires, &[("torch/lib/libtorch_cuda.so", &cuda)])
        .package("vllm", "1.0", &[], &[("vllm/_C.abi3.so", &any)])
        .file("nvidia/nccl/lib/libnccl.so.2", nccl(&["ncclSend"]));
    let found = site.check(&[]);
    assert_eq!(codes(&found), [("FA201", Severity::Error)]);
    assert!(
        found[0].message.contains("the installed libnccl.so does not define `ncclCommShrink`"),
        "{}",
        found[0].message
    );
    assert!(found[0].help.as_deref().is_some_and(|help| help.ends_with("pip install nvidia-nccl-cu13==2.28.9")));
    let site = site.file("nvidia/nccl/lib/libnccl.so.2", nccl(&["ncclSend", "ncclCommShrink"]));
    assert_eq!(codes(&site.check(&[])), []);
}

#[test]
fn libraries_are_found_through_runpath_and_in_vendor_folders() {
    let runtime = Library::default().soname("libcudart.so.13");
    let needs =
        Library::default().needs(&["libcudart.so.13", "libown.so.1", "libcuda.so.1"]).runpath("$ORIGIN/../own.libs");
    let site = Site::new()
        .torch("2.11.0", &[])
        .file("nvidia/cu13/lib/libcudart.so.13", runtime.build())
        .file("own.libs/libown.so.1", Library::default().build())
        .package("xformers", "1.0", &[], &[("xformers/_C.so", &needs)]);
    assert_eq!(codes(&site.check(&[])), []);
}

#[test]
fn versions_of_the_c_library_against_another_machine() {
    let needs = |version| Library::default().versioned("fopen", "libc.so.6", version);
    let site = Site::new().package(
        "vllm",
        "1.0",
        &[],
        &[
            ("vllm/_C.abi3.so", &needs("GLIBC_2.34")),
            ("vllm/_D.abi3.so", &needs("GLIBC_2.32")),
            ("vllm/_E.abi3.so", &needs("GLIBC_2.17")),
        ],
    );
    let (found, _) = check(&site.load(&[]), Some((2, 31)));
    assert_eq!(codes(&found), [("FA203", Severity::Error)]);
    assert_eq!(found[0].symbol, "GLIBC_2.34");
    assert!(found[0].message.contains("version `GLIBC_2.34' not found") && found[0].message.contains("2.31"));
    assert_eq!(found[0].related.len(), 1);
    assert_eq!(codes(&check(&site.load(&[]), Some((2, 34))).0), []);
}

#[test]
#[cfg(target_os = "linux")]
fn versions_of_the_c_library_of_this_machine() {
    let needs = |version| Library::default().versioned("fopen", "libc.so.6", version);
    let new = needs("GLIBC_2.999");
    let site = Site::new().package(
        "vllm",
        "1.0",
        &[],
        &[("vllm/_C.abi3.so", &new), ("vllm/_D.abi3.so", &needs("GLIBC_2.17"))],
    );
    let environment = site.load(&[]);
    let cache = crate::native::inspection::Cache::default();
    let (found, _) = check(&environment, None);
    match &cache.inspection(&environment, &Packs::embedded(), false).libc {
        Some(_) => assert_eq!(codes(&found), [("FA203", Severity::Error)]),
        // Nothing to compare with on a system without glibc.
        None => assert_eq!(codes(&found), []),
    }
}

#[test]
fn device_code_native_jit_none() {
    let fa2 = Library::default().fatbin(&["sm_80 compute_80@9.0"; 3]);
    let fa3 = Library::default().fatbin(&["sm_90a"; 3]);
    let old = Library::default().fatbin(&["sm_80 sm_90"; 3]);
    let site = Site::new()
        .package("vllm", "0.26.0", &[], &[("vllm/_vllm_fa2_C.abi3.so", &fa2), ("vllm/_vllm_fa3_C.abi3.so", &fa3)])
        .package("flash-attn", "2.7", &[], &[("flash_attn_2_cuda.so", &old)]);
    assert_eq!(codes(&site.check(&["sm_90"])), [("FA205", Severity::Info)]);
    let found = site.check(&["sm_120"]);
    let kinds: Vec<(&str, &str, Severity)> =
        found.iter().map(|f| (f.code.as_str(), f.symbol.as_str(), f.severity)).collect();
    let expected = [
        ("FA204", "flash_attn_2_cuda.so", Severity::Error),
        ("FA204", "_vllm_fa3_C.abi3.so", Severity::Info),
        ("FA205", "_vllm_fa2_C.abi3.so", Severity::Info),
    ];
    assert_eq!(kinds, expected);
    assert!(found[0].message.contains("no kernel image is available"), "{}", found[0].message);
    assert!(found[0].help.as_deref().is_some_and(|help| help.contains("TORCH_CUDA_ARCH_LIST=\"12.0\"")));
    assert!(
        found[1].message.contains("vllm takes FlashAttention 3 on compute capability 9.x alone"),
        "{}",
        found[1].message
    );
    assert!(found[2].message.contains("JIT, needs a driver for CUDA 13.0"), "{}", found[2].message);
    assert_eq!(found[2].arch, ["sm_120"]);
    // Two architectures with one answer are one finding.
    assert_eq!(site.check(&["sm_120", "sm_121"])[0].arch, ["sm_120", "sm_121"]);
    // A library that its package does use there is no matter of routing.
    let site = Site::new().package(
        "vllm",
        "0.26.0",
        &[],
        &[("vllm/_vllm_fa3_C.abi3.so", &Library::default().fatbin(&["sm_80"]))],
    );
    assert_eq!(codes(&site.check(&["sm_90"])), [("FA204", Severity::Error)]);
}

#[test]
fn a_torch_that_is_too_old_for_the_gpu_is_one_finding() {
    let kernels = Library::default().fatbin(&["sm_80 sm_90"; 2]);
    let files = [("torch/lib/libtorch_cuda.so", &kernels), ("torch/lib/libtorch_cuda_linalg.so", &kernels)];
    let site = Site::new().package("torch", "2.6.0", &[], &files);
    let found = site.check(&["sm_120"]);
    assert_eq!(codes(&found), [("FA204", Severity::Error)]);
    assert_eq!(found[0].related.len(), 1);
    assert_eq!(codes(&site.check(&["sm_80", "sm_86"])), []);
}

#[test]
fn most_kernels_without_code_is_a_warning() {
    let mixed = Library::default().fatbin(&["sm_80 sm_90", "sm_80 sm_90", "sm_120"]);
    let site = Site::new().package("vllm", "1.0", &[], &[("vllm/_C.abi3.so", &mixed)]);
    let found = site.check(&["sm_120"]);
    assert_eq!(codes(&found), [("FA204", Severity::Warning)]);
    assert!(found[0].message.starts_with("2 of 3"), "{}", found[0].message);
}

#[test]
fn damaged_libraries_are_incomplete_not_clean() {
    let good = Library::default().fatbin(&["sm_80"]).build();
    let half = &good[..good.len() / 2];
    let site = Site::new()
        .package(
            "vllm",
            "1.0",
            &[],
            &[
                ("vllm/a.so", &Library::default()),
                ("vllm/b.so", &Library::default()),
                ("vllm/c.pyd", &Library::default()),
            ],
        )
        .file("vllm/a.so", half)
        .file("vllm/b.so", "version https://git-lfs.github.com/spec/v1\n")
        .file("vllm/c.pyd", b"MZ\x90\0");
    let (found, incomplete) = check(&site.load(&["sm_80"]), None);
    assert_eq!(codes(&found), []);
    let reasons: Vec<String> = incomplete.into_iter().map(|gap| format!("{}: {}", gap.path, gap.reason)).collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(reasons[0].starts_with("vllm/a.so: damaged or truncated"), "{reasons:?}");
    assert!(reasons[1].contains("Git LFS"), "{reasons:?}");
    assert!(reasons[2].contains("Windows libraries are not supported yet"), "{reasons:?}");
}

#[test]
fn a_module_for_another_python() {
    let any = Library::default();
    let python = |tags: &[&str]| {
        let names: Vec<String> = tags.iter().map(|tag| format!("vllm/_C{tag}.so")).collect();
        let files: Vec<(&str, &Library)> = names.iter().map(|name| (name.as_str(), &any)).collect();
        let site = Site::new().package("vllm", "1.0", &[], &files);
        let mut environment = site.load(&[]);
        environment.python = Some((3, 12));
        check(&environment, None).0
    };
    let found = python(&[".cpython-310-x86_64-linux-gnu", ".cpython-311-x86_64-linux-gnu"]);
    assert_eq!(codes(&found), [("FA206", Severity::Error)]);
    assert!(found[0].message.contains("built for Python 3.10, 3.11, this is 3.12"), "{}", found[0].message);
    // Another module fits: the package may do without this one.
    let any = Library::default();
    let site =
        Site::new().package("vllm", "1.0", &[], &[("vllm/_C.abi3.so", &any), ("vllm/_D.cpython-310-x.so", &any)]);
    let mut environment = site.load(&[]);
    environment.python = Some((3, 12));
    assert_eq!(codes(&check(&environment, None).0), [("FA206", Severity::Warning)]);
    for fitting in [&[".cpython-310-x", ".cpython-312-x"][..], &[".abi3"], &[".cpython-310-x", ".abi3"], &[""]] {
        assert_eq!(codes(&python(fitting)), [], "{fitting:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_module_for_another_processor() {
    let foreign = match Machine::host() {
        Some(Machine::X86_64) => EM_AARCH64,
        _ => EM_X86_64,
    };
    let library = Library::default().machine(foreign).undefined(&[CHECK_OLD]).needs(&["libno.so.1"]);
    let site = Site::new().torch("2.11.0", &[]).package("vllm", "1.0", &[], &[("vllm/_C.abi3.so", &library)]);
    let found = site.check(&[]);
    assert_eq!(codes(&found), [("FA206", Severity::Error)], "the one thing to say about it");
    assert!(found[0].help.as_deref().is_some_and(|help| help.ends_with("vllm==1.0")), "{:?}", found[0].help);
}

/// A `ptxas` that knows these.
fn ptxas(targets: &[&str]) -> Library {
    let names: String = targets.iter().map(|target| format!("compute_{target}\0")).collect();
    Library::default().section(".rodata", format!("{names}Cuda compilation tools, release 12.8, V12.8.93\0"))
}

#[test]
fn an_assembler_that_is_too_old() {
    let old = ptxas(&["90", "90a", "100", "100a", "120", "120a"]);
    let site = Site::new().package("triton", "3.5", &[], &[("triton/backends/nvidia/bin/ptxas", &old)]);
    assert_eq!(codes(&site.check(&["sm_120", "sm_90"])), []);
    let found = site.check(&["sm_121"]);
    assert_eq!(codes(&found), [("FA302", Severity::Error)]);
    assert!(found[0].message.contains("Value 'sm_121a' is not defined for option 'gpu-name'"), "{}", found[0].message);
    assert!(found[0].message.contains("CUDA 12.8"), "{}", found[0].message);
    // torch brings a newer one: that is what to name.
    let site = site.file("torch/bin/ptxas", ptxas(&["121", "121a"]).build());
    let help = site.check(&["sm_121"])[0].help.clone().unwrap_or_default();
    assert!(help.contains("export TRITON_PTXAS_PATH=") && help.ends_with("torch/bin/ptxas"), "{help}");
    // From 10.0 on Triton has another one.
    let site = site.file("triton/backends/nvidia/bin/ptxas-blackwell", ptxas(&["121", "121a"]).build());
    assert_eq!(codes(&site.check(&["sm_121"])), []);
}

#[test]
fn a_dsl_that_is_too_old() {
    let path = "nvidia_cutlass_dsl/cutlass/_mlir/_mlir_libs/_cutlass_ir.cpython-312-x86_64-linux-gnu.so";
    let compiler = ptxas(&["90a", "120a"]);
    let site = Site::new().package("nvidia-cutlass-dsl-libs-base", "4.3.0", &[], &[(path, &compiler)]);
    assert_eq!(codes(&site.check(&["sm_120"])), []);
    let found = site.check(&["sm_121"]);
    assert_eq!(codes(&found), [("FA302", Severity::Error)]);
    assert!(found[0].message.contains("4.3.0 does not know sm_121a"), "{}", found[0].message);
    // The same architecture under its former name.
    let compiler = ptxas(&["90a", "101a"]);
    let site = Site::new().package("nvidia-cutlass-dsl-libs-base", "4.4.2", &[], &[(path, &compiler)]);
    assert_eq!(codes(&site.check(&["sm_110"])), []);
}
