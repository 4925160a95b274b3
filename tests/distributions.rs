//! FA101 to FA104 on miniature environments: what is installed, with RECORDs that have real digests.

mod common;

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::{Run, doctor, write};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A distribution: METADATA with these requirements, and these files, which RECORD lists.
fn install(site: &Path, name: &str, version: &str, requires: &[&str], files: &[(&str, &str)]) {
    let info = format!("{}-{version}.dist-info", name.replace('-', "_"));
    let mut metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
    for requirement in requires {
        metadata.push_str(&format!("Requires-Dist: {requirement}\n"));
    }
    write(site, &format!("{info}/METADATA"), &metadata);
    let mut record = String::new();
    for (path, text) in files {
        write(site, path, text);
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(text));
        record.push_str(&format!("{path},sha256={digest},{}\n", text.len()));
    }
    write(site, &format!("{info}/RECORD"), &record);
}

/// The findings of the packaging rules that concern this code.
fn findings(site: &Path, code: &str, arguments: &[&str]) -> Vec<Value> {
    let mut command = doctor(site);
    command.args(["scan", ".", "--format", "json", "--select", "FA0,FA1"]).args(arguments);
    command.env_remove("VLLM_FLASH_ATTN_SRC_DIR");
    let run = Run::from(command.output().expect("the binary runs"));
    let report: Value = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{}{}", run.out, run.err));
    let all = report["findings"].as_array().expect("findings").clone();
    all.into_iter().filter(|found| found["code"] == code).collect()
}

fn text<'v>(found: &'v Value, key: &str) -> &'v str {
    found[key].as_str().unwrap_or_default()
}

fn site() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn fa102_an_unmet_requirement_is_a_warning_at_its_line() {
    let site = site();
    install(site.path(), "vllm", "0.99.0", &["numpy>=9", "nvidia-cutlass-dsl[cu13]==4.6.0", "torch==2.11.0"], &[]);
    install(site.path(), "nvidia-cutlass-dsl", "4.4.2", &[], &[]);
    install(site.path(), "torch", "2.11.0+cu130", &[], &[]);
    install(site.path(), "numpy", "1.0", &[], &[]);
    let found = findings(site.path(), "FA102", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "severity"), "warning");
    assert_eq!(text(&found[0], "path"), "vllm-0.99.0.dist-info/METADATA");
    assert_eq!(found[0]["line"], 5);
    assert_eq!(text(&found[0], "symbol"), "nvidia-cutlass-dsl");
    assert_eq!(
        text(&found[0], "message"),
        "vllm 0.99.0 requires nvidia-cutlass-dsl[cu13]==4.6.0, but 4.4.2 is installed"
    );
    assert_eq!(text(&found[0], "help"), "install what is required: pip install 'nvidia-cutlass-dsl[cu13]==4.6.0'");
}

#[test]
fn fa102_extras_count_where_an_installed_package_asks_for_them() {
    let site = site();
    let parts = ["nvidia-cutlass-dsl-libs-base==4.6.0", "nvidia-cutlass-dsl-libs-cu13==4.6.0 ; extra == 'cu13'"];
    install(site.path(), "nvidia-cutlass-dsl", "4.6.0", &parts, &[]);
    install(site.path(), "nvidia-cutlass-dsl-libs-base", "4.6.0", &[], &[]);
    install(site.path(), "nvidia-cutlass-dsl-libs-cu13", "4.5.2", &[], &[]);
    assert_eq!(findings(site.path(), "FA102", &[]).len(), 0, "nobody asks for the extra");
    install(site.path(), "vllm", "0.99.0", &["nvidia-cutlass-dsl[cu13]==4.6.0"], &[]);
    let found = findings(site.path(), "FA102", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "symbol"), "nvidia-cutlass-dsl-libs-cu13");
}

