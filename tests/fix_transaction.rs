//! The transaction: whole or not at all, whatever stops it, and undo gets every byte back.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fa_doctor::fix::files::{Disk, Step};
use fa_doctor::fix::lock::{Lock, LockError};
use fa_doctor::fix::transaction::{Change, Receipt, WriteError, commit};
use fa_doctor::fix::undo::{UndoError, UndoReport, undo};
use fa_doctor::fix::{journal, transaction};

/// A child that another test is starting holds a copy of every open file until it runs its own program, and with the
/// file of a lock the lock: nobody writes here, but for that moment it can look so.
const WAIT: Duration = Duration::from_secs(10);

const FILES: [(&str, &str); 4] = [
    ("pkg/__init__.py", "from pkg.kernel import run\n"),
    ("pkg/kernel.py", "def run(q):\r\n    return q\r\n"),
    ("pkg/deep/caller.py", "from pkg import run\nrun(1, s_aux=None)\n"),
    ("other/untouched.py", "x = 1\n"),
];

fn environment() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in FILES {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let cache = folder.path().join("pkg/__pycache__");
    fs::create_dir(&cache).unwrap();
    fs::write(cache.join("kernel.cpython-312.pyc"), "compiled").unwrap();
    fs::write(cache.join("kernel.cpython-312.opt-1.pyc"), "compiled, optimised").unwrap();
    fs::write(cache.join("kernel_other.cpython-312.pyc"), "of another module").unwrap();
    folder
}

fn changes() -> Vec<Change> {
    let change = |path: &str, before: Option<&str>, after: &str| Change {
        path: path.into(),
        before: before.map(Into::into),
        after: after.into(),
        package: Some(("pkg".into(), "1.0".into())),
        fixes: Vec::new(),
    };
    vec![
        change("pkg/kernel.py", Some(FILES[1].1), "def run(q, s_aux=None):\r\n    return q\r\n"),
        change("pkg/deep/caller.py", Some(FILES[2].1), "from pkg import run\nrun(1)\n"),
        change("pkg/deep/_fa_doctor_compat.py", None, "# adapter\n"),
    ]
}

/// Bytes, link target, mode and age of a file: everything that a person could tell apart.
type Looks = (Vec<u8>, Option<PathBuf>, u32, Option<std::time::SystemTime>);

/// Every file below a folder.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, Looks> {
    let entries = walkdir::WalkDir::new(root).into_iter().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| !entry.file_type().is_dir());
    files
        .map(|entry| {
            let metadata = entry.path().symlink_metadata().unwrap();
            #[cfg(unix)]
            let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
            #[cfg(not(unix))]
            let mode = 0;
            let link = fs::read_link(entry.path()).ok();
            let age = if link.is_some() { None } else { metadata.modified().ok() };
            (entry.path().to_owned(), (fs::read(entry.path()).unwrap_or_default(), link, mode, age))
        })
        .collect()
}

fn write(disk: &Disk<'_>, root: &Path, changes: &[Change]) -> Result<Receipt, WriteError> {
    commit(disk, &Lock::acquire(disk, root, WAIT)?, changes)
}

fn take_back(disk: &Disk<'_>, root: &Path, force: bool, version: Option<&str>) -> Result<UndoReport, UndoError> {
    undo(disk, &Lock::acquire(disk, root, WAIT)?, force, &|_| version.map(str::to_owned))
}

