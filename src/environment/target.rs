//! What a TARGET on the command line is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::distribution::is_info;
use super::metadata::{name_and_version, normalize};
use super::pth::is_identifier;
use super::{EntryKind, LoadError};

/// What a TARGET on the command line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A wheel file.
    Wheel(PathBuf),
    /// A folder with the contents of one wheel.
    Unpacked(PathBuf),
    /// A site-packages folder, or what is used as one.
    Site(PathBuf),
    /// A virtual environment, a conda environment or the prefix of an interpreter.
    Prefix(Prefix),
    /// A Python executable.
    Interpreter(PathBuf),
    /// A source checkout, or a folder of packages without metadata.
    Checkout(PathBuf),
}

/// The prefix of an interpreter, read without running it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Prefix {
    pub path: PathBuf,
    pub python: Option<(u32, u32)>,
    /// Folders of the standard library, where they are on this machine.
    pub library: Vec<PathBuf>,
    /// The site-packages folders, in order.
    pub site: Vec<PathBuf>,
    pub executable: Option<PathBuf>,
}

/// What `path` is; a folder of several wheels is each of them.
pub(super) fn classify(path: &Path) -> Result<Vec<Target>, LoadError> {
    let metadata = fs::metadata(path).map_err(|error| LoadError::of_path(path, error))?;
    if !metadata.is_dir() {
        return classify_file(path).map(|target| vec![target]);
    }
    let names = list(path).map_err(|error| LoadError::of_path(path, error))?;
    if let Some(prefix) = prefix(path) {
        return Ok(vec![Target::Prefix(prefix)]);
    }
    let infos = infos(&names);
    let holds = |name: &str| names.iter().any(|(entry, _)| entry == name);
    if is_site_name(path) {
        return Ok(vec![Target::Site(path.to_owned())]);
    }
    if is_project(path) {
        return Ok(vec![Target::Checkout(path.to_owned())]);
    }
    match infos.as_slice() {
        [] => {}
        // What pip installs has an INSTALLER beside the METADATA; what unzip leaves has none.
        [info] if !path.join(info).join("INSTALLER").exists() && path.join(info).join("WHEEL").exists() => {
            return Ok(vec![Target::Unpacked(path.to_owned())]);
        }
        _ => return Ok(vec![Target::Site(path.to_owned())]),
    }
    // Inside a prefix: `lib/python3.12`, `bin`.
    for child in ["site-packages", "dist-packages"] {
        if holds(child) {
            return Ok(vec![Target::Site(path.join(child))]);
        }
    }
    if let Some(prefix) = path.parent().filter(|_| holds("python") || holds("python3")).and_then(prefix) {
        return Ok(vec![Target::Prefix(prefix)]);
    }
    if holds("__init__.py") {
        let root = package_root(path).filter(|root| root != path);
        return root.map_or_else(|| Err(nothing_in(path)), |root| classify(&root));
    }
    let several = wheels_in(path, &names)?;
    if !several.is_empty() {
        return Ok(several);
    }
    let holds_modules = names.iter().any(|(name, kind)| is_importable(path, name, *kind));
    if holds_modules {
        // A namespace package of an installation: `site-packages/flash_attn` with nothing but `cute` in it.
        if let Some(site) = path.canonicalize().ok().as_deref().and_then(Path::parent).filter(|site| is_installed(site))
        {
            return classify(site);
        }
        return Ok(vec![Target::Checkout(path.to_owned())]);
    }
    // A project folder whose environment is below it.
    if let Some(prefix) = prefix(&path.join(".venv")).or_else(|| prefix(&path.join("venv"))) {
        return Ok(vec![Target::Prefix(prefix)]);
    }
    Err(nothing_in(path))
}

fn classify_file(path: &Path) -> Result<Target, LoadError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    if name.ends_with(".whl") {
        return Ok(Target::Wheel(path.to_owned()));
    }
    // Nothing else is ever run: `python_utils.py` is no interpreter.
    let stem = name.strip_suffix(".exe").unwrap_or(&name);
    let version = stem.strip_prefix("python").or_else(|| stem.strip_prefix("pypy"));
    if version.is_some_and(|version| version.trim_end_matches('t').chars().all(|c| c.is_ascii_digit() || c == '.')) {
        return Ok(Target::Interpreter(path.to_owned()));
    }
    Err(LoadError::NotATarget(path.to_owned()))
}

