//! Settings: `fa-doctor.toml`, or `[tool.fa-doctor]` of pyproject.toml. Unknown keys are errors, and every setting
//! remembers where it comes from.

pub mod baseline;
pub mod glob;
pub mod ignore;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use similar::TextDiff;
use toml::Spanned;

use crate::environment::{Platform, arch};
use crate::finding::Severity;
use crate::report::FailOn;
use crate::rules::registry;
use ignore::Ignore;

/// The file of its own.
const OWN: &str = "fa-doctor.toml";
/// The file shared with other tools.
const SHARED: &str = "pyproject.toml";

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// Takes `value` if it is given, from `origin`.
    pub fn set(&mut self, value: Option<T>, origin: &Origin) {
        if let Some(value) = value {
            *self = Setting { value, origin: origin.clone() };
        }
    }
}

impl<T: Default> Default for Setting<T> {
    fn default() -> Setting<T> {
        Setting { value: T::default(), origin: Origin::Default }
    }
}

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A file.
    File(PathBuf),
    /// A flag.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::CommandLine => f.write_str("command line"),
        }
    }
}

/// Everything that can be set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Codes, their beginnings (`FA1`) or names of the rules that run; empty for all.
    pub select: Setting<Vec<String>>,
    /// Rules that do not run.
    pub deselect: Setting<Vec<String>>,
    /// Findings that are not reported, each with a reason.
    pub ignores: Vec<Ignore>,
    /// Severities that replace the rule's own.
    pub severity: Setting<BTreeMap<String, Severity>>,
    /// Which findings fail the run.
    pub fail_on: Setting<FailOn>,
    /// Platform whose branches to follow.
    pub platform: Setting<Option<Platform>>,
    /// Architectures to judge for.
    pub arch: Setting<Vec<String>>,
    /// Folders with more packs.
    pub packs: Setting<Vec<PathBuf>>,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
}

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its text is wrong; `toml` shows the place.
    #[error("{}: {}{}", path.display(), source.to_string().trim_end(), suggestion(source.message()))]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why, with the line.
        source: Box<toml::de::Error>,
    },
    /// A value is wrong.
    #[error("{}:{line}: {message}\nhint: {hint}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
        /// What to do.
        hint: String,
    },
    /// There is no `[tool.fa-doctor]` in the pyproject.toml that `--config` names.
    #[error("{} has no [tool.fa-doctor] section\nhint: add one, or name another file with --config", .0.display())]
    NoSection(PathBuf),
}

/// What was probably meant, where the parser lists what it knows: "unknown field `selct`, expected one of `select`, ..".
fn suggestion(message: &str) -> String {
    const CLOSE: f32 = 0.6;
    let mut names = message.split('`').skip(1).step_by(2);
    let Some(wrong) = names.next().filter(|_| message.starts_with("unknown ")) else { return String::new() };
    let likeness = |name: &&str| TextDiff::from_chars(wrong, *name).ratio();
    let nearest = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|name| likeness(name) >= CLOSE);
    nearest.map(|name| format!("\nhint: did you mean `{name}`?")).unwrap_or_default()
}

/// The keys of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    select: Option<Vec<Spanned<String>>>,
    deselect: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    ignore: Vec<Spanned<ignore::Entry>>,
    severity: Option<BTreeMap<Spanned<String>, Severity>>,
    fail_on: Option<FailOn>,
    platform: Option<Platform>,
    arch: Option<Vec<Spanned<String>>>,
    packs: Option<Vec<PathBuf>>,
}

/// The part of a pyproject.toml that matters here.
#[derive(Deserialize)]
struct Pyproject {
    tool: Option<Tools>,
}

#[derive(Deserialize)]
struct Tools {
    #[serde(rename = "fa-doctor")]
    fa_doctor: Option<File>,
}

impl Settings {
    /// The settings of `file`, or of the nearest file in `folder` and the folders above it, up to the repository.
    pub fn load(file: Option<&Path>, folder: &Path) -> Result<Settings, ConfigError> {
        match file {
            Some(path) => Settings::read(path)?.ok_or_else(|| ConfigError::NoSection(path.to_owned())),
            None => Settings::discover(folder),
        }
    }

