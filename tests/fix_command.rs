//! `fix` and `undo` as commands: what a person sees, what is refused, and what is never touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CALLER: &str = "vllm/v1/attention/backend.py";

/// A copy of a fixture's site.
fn site() -> tempfile::TempDir {
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/FA003/adapter-for-two-callers/bad");
    let folder = tempfile::tempdir().unwrap();
    for entry in walkdir::WalkDir::new(&bad).into_iter().map(Result::unwrap) {
        let to = folder.path().join(entry.path().strip_prefix(&bad).unwrap());
        if entry.file_type().is_dir() {
            fs::create_dir_all(&to).unwrap();
        } else {
            fs::copy(entry.path(), &to).unwrap();
        }
    }
    folder
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = walkdir::WalkDir::new(root).into_iter().map(Result::unwrap).filter(|e| !e.file_type().is_dir());
    files.map(|entry| (entry.path().to_owned(), fs::read(entry.path()).unwrap_or_default())).collect()
}

fn command(arguments: &[&str], target: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fa-doctor"));
    command.args(arguments).arg(target).current_dir(std::env::temp_dir());
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

fn run(arguments: &[&str], target: &Path) -> (String, String, i32) {
    let Output { status, stdout, stderr } = command(arguments, target).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), status.code().unwrap_or(-1))
}

#[test]
fn without_write_the_diff_is_shown_and_nothing_is_touched() {
    let folder = site();
    let before = tree(folder.path());
    let (out, err, code) = run(&["fix"], folder.path());
    assert_eq!(code, 1, "{err}");
    assert!(out.contains("+    return _fa_doctor_call(attend, q, k, v, dynamic_causal=mask)"), "{out}");
    assert!(out.contains("nothing was written. To apply: fa-doctor fix") && out.contains("--write"), "{out}");
    assert!(out.starts_with(&folder.path().display().to_string()), "the environment is named: {out}");
    assert_eq!(tree(folder.path()), before);
}

#[test]
#[ignore = "needs the patch command"]
fn the_diff_is_one_that_patch_applies() {
    let (patched, fixed) = (site(), site());
    let (diff, _, _) = run(&["fix"], patched.path());
    run(&["fix", "--write"], fixed.path());
    fs::write(patched.path().join("x.patch"), diff).unwrap();
    let status = Command::new("patch").args(["-p1", "-i", "x.patch"]).current_dir(patched.path()).status().unwrap();
    assert!(status.success());
    assert_eq!(fs::read(patched.path().join(CALLER)).unwrap(), fs::read(fixed.path().join(CALLER)).unwrap());
}

#[test]
fn a_patched_environment_is_clean_says_so_and_comes_back() {
    let folder = site();
    let before = tree(folder.path());
    let (out, err, code) = run(&["fix", "--write"], folder.path());
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("2 fixes applied in 3 files"), "{out}");
    let (json, _, code) = run(&["scan", "--format", "json"], folder.path());
    assert_eq!(code, 0, "{json}");
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let codes: Vec<&str> = report["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["FA105", "FA105", "FA105"]);
    let (out, _, code) = run(&["undo", "--list"], folder.path());
    assert_eq!(code, 0);
    assert!(out.contains("#1 ") && out.contains(CALLER) && out.contains("FA003") && out.contains("patched"), "{out}");
    let (out, _, code) = run(&["undo"], folder.path());
    assert_eq!(code, 0);
    assert!(out.contains("2 restored, 1 removed"), "{out}");
    assert_eq!(tree(folder.path()), before);
    let (out, _, code) = run(&["undo"], folder.path());
    assert!(code == 0 && out.contains("nothing was patched here"), "{out}");
}

#[test]
fn a_reinstall_is_noticed_and_the_patch_comes_back() {
    let folder = site();
    let original = fs::read(folder.path().join(CALLER)).unwrap();
    run(&["fix", "--write"], folder.path());
    let patched = tree(folder.path());
    fs::write(folder.path().join(CALLER), &original).unwrap();
    let (out, _, code) =
        run(&["scan", "--format", "concise", "--fail-on", "warning", "--select", "FA105"], folder.path());
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("FA105") && out.contains("original bytes again"), "{out}");
    let (out, err, code) = run(&["fix", "--write"], folder.path());
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read(folder.path().join(CALLER)).unwrap(), patched[&folder.path().join(CALLER)]);
    let (out, _, _) = run(&["undo"], folder.path());
    assert!(out.contains("removed"), "{out}");
    assert_eq!(fs::read(folder.path().join(CALLER)).unwrap(), original);
    assert!(!folder.path().join(".fa-doctor").exists());
}

#[test]
fn an_interrupted_run_is_noticed_taken_back_and_done_again() {
    let folder = site();
    let (before, path) = (tree(folder.path()), folder.path().join(CALLER));
    run(&["fix", "--write"], folder.path());
    let patched = fs::read(&path).unwrap();
    // As a crash between two renames leaves it: this file is old, the others are new, and nothing says complete.
    fs::remove_file(folder.path().join(".fa-doctor/0001/complete")).unwrap();
    fs::write(&path, &before[&path]).unwrap();
    fs::write(path.with_file_name(".backend.py.fa-doctor-tmp"), "half of").unwrap();
    let (out, _, _) = run(&["scan", "--format", "concise", "--select", "FA105"], folder.path());
    assert!(out.contains("was interrupted"), "{out}");
    let (out, err, code) = run(&["fix", "--write"], folder.path());
    assert_eq!(code, 0, "{out}{err}");
    assert!(err.contains("took back an interrupted run"), "{err}");
    assert_eq!(fs::read(&path).unwrap(), patched);
    run(&["undo"], folder.path());
    assert_eq!(tree(folder.path()), before);
}

