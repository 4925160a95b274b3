//! GPU architectures as people write them.

use super::LoadError;

/// The compute capabilities that CUDA has toolchains for, as in `sm_120`.
pub const KNOWN: [u32; 15] = [70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121];

/// `120`, `12.0`, `sm120`, `SM_120a` and `compute_120` as `sm_120`.
pub fn normalize(text: &str) -> Result<String, LoadError> {
    let lower = text.trim().to_ascii_lowercase();
    let rest = ["sm", "compute"].iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower);
    let rest = rest.strip_prefix(['_', '-']).unwrap_or(rest);
    // `a` and `f` name feature sets of an architecture, not another one.
    let digits = rest.strip_suffix(['a', 'f']).unwrap_or(rest);
    let number = match digits.split_once('.') {
        Some((major, minor)) if minor.len() == 1 => parse(major).zip(parse(minor)).map(|(a, b)| a * 10 + b),
        Some(_) => None,
        None => parse(digits),
    };
    let number = number.filter(|number| KNOWN.contains(number));
    number.map(|number| format!("sm_{number}")).ok_or_else(|| LoadError::UnknownArch(text.to_owned()))
}

/// `sm_120` as (12, 0).
pub fn capability(arch: &str) -> Option<(i64, i64)> {
    let number: i64 = arch.strip_prefix("sm_")?.trim_end_matches(['a', 'f']).parse().ok()?;
    Some((number / 10, number % 10))
}

fn parse(digits: &str) -> Option<u32> {
    let plain = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_spelling_is_understood() {
        for text in ["120", "12.0", "sm_120", "sm120", "sm_120a", "SM_120F", "compute_120", " sm-120 ", "12.0a"] {
            assert_eq!(normalize(text).ok().as_deref(), Some("sm_120"), "{text}");
        }
        assert_eq!(normalize("9.0a").ok().as_deref(), Some("sm_90"));
    }

    #[test]
    fn nonsense_is_refused_with_the_known_ones() {
        for text in ["", "sm_", "12", "12.00", "blackwell", "sm_120ab", "+120", "-1", "1e2", "999999999999999999999"] {
            let error = normalize(text).expect_err(text);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("sm_121"), "{error}");
        }
    }
}
