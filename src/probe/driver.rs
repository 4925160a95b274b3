//! The Python process: what it tells, and what becomes of it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::request::Request;
use crate::smoke::child::supervise;

/// The program that runs in the user's Python.
const PROGRAM: &str = include_str!("driver.py");

/// What it uses instead of torch, with `--no-torch`.
const STANDIN: &str = include_str!("torch_standin.py");

/// The driver limits its cases itself: how much longer than a case it may say nothing, as while it imports.
const GRACE: Duration = Duration::from_secs(120);

/// What the driver tells.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Everything is imported.
    Ready(Ready),
    /// Nothing can be compiled.
    Stopped {
        /// What was being imported.
        stage: Stage,
        /// The version of the DSL, if it is installed.
        dsl: Option<String>,
        /// Why.
        #[serde(flatten)]
        raised: Raised,
    },
    /// A case begins.
    Begin {
        /// Its name.
        case: String,
    },
    /// A case has ended.
    Case {
        /// Its name.
        case: String,
        /// How.
        #[serde(flatten)]
        outcome: Outcome,
        /// Time it took.
        seconds: f64,
        /// What it wrote to standard error: the compiler's own messages go there.
        stderr: String,
    },
    /// All cases have ended.
    Done,
}

/// The versions at work.
#[derive(Debug, Clone, Deserialize)]
pub struct Ready {
    /// Of torch, or of the stand-in.
    pub torch: String,
    /// Of the DSL.
    pub dsl: Option<String>,
    /// Of quack.
    pub quack: Option<String>,
    /// What could not be patched or recorded.
    pub notes: Vec<String>,
}

/// What was being imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The DSL.
    Dsl,
    /// Torch.
    Torch,
    /// The package under test.
    Package,
}

/// How a case ended.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Outcome {
    /// There is a kernel.
    Compiled {
        /// Bytes of shared memory of each launch, where the package gives them.
        launches: Vec<Option<u64>>,
        /// Bytes that the architecture has.
        capacity: Option<u64>,
        /// The files of `--full`.
        cubins: Vec<PathBuf>,
    },
    /// There was an exception.
    Raised(Raised),
    /// The package has no way to ask for it.
    NotOffered {
        /// What is missing.
        message: String,
    },
    /// The process ended without a word, or had to be ended.
    Ended {
        /// `timeout`, `memory`, the name of a signal, or an exit status.
        reason: String,
    },
}

/// An exception.
#[derive(Debug, Clone, Deserialize)]
pub struct Raised {
    /// Its class.
    pub error: String,
    /// Its text.
    pub message: String,
    /// The name that it is about.
    pub subject: Option<String>,
    /// The innermost file of the package.
    pub file: Option<String>,
    /// The line there.
    pub line: Option<u32>,
    /// It was raised on purpose: an assert, or a `raise`.
    pub refused: bool,
    /// What does not fit belongs to another package.
    pub foreign: bool,
}

impl Raised {
    /// `NameError: name 'x' is not defined`.
    pub fn text(&self) -> String {
        match self.message.as_str() {
            "" => self.error.clone(),
            message => format!("{}: {message}", self.error),
        }
    }

    /// Whether it speaks of this name.
    pub fn is_about(&self, name: &str) -> bool {
        self.message.contains(name)
    }
}

/// A run of the driver.
pub struct Driver<'a> {
    /// The interpreter.
    pub python: &'a Path,
    /// Where its files go.
    pub folder: &'a Path,
    /// The limit of a case.
    pub timeout: Duration,
}

impl Driver<'_> {
    /// Runs it; `tell` receives what it tells. Gives how it ended, in words.
    pub fn run(&self, request: &Request, mut tell: impl FnMut(Event)) -> io::Result<String> {
        let program = self.folder.join("driver.py");
        std::fs::write(&program, PROGRAM)?;
        std::fs::write(self.folder.join("torch_standin.py"), STANDIN)?;
        let asked = self.folder.join("request.json");
        std::fs::write(&asked, serde_json::to_vec(request)?)?;
        let mut command = Command::new(std::path::absolute(self.python)?);
        // Warnings are for those who write packages; ours read verdicts.
        command.args(["-B", "-W", "ignore"]).arg(&program).arg(&asked).current_dir(self.folder);
        let mut garbled = None;
        let ended = supervise(command, self.timeout + GRACE, |line| {
            match serde_json::from_str(line) {
                Ok(event) => tell(event),
                Err(error) => garbled = Some(format!("it tells what cannot be read: {error}")),
            }
            true
        })?;
        let last = ended.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
        Ok(garbled.unwrap_or_else(|| match ended.status {
            None => "it said nothing for too long".to_owned(),
            Some(status) => format!("{status}: {}", last.trim()),
        }))
    }
}
