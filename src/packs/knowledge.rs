//! What is known about releases: defects, what they need of each other, files they fight over, gates.

use pep440_rs::{Version, VersionSpecifiers};
use pep508_rs::Requirement;

use super::Packs;
use super::requirement::parse_requirement;
use super::version::satisfies;

/// Versions that an entry is about; without a range it is about all of them.
#[derive(Debug, Clone, Default)]
pub struct Versions(pub Option<VersionSpecifiers>);

impl Versions {
    /// Whether `version`, as installed, is among them.
    pub fn contain(&self, version: &Version) -> bool {
        self.0.as_ref().is_none_or(|range| satisfies(version, range))
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(range) => range.fmt(f),
            None => f.write_str("every version"),
        }
    }
}

/// A defect of released versions.
#[derive(Debug, Clone)]
pub struct Defect {
    /// Its name: `vllm-fa4-sm80-dynamic-causal`.
    pub id: String,
    /// The distribution that has it, normalised.
    pub package: String,
    /// The versions that have it.
    pub versions: Versions,
    /// What is wrong, as a clause.
    pub title: String,
    /// What Python raises.
    pub raises: Option<String>,
    /// Architectures that it is limited to; empty for all.
    pub arch: Vec<String>,
    /// The file that holds it, relative to the distribution's folder.
    pub path: String,
    /// The finding that shows it, where a rule can see it in the source.
    pub shown_by: Option<ShownBy>,
    /// What to do about it, as a clause.
    pub advice: String,
    /// Where to read on.
    pub references: Vec<String>,
    /// The source repository whose commits are listed.
    pub source: Option<String>,
    /// Commits of that repository that have it, in full.
    pub commits: Vec<String>,
    /// The first commit without it.
    pub fixed_commit: Option<String>,
    /// Versions and commits that must not match.
    pub valid: Vec<String>,
    /// Versions and commits that must match.
    pub invalid: Vec<String>,
}

/// The finding that shows a defect.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ShownBy {
    /// `FA001`.
    pub code: String,
    /// In the notation of that rule.
    pub symbol: String,
}

impl Defect {
    /// Whether this version, as installed, has it.
    pub fn affects(&self, package: &str, version: &Version) -> bool {
        self.package == package && self.versions.contain(version)
    }

    /// Whether this commit has it: a full hash, or at least seven digits of one.
    pub fn has_commit(&self, commit: &str) -> bool {
        let commit = commit.to_ascii_lowercase();
        commit.len() >= 7 && self.commits.iter().any(|known| known.starts_with(&commit))
    }

    /// What is known of it, in Markdown, in the sections of a rule's documentation.
    pub fn docs(&self) -> String {
        let raises = self.raises.as_ref().map(|raises| format!("\n\n```text\n{raises}\n```")).unwrap_or_default();
        let arch = if self.arch.is_empty() { String::new() } else { format!(" On {}.", self.arch.join(", ")) };
        let commits = match (&self.source, self.commits.len()) {
            (Some(source), count @ 1..) => format!(", and {count} commits of {source}"),
            _ => String::new(),
        };
        let mut docs = format!(
            "# What it is\n\n{} {}{commits}: {}.{arch} It is in `{}`.{raises}\n",
            self.package, self.versions, self.title, self.path
        );
        if let Some(ShownBy { code, symbol }) = &self.shown_by {
            docs += &format!("\nA scan shows it as {code}, `{symbol}`.\n");
        }
        docs += &format!("\n# Fix\n\n{}.\n", self.advice);
        if !self.references.is_empty() {
            docs += "\n# References\n\n";
        }
        for reference in &self.references {
            docs += &format!("- <{reference}>\n");
        }
        docs
    }

    /// Whether a case of `valid` or `invalid` matches: a commit, or a version.
    pub fn matches_case(&self, case: &str) -> bool {
        match case.parse::<Version>() {
            Ok(version) => self.versions.contain(&version),
            Err(_) => self.has_commit(case),
        }
    }
}