#[test]
fn fa102_requirements_that_exclude_each_other_are_said_to() {
    let site = site();
    install(site.path(), "vllm", "0.99.0", &["nvidia-cutlass-dsl==4.5.2"], &[]);
    install(site.path(), "flash-attn-4", "4.0.0b36", &["nvidia-cutlass-dsl>=4.6.2"], &[]);
    install(site.path(), "nvidia-cutlass-dsl", "4.5.2", &[], &[]);
    let found = findings(site.path(), "FA102", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "package"), "flash-attn-4");
    let help = text(&found[0], "help");
    assert!(help.contains("vllm 0.99.0 requires nvidia-cutlass-dsl==4.5.2, and no release meets both"), "{help}");
    assert!(help.ends_with("pip install 'nvidia-cutlass-dsl==4.5.2' 'flash-attn-4==4.0.0b19'"), "{help}");

    let site = self::site();
    install(site.path(), "vllm", "0.99.0", &["nvidia-cutlass-dsl==4.6.0", "quack-kernels>=0.4.0"], &[]);
    install(site.path(), "quack-kernels", "0.6.5", &["nvidia-cutlass-dsl>=4.7"], &[]);
    install(site.path(), "nvidia-cutlass-dsl", "4.8.1", &[], &[]);
    let found = findings(site.path(), "FA102", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    let help = text(&found[0], "help");
    assert!(help.ends_with("pip install 'nvidia-cutlass-dsl==4.6.0' 'quack-kernels==0.6.3'"), "{help}");

    let site = self::site();
    install(site.path(), "vllm", "0.99.0", &["triton==3.6.0"], &[]);
    install(site.path(), "torch", "2.99.0", &["triton==3.5.0"], &[]);
    install(site.path(), "triton", "3.6.0", &[], &[]);
    let found = findings(site.path(), "FA102", &[]);
    let help = text(&found[0], "help");
    assert!(
        help.ends_with(
            "and no release meets both; one of the two needs another version; a set that fits: fa-doctor pin"
        ),
        "{help}"
    );
}

#[test]
fn fa102_what_is_not_installed_is_no_finding_of_a_folder() {
    let site = site();
    install(site.path(), "vllm", "0.99.0", &["nvidia-cutlass-dsl==4.6.0", "torch==2.11.0"], &[]);
    assert_eq!(findings(site.path(), "FA102", &[]).len(), 0);
}

const BASE: &str = "nvidia-cutlass-dsl-libs-base";
const CU13: &str = "nvidia-cutlass-dsl-libs-cu13";

