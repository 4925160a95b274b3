//! Commits that CMake files pin: `FetchContent_Declare(.. GIT_REPOSITORY .. GIT_TAG ..)`.

use std::collections::BTreeMap;

/// A repository at a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pin {
    /// As written: `https://github.com/owner/name.git`.
    pub repository: String,
    /// A commit, tag or branch.
    pub tag: String,
    /// The line of `GIT_TAG`, from 1.
    pub line: u32,
}

impl Pin {
    /// Whether it is about `owner/name`, however the address is written.
    pub fn is_of(&self, repository: &str) -> bool {
        let address = self.repository.trim_end_matches('/').trim_end_matches(".git").to_ascii_lowercase();
        let path = address.strip_suffix(&repository.to_ascii_lowercase());
        path.is_some_and(|host| host.is_empty() || host.ends_with(['/', ':']))
    }
}

/// Every pin of a file.
pub(super) fn pins(text: &str) -> Vec<Pin> {
    let mut variables = BTreeMap::new();
    let mut found = Vec::new();
    for Command { name, arguments } in commands(text) {
        match name.to_ascii_lowercase().as_str() {
            "set" => {
                if let [(variable, _), (value, _), ..] = arguments.as_slice() {
                    variables.insert(variable.clone(), expand(value, &variables));
                }
            }
            "fetchcontent_declare" | "externalproject_add" => {
                let after = |key: &str| {
                    let at = arguments.iter().position(|(argument, _)| argument == key)?;
                    Some((expand(&arguments.get(at + 1)?.0, &variables), arguments[at].1))
                };
                if let (Some((repository, _)), Some((tag, line))) = (after("GIT_REPOSITORY"), after("GIT_TAG")) {
                    found.push(Pin { repository, tag, line });
                }
            }
            _ => {}
        }
    }
    found
}

/// `${NAME}` of a variable that is set to something plain before.
fn expand(value: &str, variables: &BTreeMap<String, String>) -> String {
    let name = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.and_then(|name| variables.get(name)).cloned().unwrap_or_else(|| value.to_owned())
}

struct Command {
    name: String,
    /// With their lines.
    arguments: Vec<(String, u32)>,
}

enum Token {
    Word(String),
    Open,
    Close,
}

/// The commands of a file, in order; those of an `if` too.
fn commands(text: &str) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut last = String::new();
    let mut depth = 0_u32;
    for (token, line) in tokens(text) {
        match token {
            Token::Open => {
                if depth == 0 {
                    commands.push(Command { name: std::mem::take(&mut last), arguments: Vec::new() });
                }
                depth += 1;
            }
            Token::Close => depth = depth.saturating_sub(1),
            Token::Word(word) if depth == 0 => last = word,
            Token::Word(word) => {
                if let Some(command) = commands.last_mut() {
                    command.arguments.push((word, line));
                }
            }
        }
    }
    commands
}

/// Words and parentheses with their lines, without comments.
fn tokens(text: &str) -> Vec<(Token, u32)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let start = line;
        let (token, length) = match first {
            '(' => (Some(Token::Open), 1),
            ')' => (Some(Token::Close), 1),
            '#' if bracket(&rest[1..]).is_some() => (None, 1 + bracket(&rest[1..]).map_or(0, |(_, length)| length)),
            '#' => (None, rest.find('\n').unwrap_or(rest.len())),
            '"' => {
                let end = quote_end(rest);
                (Some(Token::Word(rest[1..end].to_owned())), (end + 1).min(rest.len()))
            }
            '[' if bracket(rest).is_some() => {
                let (content, length) = bracket(rest).unwrap_or((rest, rest.len()));
                (Some(Token::Word(content.to_owned())), length)
            }
            c if c.is_whitespace() => (None, c.len_utf8()),
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '#' | '"'));
                let end = end.unwrap_or(rest.len());
                (Some(Token::Word(rest[..end].to_owned())), end)
            }
        };
        line += rest[..length].matches('\n').count() as u32;
        rest = &rest[length..];
        tokens.extend(token.map(|token| (token, start)));
    }
    tokens
}

/// Where a quoted argument ends: its closing quote, or the end of the file.
fn quote_end(text: &str) -> usize {
    let mut escaped = false;
    let close = text.char_indices().skip(1).find(|(_, c)| {
        let closes = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        closes
    });
    close.map_or(text.len(), |(at, _)| at)
}

/// The content and length of a bracket argument, `[==[ .. ]==]`.
fn bracket(text: &str) -> Option<(&str, usize)> {
    let equals = text.strip_prefix('[')?.bytes().take_while(|byte| *byte == b'=').count();
    let body = text[1 + equals..].strip_prefix('[')?;
    let close = format!("]{}]", "=".repeat(equals));
    let end = body.find(&close)?;
    Some((&body[..end], 2 + equals + end + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_found_through_comments_variables_and_branches() {
        let text = r#"
# GIT_TAG in a comment (with a parenthesis
#[[ FetchContent_Declare(x GIT_REPOSITORY a GIT_TAG b) ]]
set(FA_TAG "caaa4eb5" CACHE STRING "the commit (pinned)")
if(LOCAL)
  FetchContent_Declare(fa SOURCE_DIR ${LOCAL} BINARY_DIR x)
else()
  fetchcontent_declare(
    fa
    GIT_REPOSITORY https://github.com/vllm-project/flash-attention.git
    GIT_TAG ${FA_TAG} # same as before
    GIT_PROGRESS TRUE)
endif()
ExternalProject_Add(other GIT_REPOSITORY git@github.com:someone/vllm-project GIT_TAG main)
FetchContent_Declare(open GIT_REPOSITORY
"#;
        let found = pins(text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].tag.as_str(), found[0].line), ("caaa4eb5", 11));
        assert!(found[0].is_of("vllm-project/flash-attention"));
        assert!(!found[0].is_of("project/flash-attention"));
        assert!(!found[1].is_of("vllm-project/flash-attention"));
    }

    #[test]
    fn broken_files_end() {
        for text in ["((((", "\"", "[==[", "#[[", "a(\"\\", ")", "set(", "\u{e9}(\u{e9}"] {
            assert!(pins(text).is_empty());
        }
    }
}
