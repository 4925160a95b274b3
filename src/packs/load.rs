//! Reads packs: embedded ones and those of `--rules`, with errors that point at the line.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pep440_rs::{Version, VersionSpecifiers};
use toml::Spanned;

use super::knowledge::{Defect, Need, Needs, Overlap, Versions};
use super::schema::{DefectEntry, File, NeedsEntry, OverlapEntry};
use super::version::is_empty;
use super::{Function, Packs, Span};
use crate::environment::normalize_name;

/// The packs in the binary.
const EMBEDDED: &[(&str, &str)] = &[
    ("rules/stack.toml", include_str!("../../rules/stack.toml")),
    ("rules/native.toml", include_str!("../../rules/native.toml")),
    ("rules/releases.toml", include_str!("../../rules/releases.toml")),
    ("rules/requirements.toml", include_str!("../../rules/requirements.toml")),
    ("rules/arguments.toml", include_str!("../../rules/arguments.toml")),
    ("rules/defects.toml", include_str!("../../rules/defects.toml")),
    ("rules/history-vllm.toml", include_str!("../../rules/history-vllm.toml")),
    ("rules/history-flash-attn.toml", include_str!("../../rules/history-flash-attn.toml")),
    ("rules/history-flash-attn-4.toml", include_str!("../../rules/history-flash-attn-4.toml")),
    ("rules/history-forks.toml", include_str!("../../rules/history-forks.toml")),
];

/// Why a pack cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PackError {
    /// The file, as reports name it.
    pub file: String,
    /// Line from 1, where there is one.
    pub line: Option<usize>,
    /// The text of that line.
    pub excerpt: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub advice: Option<String>,
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message)?,
            None => write!(f, "{}: {}", self.file, self.message)?,
        }
        if let (Some(line), Some(excerpt)) = (self.line, &self.excerpt) {
            write!(f, "\n  {line} | {excerpt}")?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "\nhint: {advice}")?;
        }
        Ok(())
    }
}

impl Packs {
    /// The packs in the binary.
    ///
    /// # Panics
    ///
    /// Never in a released binary: a test loads every embedded pack.
    pub fn embedded() -> Packs {
        let mut packs = Packs::default();
        for (name, text) in EMBEDDED {
            if let Err(error) = packs.add(name, text) {
                panic!("{error}");
            }
        }
        packs
    }

    /// The packs in the binary, and every `*.toml` file of each folder on top, in order of their names.
    pub fn with_directories<P: AsRef<Path>>(folders: &[P]) -> Result<Packs, PackError> {
        let mut packs = Packs::embedded();
        for folder in folders {
            for path in pack_files(folder.as_ref())? {
                let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
                packs.add(&path.display().to_string(), &text)?;
            }
        }
        Ok(packs)
    }

    /// Adds one pack file: lists grow, named entries replace those of the same name.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), PackError> {
        let source = Source { name, text };
        let file: File = toml::from_str(text).map_err(|error| source.syntax(&error))?;
        source.check_requires(&file.requires)?;
        for (package, versions) in &file.releases {
            let releases = self.releases.entry(normalize_name(package)).or_default();
            for version in versions {
                releases.push(source.version(version)?);
            }
        }
        self.distributions.extend(file.stack.distributions.iter().map(|name| normalize_name(name)));
        self.general.extend(file.stack.general.iter().map(|name| normalize_name(name)));
        self.audited.extend(file.stack.audited);
        self.extensions.extend(file.native.distributions.iter().map(|name| normalize_name(name)));
        self.routes.extend(file.native.route);
        self.attention_modules.extend(file.stack.attention_modules);
        self.version_names.extend(file.stack.version_names);
        self.carrying.extend(file.stack.carrying);
        self.decorators.extend(file.decorators);
        self.platform_objects.extend(file.platforms.objects);
        for (predicate, platforms) in file.platforms.predicates {
            self.predicates.insert(predicate, platforms.into_iter().map(Into::into).collect());
        }
        self.capability.tuple.extend(file.capability.tuple);
        self.capability.predicates.extend(file.capability.predicates);
        self.selection.argument = file.selection.argument.or(self.selection.argument.take());
        self.selection.supported.extend(file.selection.supported);
        self.selection.chosen_by.extend(file.selection.chosen_by);
        self.selection.priorities.extend(file.selection.priorities);
        self.selection.mla_argument = file.selection.mla_argument.or(self.selection.mla_argument.take());
        self.selection.device_predicate = file.selection.device_predicate.or(self.selection.device_predicate.take());
        self.selection.names.extend(file.selection.names);
        self.consumed_keywords.extend(file.consumed_keywords);
        self.arguments.extend(file.arguments);
        self.gates.extend(file.gate);
        self.sources.extend(file.source);
        for function in file.function {
            source.check_function(self, &function)?;
            self.functions.push(function.into_inner());
        }
        for entry in file.defect {
            let defect = source.defect(self, entry)?;
            self.defects.retain(|known| known.id != defect.id);
            self.defects.push(defect);
        }
        for entry in file.needs {
            self.needs.push(source.needs(self, entry)?);
        }
        for entry in file.overlap {
            self.overlaps.push(source.overlap(self, entry)?);
        }
        Ok(())
    }
}

