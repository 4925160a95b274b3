//! Why an environment could not be looked at, in the words that the user gets.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::arch;

/// Why an environment could not be looked at. `Display` is the whole text for the terminal, with its hint.
#[derive(Debug)]
pub enum LoadError {
    /// There is nothing to scan at any of the places.
    NothingToScan {
        /// The places, and what was found there.
        looked: Vec<String>,
        /// What to try.
        hint: String,
    },
    /// A target does not exist.
    NoSuchPath(PathBuf),
    /// A file that is neither a wheel nor an interpreter.
    NotATarget(PathBuf),
    /// A `.whl` that is no readable zip archive.
    NotAWheel(PathBuf, String),
    /// A wheel whose end is missing.
    Truncated(PathBuf),
    /// A place that this user may not read.
    PermissionDenied(PathBuf),
    /// Anything else that the system says.
    Unreadable(PathBuf, io::Error),
    /// Several releases of one distribution, which cannot be one environment.
    Ambiguous {
        /// The distribution.
        name: String,
        /// The versions, with where they are.
        versions: Vec<String>,
    },
    /// `--python` names nothing that can be run.
    NoSuchInterpreter(PathBuf),
    /// An interpreter does not answer.
    Interpreter(PathBuf, String),
    /// `--arch` with something that is no architecture.
    UnknownArch(String),
}

impl LoadError {
    /// 2 for a wrong command line, 3 for what could not be checked.
    pub fn exit_code(&self) -> u8 {
        match self {
            LoadError::NoSuchPath(_)
            | LoadError::NotATarget(_)
            | LoadError::Ambiguous { .. }
            | LoadError::NoSuchInterpreter(_)
            | LoadError::UnknownArch(_) => 2,
            LoadError::NothingToScan { .. }
            | LoadError::NotAWheel(..)
            | LoadError::Truncated(_)
            | LoadError::PermissionDenied(_)
            | LoadError::Unreadable(..)
            | LoadError::Interpreter(..) => 3,
        }
    }

    /// What opening `path` failed with.
    pub(super) fn of_path(path: &Path, error: io::Error) -> LoadError {
        match error.kind() {
            io::ErrorKind::NotFound => LoadError::NoSuchPath(path.to_owned()),
            io::ErrorKind::PermissionDenied => LoadError::PermissionDenied(path.to_owned()),
            io::ErrorKind::UnexpectedEof => LoadError::Truncated(path.to_owned()),
            io::ErrorKind::InvalidData => LoadError::NotAWheel(path.to_owned(), error.to_string()),
            _ => LoadError::Unreadable(path.to_owned(), error),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            LoadError::NothingToScan { hint, .. } => return Some(hint.clone()),
            LoadError::NoSuchPath(path) if path.extension().is_some_and(|extension| extension == "whl") => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let project = name.split('-').next().unwrap_or(&name);
                return Some(format!("pip download --no-deps --only-binary=:all: {project}"));
            }
            LoadError::NoSuchPath(_) | LoadError::NotATarget(_) => {
                "a target is a virtual environment, a site-packages folder, a Python\n\
                 executable, a .whl file, an unpacked wheel or a source checkout"
            }
            LoadError::NotAWheel(..) | LoadError::Truncated(_) => "download the wheel again; `unzip -t FILE` tests one",
            LoadError::PermissionDenied(_) => "run as a user who may read it; nothing is ever written by `scan`",
            LoadError::Unreadable(..) => return None,
            LoadError::Ambiguous { .. } => {
                "name the wheels or folders of one installation, one release of each package"
            }
            LoadError::NoSuchInterpreter(_) => "give the interpreter itself: fa-doctor scan --python .venv/bin/python",
            LoadError::Interpreter(..) => {
                "give the site-packages folder instead of the interpreter: it is read\nwithout running anything"
            }
            LoadError::UnknownArch(_) => {
                let known = arch::KNOWN.map(|number| format!("sm_{number}")).join(", ");
                return Some(format!("known are {known}"));
            }
        };
        Some(hint.to_owned())
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::NothingToScan { looked, .. } => {
                write!(f, "nothing to scan: no attention package was found")?;
                for place in looked {
                    write!(f, "\n  looked at {place}")?;
                }
            }
            LoadError::NoSuchPath(path) => write!(f, "no such file or folder: {}", path.display())?,
            LoadError::NotATarget(path) => write!(f, "not something to scan: {}", path.display())?,
            LoadError::NotAWheel(path, reason) => write!(f, "{} {reason}", path.display())?,
            LoadError::Truncated(path) => {
                write!(f, "{} is a truncated wheel: the directory at its end is missing", path.display())?;
            }
            LoadError::PermissionDenied(path) => write!(f, "permission denied: {}", path.display())?,
            LoadError::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display())?,
            LoadError::Ambiguous { name, versions } => {
                write!(f, "several releases of {name} cannot be one environment:")?;
                for version in versions {
                    write!(f, "\n  {version}")?;
                }
            }
            LoadError::NoSuchInterpreter(path) => write!(f, "no Python interpreter: {}", path.display())?,
            LoadError::Interpreter(path, reason) => write!(f, "the interpreter {} {reason}", path.display())?,
            LoadError::UnknownArch(text) => write!(f, "`{text}` is no GPU architecture")?,
        }
        match self.hint() {
            Some(hint) => write!(f, "\n\nhint: {}", hint.replace('\n', "\n      ")),
            None => Ok(()),
        }
    }
}

impl std::error::Error for LoadError {}
