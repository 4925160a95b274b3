//! `fa-doctor pin`: constraints for an installed vLLM, and files that pin versions.

mod common;

use std::fs;
use std::path::Path;

use common::{run, write};
use serde_json::Value;

fn install(site: &Path, name: &str, version: &str, requires: &[&str]) {
    let mut metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
    for requirement in requires {
        metadata.push_str(&format!("Requires-Dist: {requirement}\n"));
    }
    write(site, &format!("{}-{version}.dist-info/METADATA", name.replace('-', "_")), &metadata);
}

/// The constraints, without comments.
fn lines(text: &str) -> Vec<&str> {
    let bare = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    bare.filter(|line| !line.is_empty()).collect()
}

#[test]
fn versions_fit_the_installed_vllm_and_each_other() {
    let site = tempfile::tempdir().expect("a folder");
    let requires =
        ["torch==2.11.0", "nvidia-cutlass-dsl[cu13]==4.6.2", "quack-kernels>=0.4.0", "apache-tvm-ffi==0.1.11", "numpy"];
    install(site.path(), "vllm", "0.99.0+cu130", &requires);
    let run = run(site.path(), "pin .");
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(
        lines(&run.out),
        [
            "vllm==0.99.0",
            "apache-tvm-ffi==0.1.11",
            "flash-attn==2.7.4.post1",
            "flash-attn-4==4.0.0b36",
            "nvidia-cutlass-dsl==4.6.2",
            "quack-kernels==0.6.4",
            "torch==2.11.0",
            "nvidia-cutlass-dsl-libs-base==4.6.2",
            "nvidia-cutlass-dsl-libs-cu12==4.6.2",
            "nvidia-cutlass-dsl-libs-cu13==4.6.2",
            "nvidia-cutlass-dsl-libs-core==4.6.2",
        ]
    );
    for line in run.out.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.contains("  # "), "no reason: {line}");
    }
    // What comes out is what the check lets through.
    fs::write(site.path().join("constraints.txt"), &run.out).expect("written");
    let check = common::run(site.path(), "pin --check constraints.txt");
    assert_eq!(check.code, 0, "{}", check.out);
    assert!(check.out.contains("nothing found"), "{}", check.out);
}

#[test]
fn what_is_installed_stays_where_it_fits() {
    let site = tempfile::tempdir().expect("a folder");
    install(site.path(), "vllm", "0.99.0", &["nvidia-cutlass-dsl>=4.6.2", "quack-kernels>=0.4.0"]);
    install(site.path(), "nvidia-cutlass-dsl", "4.6.2", &[]);
    install(site.path(), "flash-attn-4", "4.0.0b30", &[]);
    let run = run(site.path(), "pin .");
    assert!(run.out.contains("nvidia-cutlass-dsl==4.6.2 "), "{}", run.out);
    assert!(run.out.contains("flash-attn-4==4.0.0b30 "), "{}", run.out);
}

#[test]
fn a_package_with_no_fitting_release_is_barred_with_the_reasons() {
    let site = tempfile::tempdir().expect("a folder");
    install(site.path(), "vllm", "0.99.0", &["nvidia-cutlass-dsl==4.6.0", "quack-kernels>=0.4.0"]);
    let run = run(site.path(), "pin .");
    assert_eq!(run.code, 0);
    assert!(run.out.contains("#   4.0.0b27 to 4.0.0b36 need nvidia-cutlass-dsl>=4.6.2, not 4.6.0"), "{}", run.out);
    assert!(lines(&run.out).contains(&"flash-attn-4<0"), "{}", run.out);
    install(site.path(), "flash-attn-4", "4.0.0b36", &[]);
    let run = common::run(site.path(), "pin .");
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(run.err.contains("flash-attn-4 is installed, and no release of it fits"), "{}", run.err);
}

