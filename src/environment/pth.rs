//! `.pth` files: plain lines name folders; executable lines are understood, never run.
//!
//! The executable lines that matter extend `sys.path` by an expression over path functions and the place of a
//! package (the CuTe DSL), or install the import hook of an editable install. Anything else is passed over.

/// What a line of a `.pth` file does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Appends a folder, relative to the one that holds the file.
    Append(Place),
    /// Inserts a folder in front.
    Insert(Place),
    /// Treats a folder as a further site-packages folder.
    AddSite(Place),
    /// Runs a module that installs the import hook of an editable install.
    Hook(String),
}

/// A path, as far as it can be told without running anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A literal, relative to the folder that holds the `.pth` file.
    Literal(String),
    /// That folder itself.
    SiteDir,
    /// `package.__path__[0]`.
    Package(String),
    /// `os.path.join(..)`.
    Join(Vec<Place>),
    /// `os.path.dirname(..)`.
    Parent(Box<Place>),
}

/// What the lines of a `.pth` file do, in order.
pub(super) fn actions(bytes: &[u8]) -> Vec<Action> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let mut actions = Vec::new();
    for line in text.lines() {
        let line = line.trim_end();
        if line.starts_with("import ") || line.starts_with("import\t") {
            execute(line, &mut actions);
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            actions.push(Action::Append(Place::Literal(line.to_owned())));
        }
    }
    actions
}

fn execute(line: &str, actions: &mut Vec<Action>) {
    let tokens = tokenize(line);
    let mut variables: Vec<(String, Place)> = Vec::new();
    for statement in tokens.split(|token| *token == Token::Symbol(';')) {
        let mut reader = Reader { tokens: statement, variables: &variables, depth: 0 };
        if let Some(action) = reader.call() {
            actions.push(action);
        } else if let [Token::Name(name), Token::Symbol('='), value @ ..] = statement {
            let mut reader = Reader { tokens: value, variables: &variables, depth: 0 };
            if let Some(place) = reader.place() {
                variables.push((name.clone(), place));
            }
        } else if let [Token::Name(keyword), imported @ ..] = statement
            && keyword == "import"
        {
            // The hooks of setuptools, scikit-build-core, meson-python and hatch all say what they are.
            let names = imported.iter().filter_map(|token| match token {
                Token::Name(name) if name.contains("editable") => Some(Action::Hook(name.clone())),
                _ => None,
            });
            actions.extend(names);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A dotted name.
    Name(String),
    Text(String),
    Number(String),
    Symbol(char),
}

fn tokenize(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c == '_' || c == '.' || c.is_alphanumeric();
        let length = match first {
            '#' => break,
            '\'' | '"' => match string(rest) {
                Some((text, length)) => {
                    tokens.push(Token::Text(text));
                    length
                }
                None => break,
            },
            c if c.is_ascii_digit() => {
                let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                tokens.push(Token::Number(rest[..length].to_owned()));
                length
            }
            c if is_name(c) => {
                let length = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
                let (name, tail) = rest.split_at(length);
                // The prefix of a raw or formatted string: its text is not what it looks like, except for `r`.
                if !tail.starts_with(['\'', '"']) {
                    tokens.push(Token::Name(name.to_owned()));
                } else if !name.eq_ignore_ascii_case("r") {
                    break;
                }
                length
            }
            c if c.is_whitespace() => c.len_utf8(),
            c => {
                tokens.push(Token::Symbol(c));
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}

/// A string literal at the start of `text`: its value and its length in the source.
pub(super) fn string(text: &str) -> Option<(String, usize)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            c if c == quote => return Some((value, at + 1)),
            '\n' => return None,
            '\\' => match characters.next()?.1 {
                c @ ('\\' | '\'' | '"') => value.push(c),
                c => {
                    value.push('\\');
                    value.push(c);
                }
            },
            c => value.push(c),
        }
    }
    None
}

struct Reader<'a> {
    tokens: &'a [Token],
    variables: &'a [(String, Place)],
    /// Calls around the expression that is read.
    depth: usize,
}

/// Calls within calls, beyond which a line is no longer believed.
const DEEPEST: usize = 16;

