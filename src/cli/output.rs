//! Where reports go: standard output, and files named with `--output`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::Failure;
use super::args::{ColorChoice, heading};
use crate::report::{Format, Report, Style, View};

/// What is printed where.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// Output format [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = heading::OUTPUT)]
    pub format: Vec<Format>,
    /// Write to FILE, in the format of its extension or of the next --format (repeatable)
    #[arg(long, short, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub output: Vec<PathBuf>,
}

/// Which format goes where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The format on standard output, if any.
    pub stdout: Option<Format>,
    /// The files.
    pub files: Vec<(PathBuf, Format)>,
}

impl OutputArgs {
    /// Pairs files with formats. A file takes the first `--format` that its extension allows, else the format that its
    /// extension names; with an extension that says nothing it takes the next `--format`. A format that is left over
    /// goes to standard output.
    pub fn plan(&self) -> Result<Plan, Failure> {
        let mut formats = self.format.clone();
        let mut files = Vec::new();
        for path in &self.output {
            let allowed = Format::of_extension(path);
            let given = formats.iter().position(|given| allowed.is_empty() || allowed.contains(given));
            let format = match (given, allowed) {
                (Some(index), _) => formats.remove(index),
                (None, [first, ..]) => *first,
                (None, []) => return Err(no_format(path)),
            };
            files.push((path.clone(), format));
        }
        if let [_, second, ..] = formats.as_slice() {
            let message = format!("there are more formats than places to write them: `{}` has none", second.as_str());
            return Err(Failure::new(message, "add an `--output FILE` for each format; one may go to standard output"));
        }
        let stdout = formats.pop().or_else(|| files.is_empty().then_some(Format::Text));
        Ok(Plan { stdout, files })
    }
}

fn no_format(path: &Path) -> Failure {
    Failure::new(
        format!("the format of `{}` is not known", path.display()),
        "add `--format FORMAT`, or use an extension such as .json, .sarif, .md, .xml, .html or .txt",
    )
}

impl Plan {
    /// Whether this format is written anywhere.
    pub fn writes(&self, format: Format) -> bool {
        self.stdout == Some(format) || self.files.iter().any(|(_, written)| *written == format)
    }

    /// The files, for a sentence.
    pub fn names(&self) -> String {
        self.files.iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Writes the report everywhere it goes.
    pub fn write(&self, report: &Report, view: &dyn View, color: ColorChoice) -> anyhow::Result<()> {
        for (path, format) in &self.files {
            let cannot = || format!("cannot write `{}`", path.display());
            let mut file = BufWriter::new(File::create(path).with_context(cannot)?);
            format.write(report, view, Style::PLAIN, &mut file).with_context(cannot)?;
            file.flush().with_context(cannot)?;
        }
        if let Some(format) = self.stdout {
            let mut out = BufWriter::new(std::io::stdout().lock());
            format.write(report, view, Style::stdout(color), &mut out)?;
            out.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(formats: &[Format], files: &[&str]) -> Result<Plan, String> {
        let arguments = OutputArgs { format: formats.to_vec(), output: files.iter().map(PathBuf::from).collect() };
        arguments.plan().map_err(|failure| failure.message)
    }

    fn planned(stdout: Option<Format>, files: &[(&str, Format)]) -> Result<Plan, String> {
        let files = files.iter().map(|(path, format)| (PathBuf::from(path), *format)).collect();
        Ok(Plan { stdout, files })
    }

    #[test]
    fn text_goes_to_standard_output_unless_told_otherwise() {
        assert_eq!(plan(&[], &[]), planned(Some(Format::Text), &[]));
        assert_eq!(plan(&[Format::Json], &[]), planned(Some(Format::Json), &[]));
        assert_eq!(
            plan(&[Format::Json, Format::Text], &[]).map(|_| ()),
            Err("there are more formats than places to write them: `text` has none".into())
        );
    }

    #[test]
    fn extensions_and_order_decide_about_files() {
        assert_eq!(plan(&[], &["a.json"]), planned(None, &[("a.json", Format::Json)]));
        assert_eq!(plan(&[Format::Json], &["a.out"]), planned(None, &[("a.out", Format::Json)]));
        assert_eq!(plan(&[Format::Concise], &["a.txt"]), planned(None, &[("a.txt", Format::Concise)]));
        assert_eq!(plan(&[Format::Sarif], &["a.json"]), planned(None, &[("a.json", Format::Sarif)]));
        let both = [("a.json", Format::Json), ("b.sarif", Format::Sarif)];
        assert_eq!(plan(&[Format::Github], &["a.json", "b.sarif"]), planned(Some(Format::Github), &both));
        assert_eq!(plan(&[], &["a.out"]).map(|_| ()), Err("the format of `a.out` is not known".into()));
    }
}
