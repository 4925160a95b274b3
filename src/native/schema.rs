//! Operator schemas: the text that an extension registers with torch, found in its read-only data.
//!
//! `varlen_fwd(Tensor! q, Tensor k, .., Generator? gen) -> Tensor[]` stands there as C strings. Compilers also build
//! such strings in registers, of which only torn pieces are in the file: whatever does not parse to the end is left
//! out, so a schema that is returned is the one that is registered.

use super::elf::Elf;

/// One operator as registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// `xformers` of `xformers::op`; mostly the namespace is given to the registration instead.
    pub namespace: Option<String>,
    /// `varlen_fwd`.
    pub name: String,
    /// `out` of `op.out`.
    pub overload: Option<String>,
    /// In order.
    pub arguments: Vec<Argument>,
    /// Types that it returns; empty for `()`.
    pub returns: Vec<String>,
    /// The text, with runs of blanks as one.
    pub text: String,
}

/// One argument of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// `q`.
    pub name: String,
    /// `Tensor!`, `int[]`, `Generator?`.
    pub kind: String,
    /// The default value, as written.
    pub default: Option<String>,
    /// Behind `*`.
    pub keyword_only: bool,
}

/// The schemas of `op` (`varlen_fwd`, `xformers::op`) that the library in `bytes` registers.
///
/// None if the file is no ELF library or has no complete text of it; several for overloads, or where one library
/// registers the name in several namespaces.
pub fn find(bytes: &[u8], op: &str) -> Vec<Schema> {
    let (namespace, name) = match op.split_once("::") {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, op),
    };
    let Some(texts) = read_only_data(bytes) else { return Vec::new() };
    let mut found: Vec<Schema> = Vec::new();
    for at in memchr::memmem::find_iter(texts, name.as_bytes()) {
        let end = at + name.len();
        if !matches!(texts.get(end), Some(b'(' | b'.' | b' ')) {
            continue;
        }
        let Some(schema) = c_string(texts, at).and_then(parse) else { continue };
        let matches = schema.name == name && namespace.is_none_or(|wanted| schema.namespace.as_deref() == Some(wanted));
        if matches && !found.contains(&schema) {
            found.push(schema);
        }
    }
    found
}

/// Every schema that the library in `bytes` registers, in the order of the file.
pub fn all(bytes: &[u8]) -> Vec<Schema> {
    let Some(texts) = read_only_data(bytes) else { return Vec::new() };
    let mut found: Vec<Schema> = Vec::new();
    for at in memchr::memmem::find_iter(texts, b")") {
        if !is_arrow(&texts[at + 1..]) {
            continue;
        }
        let Some(text) = c_string(texts, at) else { continue };
        if let Some(schema) = parse(text)
            && !found.contains(&schema)
        {
            found.push(schema);
        }
    }
    found
}

/// Longer strings are no schemas; the longest seen is under 1,500 bytes.
const LONGEST: usize = 16_384;

/// The C string around `at`, if it is UTF-8 and not too long.
fn c_string(texts: &[u8], at: usize) -> Option<&str> {
    let floor = at.saturating_sub(LONGEST);
    let start = match memchr::memrchr(0, &texts[floor..at]) {
        Some(zero) => floor + zero + 1,
        None if floor == 0 => 0,
        None => return None,
    };
    let ceiling = texts.len().min(start + LONGEST);
    let end = at + memchr::memchr(0, &texts[at..ceiling])?;
    std::str::from_utf8(&texts[start..end]).ok()
}

fn is_arrow(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"->")
}

fn read_only_data(bytes: &[u8]) -> Option<&[u8]> {
    Elf::parse(bytes).ok()?.section(b".rodata").ok()?
}

/// Reads one schema; `None` if anything in it is not as torch's grammar has it.
pub fn parse(text: &str) -> Option<Schema> {
    let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let open = text.find('(')?;
    let close = open + matching(&text[open..])?;
    let (namespace, name) = match text[..open].trim().split_once("::") {
        Some((namespace, name)) => (Some(identifier(namespace)?), name),
        None => (None, text[..open].trim()),
    };
    let (name, overload) = match name.split_once('.') {
        Some((name, overload)) => (name, Some(identifier(overload)?)),
        None => (name, None),
    };
    let name = identifier(name)?;
    let mut arguments = Vec::new();
    let mut keyword_only = false;
    for part in split(&text[open + 1..close])? {
        if part == "*" && !keyword_only {
            keyword_only = true;
            continue;
        }
        arguments.push(argument(part, keyword_only)?);
    }
    let returns = returns(text[close + 1..].trim_start().strip_prefix("->")?.trim())?;
    Some(Schema { namespace, name, overload, arguments, returns, text })
}

