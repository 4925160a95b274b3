//! Which environment to look at when no target is given.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::LoadError;
use super::target::{Target, prefix};

/// The first of VIRTUAL_ENV, CONDA_PREFIX, ./.venv and python3 on PATH that is one.
pub(super) fn without_target() -> Result<Vec<Target>, LoadError> {
    let hook = hook(&|name| env::var_os(name), env::current_exe().ok());
    search(Path::new(""), &|name| without(hook.as_deref(), name, env::var_os(name)?))
}

/// pre-commit activates an environment of its own for this program; the user's is meant.
fn hook(variable: Variables<'_>, program: Option<PathBuf>) -> Option<PathBuf> {
    let environment = variable("PRE_COMMIT").and_then(|_| variable("VIRTUAL_ENV")).map(PathBuf::from)?;
    program?.starts_with(&environment).then_some(environment)
}

/// The value of a variable, without what leads into the environment of the hook.
fn without(hook: Option<&Path>, name: &str, value: OsString) -> Option<OsString> {
    let Some(hook) = hook else { return Some(value) };
    match name {
        "PATH" => env::join_paths(env::split_paths(&value).filter(|folder| !folder.starts_with(hook))).ok(),
        _ => (!Path::new(&value).starts_with(hook)).then_some(value),
    }
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn search(here: &Path, variable: Variables<'_>) -> Result<Vec<Target>, LoadError> {
    let mut looked = Vec::new();
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        match variable(name).filter(|value| !value.is_empty()).map(PathBuf::from) {
            Some(path) => match prefix(&path) {
                Some(prefix) => return Ok(vec![Target::Prefix(prefix)]),
                None => looked.push(format!("{name}={}: no environment there", path.display())),
            },
            None => looked.push(format!("{name}: not set")),
        }
    }
    match prefix(&here.join(".venv")) {
        Some(prefix) => return Ok(vec![Target::Prefix(prefix)]),
        None => looked.push("./.venv: no environment there".to_owned()),
    }
    for name in ["python3", "python"] {
        match on_path(Path::new(name), variable) {
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
    on_path(python, &|name| env::var_os(name)).ok_or_else(|| LoadError::NoSuchInterpreter(python.to_owned()))
}

fn on_path(command: &Path, variable: Variables<'_>) -> Option<PathBuf> {
    // A path with a folder in it is not looked up.
    if command.components().count() != 1 {
        return None;
    }
    let path = variable("PATH")?;
    // `python3.12` on Windows is `python3.12.exe`.
    let file = match command.to_str()?.ends_with(env::consts::EXE_SUFFIX) {
        true => command.to_owned(),
        false => PathBuf::from(format!("{}{}", command.display(), env::consts::EXE_SUFFIX)),
    };
    env::split_paths(&path).map(|folder| folder.join(&file)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Files, files};
    use super::*;

    fn found(here: &Files, variables: &[(&str, &Path)]) -> Result<PathBuf, LoadError> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_os_str().to_owned())
        };
        let mut targets = search(here.path(), &variable)?;
        match targets.remove(0) {
            Target::Prefix(prefix) => Ok(prefix.path),
            Target::Interpreter(python) => Ok(python),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_active_environment_comes_before_the_local_one() {
        let here = files(&[
            ("active/pyvenv.cfg", "home = /nowhere"),
            ("active/lib/python3.12/site-packages/x.py", ""),
            ("conda/conda-meta/history", ""),
            ("conda/lib/python3.11/site-packages/x.py", ""),
            (".venv/pyvenv.cfg", ""),
            (".venv/lib/python3.13/site-packages/x.py", ""),
            ("bin/python3", ""),
        ]);
        let at = |name: &str| here.path().join(name);
        let (active, conda, gone, bin) = (at("active"), at("conda"), at("gone"), at("bin"));
        let all = [("VIRTUAL_ENV", &*active), ("CONDA_PREFIX", &*conda), ("PATH", &*bin)];
        assert_eq!(found(&here, &all).unwrap(), active);
        assert_eq!(found(&here, &all[1..]).unwrap(), conda);
        assert_eq!(found(&here, &all[2..]).unwrap(), at(".venv"));
        assert_eq!(found(&here, &[("VIRTUAL_ENV", &gone), ("CONDA_PREFIX", &conda)]).unwrap(), conda);
    }

    #[test]
    fn the_interpreter_on_path_comes_last() {
        let here = files(&[("bin/python3", ""), ("empty/readme", "")]);
        let (bin, empty) = (here.path().join("bin"), here.path().join("empty"));
        if cfg!(unix) {
            assert_eq!(found(&here, &[("PATH", &bin)]).unwrap(), bin.join("python3"));
        }
        let error = found(&here, &[("PATH", &empty), ("VIRTUAL_ENV", &empty)]).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        let text = error.to_string();
        for part in ["VIRTUAL_ENV=", "CONDA_PREFIX: not set", "./.venv", "python3 on PATH", "hint:"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_environment_of_a_hook_is_not_the_one_that_is_meant() {
        let variables = |name: &str| match name {
            "PRE_COMMIT" => Some("1".into()),
            "VIRTUAL_ENV" => Some("cache/env".into()),
            _ => None,
        };
        let program = |path: &str| Some(PathBuf::from(path));
        assert_eq!(hook(&variables, program("cache/env/bin/fa-doctor")), program("cache/env"));
        assert_eq!(hook(&variables, program("elsewhere/bin/fa-doctor")), None);
        assert_eq!(hook(&|name| variables(name).filter(|_| name != "PRE_COMMIT"), program("cache/env/bin/x")), None);
        let hook = Some(Path::new("cache/env"));
        assert_eq!(without(hook, "VIRTUAL_ENV", "cache/env".into()), None);
        assert_eq!(without(hook, "CONDA_PREFIX", "conda".into()), Some("conda".into()));
        let path = env::join_paths(["cache/env/bin", "user/bin"]).unwrap();
        assert_eq!(without(hook, "PATH", path.clone()), Some("user/bin".into()));
        assert_eq!(without(None, "PATH", path.clone()), Some(path));
    }

    #[test]
    fn python_may_be_an_environment_or_a_command() {
        let here = files(&[("v/pyvenv.cfg", ""), ("v/lib/python3.12/site-packages/x.py", ""), ("v/bin/python", "")]);
        assert_eq!(interpreter(&here.path().join("v")).unwrap(), here.path().join("v/bin/python"));
        let error = interpreter(Path::new("no-such-python-anywhere")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
