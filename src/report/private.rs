//! What a published report must not tell: whose machine it was made on, where on it things lie, and credentials.

/// Folders that say nothing about anybody.
const COMMON: [&str; 6] = ["/usr", "/usr/local", "/opt", "/srv", "/var", "/mnt"];
/// How tokens of well-known services begin, and how many characters at least follow.
const TOKENS: [(&str, usize); 11] = [
    ("hf_", 16),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghs_", 16),
    ("github_pat_", 16),
    ("glpat-", 16),
    ("sk-", 20),
    ("pypi-", 20),
    ("nvapi-", 20),
    ("xoxb-", 16),
    ("AKIA", 16),
];
/// Parts of the names of query parameters whose values open doors.
const KEYS: [&str; 7] = ["token", "secret", "passw", "key", "signature", "credential", "auth"];

/// `text` with home folders as `~`, the folders above an environment as `...`, and without credentials.
pub fn published(text: &str, home: Option<&str>, roots: &[String]) -> String {
    let mut above: Vec<&str> = roots.iter().filter_map(|root| above(root)).collect();
    // A folder in another one that is shortened too: the longer first.
    above.sort_by_key(|folder| std::cmp::Reverse(folder.len()));
    let text = without_homes(text, home);
    let text = above.iter().fold(text, |text, folder| {
        // Homes are shorter by now, in the folder as in the text.
        let folder = without_homes(folder, home);
        if folder.starts_with('~') { text } else { text.replace(&format!("{folder}/"), ".../") }
    });
    without_tokens(&without_credentials(&text))
}

/// The folders above an environment: `/data/acme` of `/data/acme/venv/lib/python3.12/site-packages`.
fn above(root: &str) -> Option<&str> {
    let end = ["/lib/", "/lib64/", "/Lib/"].into_iter().filter_map(|part| root.find(part)).min().unwrap_or(root.len());
    let (folder, _) = root[..end].rsplit_once('/')?;
    let plain = folder.trim_matches(['.', '/']).is_empty();
    (!plain && !COMMON.contains(&folder)).then_some(folder)
}

/// Home folders as `~`: this user's, and any other under the usual roofs.
fn without_homes(text: &str, home: Option<&str>) -> String {
    let mut text = match home.filter(|home| home.len() > 1) {
        Some(home) => text.replace(home, "~"),
        None => text.to_owned(),
    };
    for roof in ["/home/", "/Users/", "\\Users\\"] {
        let mut rest = text.as_str();
        let mut shortened = String::with_capacity(text.len());
        while let Some(at) = rest.find(roof) {
            let after = &rest[at + roof.len()..];
            let name =
                after.find(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '_' | '-'))).unwrap_or(after.len());
            shortened.push_str(&rest[..at]);
            shortened.push_str(if name > 0 { "~" } else { roof });
            rest = &after[name..];
        }
        shortened.push_str(rest);
        text = shortened;
    }
    text
}

/// URLs without `user:password@`, and without the values of parameters that sound secret.
fn without_credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at + 3);
        out.push_str(before);
        let end = url.find(|c: char| c.is_whitespace() || "\"'`<>|".contains(c)).unwrap_or(url.len());
        let (url, after) = url.split_at(end);
        let host = url.find(['/', '?', '#']).unwrap_or(url.len());
        let url = match url[..host].rfind('@') {
            Some(at) => format!("...{}", &url[at..]),
            None => url.to_owned(),
        };
        let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        out.push_str(path);
        for parameter in query.split_inclusive(['?', '&']) {
            match parameter.split_once('=') {
                Some((name, value)) if KEYS.iter().any(|key| name.to_ascii_lowercase().contains(key)) => {
                    let next = if value.ends_with('&') { "&" } else { "" };
                    out.push_str(&format!("{name}=...{next}"));
                }
                _ => out.push_str(parameter),
            }
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Text without what looks like the token of a service.
fn without_tokens(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars().map(Some).chain([None]) {
        match c {
            Some(c) if c.is_ascii_alphanumeric() || c == '_' || c == '-' => word.push(c),
            end => {
                match TOKENS.iter().find(|(start, least)| is_token(&word, start, *least)) {
                    Some((start, _)) => out.push_str(&format!("{start}...")),
                    None => out.push_str(&word),
                }
                word.clear();
                out.extend(end);
            }
        }
    }
    out
}

/// Letters and digits at random: a name in a source would have neither digits and capitals nor such length.
fn is_token(word: &str, start: &str, least: usize) -> bool {
    word.strip_prefix(start).is_some_and(|rest| {
        rest.len() >= least
            && rest.bytes().any(|byte| byte.is_ascii_digit())
            && rest.bytes().any(|byte| byte.is_ascii_uppercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_not_told() {
        let shown = |text| without_homes(text, Some("/root"));
        assert_eq!(shown("/root/.venv and /home/some.body/x, /Users/x"), "~/.venv and ~/x, ~");
        assert_eq!(shown("`/home/`"), "`/home/`");
        assert_eq!(shown("C:\\Users\\x-y\\z"), "C:~\\z");
        assert_eq!(without_homes("/a/b", Some("/")), "/a/b");
    }

    #[test]
    fn where_an_environment_lies_is_not_told() {
        let shown = |text: &str| published(text, None, &[text.to_owned()]);
        assert_eq!(shown("/data/acme/venv/lib/python3.12/site-packages"), ".../venv/lib/python3.12/site-packages");
        assert_eq!(shown("/data/acme/vllm-0.26.0-cp38.whl"), ".../vllm-0.26.0-cp38.whl");
        assert_eq!(shown("../acme/venv/lib/python3.12/site-packages"), ".../venv/lib/python3.12/site-packages");
        for told in
            ["/usr/lib/python3/dist-packages", "/opt/venv/lib/python3.12/site-packages", ".venv", "./x", "x.whl"]
        {
            assert_eq!(shown(told), told);
        }
        let home = ["/home/jane/acme/venv/lib/python3.12/site-packages".to_owned()];
        assert_eq!(published(&home[0], None, &home), "~/acme/venv/lib/python3.12/site-packages");
    }

    #[test]
    fn credentials_are_not_told() {
        let shown = |text| published(text, None, &[]);
        assert_eq!(shown("https://jane:pw@host/x?token=a1&b=2 y"), "https://...@host/x?token=...&b=2 y");
        assert_eq!(shown("'https://host/?X-Amz-Signature=ab'"), "'https://host/?X-Amz-Signature=...'");
        assert_eq!(shown("https://host/a@b"), "https://host/a@b");
        assert_eq!(shown("/x/hf_AbCdEfGhIjKlMnOp12/y"), "/x/hf_.../y");
        for told in ["hf_config_of_the_text_model", "sk-learn", "num_tokens=4096", "key=value"] {
            assert_eq!(shown(told), told);
        }
    }
}