    fn discover(folder: &Path) -> Result<Settings, ConfigError> {
        for folder in folder.ancestors() {
            for name in [OWN, SHARED] {
                let path = folder.join(name);
                if path.is_file()
                    && let Some(settings) = Settings::read(&path)?
                {
                    return Ok(settings);
                }
            }
            if folder.join(".git").exists() {
                break;
            }
        }
        Ok(Settings::default())
    }

    /// Reads one file; `None` for a pyproject.toml without a section for this tool.
    fn read(path: &Path) -> Result<Option<Settings>, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let shared = path.file_name().is_some_and(|name| name == SHARED);
        let file = if shared {
            toml::from_str::<Pyproject>(&text).map(|file| file.tool.and_then(|tools| tools.fa_doctor))
        } else {
            toml::from_str::<File>(&text).map(Some)
        };
        let file = file.map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        file.map(|file| Settings::of_file(file, path, &text)).transpose()
    }

    fn of_file(file: File, path: &Path, text: &str) -> Result<Settings, ConfigError> {
        let origin = Origin::File(path.to_owned());
        let line = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        let wrong = |at: usize, message: String, hint: &str| ConfigError::Value {
            path: path.to_owned(),
            line: line(at),
            message,
            hint: hint.to_owned(),
        };
        let codes = |codes: Option<Vec<Spanned<String>>>| -> Result<Option<Vec<String>>, ConfigError> {
            let Some(codes) = codes else { return Ok(None) };
            let known = |code: Spanned<String>| match check_selector(code.get_ref()) {
                Ok(()) => Ok(code.into_inner()),
                Err(message) => Err(wrong(code.span().start, message, "`fa-doctor rules` lists all of them")),
            };
            codes.into_iter().map(known).collect::<Result<_, _>>().map(Some)
        };
        let mut settings = Settings { file: Some(path.to_owned()), ..Settings::default() };
        settings.select.set(codes(file.select)?, &origin);
        settings.deselect.set(codes(file.deselect)?, &origin);
        if let Some(severity) = file.severity {
            let keys: Vec<_> = severity.keys().cloned().collect();
            codes(Some(keys))?;
            let severity = severity.into_iter().map(|(code, severity)| (code.into_inner(), severity)).collect();
            settings.severity.set(Some(severity), &origin);
        }
        if let Some(arch) = file.arch {
            let normal = |arch: Spanned<String>| {
                arch::normalize(arch.get_ref()).map_err(|_| {
                    let known = arch::KNOWN.map(|number| format!("sm_{number}")).join(", ");
                    wrong(
                        arch.span().start,
                        format!("`{}` is no GPU architecture", arch.get_ref()),
                        &format!("known are {known}"),
                    )
                })
            };
            settings.arch.set(Some(arch.into_iter().map(normal).collect::<Result<_, _>>()?), &origin);
        }
        settings.fail_on.set(file.fail_on, &origin);
        settings.platform.set(file.platform.map(Some), &origin);
        let folder = path.parent().unwrap_or(Path::new(""));
        settings.packs.set(file.packs.map(|packs| packs.iter().map(|pack| folder.join(pack)).collect()), &origin);
        for entry in file.ignore {
            let at = entry.span().start;
            let place = format!("{}:{}", path.display(), line(at));
            let entry = Ignore::new(entry.into_inner(), place);
            settings.ignores.push(entry.map_err(|(message, hint)| wrong(at, message, hint))?);
        }
        Ok(settings)
    }

    /// Whether the rule runs.
    pub fn selects(&self, code: &str, name: &str) -> bool {
        let named = |selectors: &[String]| selectors.iter().any(|selector| selected(selector, code, name));
        (self.select.value.is_empty() || named(&self.select.value)) && !named(&self.deselect.value)
    }

    /// The severity that replaces the rule's own; the longest selector wins.
    pub fn severity_of(&self, code: &str, name: &str) -> Option<Severity> {
        let matching = self.severity.value.iter().filter(|(selector, _)| selected(selector, code, name));
        matching.max_by_key(|(selector, _)| selector.len()).map(|(_, severity)| *severity)
    }
}

