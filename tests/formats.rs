//! Formats, judged by the programs that read them. Each test needs such a program, so that none runs by default.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{BROKEN, doctor, run, site};

/// A broken environment, and the file that a scan writes about it.
fn result(place: &Path, file: &str) -> std::path::PathBuf {
    site(&place.join("site"), BROKEN);
    let run = run(place, &format!("scan site --output {file}"));
    assert_eq!(run.code, 1, "{}", run.err);
    place.join(file)
}

#[test]
#[ignore = "needs python3 with jsonschema, and SARIF_SCHEMA, the path of sarif-schema-2.1.0.json"]
fn sarif_is_valid() {
    let schema = std::env::var("SARIF_SCHEMA").expect("SARIF_SCHEMA");
    let place = tempfile::tempdir().expect("a folder");
    let mut logs = vec![result(place.path(), "result.sarif")];
    // A released package has findings of every kind: fixes, related places, what could not be checked.
    if let Some(corpus) = std::env::var_os("FA_DOCTOR_CORPUS") {
        let environment = Path::new(&corpus).join("envs/vllm-0.26.0");
        let arguments = ["--arch", "sm_90,sm_120", "--all", "--output", "released.sarif"];
        let output = doctor(place.path()).arg("scan").arg(environment).args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        logs.push(place.path().join("released.sarif"));
    }
    for log in logs {
        let script = "import json, sys, jsonschema; jsonschema.validate(*(json.load(open(p)) for p in sys.argv[1:]))";
        let status = Command::new("python3").args(["-c", script]).arg(log).arg(&schema).status().expect("python3");
        assert!(status.success());
    }
}

#[test]
#[ignore = "needs python3 with jsonschema"]
fn json_is_valid() {
    let place = tempfile::tempdir().expect("a folder");
    let report = result(place.path(), "result.json");
    let script = "import json, sys, jsonschema; jsonschema.validate(*(json.load(open(p)) for p in sys.argv[1:]))";
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schema.json");
    let status = Command::new("python3").args(["-c", script]).arg(report).arg(schema).status().expect("python3");
    assert!(status.success());
}

#[test]
#[ignore = "needs chromium"]
fn the_page_opens_without_an_error_or_a_request() {
    let place = tempfile::tempdir().expect("a folder");
    let page = result(place.path(), "result.html");
    let log = place.path().join("network.json");
    let output = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync", "--dump-dom"])
        .arg(format!("--user-data-dir={}", place.path().join("profile").display()))
        .arg(format!("--log-net-log={}", log.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!messages.contains("CONSOLE"), "{messages}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("id=\"f1\""), "the page is not there");
    let requests = fs::read_to_string(log).expect("the log");
    for (at, _) in requests.match_indices("\"url\":\"") {
        let url = requests[at + 7..].split('"').next().unwrap_or_default();
        // The data: URL is the empty icon; the browser asks its own services in spite of the flags above.
        assert!(url.starts_with("file://") || url.starts_with("data:") || own(url), "{url}");
    }
}

/// A service of the browser itself.
fn own(url: &str) -> bool {
    let host = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    host.ends_with(".google.com") || host.ends_with(".googleapis.com") || url.starts_with("chrome")
}
