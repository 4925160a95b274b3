//! The compatibility adapter, run by CPython against old and new callees.

use std::process::Command;

use fa_doctor::fix::adapter;
use fa_doctor::packs::Packs;

fn check(degraded: bool) {
    let folder = tempfile::tempdir().unwrap();
    let packs = Packs::embedded();
    let text = adapter::render(&packs, &packs.arguments.keys().map(String::as_str).collect(), degraded);
    std::fs::write(folder.path().join(format!("{}.py", adapter::MODULE)), text).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fix/adapter_check.py");
    let output = Command::new("python3")
        .args(["-B", "-W", "error", script, if degraded { "degraded" } else { "strict" }])
        .env("PYTHONPATH", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "needs python3"]
fn leaves_out_what_changes_nothing_and_refuses_the_rest() {
    check(false);
}

#[test]
#[ignore = "needs python3"]
fn the_degraded_variant_warns_once() {
    check(true);
}