/// Whether a selector means this rule: its code, the beginning of its code, or its name.
pub fn selected(selector: &str, code: &str, name: &str) -> bool {
    code.starts_with(selector) || name == selector
}

/// Refuses a selector that means no rule.
pub fn check_selector(selector: &str) -> Result<(), String> {
    let mut infos = registry::all().iter().map(|rule| rule.info());
    if !selector.is_empty() && infos.any(|info| selected(selector, info.code, info.name)) {
        Ok(())
    } else {
        Err(format!("there is no rule `{selector}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &str, text: &str) -> Result<Settings, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        let inside = folder.path().join("a/b");
        std::fs::create_dir_all(&inside).expect("folders");
        let shown = |error: ConfigError| error.to_string().replace(&folder.path().display().to_string(), "..");
        Settings::load(None, &inside).map_err(shown)
    }

    #[test]
    fn the_nearest_file_above_counts() {
        let settings = load(OWN, "fail-on = 'warning'\narch = ['12.0']\npacks = ['packs']\n").expect("settings");
        assert_eq!(settings.fail_on.value, FailOn::Warning);
        assert_eq!(settings.arch.value, ["sm_120"]);
        assert!(matches!(settings.arch.origin, Origin::File(_)));
        assert!(settings.packs.value[0].is_absolute());
        assert_eq!(settings.select, Setting::default());
    }

    #[test]
    fn a_section_of_pyproject_counts_and_its_absence_is_no_error() {
        let settings = load(SHARED, "[project]\nname = 'x'\n[tool.fa-doctor]\nfail-on = 'never'\n").expect("settings");
        assert_eq!(settings.fail_on.value, FailOn::Never);
        assert_eq!(load(SHARED, "[project]\nname = 'x'\n"), Ok(Settings::default()));
    }

    #[test]
    fn mistakes_point_at_the_line() {
        let unknown = load(OWN, "fail-on = 'error'\nselct = []\n").expect_err("unknown key");
        assert!(unknown.contains("line 2") && unknown.contains("unknown field `selct`"), "{unknown}");
        let code = load(OWN, "select = [\n  'XX001',\n]\n").expect_err("unknown code");
        assert_eq!(code, "../fa-doctor.toml:2: there is no rule `XX001`\nhint: `fa-doctor rules` lists all of them");
        let arch = load(OWN, "\narch = ['blackwell']\n").expect_err("unknown architecture");
        assert!(arch.starts_with("../fa-doctor.toml:2: `blackwell` is no GPU architecture"), "{arch}");
        let nested = load(SHARED, "[tool.fa-doctor]\nx = 1\n").expect_err("unknown key");
        assert!(nested.contains("unknown field `x`"), "{nested}");
    }

    #[test]
    fn what_was_probably_meant_is_suggested() {
        let hint = |text: &str| {
            load(OWN, text).expect_err("a mistake").rsplit_once("\nhint: ").map(|(_, hint)| hint.to_owned())
        };
        assert_eq!(hint("selct = []").as_deref(), Some("did you mean `select`?"));
        assert_eq!(hint("fail_on = 'error'").as_deref(), Some("did you mean `fail-on`?"));
        assert_eq!(hint("fail-on = 'errors'").as_deref(), Some("did you mean `error`?"));
        assert_eq!(hint("[[ignore]]\nreson = 'x'").as_deref(), Some("did you mean `reason`?"));
        assert_eq!(hint("colour = 1"), None);
    }

    #[test]
    fn selectors_are_codes_their_beginnings_and_names() {
        assert!(selected("FA001", "FA001", "undefined-name"));
        assert!(selected("FA0", "FA001", "undefined-name"));
        assert!(selected("undefined-name", "FA001", "undefined-name"));
        assert!(!selected("undefined", "FA001", "undefined-name"));
        assert!(!selected("FA1", "FA001", "undefined-name"));
    }
}