fn nothing_in(path: &Path) -> LoadError {
    LoadError::NothingToScan {
        looked: vec![format!(
            "{}: no site-packages, no installed distribution,\n    no wheel, no Python package",
            path.display()
        )],
        hint: "give a virtual environment, a site-packages folder or a wheel:\nfa-doctor scan .venv".to_owned(),
    }
}

fn list(folder: &Path) -> std::io::Result<Vec<(String, EntryKind)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let kind = if entry.path().is_dir() { EntryKind::Folder } else { EntryKind::File };
        names.push((name, kind));
    }
    names.sort_unstable();
    Ok(names)
}

fn infos(names: &[(String, EntryKind)]) -> Vec<&str> {
    names.iter().filter(|(name, kind)| is_info(name, *kind)).map(|(name, _)| name.as_str()).collect()
}

fn is_site_name(path: &Path) -> bool {
    // `.` and `..` have no name of their own.
    let name = match path.file_name() {
        Some(name) => Some(name.to_owned()),
        None => path.canonicalize().ok().and_then(|path| path.file_name().map(ToOwned::to_owned)),
    };
    name.is_some_and(|name| name == "site-packages" || name == "dist-packages")
}

/// Whether a folder is a source project. A package with settings of its own (`flash_attn/pyproject.toml`) is none.
pub(super) fn is_project(path: &Path) -> bool {
    let holds = |name: &str| path.join(name).is_file();
    holds("setup.py") || (holds("pyproject.toml") || holds("setup.cfg")) && !holds("__init__.py")
}

/// Whether something right inside `folder` can be imported as `name`, or tells of a distribution: a module, a package,
/// a namespace with modules or packages in it.
pub(super) fn is_importable(folder: &Path, name: &str, kind: EntryKind) -> bool {
    let is_module = |name: &str| [".py", ".so", ".pyd"].iter().any(|suffix| name.ends_with(suffix));
    if kind == EntryKind::File {
        return is_module(name) || is_info(name, kind);
    }
    if !is_identifier(name) {
        return is_info(name, kind);
    }
    let folder = folder.join(name);
    list(&folder).unwrap_or_default().iter().any(|(name, kind)| match kind {
        EntryKind::File => is_module(name),
        EntryKind::Folder => is_identifier(name) && folder.join(name).join("__init__.py").is_file(),
    })
}

/// Whether packages are installed right inside a folder.
fn is_installed(folder: &Path) -> bool {
    is_site_name(folder) || list(folder).is_ok_and(|names| !infos(&names).is_empty())
}

/// The folder that a package is imported from. `flash_attn/cute` may lie in a namespace, which has no `__init__.py`:
/// the nearest folder that is an installation or a project decides, before the first without one.
fn package_root(package: &Path) -> Option<PathBuf> {
    let is_installation = |folder: &Path| is_installed(folder) || is_project(folder);
    let place = package.canonicalize().ok()?;
    let mut above = place.ancestors().enumerate().skip(1);
    let found = above.clone().find(|(_, folder)| is_installation(folder));
    let (levels, folder) = found.or_else(|| above.find(|(_, folder)| !folder.join("__init__.py").exists()))?;
    // As the user wrote it, where that can be shortened to it.
    let is_plain = package.components().all(|part| matches!(part, Component::Normal(_) | Component::RootDir));
    match package.ancestors().nth(levels).filter(|_| is_plain) {
        Some(given) if given.as_os_str().is_empty() => Some(PathBuf::from(".")),
        Some(given) => Some(given.to_owned()),
        None => Some(folder.to_owned()),
    }
}

/// The wheels and unpacked wheels right inside a folder.
fn wheels_in(folder: &Path, names: &[(String, EntryKind)]) -> Result<Vec<Target>, LoadError> {
    let mut targets = Vec::new();
    for (name, kind) in names {
        let path = folder.join(name);
        match kind {
            EntryKind::File if name.ends_with(".whl") => targets.push(Target::Wheel(path)),
            EntryKind::Folder if list(&path).is_ok_and(|names| !infos(&names).is_empty()) => {
                targets.push(Target::Unpacked(path));
            }
            _ => {}
        }
    }
    Ok(targets)
}

/// Refuses two releases of one distribution among the wheels: no installation has both.
pub(super) fn check_one_release_each(targets: &[Target]) -> Result<(), LoadError> {
    let mut releases: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for target in targets {
        for (name, version, place) in releases_of(target) {
            releases.entry(normalize(&name)).or_default().entry(version).or_insert(place);
        }
    }
    match releases.into_iter().find(|(_, versions)| versions.len() > 1) {
        Some((name, versions)) => Err(LoadError::Ambiguous {
            name,
            versions: versions.into_iter().map(|(version, place)| format!("{version}  {place}")).collect(),
        }),
        None => Ok(()),
    }
}

