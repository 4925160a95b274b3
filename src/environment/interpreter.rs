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

/// Runs an interpreter once. Like any start of it this runs what its `.pth` files say, and nothing else.
pub fn ask(python: &Path) -> Result<Interpreter, LoadError> {
    let failed = |reason: String| LoadError::Interpreter(python.to_owned(), reason);
    let mut command = Command::new(python);
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
