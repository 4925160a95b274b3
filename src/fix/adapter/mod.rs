//! The compatibility adapter: the one module that `fix` adds to a package, `_fa_doctor_compat.py`.
//!
//! Its tables say what the packs know of the keywords that the package passes, and nothing else: it is to be read.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::packs::Packs;

/// The module's name; the file lies beside the caller.
pub const MODULE: &str = "_fa_doctor_compat";
/// The function that calls go through.
pub const CALL: &str = crate::link::ADAPTER_CALL;
/// Columns of the generated text.
const WIDTH: usize = 88;

/// The text of the module for a package that passes these keywords.
pub fn render(packs: &Packs, keywords: &BTreeSet<&str>, degraded: bool) -> String {
    let mut neutral = String::new();
    let mut consequences = String::new();
    for (keyword, argument) in packs.arguments.iter().filter(|(keyword, _)| keywords.contains(keyword.as_str())) {
        let values: Vec<&str> = argument.neutral.iter().map(String::as_str).filter(|value| *value != "None").collect();
        if !values.is_empty() {
            let comma = if values.len() == 1 { "," } else { "" };
            let _ = writeln!(neutral, "    \"{keyword}\": ({}{comma}),", values.join(", "));
        }
        let lines = python_strings(&argument.consequence);
        if let [line] = &lines[..] {
            let _ = writeln!(consequences, "    \"{keyword}\": {line},");
        } else {
            let _ = writeln!(consequences, "    \"{keyword}\": (\n        {}\n    ),", lines.join("\n        "));
        }
    }
    let (policy, lose, imports) = if degraded {
        (
            "Any other value is left out too, with one warning in each process: that is what\n`--allow-degraded` asked for.",
            include_str!("degraded.py"),
            "import warnings\n",
        )
    } else {
        (
            "Any other value raises a TypeError that says what would be lost: a quietly changed\nmask gives wrong numbers.",
            include_str!("strict.py"),
            "",
        )
    };
    let table = |rows: &str| if rows.is_empty() { "{}".to_owned() } else { format!("{{\n{rows}}}") };
    include_str!("compat.py")
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{policy}", policy)
        .replace("{imports}", imports)
        .replace("{neutral}", &table(&neutral))
        .replace("{consequences}", &table(&consequences))
        .replace("{lose}", lose)
}

/// A text as Python string literals that stand below each other and make one string.
fn python_strings(text: &str) -> Vec<String> {
    let width = WIDTH - "        \"\"".len();
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let word: String =
            word.chars().flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c])).collect();
        let index = lines.len() - 1;
        if lines[index].is_empty() {
            lines[index] = word;
        } else if lines[index].chars().count() + 1 + word.chars().count() < width {
            lines[index].push(' ');
            lines[index].push_str(&word);
        } else {
            lines[index].push(' ');
            lines.push(word);
        }
    }
    lines.iter().map(|line| format!("\"{line}\"")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_and_wrapped() {
        assert_eq!(python_strings("say \"no\" \\"), ["\"say \\\"no\\\" \\\\\""]);
        let long = python_strings(&"word ".repeat(40));
        assert!(long.len() > 1 && long.iter().all(|line| line.len() + 8 <= WIDTH));
    }

    #[test]
    fn the_two_variants_differ_in_what_they_do_with_a_loss() {
        let keywords = BTreeSet::from(["window_size", "s_aux", "not_in_any_pack"]);
        let packs = Packs::embedded();
        let (strict, degraded) = (render(&packs, &keywords, false), render(&packs, &keywords, true));
        assert!(strict.contains("raise TypeError(") && !strict.contains("import warnings"));
        assert!(degraded.contains("warnings.warn(") && !degraded.contains("raise TypeError"));
        assert!(strict.contains("\"window_size\": ((-1, -1)") && strict.contains("\"s_aux\": \""));
        assert!(!strict.contains("softcap") && !strict.contains("{lose}") && !strict.contains("{policy}"));
        assert!(render(&packs, &BTreeSet::new(), false).contains("= {}\n"));
    }
}