fn releases_of(target: &Target) -> Vec<(String, String, String)> {
    let (names, place) = match target {
        Target::Wheel(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mut parts = name.splitn(3, '-');
            let (Some(project), Some(version)) = (parts.next(), parts.next()) else { return Vec::new() };
            (vec![format!("{project}-{version}.dist-info")], path)
        }
        Target::Unpacked(path) => {
            let names = list(path).unwrap_or_default();
            (infos(&names).into_iter().map(str::to_owned).collect(), path)
        }
        _ => return Vec::new(),
    };
    let release = |name: &String| {
        let (name, version) = name_and_version(name)?;
        Some((name.to_owned(), version.to_owned(), place.display().to_string()))
    };
    names.iter().filter_map(release).collect()
}

/// A prefix that holds site-packages: a virtual environment, a conda environment, an installed interpreter.
pub(super) fn prefix(path: &Path) -> Option<Prefix> {
    let config = Some(path.join("pyvenv.cfg")).filter(|file| file.is_file()).and_then(|file| fs::read(file).ok());
    let config = config.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let executable = ["bin/python", "bin/python3", "Scripts/python.exe", "python.exe"]
        .iter()
        .map(|name| path.join(name))
        .find(|path| path.exists());
    if config.is_none() && executable.is_none() && !path.join("conda-meta").is_dir() {
        return None;
    }
    let setting = |key: &str| config.as_deref().and_then(|config| setting(config, key));
    let declared = setting("version_info").or_else(|| setting("version")).and_then(|text| version(&text));
    let (python, mut site) = site_folders(path, declared)?;
    let python = declared.or(python);
    // The interpreter that a virtual environment was made from: `home` is the folder of its executable.
    let base = match setting("home") {
        Some(home) if cfg!(windows) => PathBuf::from(home),
        Some(home) => Path::new(&home).parent().map(Path::to_owned).unwrap_or_default(),
        None => path.to_owned(),
    };
    if setting("include-system-site-packages").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        site.extend(site_folders(&base, python).map(|(_, folders)| folders).unwrap_or_default());
    }
    Some(Prefix { path: path.to_owned(), python, library: library(&base, python), site, executable })
}

fn setting(config: &str, key: &str) -> Option<String> {
    let mut pairs = config.lines().filter_map(|line| line.split_once('='));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

/// `3.12.3.final.0`, `python3.13t` or `pypy3.10` as (3, 12), (3, 13), (3, 10).
pub(super) fn version(text: &str) -> Option<(u32, u32)> {
    let text = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let mut parts = text.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let end = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..end].parse().ok()?))
}

/// Major and minor version of Python.
type Version = (u32, u32);

/// The site-packages folders of a prefix, with the version of Python that their path names.
fn site_folders(prefix: &Path, wanted: Option<Version>) -> Option<(Option<Version>, Vec<PathBuf>)> {
    let windows = prefix.join("Lib").join("site-packages");
    let mut by_version: BTreeMap<Option<Version>, Vec<PathBuf>> = BTreeMap::new();
    let mut seen = Vec::new();
    for library in ["lib", "lib64", "local/lib"] {
        let library = prefix.join(library);
        // `lib64` is usually a link to `lib`.
        let Ok(place) = library.canonicalize() else { continue };
        if seen.contains(&place) {
            continue;
        }
        seen.push(place);
        for (name, _) in list(&library).unwrap_or_default() {
            if !name.starts_with("python") && !name.starts_with("pypy") {
                continue;
            }
            for packages in ["site-packages", "dist-packages"] {
                let folder = library.join(&name).join(packages);
                if folder.is_dir() {
                    by_version.entry(version(&name)).or_default().push(folder);
                }
            }
        }
    }
    // Debian's `lib/python3/dist-packages` belongs to every version.
    let shared = by_version.remove(&None).unwrap_or_default();
    let chosen = match wanted {
        Some(wanted) => by_version.remove_entry(&Some(wanted)),
        None => by_version.pop_last(),
    };
    let (python, mut folders) = chosen.unwrap_or_default();
    folders.extend(shared);
    // Where the file system ignores case, `lib` is `Lib`.
    if folders.is_empty() && windows.is_dir() {
        folders.push(windows);
    }
    (!folders.is_empty()).then_some((python, folders))
}