/// A repository that a package is built from, at a commit that a file of the package's sources names.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PinnedSource {
    /// Its name in defects.
    pub id: String,
    /// The distribution that is built from it, normalised.
    pub package: String,
    /// `owner/name`.
    pub repository: String,
    /// The CMake file that names the commit, relative to the checkout.
    pub pinned_in: String,
    /// The environment variable that puts a folder in place of the repository.
    pub overridden_by: String,
}

/// What versions of one distribution need of others.
#[derive(Debug, Clone)]
pub struct Needs {
    /// The distribution that needs it, normalised.
    pub package: String,
    /// The versions that do.
    pub versions: Versions,
    /// What they need.
    pub requires: Vec<Need>,
    /// Why, where METADATA does not say so: then the entry is an observation, and FA101's.
    pub because: Option<String>,
    /// Modules of the needed distribution that a concrete break would name.
    pub modules: Vec<String>,
    /// Where to read on.
    pub references: Vec<String>,
}

/// One requirement; `{version}` in it stands for the version of the distribution that has it.
#[derive(Debug, Clone)]
pub struct Need(pub(super) String);

impl Need {
    /// The requirement of this version.
    pub fn of(&self, version: &Version) -> Option<Requirement> {
        parse_requirement(&self.0.replace("{version}", &version.to_string())).ok()
    }
}

/// Distributions that install the same paths with different contents.
#[derive(Debug, Clone)]
pub struct Overlap {
    /// Their names, normalised.
    pub packages: Vec<String>,
    /// The versions of the first that do.
    pub versions: Versions,
    /// The one to install last, if both are wanted.
    pub last: Option<String>,
    /// Why, as a clause.
    pub because: String,
}

/// A gate that must stay: it guards something unimplemented.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Gate {
    /// A part of the message of the assert or raise.
    pub text: String,
    /// What is behind it, as a clause.
    pub guards: String,
}

impl Packs {
    /// The defects of this version, as installed.
    pub fn defects_of<'p>(&'p self, package: &'p str, version: &'p Version) -> impl Iterator<Item = &'p Defect> {
        self.defects.iter().filter(move |defect| defect.affects(package, version))
    }

    /// The defects of this commit of a pinned source.
    pub fn defects_at(&self, source: &str, commit: &str) -> Vec<&Defect> {
        let of_source = |defect: &&Defect| defect.source.as_deref() == Some(source);
        self.defects.iter().filter(of_source).filter(|defect| defect.has_commit(commit)).collect()
    }

    /// What is known about the needs of this version: what METADATA says is known of listed releases only.
    pub fn needs_of<'p>(&'p self, package: &'p str, version: &'p Version) -> impl Iterator<Item = &'p Needs> {
        let releases = self.releases_of(package);
        let listed = releases.is_empty() || releases.contains(&version.clone().without_local());
        let of_version = move |needs: &&Needs| needs.package == package && needs.versions.contain(version);
        self.needs.iter().filter(of_version).filter(move |needs| listed || needs.because.is_some())
    }

    /// What is known about two distributions that own the same paths; `first` and `second` in any order.
    pub fn overlap(&self, first: (&str, &Version), second: (&str, &Version)) -> Option<&Overlap> {
        let matches = |overlap: &&Overlap| {
            let has = |name: &str| overlap.packages.iter().any(|package| package == name);
            let version_of = |name: &String| [first, second].into_iter().find(|(n, _)| n == name).map(|(_, v)| v);
            has(first.0)
                && has(second.0)
                && overlap
                    .packages
                    .first()
                    .and_then(version_of)
                    .is_some_and(|version| overlap.versions.contain(version))
        };
        self.overlaps.iter().find(matches)
    }

    /// Why a gate with this message must stay, if it is known.
    pub fn gate(&self, message: &str) -> Option<&Gate> {
        self.gates.iter().find(|gate| message.contains(&gate.text))
    }

    /// Whether a distribution (normalised name) belongs to the attention stack.
    pub fn in_stack(&self, distribution: &str) -> bool {
        self.distributions.iter().any(|name| name == distribution)
    }

    /// Whether a distribution (normalised name) is there for attention only, so that an environment with it is one to
    /// check; torch is in the stack too, and is everywhere.
    pub fn is_specific(&self, distribution: &str) -> bool {
        self.in_stack(distribution) && !self.general.iter().any(|name| name == distribution)
    }
}