#[test]
fn fa103_the_loser_is_who_was_installed_first_in_either_order() {
    let base = [("dsl/a.py", "base a"), ("dsl/b.py", "base b"), ("dsl/same.py", "same"), ("dsl/own.py", "own")];
    let cu13 = [("dsl/a.py", "cu13 a"), ("dsl/b.py", "cu13, b"), ("dsl/same.py", "same")];
    for base_first in [true, false] {
        let site = site();
        let mut steps: Vec<(&str, &[(&str, &str)])> = vec![(BASE, &base), (CU13, &cu13)];
        if !base_first {
            steps.reverse();
        }
        let [(loser, _), (winner, _)] = steps[..] else { unreachable!() };
        for (name, files) in &steps {
            install(site.path(), name, "4.5.2", &[], files);
        }
        let found = findings(site.path(), "FA103", &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(text(&found[0], "severity"), "error");
        assert_eq!((text(&found[0], "path"), text(&found[0], "symbol")), ("dsl/a.py", "dsl/a.py"));
        assert_eq!(text(&found[0], "message"), format!("2 files of {loser} 4.5.2 are overwritten by {winner} 4.5.2"));
        let help = text(&found[0], "help");
        assert!(help.contains("the two have 3 paths in common"), "{help}");
        assert!(help.ends_with(&format!("pip install --force-reinstall --no-deps '{loser}==4.5.2'")), "{help}");
        assert_eq!(help.contains("is meant to be installed last, as it was"), base_first, "{help}");
    }
}

#[test]
fn fa103_a_file_changed_by_hand_is_not_an_overwritten_one() {
    let site = site();
    install(site.path(), BASE, "4.5.2", &[], &[("dsl/a.py", "base a"), ("dsl/b.py", "base b")]);
    install(site.path(), CU13, "4.5.2", &[], &[("dsl/a.py", "cu13 a"), ("dsl/b.py", "cu13 b")]);
    write(site.path(), "dsl/b.py", "by hand");
    let found = findings(site.path(), "FA103", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    let message = text(&found[0], "message");
    assert!(message.starts_with("1 file of") && message.ends_with("; 1 more changed since installation"), "{message}");
    write(site.path(), "dsl/a.py", "by hand too");
    let found = findings(site.path(), "FA103", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "severity"), "info");
}

#[test]
fn fa103_says_so_when_two_packages_are_mixed() {
    let site = site();
    install(site.path(), BASE, "4.5.2", &[], &[("dsl/a.py", "base a"), ("dsl/b.py", "base b"), ("dsl/c.py", "base c")]);
    install(site.path(), CU13, "4.5.2", &[], &[("dsl/a.py", "cu13 a"), ("dsl/b.py", "cu13 b"), ("dsl/c.py", "cu13 c")]);
    write(site.path(), "dsl/b.py", "base b");
    let found = findings(site.path(), "FA103", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    let message = text(&found[0], "message");
    assert!(
        message.contains("2 files of nvidia-cutlass-dsl-libs-base") && message.contains("1 file the other way round")
    );
}

#[test]
fn fa103_same_contents_and_packages_outside_the_stack_are_nobody_s_loss() {
    let site = site();
    install(site.path(), BASE, "4.6.0", &[], &[("dsl/a.py", "a"), ("dsl/__init__.py", "")]);
    install(site.path(), CU13, "4.6.0", &[], &[("dsl/b.py", "b"), ("dsl/__init__.py", "")]);
    install(site.path(), "one", "1.0", &[], &[("shared/a.py", "one")]);
    install(site.path(), "two", "1.0", &[], &[("shared/a.py", "two")]);
    assert_eq!(findings(site.path(), "FA103", &[]).len(), 0);
}

#[test]
fn fa103_a_copied_tree_without_a_record_is_recognised_where_packs_know_it() {
    let site = site();
    install(site.path(), "flash-attn-4", "4.0.0b36", &[], &[("flash_attn/cute/interface.py", "new")]);
    write(site.path(), "flash_attn/cute/interface.py", "old");
    write(
        site.path(),
        "flash_attn-2.8.3.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.8.3\n",
    );
    let found = findings(site.path(), "FA103", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "message"), "1 file of flash-attn-4 4.0.0b36 is overwritten by flash-attn 2.8.3");
}

fn checkout(commit: &str) -> tempfile::TempDir {
    let site = site();
    let cmake = format!(
        "include(FetchContent)\nFetchContent_Declare(\n  vllm-flash-attn\n  GIT_REPOSITORY \
         https://github.com/vllm-project/flash-attention.git\n  GIT_TAG {commit}\n)\n"
    );
    write(site.path(), "cmake/external_projects/vllm_flash_attn.cmake", &cmake);
    write(site.path(), "pyproject.toml", "[project]\nname = \"vllm\"\ndynamic = [\"version\"]\n");
    write(site.path(), "vllm/v1/attention/selector.py", "");
    site
}

const BAD: &str = "617264c1c7955c9e84817654ebeedff069f3c5f1";
const GOOD: &str = "7484d4751a4569fb30e5c0604581f1b02ae3df71";

#[test]
fn fa104_a_checkout_that_pins_a_bad_commit() {
    let found = findings(checkout(BAD).path(), "FA104", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "severity"), "error");
    assert_eq!(text(&found[0], "path"), "cmake/external_projects/vllm_flash_attn.cmake");
    assert_eq!(found[0]["line"], 5);
    assert_eq!(text(&found[0], "symbol"), "vllm");
    let message = text(&found[0], "message");
    assert!(message.contains("mDynamicCausal") && message.contains("is_split_kv"), "{message}");
    let help = text(&found[0], "help");
    assert!(help.contains("pull/178") && help.ends_with("cmake/external_projects/vllm_flash_attn.cmake"), "{help}");
    assert!(help.contains(GOOD), "{help}");
    for commit in [GOOD, "main", "v0.29.0", "${FLASH_ATTN_COMMIT}"] {
        assert_eq!(findings(checkout(commit).path(), "FA104", &[]).len(), 0, "{commit}");
    }
    assert_eq!(findings(checkout(&BAD[..10]).path(), "FA104", &[]).len(), 1, "an abbreviated commit");
}

