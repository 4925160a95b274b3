//! Patterns for paths: `*` and `?` within a folder, `**` across folders.

/// Whether `path` matches `pattern`.
pub fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    parts(&pattern, &path)
}

fn parts(pattern: &[&str], path: &[&str]) -> bool {
    match pattern {
        [] => path.is_empty(),
        ["**", rest @ ..] => (0..=path.len()).any(|skip| parts(rest, &path[skip..])),
        [first, rest @ ..] => path.split_first().is_some_and(|(name, others)| part(first, name) && parts(rest, others)),
    }
}

/// One name against a pattern without `/`. Greedy, going back to the last `*` only: never exponential.
fn part(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((at, from)) => {
                    *from += 1;
                    p = *at + 1;
                    n = *from;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stay_within_a_folder_and_double_stars_do_not() {
        assert!(matches("vllm/*/backends/*.py", "vllm/v1/backends/flash.py"));
        assert!(!matches("vllm/*.py", "vllm/v1/flash.py"));
        assert!(matches("vllm/**", "vllm/v1/flash.py"));
        assert!(matches("**/flash.py", "flash.py"));
        assert!(matches("**/v1/**/f?ash.py", "vllm/v1/a/b/flash.py"));
        assert!(!matches("vllm", "vllm/v1"));
        assert!(matches("*a*b*c", "xxaxxbxxbxxc"));
        assert!(!matches("*a*b*c", "xxaxxbxxbxx"));
        assert!(matches("größe-?.py", "größe-ü.py"));
    }
}
