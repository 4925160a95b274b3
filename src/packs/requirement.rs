//! Requirement lines: what they are about, and whether they apply to an environment.

use pep440_rs::VersionSpecifiers;
use pep508_rs::{
    ExtraName, MarkerEnvironment, MarkerEnvironmentBuilder, MarkerTree, Pep508Error, Requirement, VersionOrUrl,
};

use crate::environment::{Environment, normalize_name};

/// Pythons that are in use where the version is not known, as attention packages support them.
const PYTHONS: std::ops::RangeInclusive<u32> = 10..=15;

/// The distribution that a requirement line is about, normalised, without parsing the rest of the line.
pub fn required_name(line: &str) -> String {
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let line = line.trim_start();
    normalize_name(&line[..line.find(|c| !name(c)).unwrap_or(line.len())])
}

/// A requirement line, or why it is none. The parser panics on names and extras that end in punctuation, which any
/// METADATA may hold.
pub fn parse_requirement(line: &str) -> Result<Requirement, String> {
    let line = line.trim_start();
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let (name, rest) = line.split_at(line.find(|c| !in_name(c)).unwrap_or(line.len()));
    let extras = rest.trim_start().strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or_default();
    let mut names = std::iter::once(name).chain(extras.split(|c: char| c == ',' || c.is_whitespace()));
    if let Some(wrong) = names.find(|name| name.ends_with(['.', '-', '_'])) {
        return Err(format!("a name ends in a letter or digit, and `{wrong}` does not"));
    }
    line.parse().map_err(|error: Pep508Error| error.message.to_string())
}

/// The versions that a requirement asks for; `None` for one by URL, and for one that takes any version.
pub fn required_range(requirement: &Requirement) -> Option<&VersionSpecifiers> {
    match requirement.version_or_url.as_ref()? {
        VersionOrUrl::VersionSpecifier(range) => Some(range),
        VersionOrUrl::Url(_) => None,
    }
}

/// Everything that an environment may turn out to be, as far as markers can tell.
#[derive(Debug, Clone)]
pub struct Machines(Vec<MarkerEnvironment>);

impl Machines {
    /// The interpreters and machines that fit what is known of the environment.
    pub fn of(environment: &Environment) -> Machines {
        let pythons: Vec<(u32, u32)> = match environment.python {
            Some(version) => vec![version],
            None => PYTHONS.map(|minor| (3, minor)).collect(),
        };
        let tags = || environment.distributions.iter().flat_map(|distribution| &distribution.tags);
        let known = ["x86_64", "aarch64"].into_iter().filter(|machine| tags().any(|tag| tag.ends_with(machine)));
        let mut machines: Vec<&str> = known.collect();
        if machines.is_empty() {
            machines = vec!["x86_64", "aarch64"];
        }
        let (os_name, platform_system) = match environment.sys_platform.as_str() {
            "win32" => ("nt", "Windows"),
            "darwin" => ("posix", "Darwin"),
            _ => ("posix", "Linux"),
        };
        let mut all = Vec::new();
        for (major, minor) in pythons {
            // The patch level is never known: the first and the last one stand for all.
            for patch in [0, 99] {
                let (short, full) = (format!("{major}.{minor}"), format!("{major}.{minor}.{patch}"));
                for machine in &machines {
                    let builder = MarkerEnvironmentBuilder {
                        implementation_name: "cpython",
                        implementation_version: &full,
                        os_name,
                        platform_machine: machine,
                        platform_python_implementation: "CPython",
                        platform_release: "",
                        platform_system,
                        platform_version: "",
                        python_full_version: &full,
                        python_version: &short,
                        sys_platform: &environment.sys_platform,
                    };
                    all.extend(MarkerEnvironment::try_from(builder).ok());
                }
            }
        }
        Machines(all)
    }

    /// Whether a requirement applies when these extras are asked for: on every machine that this may be.
    pub fn apply(&self, requirement: &Requirement, extras: &[ExtraName]) -> bool {
        self.0.iter().all(|machine| requirement.evaluate_markers(machine, extras))
    }

    /// Whether a marker holds on every machine that this may be.
    pub fn include(&self, marker: &MarkerTree) -> bool {
        self.0.iter().all(|machine| marker.evaluate(machine, &[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_the_rest() {
        for (line, name) in [
            ("Flash-Attn-4 (>=4.99.0b2,<5)", "flash-attn-4"),
            (" nvidia_cutlass.dsl[cu13]==4.6.0", "nvidia-cutlass-dsl"),
            ("torch", "torch"),
            ("", ""),
            ("\u{e9}t\u{e9}>=1", ""),
        ] {
            assert_eq!(required_name(line), name);
        }
    }

    #[test]
    fn no_line_is_too_broken_to_be_refused() {
        for line in
            ["x- >=1", "x.[y]", "x_ ; a", "x[y-]", "x[a, b.]", "x[a- b]", " x [y_]>=1", "x-", "", "[", "x[", "-"]
        {
            assert!(parse_requirement(line).is_err(), "{line}");
        }
        for line in ["x", " nvidia_cutlass.dsl[cu13, a-b]==4.6.0", "Flash-Attn-4 (>=4.99.0b2,<5)", "x @ file:///a-"] {
            assert!(parse_requirement(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn markers_hold_only_where_every_possible_machine_meets_them() {
        let unknown = Environment { sys_platform: "linux".to_owned(), ..Environment::default() };
        let known = Environment { python: Some((3, 11)), ..unknown };
        let unknown = Environment { sys_platform: "linux".to_owned(), ..Environment::default() };
        for (marker, without_python, with_python) in [
            ("python_version >= '3.8'", true, true),
            ("python_version >= '3.12'", false, false),
            ("python_version < '3.12'", false, true),
            ("python_full_version >= '3.11.4'", false, false),
            ("sys_platform == 'win32'", false, false),
            ("platform_system == 'Linux' and os_name == 'posix'", true, true),
            ("platform_machine == 'x86_64'", false, false),
            ("platform_machine == 'x86_64' or platform_machine == 'aarch64'", true, true),
            ("extra == 'cu13'", false, false),
        ] {
            let requirement: Requirement = format!("torch>=2 ; {marker}").parse().unwrap();
            assert_eq!(Machines::of(&unknown).apply(&requirement, &[]), without_python, "{marker}");
            assert_eq!(Machines::of(&known).apply(&requirement, &[]), with_python, "{marker}");
        }
    }
}