/// The `*.toml` files of a folder, in order of their names.
fn pack_files(folder: &Path) -> Result<Vec<PathBuf>, PackError> {
    let entries = std::fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let entries = entries.map_err(|error| unreadable(folder, &error))?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    Ok(files)
}

fn unreadable(path: &Path, error: &std::io::Error) -> PackError {
    PackError {
        file: path.display().to_string(),
        line: None,
        excerpt: None,
        message: format!("cannot be read: {error}"),
        advice: Some("--rules takes a folder that holds pack files (*.toml)".to_owned()),
    }
}

/// A pack file while it is read.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    /// An error at a span of the text.
    fn error(&self, span: Option<Range<usize>>, message: impl Into<String>, advice: Option<&str>) -> PackError {
        let line = span.map(|span| self.text[..span.start.min(self.text.len())].matches('\n').count() + 1);
        let excerpt = line.and_then(|line| self.text.lines().nth(line - 1)).map(|line| line.trim().to_owned());
        PackError {
            file: self.name.to_owned(),
            line,
            excerpt,
            message: message.into(),
            advice: advice.map(str::to_owned),
        }
    }

    fn syntax(&self, error: &toml::de::Error) -> PackError {
        let message = error.message().trim();
        let advice = if message.starts_with("unknown field") {
            "the keys that packs may use are described in docs/pack-schema.json"
        } else if message.starts_with("missing field") {
            "add the field; the other entries in rules/ show its form"
        } else {
            "packs are TOML; the entries in rules/ show their form"
        };
        self.error(error.span(), message, Some(advice))
    }

    fn check_requires(&self, requires: &Spanned<String>) -> Result<(), PackError> {
        let range: semver::VersionReq = requires.get_ref().parse().map_err(|error| {
            let advice = "`requires` is a semver range on fa-doctor itself, such as \">=0.1.0\"";
            self.error(
                Some(requires.span()),
                format!("`{}` is not a semver range: {error}", requires.get_ref()),
                Some(advice),
            )
        })?;
        let running = env!("CARGO_PKG_VERSION");
        if running.parse().is_ok_and(|version| range.matches(&version)) {
            return Ok(());
        }
        let message = format!("needs fa-doctor {range}, this is {running}");
        Err(self.error(Some(requires.span()), message, Some("update fa-doctor, or use an older version of the pack")))
    }

    fn version(&self, version: &Spanned<String>) -> Result<Version, PackError> {
        version.get_ref().parse().map_err(|_| {
            let message = format!("`{}` is not a PEP 440 version", version.get_ref());
            self.error(
                Some(version.span()),
                message,
                Some("write it as the package index does: \"4.0.0b36\", \"2.8.3.post2\""),
            )
        })
    }

    /// A range that some release of `package`, known or to come, can meet.
    fn range(&self, packs: &Packs, package: &str, range: &Spanned<String>) -> Result<Versions, PackError> {
        let text = range.get_ref();
        let specifiers: VersionSpecifiers = text.parse().map_err(|_| {
            let advice = "write it as pip does: \">=0.24.0,<0.29.0\"";
            self.error(Some(range.span()), format!("`{text}` is not a PEP 440 range"), Some(advice))
        })?;
        if is_empty(&specifiers, packs.releases.get(package).into_iter().flatten()) {
            let message = format!("no release of {package} can match `{text}`");
            return Err(self.error(Some(range.span()), message, Some("widen the range, or remove the entry")));
        }
        Ok(Versions(Some(specifiers)))
    }

    fn optional_range(
        &self,
        packs: &Packs,
        package: &str,
        range: Option<&Spanned<String>>,
    ) -> Result<Versions, PackError> {
        range.map_or_else(|| Ok(Versions::default()), |range| self.range(packs, package, range))
    }

    /// Every span of a function must hold a release that was read.
    fn check_function(&self, packs: &Packs, function: &Spanned<Function>) -> Result<(), PackError> {
        let Function { distribution, examined, versions, keywords, returns, .. } = function.get_ref();
        let Some(releases) = packs.releases.get(distribution) else {
            let message = format!("the releases of {distribution} are not listed");
            return Err(self.error(Some(function.span()), message, Some("list them under [releases]")));
        };
        let spans = keywords.iter().map(|(name, span)| (format!("parameter `{name}`"), span));
        let spans = spans.chain(returns.iter().map(|entry| ("return".to_owned(), &entry.versions)));
        for (what, span) in spans.chain([("function".to_owned(), versions)]) {
            let all = [examined, versions, span];
            if !releases.iter().any(|release| all.iter().all(|span| Span::contains(span, release))) {
                let message = format!("{what}: no release of {distribution} matches `{span}`");
                return Err(self.error(Some(function.span()), message, Some("correct the range, or remove the entry")));
            }
        }
        Ok(())
    }

    fn defect(&self, packs: &Packs, entry: DefectEntry) -> Result<Defect, PackError> {
        let package = normalize_name(&entry.package);
        let versions = self.range(packs, &package, &entry.versions)?;
        for commit in &entry.commits {
            if commit.get_ref().len() != 40 || !commit.get_ref().bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            {
                let message = format!("`{}` is not a full commit hash", commit.get_ref());
                return Err(self.error(Some(commit.span()), message, Some("write all 40 digits, in lower case")));
            }
        }
        if let Some(source) = &entry.source
            && !packs.sources.iter().any(|known| known.id == *source.get_ref())
        {
            let message = format!("there is no [[source]] with id `{}`", source.get_ref());
            return Err(self.error(Some(source.span()), message, Some("add it, or correct the name")));
        }
        let defect = Defect {
            id: entry.id.into_inner(),
            package,
            versions,
            title: entry.title,
            raises: entry.raises,
            arch: entry.arch,
            path: entry.path,
            shown_by: entry.shown_by,
            advice: entry.advice,
            references: entry.references,
            source: entry.source.map(Spanned::into_inner),
            commits: entry.commits.into_iter().map(Spanned::into_inner).collect(),
            fixed_commit: entry.fixed_commit,
            valid: entry.valid.get_ref().clone(),
            invalid: entry.invalid.get_ref().clone(),
        };
        for (cases, expected) in [(&entry.valid, false), (&entry.invalid, true)] {
            if cases.get_ref().is_empty() {
                let message = format!("defect `{}` has no case on this side", defect.id);
                return Err(self.error(
                    Some(cases.span()),
                    message,
                    Some("give a release or commit with the defect, and one without"),
                ));
            }
            if let Some(case) = cases.get_ref().iter().find(|case| defect.matches_case(case) != expected) {
                let verb = if expected { "does not match" } else { "matches" };
                let message = format!("defect `{}` {verb} `{case}`", defect.id);
                return Err(self.error(
                    Some(cases.span()),
                    message,
                    Some("`invalid` lists what must match, `valid` what must not"),
                ));
            }
        }
        Ok(defect)
    }

    fn needs(&self, packs: &Packs, entry: NeedsEntry) -> Result<Needs, PackError> {
        let package = normalize_name(&entry.package);
        let versions = self.optional_range(packs, &package, entry.versions.as_ref())?;
        let mut requires = Vec::new();
        for text in &entry.requires {
            let need = Need(text.get_ref().clone());
            // Any version will do: only the grammar is looked at.
            let parsed = "1".parse().ok().and_then(|version| need.of(&version));
            let Some(requirement) = parsed else {
                let message = format!("`{}` is not a requirement", text.get_ref());
                return Err(self.error(
                    Some(text.span()),
                    message,
                    Some("write it as METADATA does: \"quack-kernels>=0.4.0\""),
                ));
            };
            if let Some(pep508_rs::VersionOrUrl::VersionSpecifier(range)) = &requirement.version_or_url
                && !need.0.contains("{version}")
            {
                let range = Spanned::new(text.span(), range.to_string());
                self.range(packs, requirement.name.as_ref(), &range)?;
            }
            requires.push(need);
        }
        let NeedsEntry { because, modules, references, .. } = entry;
        Ok(Needs { package, versions, requires, because, modules, references })
    }

    fn overlap(&self, packs: &Packs, entry: OverlapEntry) -> Result<Overlap, PackError> {
        let packages: Vec<String> = entry.packages.get_ref().iter().map(|name| normalize_name(name)).collect();
        if packages.len() != 2 {
            let advice = "one entry is about two distributions; write one for each pair";
            return Err(self.error(Some(entry.packages.span()), "an overlap has two packages", Some(advice)));
        }
        let versions = self.optional_range(packs, &packages[0], entry.versions.as_ref())?;
        let last = entry.last.map(|last| (last.span(), normalize_name(last.get_ref())));
        if let Some((span, last)) = &last
            && !packages.contains(last)
        {
            let message = format!("`{last}` is none of the two packages");
            return Err(self.error(Some(span.clone()), message, Some("name the one to install last")));
        }
        Ok(Overlap { packages, versions, last: last.map(|(_, last)| last), because: entry.because })
    }
}