impl Reader<'_> {
    fn symbol(&mut self, symbol: char) -> Option<()> {
        let [Token::Symbol(first), rest @ ..] = self.tokens else { return None };
        (*first == symbol).then(|| self.tokens = rest)
    }

    fn name(&mut self) -> Option<String> {
        let [Token::Name(name), rest @ ..] = self.tokens else { return None };
        self.tokens = rest;
        Some(name.clone())
    }

    /// A statement that extends the path.
    fn call(&mut self) -> Option<Action> {
        let start = self.tokens;
        let action = self.extension();
        if action.is_none() {
            self.tokens = start;
        }
        action
    }

    fn extension(&mut self) -> Option<Action> {
        match self.name()?.as_str() {
            "sys.path.insert" => {
                self.symbol('(')?;
                let [Token::Number(index), Token::Symbol(','), rest @ ..] = self.tokens else { return None };
                self.tokens = rest;
                let place = self.place()?;
                Some(if index == "0" || index == "1" { Action::Insert(place) } else { Action::Append(place) })
            }
            "sys.path.append" => {
                self.symbol('(')?;
                Some(Action::Append(self.place()?))
            }
            "sys.path.extend" => {
                self.symbol('(')?;
                self.symbol('[')?;
                Some(Action::Append(self.place()?))
            }
            "site.addsitedir" => {
                self.symbol('(')?;
                Some(Action::AddSite(self.place()?))
            }
            _ => None,
        }
    }

    fn place(&mut self) -> Option<Place> {
        self.depth += 1;
        let place = if self.depth <= DEEPEST { self.expression() } else { None };
        self.depth -= 1;
        place
    }

    fn expression(&mut self) -> Option<Place> {
        if let [Token::Text(text), rest @ ..] = self.tokens {
            self.tokens = rest;
            return Some(Place::Literal(text.clone()));
        }
        let name = self.name()?;
        let plain = name.strip_prefix("os.path.").unwrap_or(&name);
        match plain {
            "join" => {
                self.symbol('(')?;
                let mut parts = vec![self.place()?];
                while self.symbol(',').is_some() {
                    if self.tokens.first() == Some(&Token::Symbol(')')) {
                        break;
                    }
                    parts.push(self.place()?);
                }
                self.symbol(')')?;
                Some(Place::Join(parts))
            }
            "dirname" => self.argument().map(|place| Place::Parent(Box::new(place))),
            "abspath" | "realpath" | "normpath" | "expanduser" | "str" | "os.fspath" => self.argument(),
            "sitedir" => Some(Place::SiteDir),
            _ => self.package_place(&name),
        }
    }

    fn argument(&mut self) -> Option<Place> {
        self.symbol('(')?;
        let place = self.place()?;
        self.symbol(')')?;
        Some(place)
    }

    fn package_place(&mut self, name: &str) -> Option<Place> {
        if let Some((_, place)) = self.variables.iter().rev().find(|(variable, _)| variable == name) {
            return Some(place.clone());
        }
        if let Some(package) = name.strip_suffix(".__file__") {
            return Some(Place::Join(vec![
                Place::Package(package.to_owned()),
                Place::Literal("__init__.py".to_owned()),
            ]));
        }
        let package = name.strip_suffix(".__path__")?;
        let [Token::Symbol('['), Token::Number(_), Token::Symbol(']'), rest @ ..] = self.tokens else { return None };
        self.tokens = rest;
        Some(Place::Package(package.to_owned()))
    }
}

/// The places that the module of an import hook maps names to: every `'dotted.name': '/absolute/path'` that stands
/// in it, as in the `MAPPING` of setuptools and the table of scikit-build-core, and calls of `map_module`.
pub(super) fn hook_mapping(source: &str) -> Vec<(String, String)> {
    let mut mapping = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find(['\'', '"']) {
        let before = &rest[..start];
        rest = &rest[start..];
        let Some((key, length)) = string(rest) else {
            rest = &rest[1..];
            continue;
        };
        // `editables` calls `map_module('name', '/path')`.
        let separator = if before.trim_end().ends_with("map_module(") { ',' } else { ':' };
        rest = &rest[length..];
        let Some(value) = rest.trim_start().strip_prefix(separator) else { continue };
        // `NAMESPACES` of setuptools maps to lists.
        let value = value.trim_start().trim_start_matches('[').trim_start();
        let Some((path, length)) = string(value) else { continue };
        if is_dotted_name(&key) && std::path::Path::new(&path).is_absolute() {
            mapping.push((key, path));
        }
        rest = &value[length..];
    }
    mapping
}

