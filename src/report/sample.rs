//! A small report of every shape, for the tests of the formats.

use std::time::Duration;

use super::{Package, Report, Subject, View};
use crate::capability::{AcceptedArgument, AttentionFunction, Matrix};
use crate::environment::RootId;
use crate::finding::{Applicability, Edit, Finding, Fix, Incomplete, Related, Severity};
use crate::native::coverage::Verdict;
use crate::native::table::{Cell, Row};

/// Where the sample's sources "are".
pub const ROOT: &str = ".venv/lib/python3.12/site-packages";

const KERNEL: &str = "\
import cutlass.cute as cute


class ForwardBase:
    @cute.jit
    def epilogue(self, acc):
        if cute.const_expr(self.is_split):
            acc = acc * 2
        return self.store(acc, self.is_split)


class ForwardAmpere(ForwardBase):
    def __init__(self, tile: int):
        self.tile = tile

    @cute.jit
    def __call__(self, q, mask_per_row=None):
        self.kernel(q).launch(grid=(1, 1, 1))

    @cute.kernel
    def kernel(self, q):
        # Grüße: columns are characters, not bytes
        größe = 1; mask = mask_per_row[0] if cute.const_expr(mask_per_row is not None) else None
        self.epilogue(mask)
";

const CALLER: &str = "\
from flash_attn.cute.interface import flash_attn_fwd


def forward(q, k, v, window):
    return flash_attn_fwd(q, k, v, window_left=window, dynamic_mask_with_a_rather_long_name=None, softcap_value=0.0)
";

/// The sample's files.
pub struct Files;

impl View for Files {
    fn source(&self, _root: RootId, path: &str) -> Option<String> {
        match path {
            "flash_attn/cute/forward.py" => Some(KERNEL.to_owned()),
            "vllm/v1/attention/backends/flash.py" => Some(CALLER.to_owned()),
            _ => None,
        }
    }

    fn place(&self, _root: RootId, path: &str) -> String {
        format!("{ROOT}/{path}")
    }

    fn device_code(&self) -> Vec<Row> {
        let cell = |arch: &str, verdict, driver: Option<&str>| Cell {
            arch: arch.into(),
            verdict,
            driver: driver.map(Into::into),
        };
        vec![Row {
            package: Some("flash-attn".into()),
            version: Some("2.99.0".into()),
            path: "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so".into(),
            targets: vec!["sm_80".into(), "sm_90a".into(), "compute_80".into()],
            devices: vec![
                cell("sm_80", Verdict::Native, None),
                cell("sm_90", Verdict::Jit, Some("13.0")),
                cell("sm_75", Verdict::None, None),
            ],
        }]
    }
}

fn finding(code: &str, name: &str, severity: Severity, path: &str, at: (u32, u32, u32)) -> Finding {
    let (line, column, end_column) = at;
    let owner = if path.starts_with("vllm") { ("vllm", "0.99.0") } else { ("flash-attn-4", "4.99.0") };
    Finding {
        code: code.into(),
        name: name.into(),
        severity,
        package: Some(owner.0.into()),
        version: Some(owner.1.into()),
        path: path.into(),
        line,
        column,
        end_line: line,
        end_column,
        symbol: String::new(),
        message: String::new(),
        help: None,
        arch: Vec::new(),
        related: Vec::new(),
        fix: None,
        root: RootId(0),
    }
}

fn related(path: &str, line: u32, message: &str) -> Related {
    Related { path: path.into(), line, message: message.into(), root: RootId(0) }
}