/// The standard library below the prefix of a base interpreter, if it is there.
fn library(base: &Path, python: Option<(u32, u32)>) -> Vec<PathBuf> {
    let mut candidates = vec![base.join("Lib")];
    if let Some((major, minor)) = python {
        for name in [format!("lib/python{major}.{minor}"), format!("lib/python{major}.{minor}t")] {
            candidates.insert(0, base.join(name));
        }
    }
    // Any file that has been in every release tells a library from a folder of that name.
    let Some(library) = candidates.into_iter().find(|folder| folder.join("os.py").is_file()) else { return Vec::new() };
    let dynamic = library.join("lib-dynload");
    if dynamic.is_dir() { vec![library, dynamic] } else { vec![library] }
}

#[cfg(test)]
mod tests {
    use super::super::testing::files;
    use super::*;

    fn only(path: &Path) -> Target {
        let mut targets = classify(path).unwrap();
        assert_eq!(targets.len(), 1, "{targets:?}");
        targets.remove(0)
    }

    #[test]
    fn versions_are_read_from_every_spelling() {
        for text in ["3.12.3.final.0", "3.12", "python3.12", "python3.12t", "pypy3.12", "3.12.0rc1", "3.12rc1"] {
            assert_eq!(version(text), Some((3, 12)), "{text}");
        }
        for text in ["python3", "python", "", "x.y", "python3.x"] {
            assert_eq!(version(text), None, "{text}");
        }
    }

    #[test]
    fn a_virtual_environment_tells_its_python_and_its_library() {
        let files = files(&[
            ("base/lib/python3.12/os.py", ""),
            ("base/lib/python3.12/lib-dynload/x.so", ""),
            ("base/lib/python3.12/site-packages/system.py", ""),
            ("v/lib/python3.11/site-packages/old.py", ""),
            ("v/lib/python3.12/site-packages/new.py", ""),
            ("v/bin/python", ""),
        ]);
        let at = |name: &str| files.path().join(name);
        let config =
            format!("home = {}\nversion = 3.12.3\n", at(if cfg!(windows) { "base" } else { "base/bin" }).display());
        files.add("v/pyvenv.cfg", &config);
        let Target::Prefix(prefix) = only(&at("v")) else { panic!("no prefix") };
        assert_eq!(prefix.python, Some((3, 12)));
        assert_eq!(prefix.site, [at("v/lib/python3.12/site-packages")]);
        assert_eq!(prefix.library, [at("base/lib/python3.12"), at("base/lib/python3.12/lib-dynload")]);
        assert_eq!(prefix.executable, Some(at("v/bin/python")));

        files.add("v/pyvenv.cfg", format!("{config}include-system-site-packages = True\n"));
        let Target::Prefix(prefix) = only(&at("v")) else { panic!("no prefix") };
        assert_eq!(prefix.site, [at("v/lib/python3.12/site-packages"), at("base/lib/python3.12/site-packages")]);
    }

    #[test]
    fn environments_of_other_makers() {
        let files = files(&[
            ("conda/conda-meta/history", ""),
            ("conda/lib/python3.10/os.py", ""),
            ("conda/lib/python3.10/site-packages/x.py", ""),
            ("win/pyvenv.cfg", "version_info = 3.13.1"),
            ("win/Lib/site-packages/x.py", ""),
            ("debian/bin/python3", ""),
            ("debian/lib/python3/dist-packages/x.py", ""),
            ("hollow/pyvenv.cfg", ""),
        ]);
        let at = |name: &str| files.path().join(name);
        let Target::Prefix(conda) = only(&at("conda")) else { panic!("no prefix") };
        assert_eq!((conda.python, conda.library), (Some((3, 10)), vec![at("conda/lib/python3.10")]));
        let Target::Prefix(windows) = only(&at("win")) else { panic!("no prefix") };
        assert_eq!((windows.python, windows.site), (Some((3, 13)), vec![at("win/Lib/site-packages")]));
        let Target::Prefix(debian) = only(&at("debian")) else { panic!("no prefix") };
        assert_eq!((debian.python, debian.site), (None, vec![at("debian/lib/python3/dist-packages")]));
        assert_eq!(classify(&at("hollow")).unwrap_err().exit_code(), 3);
    }

