//! Which releases gave an attention function which parameters and how many return values, in sentences for help texts.

use std::collections::{BTreeMap, BTreeSet};

use pep440_rs::Version;
use serde::Deserialize;

use super::Packs;
use super::version::Span;

/// One public function of one distribution, over its releases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Function {
    /// Dotted path, as defined.
    pub path: String,
    /// Dotted paths, as exported.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The distribution whose versions count, normalised.
    pub distribution: String,
    /// How sentences call what it belongs to: "vLLM's vendored FA4".
    pub title: String,
    /// Releases that were read.
    pub examined: Span,
    /// Releases among them that have the function.
    #[serde(default)]
    pub versions: Span,
    /// Parameters that all of these have.
    #[serde(default)]
    pub always: Vec<String>,
    /// Parameters that some of these have.
    #[serde(default)]
    pub keywords: BTreeMap<String, Span>,
    /// Whether it takes any keyword (`**kwargs`).
    #[serde(default)]
    pub open: bool,
    /// Whether it is a fork or copy of a function that another distribution installs at the same or a similar path.
    #[serde(default)]
    pub copy: bool,
    /// How many values it returns, where that follows from its source.
    #[serde(default)]
    pub returns: Vec<Returns>,
}

/// How many values a function returns, over a range of releases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Returns {
    /// The counts that occur, on different paths.
    pub values: Vec<u32>,
    /// Releases that return them.
    #[serde(default)]
    pub versions: Span,
}

impl Function {
    /// The name without its module.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// Whether `path` is where it is defined or exported.
    pub fn is_at(&self, path: &str) -> bool {
        self.path == path || self.aliases.iter().any(|alias| alias == path)
    }

    /// The releases that have `keyword`, if any has.
    pub fn keyword(&self, keyword: &str) -> Option<Span> {
        if self.always.iter().any(|always| always == keyword) {
            return Some(self.versions.clone());
        }
        self.keywords.get(keyword).cloned()
    }

    /// Whether the release `version` has `keyword`; `None` if that release was not read or lacks the function.
    pub fn has(&self, keyword: &str, version: &Version) -> Option<bool> {
        (self.examined.contains(version) && self.versions.contains(version))
            .then(|| self.open || self.keyword(keyword).is_some_and(|span| span.contains(version)))
    }

    /// How many values the release `version` returns, if that is known.
    pub fn returns(&self, version: &Version) -> Option<&[u32]> {
        let entry = self.returns.iter().find(|entry| entry.versions.contains(version))?;
        self.examined.contains(version).then_some(&entry.values)
    }

    /// "added to vLLM's vendored `f` in 0.24.0".
    fn keyword_sentence(&self, span: &Span) -> String {
        let of = format!("{} `{}`", possessive(&self.title), self.name());
        match (span.since.as_ref(), span.before.as_ref()) {
            (Some(since), Some(before)) => format!("is in {of} from {since} until it was removed in {before}"),
            (Some(since), None) => format!("was added to {of} in {since}"),
            (None, Some(before)) => format!("was removed from {of} in {before}"),
            (None, None) => match self.versions.since.as_ref().or(self.examined.since.as_ref()) {
                Some(since) => format!("is in {of} of every release since {since}"),
                None => format!("is in {of} of every release"),
            },
        }
    }
}

/// `flash-attn-4's`; a title that holds a possessive already stays as it is.
fn possessive(title: &str) -> String {
    if title.contains('\'') { title.to_owned() } else { format!("{title}'s") }
}

impl Packs {
    /// The histories of the function at this dotted path: several distributions may install it.
    pub fn functions_at<'p>(&'p self, path: &'p str) -> impl Iterator<Item = &'p Function> {
        self.functions.iter().filter(move |function| function.is_at(path))
    }

    /// When `function` (dotted path, as defined or as exported) had the keyword: one sentence for the help of a finding.
    /// If no release ever had it, the sentence says who else has, and which public packages never had. `None` for a
    /// function that the packs do not know.
    pub fn keyword_history(&self, function: &str, keyword: &str) -> Option<String> {
        let (own, others) = self.family(function)?;
        let having = |members: &[&Function]| -> Vec<String> {
            members.iter().filter_map(|m| Some(m.keyword_sentence(&m.keyword(keyword)?))).collect()
        };
        let own_having = having(&own);
        if !own_having.is_empty() {
            return Some(format!("`{keyword}` {}", list(&own_having, "and")));
        }
        if own.iter().any(|member| member.open) {
            return None;
        }
        let others_having = having(&others);
        let lacks = |member: &&&Function| member.keyword(keyword).is_none() && !member.open;
        if others_having.is_empty() {
            return Some(format!("no release of {} has `{keyword}`", self.titles(own.iter().filter(lacks))));
        }
        let public = others.iter().filter(|member| member.title == member.distribution);
        let lacking = self.titles(own.iter().chain(public).filter(lacks));
        Some(format!("`{keyword}` {}; no release of {lacking} has it", list(&others_having, "and")))
    }

    /// How many values `function` (dotted path, as defined or as exported) returned in which releases, for the help of a
    /// finding about one that returns `counts` (on different paths). Where none of its own releases does that, but one
    /// of another package, that is said too: then trees are mixed. `None` for a function that the packs do not know.
    pub fn arity_history(&self, function: &str, counts: &[usize]) -> Option<String> {
        let (own, others) = self.family(function)?;
        let own_sentences = own.iter().filter_map(|member| {
            Some(format!("{} `{}` returns {}", possessive(&member.title), member.name(), self.returns_of(member)?))
        });
        let mut sentences: Vec<String> = own_sentences.collect();
        let same = |entry: &&Returns| entry.values.iter().map(|count| *count as usize).eq(counts.iter().copied());
        if !own.iter().any(|member| member.returns.iter().any(|entry| same(&entry))) {
            sentences.extend(others.iter().find_map(|member| {
                let entry = member.returns.iter().find(same)?;
                let when = entry.versions.during(self.releases_of(&member.distribution));
                Some(format!("this one is like {} `{}` {when}", possessive(&member.title), member.name()))
            }));
        }
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }

    /// `2 values before 0.26.0, 4 since 0.26.0`.
    fn returns_of(&self, function: &Function) -> Option<String> {
        let releases = self.releases_of(&function.distribution);
        let parts = function.returns.iter().enumerate().map(|(index, entry)| {
            let counts: Vec<String> = entry.values.iter().map(u32::to_string).collect();
            let unit = match index {
                0 if entry.values == [1] => " value",
                0 => " values",
                _ => "",
            };
            format!("{}{unit} {}", counts.join(" or "), entry.versions.during(releases))
        });
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// The functions at `path`, and those of the same name elsewhere. Copies count only where nothing else is.
    fn family(&self, path: &str) -> Option<(Vec<&Function>, Vec<&Function>)> {
        let name = self.functions_at(path).next()?.name();
        let same_name = self.functions.iter().filter(|function| function.name() == name);
        let (mut own, mut others): (Vec<_>, Vec<_>) = same_name.partition(|function| function.is_at(path));
        if own.iter().any(|function| !function.copy) {
            own.retain(|function| !function.copy);
        }
        others.retain(|function| !function.copy);
        Some((own, others))
    }

    /// `flash-attn-4 up to 4.0.0b36 or FA3`.
    fn titles<'f>(&self, functions: impl Iterator<Item = &'f &'f Function>) -> String {
        let mut seen = BTreeSet::new();
        let titles =
            functions.filter(|function| seen.insert(&function.title)).map(|function| self.title_up_to(function));
        list(&titles.collect::<Vec<_>>(), "or")
    }

    /// `flash-attn-4 (up to 4.0.0b36)`.
    fn title_up_to(&self, function: &Function) -> String {
        match self.releases_of(&function.distribution).iter().max() {
            Some(latest) if function.title == function.distribution => format!("{} (up to {latest})", function.title),
            _ => format!("{} `{}`", possessive(&function.title), function.name()),
        }
    }

    /// The known releases of a distribution, in no particular order.
    pub fn releases_of(&self, distribution: &str) -> &[Version] {
        self.releases.get(distribution).map_or(&[], Vec::as_slice)
    }
}

/// `a`, `a and b`, `a, b and c`.
fn list(items: &[String], last: &str) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_say_who_has_a_keyword_and_since_when() {
        let packs = Packs::embedded();
        let sentences = [
            (
                "flash_attn.cute.interface._flash_attn_fwd",
                "dynamic_causal",
                "`dynamic_causal` was added to vLLM's vendored FA4 `_flash_attn_fwd` in 0.24.0; \
                 no release of flash-attn-4 (up to 4.0.0b36) has it",
            ),
            (
                "flash_attn.flash_attn_varlen_func",
                "softcap",
                "`softcap` was added to flash-attn's `flash_attn_varlen_func` in 2.6.0",
            ),
            (
                "flash_attn.cute._flash_attn_fwd",
                "m_block_size",
                "`m_block_size` was removed from flash-attn-4's `_flash_attn_fwd` in 4.0.0b5",
            ),
            (
                "vllm.vllm_flash_attn.flash_attn_varlen_func",
                "no_such_thing",
                "no release of vLLM's vendored `flash_attn_varlen_func` has `no_such_thing`",
            ),
        ];
        for (function, keyword, sentence) in sentences {
            assert_eq!(packs.keyword_history(function, keyword).as_deref(), Some(sentence));
        }
        assert_eq!(packs.keyword_history("torch.nn.functional.softmax", "dim"), None);
    }

    #[test]
    fn sentences_say_how_many_values_return() {
        let packs = Packs::embedded();
        let sentence = "flash-attn-4's `_flash_attn_fwd` returns 2 values before 4.0.0b19, 2 or 4 in 4.0.0b19, \
                        4 from 4.0.0b20 to 4.0.0b32, 5 since 4.0.0b33";
        let history = |function: &str, counts: &[usize]| packs.arity_history(function, counts);
        assert_eq!(history("flash_attn.cute.interface._flash_attn_fwd", &[5]).as_deref(), Some(sentence));
        let sentence = "vLLM's vendored FA4 `_flash_attn_fwd` returns 2 values before 0.26.0, 4 since 0.26.0; \
                        this one is like flash-attn-4's `_flash_attn_fwd` since 4.0.0b33";
        assert_eq!(history("vllm.vllm_flash_attn.cute.interface._flash_attn_fwd", &[5]).as_deref(), Some(sentence));
        assert_eq!(history("flash_attn.flash_attn_func", &[2]), None);
    }

    #[test]
    fn a_release_has_or_lacks_a_keyword() {
        let packs = Packs::embedded();
        let function = packs.functions_at("vllm.vllm_flash_attn.cute._flash_attn_fwd").next().unwrap();
        let has = |keyword: &str, version: &str| function.has(keyword, &version.parse().unwrap());
        assert_eq!(has("dynamic_causal", "0.23.0"), Some(false));
        assert_eq!(has("dynamic_causal", "0.24.0+cu129"), Some(true));
        assert_eq!(has("dynamic_causal", "0.18.0"), None);
        assert_eq!(function.returns(&"0.26.0".parse().unwrap()), Some(&[4][..]));
    }
}