/// Findings of every severity, with and without source, fix, help and related places; one file not checked.
pub fn report() -> Report {
    let forward = "flash_attn/cute/forward.py";
    let caller = "vllm/v1/attention/backends/flash.py";
    let reads = "read here too";
    let findings = vec![
        Finding {
            symbol: "ForwardAmpere.kernel:mask_per_row".into(),
            message: "NameError: name 'mask_per_row' is not defined: it is a parameter of `__call__`, which launches \
                      this kernel, and is not passed on"
                .into(),
            help: Some("pass it through the launch:\nfa-doctor fix --write".into()),
            arch: vec!["sm_80".into(), "sm_120".into()],
            related: vec![related(forward, 17, "the parameter, out of reach here"), related(forward, 18, "the launch")],
            fix: Some(Fix {
                applicability: Applicability::Safe,
                title: "Pass `mask_per_row` to the kernel".into(),
                edits: vec![Edit {
                    path: forward.into(),
                    start: 415,
                    end: 415,
                    content: ", mask_per_row".into(),
                    root: RootId(0),
                }],
            }),
            ..finding("FA001", "undefined-name", Severity::Error, forward, (23, 27, 39))
        },
        Finding {
            symbol: "ForwardAmpere.is_split".into(),
            message: "AttributeError: 'ForwardAmpere' object has no attribute 'is_split'".into(),
            related: vec![related(forward, 8, reads), related(forward, 9, reads)],
            fix: Some(Fix {
                applicability: Applicability::Unsafe,
                title: "Set `self.is_split = False` in `ForwardAmpere.__init__`".into(),
                edits: Vec::new(),
            }),
            ..finding("FA002", "undefined-attribute", Severity::Error, forward, (7, 28, 41))
        },
        Finding {
            symbol: "flash_attn.cute.interface.flash_attn_fwd(dynamic_mask_with_a_rather_long_name)".into(),
            message: "TypeError: flash_attn_fwd() got an unexpected keyword argument \
                      'dynamic_mask_with_a_rather_long_name'"
                .into(),
            help: Some("install the versions that belong together:\npip install 'vllm==0.99.1' 'flash-attn-4==4.99.2' 'nvidia-cutlass-dsl==4.99.0'".into()),
            ..finding("FA003", "call-mismatch", Severity::Warning, caller, (5, 56, 97))
        },
        Finding {
            symbol: "flash_attn_2_cuda".into(),
            message: "no kernel image is available for execution on the device: it has sm_80 and sm_90a, and no PTX".into(),
            arch: vec!["sm_120".into()],
            ..finding("FA204", "no-kernel-image", Severity::Error, "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", (1, 1, 1))
        },
        Finding {
            symbol: "vllm".into(),
            message: "nothing imports this module".into(),
            ..finding("FA301", "arch-gate", Severity::Info, caller, (1, 1, 5))
        },
    ];
    let incomplete = vec![Incomplete {
        path: "flash_attn/broken.py".into(),
        reason: "not valid Python at line 3: expected ':'".into(),
    }];
    let package = |name: &str, version: &str| Package {
        name: name.into(),
        version: version.into(),
        root: ROOT.into(),
        stack: true,
    };
    let subject = Subject {
        roots: vec![ROOT.into()],
        python: Some("3.12".into()),
        arch: vec!["sm_120".into()],
        packages: vec![package("flash-attn-4", "4.99.0"), package("torch", "2.99.0+cu130"), package("vllm", "0.99.0")],
    };
    let mut report = Report::of(subject, findings, incomplete, 42, Duration::from_millis(310));
    report.tool.version = "1.2.3".into();
    report.capabilities = Matrix {
        functions: vec![AttentionFunction {
            path: "flash_attn.cute.interface.flash_attn_func".into(),
            title: "flash-attn-4".into(),
            package: Some("flash-attn-4".into()),
            version: Some("4.99.0".into()),
            file: "flash_attn/cute/interface.py".into(),
            line: 7,
        }],
        arguments: vec![AcceptedArgument {
            name: "causal".into(),
            mask: true,
            consequence: "without it every token sees the future".into(),
            accepted: vec![true],
        }],
    };
    report
}

/// A format's output as text.
pub fn render(write: impl Fn(&Report, &dyn View, &mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&report(), &Files, &mut out).expect("writing into memory");
    String::from_utf8(out).expect("UTF-8")
}