    #[test]
    fn folders_are_told_apart_by_what_they_hold() {
        let files = files(&[
            ("site-packages/x.py", ""),
            ("plain/a-1.dist-info/METADATA", ""),
            ("plain/b-1.dist-info/METADATA", ""),
            ("unpacked/a-1.dist-info/METADATA", ""),
            ("unpacked/a-1.dist-info/WHEEL", ""),
            ("installed/a-1.dist-info/METADATA", ""),
            ("installed/a-1.dist-info/WHEEL", ""),
            ("installed/a-1.dist-info/INSTALLER", "pip"),
            ("checkout/pyproject.toml", ""),
            ("checkout/vllm/__init__.py", ""),
            ("checkout/vllm.egg-info/PKG-INFO", ""),
            ("packages/flash_attn/cute/__init__.py", ""),
            ("installed/flash_attn/cute/__init__.py", ""),
            ("lib/python3.9/site-packages/x.py", ""),
            ("several/one/a-1.dist-info/METADATA", ""),
            ("several/two/b-1.dist-info/METADATA", ""),
            ("several/c-1-py3-none-any.whl", ""),
            ("project/notes/readme", ""),
            ("project/.venv/pyvenv.cfg", ""),
            ("project/.venv/lib/python3.12/site-packages/x.py", ""),
            ("nothing/readme", ""),
        ]);
        let at = |name: &str| files.path().join(name);
        assert_eq!(only(&at("site-packages")), Target::Site(at("site-packages")));
        assert_eq!(only(&at("plain")), Target::Site(at("plain")));
        assert_eq!(only(&at("unpacked")), Target::Unpacked(at("unpacked")));
        assert_eq!(only(&at("installed")), Target::Site(at("installed")));
        // A namespace package stands for the installation it is in.
        let installed = at("installed").canonicalize().unwrap();
        assert_eq!(only(&at("installed/flash_attn")), Target::Site(installed));
        assert_eq!(only(&at("checkout")), Target::Checkout(at("checkout")));
        assert_eq!(only(&at("packages")), Target::Checkout(at("packages")));
        assert_eq!(only(&at("lib/python3.9")), Target::Site(at("lib/python3.9/site-packages")));
        let several = [
            Target::Wheel(at("several/c-1-py3-none-any.whl")),
            Target::Unpacked(at("several/one")),
            Target::Unpacked(at("several/two")),
        ];
        assert_eq!(classify(&at("several")).unwrap(), several);
        assert!(matches!(only(&at("project")), Target::Prefix(prefix) if prefix.path == at("project/.venv")));
        let error = classify(&at("nothing")).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("hint:"));
    }

    #[test]
    fn a_package_stands_for_what_it_is_installed_in() {
        let files = files(&[
            ("site/a-1.dist-info/METADATA", ""),
            ("site/b-1.dist-info/METADATA", ""),
            ("site/flash_attn/cute/__init__.py", ""),
            ("loose/vllm/__init__.py", ""),
            ("loose/vllm/v1/__init__.py", ""),
        ]);
        let at = |name: &str| files.path().join(name);
        assert_eq!(only(&at("site/flash_attn/cute")), Target::Site(at("site")));
        assert_eq!(only(&at("loose/vllm/v1")), Target::Checkout(at("loose")));
    }

    #[test]
    fn files_are_wheels_or_interpreters() {
        let files = files(&[("a-1-py3-none-any.whl", ""), ("notes.txt", "")]);
        let at = |name: &str| files.path().join(name);
        assert_eq!(only(&at("a-1-py3-none-any.whl")), Target::Wheel(at("a-1-py3-none-any.whl")));
        for name in ["python3.12", "python", "python3.13t", "pypy3.10", "Python.exe"] {
            assert_eq!(only(&files.add(name, "")), Target::Interpreter(at(name)));
        }
        for name in ["python.py", "python_utils.py", "pythonw", "pypy-notes.txt"] {
            assert_eq!(classify(&files.add(name, "")).unwrap_err().exit_code(), 2, "{name}");
        }
        assert_eq!(classify(&at("notes.txt")).unwrap_err().exit_code(), 2);
        assert_eq!(classify(&at("none")).unwrap_err().exit_code(), 2);
        let hint = classify(&at("vllm-0.26.0-x.whl")).unwrap_err().to_string();
        assert!(hint.contains("pip download") && hint.contains("vllm"), "{hint}");
    }

    #[test]
    fn two_releases_of_one_package_are_refused() {
        let wheel = |name: &str| Target::Wheel(PathBuf::from(name));
        let names = ["vllm-0.26.0-a.whl", "flash_attn_4-4.0.0b5-b.whl", "flash.attn-4-4.0.0b36-b.whl"];
        assert!(check_one_release_each(&names.map(wheel)[..2]).is_ok());
        let error = check_one_release_each(&["vllm-0.26.0-a.whl", "vllm-0.33.0-a.whl"].map(wheel)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("0.33.0"), "{error}");
    }
}
