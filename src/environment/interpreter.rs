//! Asks an interpreter for its search path and version, through a small JSON probe.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::LoadError;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Printed in front of the answer: what `.pth` files and `sitecustomize` print comes before it.
const MARK: &str = "fa-doctor-probe:";

/// Standard library only, any Python 3. The current folder is taken off the path before anything is imported.
const PROBE: &str = r#"
import sys
sys.path = [p for p in sys.path if p]
import json, site, sysconfig
sites = list(getattr(site, "getsitepackages", list)())
if getattr(site, "ENABLE_USER_SITE", False):
    sites.append(site.getusersitepackages())
library = [sysconfig.get_paths().get(k) for k in ("stdlib", "platstdlib")]
print("\nfa-doctor-probe:" + json.dumps({
    "version": list(sys.version_info[:2]), "executable": sys.executable, "prefix": sys.prefix,
    "base_prefix": sys.base_prefix, "path": sys.path, "sites": sites,
    "library": [p for p in library if p], "platform": sys.platform}))
"#;

/// What an interpreter says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interpreter {
    /// `(3, 12)`.
    pub version: (u32, u32),
    /// `sys.executable`.
    pub executable: PathBuf,
    /// `sys.prefix`.
    pub prefix: PathBuf,
    /// `sys.base_prefix`: differs from the prefix in a virtual environment.
    pub base_prefix: PathBuf,
    /// `sys.path`, without the current folder.
    pub path: Vec<PathBuf>,
    /// The folders whose `.pth` files are read.
    pub sites: Vec<PathBuf>,
    /// Folders of the standard library.
    pub library: Vec<PathBuf>,
    /// `sys.platform`.
    pub platform: String,
}

/// Runs an interpreter once, which is given by its path. Like any start of it this runs what its `.pth` files say, and nothing else.
pub fn ask(python: &Path) -> Result<Interpreter, LoadError> {
    let failed = |reason: String| LoadError::Interpreter(python.to_owned(), reason);
    // A bare name would be looked up on PATH, although the file of that name here is meant. Links stay as they are:
    // they are what makes a virtual environment.
    let program = std::path::absolute(python).unwrap_or_else(|_| python.to_owned());
    let mut command = Command::new(program);
    command.args(["-B", "-c", PROBE]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => LoadError::NoSuchInterpreter(python.to_owned()),
        _ => failed(format!("cannot be run: {error}")),
    })?;
    let deadline = Instant::now() + TIMEOUT;
    let output = read_aside(child.stdout.take());
    let errors = read_aside(child.stderr.take());
    let status = match wait(&mut child, deadline).map_err(|error| failed(format!("cannot be waited for: {error}")))? {
        Some(status) => status,
        None => return Err(failed(format!("did not answer within {} seconds", TIMEOUT.as_secs()))),
    };
    // A grandchild may hold the pipe open; what the interpreter itself wrote is there by now.
    let grace = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(200));
    let output = output.recv_timeout(grace()).unwrap_or_default();
    let answer = output.lines().rev().find_map(|line| line.strip_prefix(MARK));
    match answer.map(serde_json::from_str) {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(error)) => Err(failed(format!("answers what cannot be read: {error}"))),
        None => {
            let errors = errors.recv_timeout(grace()).unwrap_or_default();
            let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
            Err(failed(format!("failed ({status}): {}", last.trim())))
        }
    }
}

/// Reads a pipe on a thread of its own, so that a full pipe or an open one cannot hang the caller.
fn read_aside(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        const MOST: u64 = 4 << 20;
        let mut bytes = Vec::new();
        let complete = pipe.map(|pipe| pipe.take(MOST).read_to_end(&mut bytes));
        if complete.is_some() {
            // The receiver may have given up by now.
            _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        }
    });
    receiver
}

fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<std::process::ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::testing::{Files, files};
    use super::*;

    /// A stand-in for an interpreter: a shell script.
    fn script(files: &Files, body: &str) -> PathBuf {
        let path = files.add("python3", format!("#!/bin/sh\n{body}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    const ANSWER: &str = r#"{"version": [3, 12], "executable": "/v/bin/python", "prefix": "/v", "base_prefix": "/usr",
        "path": ["/v/site"], "sites": ["/v/site"], "library": ["/usr/lib/python3.12"], "platform": "linux"}"#;

    #[test]
    fn the_answer_is_found_among_other_output() {
        let files = files(&[]);
        let answer = ANSWER.replace('\n', " ");
        let python =
            script(&files, &format!("echo noise; printf 'no newline'; echo; echo '{MARK}{answer}'; echo more"));
        let answer = ask(&python).unwrap();
        assert_eq!(answer.version, (3, 12));
        assert_eq!(answer.path, [PathBuf::from("/v/site")]);
    }

    #[test]
    fn failures_say_why() {
        let files = files(&[]);
        let message = |body: &str| {
            let error = ask(&script(&files, body)).unwrap_err();
            assert_eq!(error.exit_code(), 3);
            error.to_string()
        };
        assert!(
            message("echo 'ModuleNotFoundError: encodings' >&2; exit 1").contains("ModuleNotFoundError: encodings")
        );
        assert!(message("exit 0").contains("printed nothing"));
        assert!(message(&format!("echo '{MARK}{{'")).contains("cannot be read"));
        let error = ask(&files.path().join("none")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_flood_of_output_does_not_block() {
        let files = files(&[]);
        let answer = ANSWER.replace('\n', " ");
        let body = format!(
            "i=0; while [ $i -lt 3000 ]; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; i=$((i+1)); done; echo '{MARK}{answer}'"
        );
        assert!(ask(&script(&files, &body)).is_ok());
    }

    #[test]
    fn a_child_that_keeps_the_pipe_open_does_not_block() {
        let files = files(&[]);
        let start = Instant::now();
        assert!(ask(&script(&files, "sleep 3 & exit 1")).is_err());
        assert!(start.elapsed() < Duration::from_secs(25));
    }

    #[test]
    #[ignore = "needs python3"]
    fn a_real_interpreter_answers() {
        let python = super::super::discover::interpreter(Path::new("python3")).unwrap();
        let answer = ask(&python).unwrap();
        assert_eq!(answer.version.0, 3);
        assert!(answer.path.iter().all(|path| !path.as_os_str().is_empty()));
        // In a virtual environment `platstdlib` is its own folder, without the modules.
        assert!(answer.library.iter().any(|path| path.join("os.py").is_file()));
    }
}