#[test]
fn selected_fixes_only() {
    let folder = site();
    let before = tree(folder.path());
    let (out, _, _) = run(&["fix", "--write", "--select", "FA001"], folder.path());
    assert!(out.contains("FA003 is not selected"), "{out}");
    assert_eq!(tree(folder.path()), before);
}

#[test]
fn wheels_are_shown_a_diff_and_never_changed() {
    let (folder, out) = (site(), tempfile::tempdir().unwrap());
    let path = out.path().join("vllm-0.99.0-py3-none-any.whl");
    let mut wheel = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    for (file, bytes) in tree(folder.path()) {
        let name = file.strip_prefix(folder.path()).unwrap().to_string_lossy().replace('\\', "/");
        if name.starts_with("flash_attn_4") {
            continue;
        }
        wheel.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut wheel, &bytes).unwrap();
    }
    wheel.finish().unwrap();
    let before = fs::read(&path).unwrap();
    let (shown, err, code) = run(&["fix", "--write"], &path);
    assert_eq!(code, 2, "{shown}{err}");
    assert!(shown.contains("+    return _fa_doctor_call("), "{shown}");
    assert!(err.contains("is a wheel") && err.contains("hint:"), "{err}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn files_that_are_not_utf8_are_left_alone() {
    let folder = site();
    let path = folder.path().join(CALLER);
    let mut bytes = b"# -*- coding: latin-1 -*-\n# caf\xe9\n".to_vec();
    bytes.extend(fs::read(&path).unwrap());
    fs::write(&path, &bytes).unwrap();
    let (out, err, code) = run(&["fix", "--write"], folder.path());
    assert_eq!(code, 1, "{out}{err}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::process::CommandExt;

    /// uv installs with hard links into its cache: its bytes must survive.
    #[test]
    fn a_cache_that_shares_its_files_keeps_its_bytes() {
        let (folder, cache) = (site(), tempfile::tempdir().unwrap());
        for (index, file) in tree(folder.path()).keys().enumerate() {
            fs::hard_link(file, cache.path().join(index.to_string())).unwrap();
        }
        let (before, cached) = (tree(folder.path()), tree(cache.path()));
        let (out, _, code) = run(&["fix", "--write"], folder.path());
        assert_eq!(code, 0);
        assert!(out.contains("shared with a package cache"), "{out}");
        assert_eq!(tree(cache.path()), cached);
        assert_eq!(fs::metadata(folder.path().join(CALLER)).unwrap().nlink(), 1);
        run(&["undo"], folder.path());
        assert_eq!((tree(folder.path()), tree(cache.path())), (before, cached));
    }

    /// uv can also install with symbolic links.
    #[test]
    fn a_linked_file_becomes_a_file_and_a_link_again() {
        let (folder, cache) = (site(), tempfile::tempdir().unwrap());
        let (path, target) = (folder.path().join(CALLER), cache.path().join("backend.py"));
        fs::rename(&path, &target).unwrap();
        symlink(&target, &path).unwrap();
        let original = fs::read(&target).unwrap();
        let (out, err, code) = run(&["fix", "--write"], folder.path());
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains("was a link to"), "{out}");
        assert!(!path.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), original);
        run(&["undo"], folder.path());
        assert_eq!(fs::read_link(&path).unwrap(), target);
    }

    /// Runs as a user who owns nothing here, where the tests run as root; as the one who runs them elsewhere.
    fn as_somebody(command: &mut Command) -> bool {
        let root = rustix::process::geteuid().is_root();
        if root {
            command.uid(65_534).gid(65_534);
        }
        root
    }

    #[test]
    fn an_environment_of_another_user_is_refused() {
        let folder = site();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let before = tree(folder.path());
        let mut fix = command(&["fix", "--write"], folder.path());
        if !as_somebody(&mut fix) {
            return;
        }
        let output = fix.output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains("belongs to another user (id 0)") && err.contains("hint:"), "{err}");
        assert_eq!(tree(folder.path()), before);
    }

    #[test]
    fn a_read_only_environment_is_refused() {
        let folder = site();
        let mut fix = command(&["fix", "--write"], folder.path());
        let dropped = as_somebody(&mut fix);
        if dropped {
            for entry in walkdir::WalkDir::new(folder.path()).into_iter().map(Result::unwrap) {
                std::os::unix::fs::chown(entry.path(), Some(65_534), Some(65_534)).unwrap();
            }
        }
        let parent = folder.path().join(CALLER).parent().unwrap().to_owned();
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o555)).unwrap();
        let before = tree(folder.path());
        let output = fix.output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains("cannot be written") && err.contains("hint:"), "{err}");
        assert_eq!(tree(folder.path()), before);
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Several runs at once: one works, the others wait and find nothing left to do.
    #[test]
    fn concurrent_runs_do_not_get_in_each_others_way() {
        let (folder, alone) = (site(), site());
        let before = tree(folder.path());
        run(&["fix", "--write"], alone.path());
        let start = |_| {
            command(&["fix", "--write"], folder.path())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        };
        let running: Vec<_> = (0..4).map(start).collect();
        let outputs: Vec<Output> = running.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let text =
            |output: &Output| String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        for output in &outputs {
            assert_eq!(output.status.code(), Some(0), "{}", text(output));
        }
        assert_eq!(outputs.iter().filter(|output| text(output).contains("applied in 3 files")).count(), 1);
        assert_eq!(fs::read(folder.path().join(CALLER)).unwrap(), fs::read(alone.path().join(CALLER)).unwrap());
        run(&["undo"], folder.path());
        assert_eq!(tree(folder.path()), before);
    }
}
