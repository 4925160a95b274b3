//! Reads packs: embedded ones and those of `--rules`, with errors that point at the line.

use std::fmt;
use std::path::Path;

use super::Packs;
use super::schema::File;

/// The packs in the binary.
const EMBEDDED: &[(&str, &str)] = &[
    ("rules/arguments.toml", include_str!("../../rules/arguments.toml")),
    ("rules/stack.toml", include_str!("../../rules/stack.toml")),
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
            let folder = folder.as_ref();
            let failed = |error: std::io::Error| PackError {
                file: folder.display().to_string(),
                line: None,
                excerpt: None,
                message: format!("cannot be read: {error}"),
                advice: Some("--rules takes a folder that holds pack files (*.toml)".to_owned()),
            };
            let mut files = Vec::new();
            for entry in std::fs::read_dir(folder).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if path.extension().is_some_and(|extension| extension == "toml") {
                    files.push(path);
                }
            }
            files.sort();
            for path in files {
                let text = std::fs::read_to_string(&path).map_err(failed)?;
                packs.add(&path.display().to_string(), &text)?;
            }
        }
        Ok(packs)
    }

    /// Adds one pack file: lists grow, entries of the same name are replaced.
    fn add(&mut self, name: &str, text: &str) -> Result<(), PackError> {
        let source = Source { name, text };
        let file: File = toml::from_str(text).map_err(|error| source.error(error.span(), error.message()))?;
        self.distributions.extend(file.stack.distributions);
        self.audited.extend(file.stack.audited);
        self.attention_modules.extend(file.stack.attention_modules);
        self.decorators.extend(file.decorators);
        self.platform_objects.extend(file.platforms.objects);
        for (predicate, platforms) in file.platforms.predicates {
            self.predicates.insert(predicate, platforms.into_iter().map(Into::into).collect());
        }
        self.consumed_keywords.extend(file.consumed_keywords);
        self.arguments.extend(file.arguments);
        Ok(())
    }
}

/// A pack file while it is read.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    /// An error at a span of the text.
    fn error(&self, span: Option<std::ops::Range<usize>>, message: &str) -> PackError {
        let line = span.map(|span| self.text[..span.start.min(self.text.len())].matches('\n').count() + 1);
        let excerpt = line.and_then(|line| self.text.lines().nth(line - 1)).map(|line| line.trim().to_owned());
        PackError { file: self.name.to_owned(), line, excerpt, message: message.trim().to_owned(), advice: None }
    }
}