#[test]
fn fa104_a_local_checkout_takes_the_place_of_the_pin() {
    let local = site();
    let scan = |checkout: &Path| {
        let mut command = doctor(checkout);
        command.env("VLLM_FLASH_ATTN_SRC_DIR", local.path()).args(["scan", ".", "--format", "concise"]);
        Run::from(command.output().expect("the binary runs"))
    };
    write(local.path(), ".git/HEAD", "ref: refs/heads/main\n");
    write(local.path(), ".git/refs/heads/main", &format!("{GOOD}\n"));
    let run = scan(checkout(BAD).path());
    assert!(!run.out.contains("FA104"), "the pin is not what is built: {}", run.out);
    write(local.path(), ".git/packed-refs", &format!("# pack-refs\n{BAD} refs/heads/main\n"));
    fs::remove_file(local.path().join(".git/refs/heads/main")).expect("removed");
    let run = scan(checkout(GOOD).path());
    assert!(run.out.contains("FA104") && run.out.contains("VLLM_FLASH_ATTN_SRC_DIR"), "{}", run.out);
    write(local.path(), ".git/HEAD", &format!("{BAD}\n"));
    assert!(scan(checkout(GOOD).path()).out.contains("FA104"), "a detached head");
}

#[test]
fn fa104_released_bytes_have_the_defects_of_their_version() {
    let site = site();
    let kernel = "flash_attn/cute/flash_fwd_sm120.py";
    install(site.path(), "flash-attn-4", "4.0.0b15", &[], &[(kernel, "arch = 80\n")]);
    let severity = |arguments: &[&str]| {
        let found = findings(site.path(), "FA104", arguments);
        assert!(found.iter().all(|found| text(found, "path") == "flash_attn_4-4.0.0b15.dist-info/METADATA"));
        found.iter().map(|found| text(found, "severity").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(severity(&["--arch", "sm_120"]), ["error"]);
    assert_eq!(severity(&["--arch", "sm_90"]), Vec::<String>::new());
    assert_eq!(severity(&[]), ["warning"], "the architecture is not known");
    write(site.path(), kernel, "repaired = True\n");
    assert_eq!(severity(&["--arch", "sm_120"]), Vec::<String>::new(), "changed since installation");
}

#[test]
fn fa104_the_finding_that_shows_a_defect_gets_its_references() {
    let site = site();
    let kernel = common::BROKEN.replace("Forward", "FlashAttentionForwardSm80").replace("mask", "mDynamicCausal");
    let path = "vllm/vllm_flash_attn/cute/flash_fwd.py";
    let files = [("vllm/__init__.py", ""), ("vllm/vllm_flash_attn/cute/__init__.py", ""), (path, kernel.as_str())];
    install(site.path(), "vllm", "0.26.0", &[], &files);
    let found = findings(site.path(), "FA001", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "symbol"), "FlashAttentionForwardSm80.kernel:mDynamicCausal");
    let help = text(&found[0], "help");
    assert!(help.starts_with("known as `vllm-fa4-sm80-dynamic-causal`: vLLM 0.29.0 is the first release"), "{help}");
    assert!(help.contains("flash-attention/pull/178") && help.contains("; "), "what the rule says stays: {help}");
    let found = findings(site.path(), "FA104", &[]);
    assert!(found.iter().all(|found| !text(found, "message").contains("mDynamicCausal")), "{found:?}");
}

#[test]
fn fa104_a_defect_that_sources_show_is_not_reported_where_they_do_not() {
    let site = site();
    let files = [("vllm/__init__.py", ""), ("vllm/vllm_flash_attn/cute/flash_fwd.py", "x = 1\n")];
    install(site.path(), "vllm", "0.26.0", &[], &files);
    fs::remove_file(site.path().join("vllm-0.26.0.dist-info/RECORD")).expect("removed");
    assert_eq!(findings(site.path(), "FA104", &[]).len(), 0, "nothing shows it, and nothing says it is as released");
    fs::remove_file(site.path().join("vllm/vllm_flash_attn/cute/flash_fwd.py")).expect("removed");
    let found = findings(site.path(), "FA104", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "severity"), "info", "the sources are not here");
}

