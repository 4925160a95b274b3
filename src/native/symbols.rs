//! Undefined symbols: who would have to define them, what they are called, and why nobody does.

use std::collections::BTreeMap;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

use super::elf::{Elf, Undefined};

/// Who defines a symbol, as far as its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// torch's own libraries and nobody else.
    Torch,
    /// The C++ standard library.
    StandardLibrary,
    /// A library whose name starts like this, and whose functions all start alike.
    Library(&'static str),
    /// Anyone: the interpreter, the driver, a library that the package loads by itself.
    Open,
}

/// Why torch does not define a symbol that an extension was built against.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Built with the old `std::string`, torch with the new one.
    OldString,
    /// Built with the new `std::string`, torch with the old one.
    NewString,
    /// torch defines a function of that name with other parameters: this one, demangled.
    Changed(String),
    /// torch has nothing of that name.
    Absent,
}

/// A symbol that nothing defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// As in the symbol table.
    pub mangled: String,
    /// As in the source.
    pub demangled: String,
    /// Why.
    pub cause: Cause,
}

/// Libraries that torch loads from packages of their own, by what their functions start with.
const VENDOR_LIBRARIES: [(&str, &str); 3] =
    [("nccl", "libnccl.so"), ("nvshmem", "libnvshmem_host.so"), ("cusparseLt", "libcusparseLt.so")];

/// Namespaces that only torch's libraries define.
const TORCH_NAMESPACES: [&str; 6] = ["c10", "at", "torch", "caffe2", "c10d", "aoti"];

impl Family {
    /// Of a symbol of the dynamic symbol table.
    pub fn of(name: &[u8]) -> Family {
        let Ok(name) = std::str::from_utf8(name) else { return Family::Open };
        if let Some(namespace) = namespace(name) {
            return if TORCH_NAMESPACES.contains(&namespace) { Family::Torch } else { Family::Open };
        }
        // The stable C interface, and the Python objects of torch, which are C++ functions outside any namespace.
        let torch = ["aoti_torch_", "torch_", "THP"];
        let plain = name.strip_prefix("_Z").and_then(identifier).map_or(name, |(plain, _)| plain);
        let standard = ["_ZS", "_ZNS", "_ZNKS", "_ZNKRS", "_ZTIS", "_ZTVS", "_ZTTS", "_ZTSS", "__cxa_", "__gxx_"];
        // `operator new` and `operator delete`.
        let operators = ["_Znw", "_Zna", "_Zdl", "_Zda"];
        if let Some((_, library)) = VENDOR_LIBRARIES.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            return Family::Library(library);
        }
        match name {
            _ if torch.iter().any(|prefix| plain.starts_with(prefix)) => Family::Torch,
            name if standard.iter().chain(&operators).any(|prefix| name.starts_with(prefix)) => Family::StandardLibrary,
            _ => Family::Open,
        }
    }
}

/// `c10` of `_ZNK3c106SymInt6sym_eqERKS0_`: the outermost namespace of a C++ name.
fn namespace(mangled: &str) -> Option<&str> {
    let rest = mangled.strip_prefix("_Z")?;
    // Tables and type information of a class carry its name.
    let rest = ["TV", "TI", "TS", "TT", "GV"].iter().find_map(|prefix| rest.strip_prefix(prefix)).unwrap_or(rest);
    let rest = rest.strip_prefix('N')?.trim_start_matches(['K', 'V', 'r', 'R', 'O']);
    Some(identifier(rest)?.0)
}

/// `<length><name>` at the start of `text`, and what follows.
fn identifier(text: &str) -> Option<(&str, &str)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let length: usize = text[..digits].parse().ok()?;
    let rest = &text[digits..];
    Some((rest.get(..length)?, rest.get(length..)?))
}

/// The qualified name in a mangled one, without `const`, template and parameter parts: what two functions that differ
/// only in their parameters have in common.
fn stem(mangled: &str) -> Option<&str> {
    let rest = mangled.strip_prefix("_ZN")?.trim_start_matches(['K', 'V', 'r', 'R', 'O']);
    let mut end = rest;
    while let Some((_, after)) = identifier(end) {
        end = after;
    }
    let constructor = end.strip_prefix(['C', 'D']).and_then(|end| end.strip_prefix(|c: char| c.is_ascii_digit()));
    let end = constructor.unwrap_or(end);
    // `E` ends the name, `B` begins an ABI tag; anything else (a template, an operator) is beyond comparing.
    end.starts_with(['E', 'B']).then(|| &rest[..rest.len() - end.len()])
}

/// Symbols for which [`Missing`] is to be told why.
pub fn explain(missing: Vec<&Undefined<'_>>, torch: &[&Elf<'_>]) -> Vec<Missing> {
    let names: Vec<String> = missing.iter().map(|symbol| String::from_utf8_lossy(symbol.name).into_owned()).collect();
    let mut alternatives: BTreeMap<&str, Vec<String>> =
        names.iter().filter_map(|name| Some((stem(name)?, Vec::new()))).collect();
    for exported in torch.iter().flat_map(|library| library.exported()) {
        if let Ok(exported) = std::str::from_utf8(exported)
            && let Some(stem) = stem(exported)
            && let Some(known) = alternatives.get_mut(stem)
        {
            known.push(demangle(exported));
        }
    }
    let cause = |name: &String| {
        let demangled = demangle(name);
        let mut others = stem(name).and_then(|stem| alternatives.get(stem)).cloned().unwrap_or_default();
        others.sort();
        others.dedup();
        let cause = if others.is_empty() { Cause::Absent } else { compare(name, &demangled, &others) };
        Missing { mangled: name.clone(), demangled, cause }
    };
    let mut explained: Vec<Missing> = names.iter().map(cause).collect();
    explained.sort_by(|a, b| a.demangled.cmp(&b.demangled));
    explained
}

/// What tells a missing function from those of the same name that are there.
fn compare(mangled: &str, demangled: &str, others: &[String]) -> Cause {
    const NEW: &str = "std::__cxx11::";
    let blind = |name: &str| name.replace(NEW, "std::").replace("[abi:cxx11]", "");
    let twin = others.iter().any(|other| blind(other) == blind(demangled));
    let new = mangled.contains("7__cxx11") || mangled.contains("B5cxx11");
    match (twin, new) {
        (true, false) => Cause::OldString,
        (true, true) => Cause::NewString,
        (false, _) => Cause::Changed(others[0].clone()),
    }
}

/// A C++ name as in the source; other names as they are.
pub fn demangle(mangled: &str) -> String {
    demangled(mangled, &DemangleOptions::new()).unwrap_or_else(|| mangled.to_owned())
}

/// The same without parameters.
pub fn demangle_name(mangled: &str) -> String {
    demangled(mangled, &DemangleOptions::new().no_params().no_return_type()).unwrap_or_else(|| mangled.to_owned())
}

fn demangled(mangled: &str, options: &DemangleOptions) -> Option<String> {
    let limit = 96;
    let symbol = Symbol::new_with_options(mangled, &ParseOptions::default().recursion_limit(limit)).ok()?;
    let text = symbol.demangle_with_options(&options.recursion_limit(limit)).ok()?;
    let new = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    Some(text.replace(new, "std::__cxx11::string"))
}
