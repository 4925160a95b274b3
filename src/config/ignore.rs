//! Findings that are known and accepted: each with its reason, and if wanted an end.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use pep440_rs::VersionSpecifiers;
use serde::Deserialize;

use super::{check_selector, glob, selected};
use crate::finding::Finding;

/// `[[ignore]]` as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    code: Option<String>,
    package: Option<String>,
    path: Option<String>,
    symbol: Option<String>,
    version: Option<String>,
    until: Option<toml::value::Datetime>,
    reason: String,
}

/// Findings that are not reported: those that match everything given here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignore {
    /// Code, its beginning, or the name of the rule.
    pub code: Option<String>,
    /// Distribution, normalised.
    pub package: Option<String>,
    /// A pattern for the path.
    pub path: Option<String>,
    /// The symbol, exactly.
    pub symbol: Option<String>,
    /// Versions of the distribution.
    pub version: Option<VersionSpecifiers>,
    /// The last day it holds.
    pub until: Option<Date>,
    /// Why.
    pub reason: String,
    /// `file:line`, for messages.
    pub place: String,
}

/// A day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// Year.
    pub year: u16,
    /// Month, from 1.
    pub month: u8,
    /// Day, from 1.
    pub day: u8,
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl Date {
    /// Today, in UTC.
    pub fn today() -> Date {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        Date::of_day(seconds / 86_400)
    }

    /// The date of a day counted from 1970-01-01.
    fn of_day(day: u64) -> Date {
        // Years start in March, so that the leap day is the last: 400 years are always 146,097 days.
        let shifted = day + 719_468;
        let (era, day) = (shifted / 146_097, shifted % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
        let number = |n: u64| u8::try_from(n).unwrap_or(u8::MAX);
        Date { year: u16::try_from(era * 400 + year).unwrap_or(u16::MAX), month: number(month), day: number(day) }
    }
}

impl Ignore {
    /// Checks an entry; the error is the message and its hint.
    pub(crate) fn new(entry: Entry, place: String) -> Result<Ignore, (String, &'static str)> {
        let Entry { code, package, path, symbol, version, until, reason } = entry;
        if let Some(code) = &code {
            check_selector(code).map_err(|message| (message, "`fa-doctor rules` lists all of them"))?;
        }
        if reason.trim().is_empty() {
            return Err(("an ignore needs a reason".into(), "say in `reason` why this finding is acceptable"));
        }
        if code.is_none() && package.is_none() && path.is_none() && symbol.is_none() {
            let hint = "narrow it down with code, package, path or symbol";
            return Err(("this would ignore every finding".into(), hint));
        }
        let version = version.map(|text| text.parse::<VersionSpecifiers>()).transpose();
        let version =
            version.map_err(|error| (format!("not a version range: {error}"), "for example `version = \"<0.29\"`"))?;
        let date = |until: toml::value::Datetime| match until.date {
            Some(date) => Ok(Date { year: date.year, month: date.month, day: date.day }),
            None => Err(("`until` needs a date".to_owned(), "for example `until = 2030-01-31`")),
        };
        let package = package.map(|name| normalized(&name));
        Ok(Ignore { code, package, path, symbol, version, until: until.map(date).transpose()?, reason, place })
    }

    /// Whether it is over.
    pub fn expired(&self, today: Date) -> bool {
        self.until.is_some_and(|until| until < today)
    }

    /// Whether it could match a finding of this rule.
    pub fn concerns(&self, code: &str, name: &str) -> bool {
        self.code.as_ref().is_none_or(|selector| selected(selector, code, name))
    }

    /// Whether it matches a finding, expired or not.
    pub fn matches(&self, finding: &Finding) -> bool {
        let version = || finding.version.as_deref().and_then(|version| version.parse::<pep440_rs::Version>().ok());
        self.concerns(&finding.code, &finding.name)
            && self
                .package
                .as_ref()
                .is_none_or(|name| finding.package.as_deref().map(normalized).as_ref() == Some(name))
            && self.path.as_ref().is_none_or(|pattern| glob::matches(pattern, &finding.path))
            && self.symbol.as_ref().is_none_or(|symbol| *symbol == finding.symbol)
            && self.version.as_ref().is_none_or(|range| version().is_some_and(|version| range.contains(&version)))
    }
}

/// A distribution's name as PEP 503 normalises it.
fn normalized(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn entry(text: &str) -> Result<Ignore, String> {
        let entry: Entry = toml::from_str(text).map_err(|error| error.to_string())?;
        Ignore::new(entry, "x:1".into()).map_err(|(message, _)| message)
    }

    #[test]
    fn everything_given_must_match() {
        let findings = sample::report().findings;
        let count = |text: &str| {
            let ignore = entry(text).expect(text);
            findings.iter().filter(|finding| ignore.matches(finding)).count()
        };
        assert_eq!(count("package = 'VLLM'\nreason = 'r'"), 2);
        assert_eq!(count("package = 'flash_attn.4'\nreason = 'r'"), 3);
        assert_eq!(count("package = 'vllm'\nversion = '<0.99'\nreason = 'r'"), 0);
        assert_eq!(count("package = 'vllm'\nversion = '>=0.99,<1'\nreason = 'r'"), 2);
        assert_eq!(count("path = 'flash_attn/**'\nreason = 'r'"), 2);
        assert_eq!(count("path = 'flash_attn/**'\nsymbol = 'ForwardAmpere.is_split'\nreason = 'r'"), 1);
    }

    #[test]
    fn careless_entries_are_refused() {
        assert_eq!(entry("reason = 'r'"), Err("this would ignore every finding".into()));
        assert_eq!(entry("path = 'x'\nreason = ' '"), Err("an ignore needs a reason".into()));
        assert!(entry("path = 'x'").expect_err("no reason").contains("missing field `reason`"));
        assert!(entry("path = 'x'\nversion = 'soon'\nreason = 'r'").expect_err("a range").contains("version range"));
        assert_eq!(entry("path = 'x'\nuntil = 07:32:00\nreason = 'r'"), Err("`until` needs a date".into()));
    }

    #[test]
    fn dates() {
        let shown = |day| Date::of_day(day).to_string();
        assert_eq!(shown(0), "1970-01-01");
        assert_eq!(shown(11_016), "2000-02-29");
        assert_eq!(shown(19_723), "2024-01-01");
        assert_eq!(shown(20_513), "2026-03-01");
        let ignore = entry("path = 'x'\nuntil = 2026-03-01\nreason = 'r'").expect("an ignore");
        assert!(!ignore.expired(Date::of_day(20_513)));
        assert!(ignore.expired(Date::of_day(20_514)));
    }
}