fn argument(text: &str, keyword_only: bool) -> Option<Argument> {
    let (declaration, default) = match text.split_once('=') {
        Some((declaration, default)) => (declaration.trim_end(), Some(default.trim().to_owned())),
        None => (text, None),
    };
    let (kind, name) = declaration.rsplit_once(' ')?;
    let default = match default {
        Some(default) if default.is_empty() => return None,
        default => default,
    };
    Some(Argument { name: identifier(name)?, kind: type_name(kind)?, default, keyword_only })
}

fn returns(text: &str) -> Option<Vec<String>> {
    let list = match text.strip_prefix('(') {
        Some(_) if matching(text)? + 1 == text.len() => split(&text[1..text.len() - 1])?,
        Some(_) => return None,
        None => vec![text],
    };
    // A return value may be named: `Tensor out`.
    list.into_iter().map(|value| type_name(value).or_else(|| type_name(value.rsplit_once(' ')?.0))).collect()
}

fn identifier(text: &str) -> Option<String> {
    let good = !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    good.then(|| text.to_owned())
}

/// Types of torch's schema language.
const TYPES: [&str; 22] = [
    "Tensor",
    "Scalar",
    "ScalarType",
    "SymInt",
    "SymFloat",
    "SymBool",
    "int",
    "float",
    "bool",
    "complex",
    "number",
    "str",
    "Device",
    "DeviceIndex",
    "Layout",
    "MemoryFormat",
    "Generator",
    "Stream",
    "Storage",
    "Dimname",
    "QScheme",
    "Any",
];

/// A type with its alias annotation (`Tensor(a!)`), list and optional marks: as written, if it is one.
fn type_name(text: &str) -> Option<String> {
    let text = text.trim();
    let base_end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(text.len());
    let (base, mut marks) = text.split_at(base_end);
    let container = base == "Dict" || base == "Tuple";
    if !(TYPES.contains(&base) || base.starts_with("__torch__.") || container) {
        return None;
    }
    while !marks.is_empty() {
        marks = match marks.as_bytes()[0] {
            b'?' | b'!' => &marks[1..],
            b'[' => marks[1..].trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(']')?,
            b'(' => &marks[matching(marks)? + 1..],
            _ => return None,
        };
    }
    Some(text.to_owned())
}

/// Where the parenthesis at the start of `text` closes.
fn matching(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The parts between commas outside brackets and quotes; `None` if these do not match.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0usize, None);
    for (at, byte) in text.bytes().enumerate() {
        match (byte, quote) {
            (b'"' | b'\'', None) => quote = Some(byte),
            (byte, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => {}
            (b'(' | b'[', None) => depth += 1,
            (b')' | b']', None) => depth = depth.checked_sub(1)?,
            (b',', None) if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth != 0 || quote.is_some() {
        return None;
    }
    if !text.trim().is_empty() {
        parts.push(text[start..].trim());
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_torch_reads() {
        let schema = parse(
            "attend(Tensor! q,   Tensor(a!)? out, int[] sizes, int[2] pad=[0, 0], *, str mode=\"a,b\", float s=1.0) -> Tensor[]",
        )
        .expect("a schema");
        assert_eq!(schema.name, "attend");
        let arguments: Vec<_> = schema.arguments.iter().map(|a| (a.name.as_str(), a.kind.as_str())).collect();
        let expected = [
            ("q", "Tensor!"),
            ("out", "Tensor(a!)?"),
            ("sizes", "int[]"),
            ("pad", "int[2]"),
            ("mode", "str"),
            ("s", "float"),
        ];
        assert_eq!(arguments, expected);
        assert_eq!(schema.arguments[3].default.as_deref(), Some("[0, 0]"));
        assert_eq!(schema.arguments[4].default.as_deref(), Some("\"a,b\""));
        assert!(schema.arguments[4].keyword_only && !schema.arguments[3].keyword_only);
        assert_eq!(schema.returns, ["Tensor[]"]);
    }

    #[test]
    fn reads_namespaces_overloads_and_returns() {
        let schema = parse("ns::op.out(Tensor a, Dict(str, Tensor) b) -> (Tensor, int[][] sizes)").expect("a schema");
        assert_eq!((schema.namespace.as_deref(), schema.overload.as_deref()), (Some("ns"), Some("out")));
        assert_eq!(schema.returns, ["Tensor", "int[][]"]);
        assert!(parse("free(int p) -> ()").expect("a schema").returns.is_empty());
        assert!(parse("size() -> int").expect("a schema").arguments.is_empty());
        assert!(parse("make() -> __torch__.torch.classes.ns.Thing").is_some());
    }

    #[test]
    fn refuses_torn_text() {
        for text in [
            "op(Tensor a) -> T/src/op.cpp",
            "op(Tensor a, iint m) -> Tensor",
            "op(Tensor a, ",
            "op(Tensor) -> Tensor",
            "op(Tensor a",
            "",
            "(",
            "op(Tensor a) -> (Tensor",
            "op(int a=) -> int",
            "is_mkldnn() INTERNAL ASSERT FAILED",
            "1op(int a) -> int",
            "op(int a,) -> int",
            "é(é é) -> é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