#[test]
fn requirements_that_nothing_meets_are_explained() {
    let site = tempfile::tempdir().expect("a folder");
    install(site.path(), "vllm", "0.99.0", &["nvidia-cutlass-dsl==4.6.0", "nvidia-cutlass-dsl>=4.7"]);
    let run = run(site.path(), "pin .");
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(run.err.contains("nvidia-cutlass-dsl: no release meets vllm 0.99.0: ==4.6.0,>=4.7"), "{}", run.err);

    let empty = tempfile::tempdir().expect("a folder");
    install(empty.path(), "nvidia-cutlass-dsl", "4.6.0", &[]);
    let run = common::run(empty.path(), "pin .");
    assert_eq!(run.code, 3);
    assert!(run.err.contains("neither vLLM nor another package"), "{}", run.err);
}

const REQUIREMENTS: &str = "\
vllm==0.29.0
nvidia-cutlass-dsl[cu13]==4.8.1
flash-attn==2.8.3
flash-attn-4==4.0.0b20
numpy==1.0
quack-kernels>=0.6.5 ; python_version > '3.0'
";

#[test]
fn files_are_held_against_the_packs_before_anything_is_installed() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "requirements.txt", REQUIREMENTS);
    let run = run(folder.path(), "pin --check requirements.txt --format json");
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    let report: Value = serde_json::from_str(&run.out).expect("JSON");
    let found: Vec<(&str, u64, &str)> = report["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .map(|found| {
            let text = |key: &str| found[key].as_str().expect("text");
            assert_eq!(text("path"), "requirements.txt");
            (text("code"), found["line"].as_u64().expect("a line"), text("severity"))
        })
        .collect();
    let expected = [
        ("FA102", 2, "error"),
        ("FA102", 2, "error"),
        ("FA103", 3, "warning"),
        ("FA104", 4, "warning"),
        ("FA101", 6, "error"),
        ("FA101", 6, "error"),
        ("FA102", 6, "error"),
    ];
    assert_eq!(found, expected, "{}", run.out);

    write(
        folder.path(),
        "pyproject.toml",
        "[project]\nname = \"x\"\ndependencies = [\n  \"vllm==0.29.0\",\n  \"quack-kernels==0.6.5\",\n]\n",
    );
    let run = common::run(folder.path(), "pin --check pyproject.toml --format concise");
    assert_eq!(run.code, 1);
    assert!(run.out.contains("pyproject.toml:5:1: FA102 vllm==0.29.0 requires quack-kernels==0.6.4"), "{}", run.out);

    let lock = "version = 1\n[[package]]\nname = \"vllm\"\nversion = \"0.33.0\"\n[[package]]\nname = \"nvidia-cutlass-dsl\"\nversion = \"4.8.0\"\n";
    for name in ["uv.lock", "pylock.toml"] {
        let text = if name == "uv.lock" { lock.to_owned() } else { lock.replace("[[package]]", "[[packages]]") };
        write(folder.path(), name, &text);
        assert_eq!(common::run(folder.path(), &format!("pin --check {name}")).code, 0);
        write(folder.path(), name, &text.replace("4.8.0", "4.8.1"));
        let run = common::run(folder.path(), &format!("pin --check {name} --format concise"));
        assert_eq!(run.code, 1);
        assert!(run.out.contains(&format!("{name}:7:1: FA102")), "{}", run.out);
    }
}

#[test]
fn files_that_cannot_be_read_are_not_clean() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |text: Option<&str>, name: &str| {
        if let Some(text) = text {
            write(folder.path(), name, text);
        }
        common::run(folder.path(), &format!("pin --check {name}"))
    };
    assert_eq!(run(None, "missing.txt").code, 3);
    let broken = run(Some("[project\n"), "sub/pyproject.toml");
    assert_eq!(broken.code, 3);
    assert!(broken.err.contains("line 1"), "{}", broken.err);
    assert_eq!(run(Some("vllm==\n-r more.txt\n"), "requirements.txt").code, 3);
    assert_eq!(run(Some("# nothing\n"), "empty.txt").code, 0);
}
