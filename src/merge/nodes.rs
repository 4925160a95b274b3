//! Names of nodes: from file names, and many of them in few characters.

use std::collections::BTreeMap;
use std::path::Path;

/// The kinds of results that a file name may end with.
const KINDS: [&str; 3] = ["scan", "probe", "smoke"];

/// The node that a result is of: `node-7.scan.json`, `node-7.json` and `node-7/scan.json` are all of `node-7`.
pub fn name_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
    if KINDS.contains(&&*stem)
        && let Some(folder) = path.parent().and_then(Path::file_name)
    {
        return folder.to_string_lossy().into_owned();
    }
    for kind in KINDS {
        if let Some(name) = stem.strip_suffix(kind).and_then(|rest| rest.strip_suffix(['.', '-', '_'])) {
            return name.to_owned();
        }
    }
    stem.into_owned()
}

/// Names in the notation of Slurm: `gpu-[001-004,009],login`.
pub fn compress<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    // Names that differ in their last number only, by what is around it and how many digits it has.
    let mut groups: BTreeMap<(&str, &str, usize), Vec<u64>> = BTreeMap::new();
    let mut plain: Vec<&str> = Vec::new();
    for name in names {
        match last_number(name) {
            Some((before, digits, after)) => match digits.parse() {
                Ok(number) => groups.entry((before, after, digits.len())).or_default().push(number),
                Err(_) => plain.push(name),
            },
            None => plain.push(name),
        }
    }
    let mut parts = Vec::new();
    for ((before, after, width), mut numbers) in groups {
        numbers.sort_unstable();
        numbers.dedup();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => runs.push((number, number)),
            }
        }
        let run = |(first, last): &(u64, u64)| match first == last {
            true => format!("{first:0width$}"),
            false => format!("{first:0width$}-{last:0width$}"),
        };
        parts.push(match runs.as_slice() {
            [(first, last)] if first == last => format!("{before}{first:0width$}{after}"),
            runs => format!("{before}[{}]{after}", runs.iter().map(run).collect::<Vec<_>>().join(",")),
        });
    }
    parts.extend(plain.into_iter().map(str::to_owned));
    parts.join(",")
}

/// What stands before, in and after the last number of a name.
fn last_number(name: &str) -> Option<(&str, &str, &str)> {
    let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = name[..end]
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    Some((&name[..start], &name[start..end], &name[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_by_their_files() {
        for path in ["x/gpu-7.json", "gpu-7.scan.json", "gpu-7_smoke.json", "out/gpu-7/scan.json"] {
            assert_eq!(name_of(Path::new(path)), "gpu-7", "{path}");
        }
        assert_eq!(name_of(Path::new("scan.json")), "scan");
        assert_eq!(name_of(Path::new("a.example.json")), "a.example");
    }

    #[test]
    fn many_names_become_short() {
        assert_eq!(compress(["gpu-001", "gpu-002", "gpu-003", "gpu-009", "login"]), "gpu-[001-003,009],login");
        assert_eq!(compress(["n9", "n10", "n11"]), "n9,n[10-11]");
        assert_eq!(compress(["a1-rack", "a2-rack"]), "a[1-2]-rack");
        assert_eq!(compress(["größe1ü", "99999999999999999999999"]), "größe1ü,99999999999999999999999");
        assert_eq!(compress([]), "");
    }
}