#[test]
fn fa101_ceilings_that_metadata_does_not_state() {
    let site = site();
    install(site.path(), "flash-attn-4", "4.0.0b15", &["nvidia-cutlass-dsl>=4.4.2"], &[("flash_attn/cute/x.py", "")]);
    install(site.path(), "nvidia-cutlass-dsl", "4.8.1", &[], &[]);
    let found = findings(site.path(), "FA101", &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "severity"), "warning");
    assert_eq!(text(&found[0], "symbol"), "nvidia-cutlass-dsl");
    assert!(text(&found[0], "message").contains("make_fragment"));
    assert_eq!(text(&found[0], "help"), "install one that fits: pip install 'nvidia-cutlass-dsl<4.6.0.dev0'");
    install(site.path(), "nvidia-cutlass-dsl", "4.5.2", &[], &[]);
    fs::remove_dir_all(site.path().join("nvidia_cutlass_dsl-4.8.1.dist-info")).expect("removed");
    assert_eq!(findings(site.path(), "FA101", &[]).len(), 0);
}

#[test]
fn hostile_metadata_is_read_quickly_and_safely() {
    let site = site();
    let mut metadata = b"Metadata-Version: 2.1\nName: flash-attn-4\nVersion: 4.99.0\n".to_vec();
    metadata.extend(b"Requires-Dist: nvidia-cutlass-dsl (<99,>=1) ; python_version > \"3.0\"\n".repeat(20_000));
    metadata.extend(b"Requires-Dist: \xff\xfe==1\nRequires-Dist: quack-kernels (>=1\n");
    metadata.extend(b"\n");
    metadata.extend(b"a description that is not UTF-8: \xff\n".repeat(200_000));
    let info = "flash_attn_4-4.99.0.dist-info";
    write(site.path(), &format!("{info}/METADATA"), "");
    fs::write(site.path().join(info).join("METADATA"), &metadata).expect("written");
    assert!(metadata.len() > 6 << 20);
    let lines = (0..200_000).map(|n| format!("flash_attn/cute/f{n}.py,sha256=AAAA,1\n"));
    let outside = "../../outside.py,sha256=AAAA,1\n/outside.py,,\n\"open,\nC:\\outside.py,,\n";
    let record: String = lines.chain([outside.to_owned()]).collect();
    write(site.path(), &format!("{info}/RECORD"), &record);
    install(site.path(), "flash-attn", "2.8.3", &[], &[("flash_attn/cute/f1.py", "x = 1")]);
    fs::write(site.path().join("flash_attn-2.8.3.dist-info/RECORD"), &record).expect("written");
    install(site.path(), "nvidia-cutlass-dsl", "4.6.0", &[], &[]);
    let run = common::run(site.path(), "scan . --format json");
    assert_eq!(run.code, 3, "{}{}", run.out, run.err);
    let report: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(report["findings"].as_array().expect("findings").len(), 0, "{}", report["findings"]);
    let reasons = report["incomplete"].to_string();
    assert!(reasons.contains("quack-kernels (>=1"), "{reasons}");
}
