//! Files that pin versions: requirements and constraints, pyproject.toml, uv.lock, pylock.toml.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use pep440_rs::{Operator, Version, VersionSpecifiers};
use pep508_rs::MarkerTree;
use serde::Deserialize;
use toml::{Spanned, Value};

use crate::environment::normalize_name;
use crate::packs::{parse_requirement, required_range};

/// A line that limits the version of a package.
#[derive(Debug, Clone)]
pub struct Pinned {
    /// The package, normalised.
    pub name: String,
    /// The versions it allows.
    pub range: VersionSpecifiers,
    /// When it applies.
    pub marker: MarkerTree,
    /// Extras asked for.
    pub extras: Vec<pep508_rs::ExtraName>,
    /// As written.
    pub text: String,
    /// From 1.
    pub line: u32,
}

impl Pinned {
    /// The version, where only one is allowed.
    pub fn exact(&self) -> Option<&Version> {
        match &*self.range {
            [only] if *only.operator() == Operator::Equal => Some(only.version()),
            _ => None,
        }
    }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be opened, or is no text.
    #[error("cannot read it: {0}")]
    Io(#[from] std::io::Error),
    /// It is no TOML, or not of the form that its name promises.
    #[error("line {line}: {message}")]
    Toml {
        /// From 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

/// What a file pins.
#[derive(Debug, Default)]
pub struct Pins {
    /// Its lines about versions.
    pub pins: Vec<Pinned>,
    /// Lines that were not followed or understood: their numbers, and why.
    pub notes: Vec<(u32, String)>,
}

/// The pins of a file.
pub fn read(path: &Path) -> Result<Pins, FileError> {
    let text = std::fs::read_to_string(path)?;
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let is_toml = name.ends_with(".toml") || name == "uv.lock";
    if !is_toml {
        return Ok(requirements(&text));
    }
    let file: TomlFile = toml::from_str(&text).map_err(|error| FileError::Toml {
        line: line_at(&text, error.span().unwrap_or_default()) as usize,
        message: error.message().to_owned(),
    })?;
    Ok(file.pins(&text))
}

/// A requirements or constraints file.
fn requirements(text: &str) -> Pins {
    let mut found = Pins::default();
    for (line, text) in logical_lines(text) {
        let text = uncommented(&text);
        if let Some(option) = text.strip_prefix('-') {
            let includes = ["r", "c", "-requirement", "-constraint"];
            if includes.iter().any(|name| option.split([' ', '=']).next() == Some(name)) {
                found.notes.push((line, format!("`{text}` is not followed: check that file too")));
            }
            continue;
        }
        // `--hash=..` and other options of the line.
        let requirement = text.split(" --").next().unwrap_or(text).trim();
        if !requirement.is_empty() {
            found.add(requirement, line);
        }
    }
    found
}

/// Lines, where a backslash at the end continues one, with the number of the first.
fn logical_lines(text: &str) -> impl Iterator<Item = (u32, String)> {
    let mut lines = (1..).zip(text.lines());
    std::iter::from_fn(move || {
        let (number, first) = lines.next()?;
        let mut whole = first.to_owned();
        while let Some(open) = whole.strip_suffix('\\') {
            whole = open.to_owned();
            match lines.next() {
                Some((_, next)) => whole.push_str(next),
                None => break,
            }
        }
        Some((number, whole))
    })
}

fn uncommented(line: &str) -> &str {
    let line = line.trim();
    if line.starts_with('#') {
        return "";
    }
    line.split(" #").next().unwrap_or(line).trim_end()
}

impl Pins {
    /// Adds a line of the requirement grammar.
    fn add(&mut self, text: &str, line: u32) {
        // Folders, archives and addresses say nothing that could be checked before they are fetched.
        let is_place = text.starts_with(['.', '/']) || text.contains("://") && !text.contains('@');
        match parse_requirement(text) {
            Ok(requirement) => self.pins.push(Pinned {
                name: requirement.name.to_string(),
                range: required_range(&requirement).cloned().unwrap_or_default(),
                marker: requirement.marker,
                extras: requirement.extras.to_vec(),
                text: text.to_owned(),
                line,
            }),
            Err(_) if is_place => {}
            Err(error) => self.notes.push((line, format!("`{text}` is not a requirement: {error}"))),
        }
    }
}

/// The parts of TOML files that name versions; a file has some of them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct TomlFile {
    project: Option<Project>,
    #[serde(default)]
    dependency_groups: BTreeMap<String, Vec<Spanned<Value>>>,
    tool: Option<Tool>,
    /// uv.lock.
    #[serde(default)]
    package: Vec<Locked>,
    /// pylock.toml.
    #[serde(default)]
    packages: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Project {
    #[serde(default)]
    dependencies: Vec<Spanned<Value>>,
    #[serde(default)]
    optional_dependencies: BTreeMap<String, Vec<Spanned<Value>>>,
}

#[derive(Debug, Deserialize)]
struct Tool {
    uv: Option<Uv>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Uv {
    #[serde(default)]
    constraint_dependencies: Vec<Spanned<Value>>,
    #[serde(default)]
    override_dependencies: Vec<Spanned<Value>>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: Spanned<String>,
    version: Option<Spanned<String>>,
}

impl TomlFile {
    fn pins(self, text: &str) -> Pins {
        let mut found = Pins::default();
        let project = self.project.into_iter();
        let project =
            project.flat_map(|p| p.dependencies.into_iter().chain(p.optional_dependencies.into_values().flatten()));
        let uv = self.tool.and_then(|tool| tool.uv).into_iter();
        let uv = uv.flat_map(|uv| uv.constraint_dependencies.into_iter().chain(uv.override_dependencies));
        for item in project.chain(self.dependency_groups.into_values().flatten()).chain(uv) {
            // An entry of a dependency group may be a table that includes another group.
            if let Some(requirement) = item.get_ref().as_str() {
                found.add(requirement, line_at(text, item.span()));
            }
        }
        for Locked { name, version } in self.package.into_iter().chain(self.packages) {
            let Some(version) = version else { continue };
            let line = line_at(text, version.span());
            match format!("=={}", version.get_ref()).parse::<VersionSpecifiers>() {
                Ok(range) => found.pins.push(Pinned {
                    name: normalize_name(name.get_ref()),
                    range,
                    marker: MarkerTree::TRUE,
                    extras: Vec::new(),
                    text: format!("{}=={}", name.get_ref(), version.get_ref()),
                    line,
                }),
                Err(_) => found.notes.push((line, format!("`{}` is not a PEP 440 version", version.get_ref()))),
            }
        }
        found
    }
}

fn line_at(text: &str, span: Range<usize>) -> u32 {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pins: &[Pinned]) -> Vec<(&str, Option<String>, u32)> {
        pins.iter().map(|pin| (pin.name.as_str(), pin.exact().map(ToString::to_string), pin.line)).collect()
    }

    #[test]
    fn requirements_files_are_read_as_pip_reads_them() {
        let text = "# comment\n--index-url https://example.invalid\n-r other.txt\n\
                    vLLM == 0.26.0 \\\n  --hash=sha256:00 # why\nnvidia_cutlass.dsl[cu13]>=4.5 ; python_version > '3.8'\n\
                    ./local\nhttps://example.invalid/x.whl\nflash-attn @ https://example.invalid/y.whl\n1nonsense!\n";
        let Pins { pins, notes } = requirements(text);
        let expected =
            [("vllm", Some("0.26.0".to_owned()), 4), ("nvidia-cutlass-dsl", None, 6), ("flash-attn", None, 9)];
        assert_eq!(names(&pins), expected);
        assert_eq!(notes.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 10]);
    }

    #[test]
    fn toml_files_are_read_with_their_lines() {
        let text = "[project]\ndependencies = [\n  \"vllm==0.26.0\",\n]\n[dependency-groups]\ndev = [\"torch>=2\", { include-group = \"x\" }]\n\
                    [[package]]\nname = \"Flash_Attn\"\nversion = \"2.8.3\"\n[[packages]]\nname = \"quack-kernels\"\nversion = \"0.6.5\"\n";
        let file: TomlFile = toml::from_str(text).unwrap();
        let Pins { pins, notes } = file.pins(text);
        assert!(notes.is_empty());
        let expected = [
            ("vllm", Some("0.26.0".to_owned()), 3),
            ("torch", None, 6),
            ("flash-attn", Some("2.8.3".to_owned()), 9),
            ("quack-kernels", Some("0.6.5".to_owned()), 12),
        ];
        assert_eq!(names(&pins), expected);
    }
}
