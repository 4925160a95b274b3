//! Which environment to look at when no target is given.

use std::env;
use std::path::{Path, PathBuf};

use super::LoadError;
use super::target::{Target, classify, prefix};

/// The first of VIRTUAL_ENV, CONDA_PREFIX, ./.venv and python3 on PATH that is one.
pub(super) fn without_target() -> Result<Vec<Target>, LoadError> {
    let mut looked = Vec::new();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        match env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from) {
            Some(path) => match prefix(&path) {
                Some(prefix) => return Ok(vec![Target::Prefix(prefix)]),
                None => looked.push(format!("{variable}={}: no environment there", path.display())),
            },
            None => looked.push(format!("{variable}: not set")),
        }
    }
    let local = Path::new(".venv");
    if local.is_dir() {
        return classify(local);
    }
    looked.push("./.venv: not there".to_owned());
    for name in ["python3", "python"] {
        match on_path(Path::new(name)) {
            Some(python) => return Ok(vec![Target::Interpreter(python)]),
            None => looked.push(format!("{name} on PATH: not found")),
        }
    }
    let hint = "activate the environment, or name it: fa-doctor scan path/to/.venv".to_owned();
    Err(LoadError::NothingToScan { looked, hint })
}

/// The interpreter that `--python` names: a path, a command on PATH, or the folder of an environment.
pub(super) fn interpreter(python: &Path) -> Result<PathBuf, LoadError> {
    if python.is_dir() {
        let executable = prefix(python).and_then(|prefix| prefix.executable);
        return executable.ok_or_else(|| LoadError::NoSuchInterpreter(python.to_owned()));
    }
    if python.exists() {
        return Ok(python.to_owned());
    }
    on_path(python).ok_or_else(|| LoadError::NoSuchInterpreter(python.to_owned()))
}

fn on_path(command: &Path) -> Option<PathBuf> {
    // A path with a folder in it is not looked up.
    if command.components().count() != 1 {
        return None;
    }
    let path = env::var_os("PATH")?;
    let folders = env::split_paths(&path);
    folders.map(|folder| folder.join(command).with_extension(env::consts::EXE_EXTENSION)).find(|file| file.is_file())
}