#[test]
fn a_commit_writes_everything_and_undo_restores_every_byte() {
    let folder = environment();
    let root = folder.path();
    #[cfg(unix)]
    fs::set_permissions(root.join("pkg/kernel.py"), std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let before = snapshot(root);
    let receipt = write(&Disk::real(), root, &changes()).unwrap();
    assert_eq!(receipt.written.len(), 3);
    assert_eq!(receipt.removed.len(), 2);
    for change in changes() {
        assert_eq!(fs::read(root.join(&change.path)).unwrap(), change.after);
    }
    assert!(!root.join("pkg/__pycache__/kernel.cpython-312.pyc").exists());
    assert!(root.join("pkg/__pycache__/kernel_other.cpython-312.pyc").exists());
    let found = journal::transactions(root).unwrap();
    assert!(found.len() == 1 && found[0].complete);
    #[cfg(unix)]
    assert_eq!(snapshot(root)[&root.join("pkg/kernel.py")].2 & 0o777, 0o640);

    // Python has run meanwhile.
    fs::write(root.join("pkg/__pycache__/kernel.cpython-312.pyc"), "of the patched file").unwrap();
    fs::write(root.join("pkg/__pycache__/kernel.cpython-313.pyc"), "of the patched file").unwrap();
    let report = take_back(&Disk::real(), root, false, Some("1.0")).unwrap();
    assert_eq!(report.restored, ["pkg/kernel.py", "pkg/deep/caller.py"]);
    assert_eq!(report.removed, ["pkg/deep/_fa_doctor_compat.py"]);
    assert_eq!(snapshot(root), before, "nothing is left of it");
}

#[test]
fn transactions_stack_and_are_taken_back_together() {
    let folder = environment();
    let root = folder.path();
    let before = snapshot(root);
    write(&Disk::real(), root, &changes()).unwrap();
    let again = Change {
        before: Some(changes()[0].after.clone()),
        after: b"def run(q, s_aux=None, *, more=0):\r\n    return q\r\n".to_vec(),
        ..changes()[0].clone()
    };
    write(&Disk::real(), root, &[again]).unwrap();
    let report = take_back(&Disk::real(), root, false, Some("1.0")).unwrap();
    assert_eq!(report.transactions, 2);
    assert_eq!(report.restored, ["pkg/kernel.py", "pkg/deep/caller.py"]);
    assert_eq!(snapshot(root), before);
}

#[cfg(unix)]
#[test]
fn hard_links_are_broken_and_links_replaced_without_touching_what_they_share() {
    let (folder, cache) = (environment(), tempfile::tempdir().unwrap());
    let root = folder.path();
    let (kernel, caller) = (root.join("pkg/kernel.py"), root.join("pkg/deep/caller.py"));
    fs::hard_link(&kernel, cache.path().join("kernel.py")).unwrap();
    fs::rename(&caller, cache.path().join("caller.py")).unwrap();
    std::os::unix::fs::symlink(cache.path().join("caller.py"), &caller).unwrap();
    let (before, cached) = (snapshot(root), snapshot(cache.path()));
    let receipt = write(&Disk::real(), root, &changes()).unwrap();
    assert_eq!(receipt.unshared, ["pkg/kernel.py"]);
    assert_eq!(receipt.unlinked[0].0, "pkg/deep/caller.py");
    assert!(!caller.symlink_metadata().unwrap().is_symlink());
    assert_eq!(snapshot(cache.path()), cached);
    take_back(&Disk::real(), root, false, None).unwrap();
    assert_eq!(snapshot(root), before);
    assert_eq!(snapshot(cache.path()), cached);
}

#[test]
fn what_changed_since_the_scan_is_refused() {
    let folder = environment();
    let root = folder.path();
    fs::write(root.join("pkg/deep/caller.py"), "edited meanwhile\n").unwrap();
    let before = snapshot(root);
    assert!(
        matches!(write(&Disk::real(), root, &changes()), Err(WriteError::Changed { path }) if path == "pkg/deep/caller.py")
    );
    assert_eq!(snapshot(root), before);
    // A file that is to be made is there already.
    let only_new = &changes()[2..];
    fs::write(root.join("pkg/deep/_fa_doctor_compat.py"), "mine\n").unwrap();
    assert!(matches!(write(&Disk::real(), root, only_new), Err(WriteError::Changed { .. })));
}

#[cfg(unix)]
#[test]
fn what_lies_outside_is_refused() {
    let (folder, elsewhere) = (environment(), environment());
    let root = folder.path();
    fs::remove_dir_all(root.join("pkg/deep")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("pkg/deep"), root.join("pkg/deep")).unwrap();
    let before = (snapshot(root), snapshot(elsewhere.path()));
    assert!(matches!(write(&Disk::real(), root, &changes()), Err(WriteError::Outside { .. })));
    assert_eq!((snapshot(root), snapshot(elsewhere.path())), before);
}

#[test]
fn undo_does_not_overwrite_later_work_without_force() {
    let folder = environment();
    let root = folder.path();
    let before = snapshot(root);
    write(&Disk::real(), root, &changes()).unwrap();
    fs::write(root.join("pkg/kernel.py"), "somebody's work\n").unwrap();
    let patched = snapshot(root);
    let refused = take_back(&Disk::real(), root, false, Some("1.0")).unwrap_err();
    assert!(refused.to_string().contains("pkg/kernel.py") && refused.to_string().contains("--force"), "{refused}");
    assert_eq!(snapshot(root), patched, "all or nothing");
    take_back(&Disk::real(), root, true, Some("1.0")).unwrap();
    assert_eq!(snapshot(root), before);
}

#[test]
fn undo_leaves_what_a_reinstall_has_replaced() {
    // The same version: the bytes are those of before, and there is nothing to do.
    let folder = environment();
    let root = folder.path();
    write(&Disk::real(), root, &changes()).unwrap();
    fs::write(root.join("pkg/kernel.py"), FILES[1].1).unwrap();
    let report = take_back(&Disk::real(), root, false, Some("1.0")).unwrap();
    assert_eq!(report.restored, ["pkg/deep/caller.py"]);
    assert!(!root.join(journal::FOLDER).exists());

    // Another version: its files are its own.
    let folder = environment();
    let root = folder.path();
    write(&Disk::real(), root, &changes()).unwrap();
    fs::write(root.join("pkg/kernel.py"), "of 2.0\n").unwrap();
    fs::remove_file(root.join("pkg/deep/caller.py")).unwrap();
    let report = take_back(&Disk::real(), root, false, Some("2.0")).unwrap();
    assert_eq!((report.left.len(), report.removed.len()), (2, 1));
    assert_eq!(fs::read(root.join("pkg/kernel.py")).unwrap(), b"of 2.0\n");
    assert!(!root.join(journal::FOLDER).exists());
}

#[test]
fn one_writer_at_a_time() {
    let folder = environment();
    let held = Lock::acquire(&Disk::real(), folder.path(), Duration::ZERO).unwrap();
    assert!(matches!(Lock::acquire(&Disk::real(), folder.path(), Duration::ZERO), Err(LockError::Busy(_))));
    let root = folder.path().to_owned();
    let waiting = std::thread::spawn(move || Lock::acquire(&Disk::real(), &root, Duration::from_secs(20)).map(drop));
    std::thread::sleep(Duration::from_millis(50));
    drop(held);
    waiting.join().unwrap().unwrap();
    assert!(!folder.path().join(journal::FOLDER).exists(), "a run that wrote nothing leaves nothing");
}

/// How many steps a run takes, and what they are.
fn count(run: impl FnOnce(&Disk<'_>)) -> usize {
    let steps = Cell::new(0);
    run(&Disk::with_hook(&|_: Step, _: &Path| {
        steps.set(steps.get() + 1);
        Ok(())
    }));
    steps.get()
}

#[test]
fn an_error_at_any_step_leaves_everything_as_it_was() {
    let sample = environment();
    let steps = count(|disk| drop(write(disk, sample.path(), &changes()).unwrap()));
    assert!(steps > 30, "{steps}");
    // No space, no permission, read-only and a failing disk, in turn.
    for at in 0..steps {
        let error = [28, 13, 30, 5][at % 4];
        let folder = environment();
        let root = folder.path();
        let before = snapshot(root);
        let done = Cell::new(0);
        let hook = |_: Step, _: &Path| {
            done.set(done.get() + 1);
            if done.get() == at + 1 { Err(io::Error::from_raw_os_error(error)) } else { Ok(()) }
        };
        let result = write(&Disk::with_hook(&hook), root, &changes());
        assert!(result.is_err(), "step {at} of {steps}");
        assert!(snapshot(root) == before, "errno {error} at step {at}: {:?}", result.err());
        write(&Disk::real(), root, &changes()).unwrap();
    }
}

#[test]
fn a_disk_that_stays_full_loses_nothing() {
    let sample = environment();
    let steps = count(|disk| drop(write(disk, sample.path(), &changes()).unwrap()));
    for at in 0..steps {
        let folder = environment();
        let root = folder.path();
        let before = snapshot(root);
        let done = Cell::new(0);
        let hook = |step: Step, _: &Path| {
            done.set(done.get() + 1);
            let takes_space = matches!(step, Step::CreateFolder | Step::CreateFile | Step::Write | Step::Link);
            if done.get() > at && takes_space { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
        };
        match write(&Disk::with_hook(&hook), root, &changes()) {
            Ok(_) => {}
            Err(WriteError::Stuck { .. }) => drop(take_back(&Disk::real(), root, false, None).unwrap()),
            Err(_) => assert!(snapshot(root) == before, "step {at}"),
        }
    }
}

const CRASH: &str = "FA_DOCTOR_TEST_CRASH";

/// Not a test of its own: the process that the two below start, and that ends itself at a given step.
#[test]
fn process_that_dies() {
    let Ok(orders) = std::env::var(CRASH) else { return };
    let (what, rest) = orders.split_once(' ').unwrap();
    let (at, root) = rest.split_once(' ').unwrap();
    let (at, root): (usize, &Path) = (at.parse().unwrap(), Path::new(root));
    let done = Cell::new(0);
    let hook = |_: Step, _: &Path| {
        if done.get() == at {
            std::process::abort();
        }
        done.set(done.get() + 1);
        Ok(())
    };
    let disk = Disk::with_hook(&hook);
    match what {
        "write" => drop(write(&disk, root, &changes()).unwrap()),
        _ => drop(take_back(&disk, root, false, None).unwrap()),
    }
}

fn die(what: &str, at: usize, root: &Path) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_that_dies"])
        .env(CRASH, format!("{what} {at} {}", root.display()))
        .output()
        .unwrap()
        .status;
    assert!(!status.success(), "{what} survived step {at}");
}

fn old_or_new(root: &Path, step: usize) {
    for change in changes() {
        let now = fs::read(root.join(&change.path)).ok();
        assert!(now == change.before || now.as_ref() == Some(&change.after), "{} after step {step}", change.path);
    }
}

#[test]
fn a_crash_at_any_step_of_a_fix_leaves_old_or_new_files_and_undo_completes() {
    let sample = environment();
    let steps = count(|disk| drop(write(disk, sample.path(), &changes()).unwrap()));
    for at in 0..steps {
        let folder = environment();
        let root = folder.path();
        let before = snapshot(root);
        die("write", at, root);
        old_or_new(root, at);
        take_back(&Disk::real(), root, false, None).unwrap();
        assert!(snapshot(root) == before, "step {at}");
        write(&Disk::real(), root, &changes()).unwrap();
    }
}

#[test]
fn a_crash_at_any_step_of_an_undo_leaves_old_or_new_files_and_a_second_one_completes() {
    let sample = environment();
    write(&Disk::real(), sample.path(), &changes()).unwrap();
    let steps = count(|disk| drop(take_back(disk, sample.path(), false, None).unwrap()));
    for at in 0..steps {
        let folder = environment();
        let root = folder.path();
        let before = snapshot(root);
        write(&Disk::real(), root, &changes()).unwrap();
        die("undo", at, root);
        old_or_new(root, at);
        take_back(&Disk::real(), root, false, None).unwrap();
        assert!(snapshot(root) == before, "step {at}");
    }
}

#[test]
fn a_damaged_journal_is_not_believed() {
    let folder = environment();
    let root = folder.path();
    write(&Disk::real(), root, &changes()).unwrap();
    let patched = fs::read(root.join("pkg/kernel.py")).unwrap();
    fs::write(root.join(".fa-doctor/0001/0"), "not the original").unwrap();
    assert!(matches!(take_back(&Disk::real(), root, false, None), Err(UndoError::Damaged(_))));
    assert_eq!(fs::read(root.join("pkg/kernel.py")).unwrap(), patched);
    fs::write(root.join(".fa-doctor/0001/journal.json"), r#"{"schema": 99}"#).unwrap();
    assert!(matches!(take_back(&Disk::real(), root, false, None), Err(UndoError::Journal(_))));
}

#[test]
fn temporary_names_are_beside_their_file() {
    assert_eq!(transaction::temporary(Path::new("a/b.py")), Path::new("a/.b.py.fa-doctor-tmp"));
}