fn is_dotted_name(text: &str) -> bool {
    text.split('.').all(is_identifier)
}

/// Whether a name can be imported as written.
pub(super) fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c == '_' || c.is_alphabetic())
        && characters.all(|c| c == '_' || c.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn literal(text: &str) -> Place {
        Place::Literal(text.to_owned())
    }

    fn only(text: &str) -> Action {
        let mut actions = actions(text.as_bytes());
        assert_eq!(actions.len(), 1, "{text}: {actions:?}");
        actions.remove(0)
    }

    #[test]
    fn plain_lines_name_folders() {
        let text = "# comment\n\n  \n/src/vllm\r\nnvidia_cutlass_dsl/python_packages\nimportant\n";
        let expected = ["/src/vllm", "nvidia_cutlass_dsl/python_packages", "important"];
        assert_eq!(actions(text.as_bytes()), expected.map(|line| Action::Append(literal(line))));
    }

    #[test]
    fn the_cute_dsl_is_put_in_front() {
        let line = "import sys, os, some_dsl; sys.path.insert(0, os.path.join(some_dsl.__path__[0], 'packages'))";
        let place = Place::Join(vec![Place::Package("some_dsl".to_owned()), literal("packages")]);
        assert_eq!(only(line), Action::Insert(place));
    }

    #[test]
    fn other_ways_to_extend_the_path() {
        assert_eq!(only("import sys; sys.path.append('/opt/x')"), Action::Append(literal("/opt/x")));
        assert_eq!(only("import sys; p = r\"/opt/x\"; sys.path.insert(1, p)"), Action::Insert(literal("/opt/x")));
        assert_eq!(only("import site; site.addsitedir('/opt/x')"), Action::AddSite(literal("/opt/x")));
        let package = || Place::Join(vec![Place::Package("a.b".to_owned()), literal("__init__.py")]);
        let line = "import os, sys, a.b; sys.path.append(os.path.abspath(os.path.dirname(a.b.__file__)))";
        assert_eq!(only(line), Action::Append(Place::Parent(Box::new(package()))));
        let line = "import os, sys; sys.path.append(os.path.join(sitedir, 'vendor',))";
        assert_eq!(only(line), Action::Append(Place::Join(vec![Place::SiteDir, literal("vendor")])));
    }

    #[test]
    fn what_is_not_understood_does_nothing() {
        for line in [
            "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'",
            "import _virtualenv",
            "import sys; sys.path.append(f'{sys.prefix}/x')",
            "import sys; sys.path.append(compute())",
            "import sys; sys.path.insert(0, os.path.join(x.__path__[0], 'open",
            &format!("import sys; sys.path.append({}'x'", "os.path.dirname(".repeat(100_000)),
            "import a; exec(\"import sys; sys.path.append('/x')\")",
        ] {
            assert_eq!(actions(line.as_bytes()), [], "{line}");
        }
    }

    #[test]
    fn hooks_of_editable_installs_are_followed() {
        let line = "import __editable___vllm_0_26_0_finder; __editable___vllm_0_26_0_finder.install()";
        assert_eq!(only(line), Action::Hook("__editable___vllm_0_26_0_finder".to_owned()));
        assert_eq!(only("import _flash_attn_editable"), Action::Hook("_flash_attn_editable".to_owned()));
    }

    #[cfg(unix)]
    #[test]
    fn hooks_say_what_they_map() {
        let source = "from x import y\nMAPPING: dict[str, str] = {'vllm': '/src/vllm', 'a.b' : \"/src/it's\"}\n\
                      NAMESPACES: dict[str, list[str]] = {'ns': ['/src/ns']}\nPATH = 'x'\nF.map_module('m', '/src/m.py')\nd = {'not a name': '/x', 'rel': 'y'}\n";
        let expected = [("vllm", "/src/vllm"), ("a.b", "/src/it's"), ("ns", "/src/ns"), ("m", "/src/m.py")];
        assert_eq!(hook_mapping(source), expected.map(|(name, path)| (name.to_owned(), path.to_owned())));
    }

    proptest! {
        #[test]
        fn no_text_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            actions(&bytes);
            hook_mapping(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn no_line_of_code_panics(text in "import sys; (sys.path.(append|insert)\\(|os.path.join\\(|x.__path__|\\[0\\]|['\"\\\\,;)( =]|é|a){0,20}") {
            actions(text.as_bytes());
            hook_mapping(&text);
        }
    }
}
