//! The Python front end: decode, parse and lower to the index; the only user of the parser crates.

pub mod builtins;
pub mod decode;
pub mod ir;
mod lower;
mod lower_expr;
pub mod symbol;

pub use ir::Module;
pub use symbol::Symbol;

use ruff_python_ast::PySourceType;
use ruff_text_size::Ranged;

use crate::environment::RootId;
use ir::{Span, SyntaxError};
use lower::{Lowering, span};

/// Where a module comes from.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Dotted name.
    pub name: Symbol,
    /// It is an `__init__.py`.
    pub is_package: bool,
    /// The root that holds the file.
    pub root: RootId,
    /// Relative to the root.
    pub path: String,
}

/// The parser recurses as deep as an expression nests; a line of this length could nest deeper than any stack.
const LONGEST_LINE: usize = 400_000;

/// The length of the longest line of a file that is large enough to hold one that matters.
fn longest_line(bytes: &[u8]) -> Option<usize> {
    (bytes.len() > LONGEST_LINE).then(|| bytes.split(|&byte| byte == b'\n').map(<[u8]>::len).max().unwrap_or(0))
}

/// Decodes, parses and indexes one file. Syntax errors do not stop it: what the parser could recover is indexed, and
/// [`Module::errors`] says what is wrong. The error says why the bytes are not text.
pub fn index(bytes: &[u8], origin: Origin) -> Result<Module, String> {
    if let Some(longest) = longest_line(bytes)
        && longest > LONGEST_LINE
    {
        return Err(format!("a line of {longest} bytes: no source that anybody wrote"));
    }
    let decoded = decode::decode(bytes)?;
    let parsed = ruff_python_parser::parse_unchecked_source(&decoded.text, PySourceType::Python);
    let mut errors: Vec<SyntaxError> = parsed
        .errors()
        .iter()
        .map(|error| SyntaxError { span: span(error.range()), message: error.error.to_string() })
        .collect();
    errors.sort_by_key(|error| error.span);
    let body = parsed.into_suite();
    let lazy_annotations = body.iter().any(|stmt| {
        stmt.as_import_from_stmt().is_some_and(|import| {
            import.module.as_ref().is_some_and(|module| module.as_str() == "__future__")
                && import.names.iter().any(|alias| alias.name.as_str() == "annotations")
        })
    });
    let line_starts =
        std::iter::once(0).chain(memchr::memchr_iter(b'\n', decoded.text.as_bytes()).map(|at| at as u32 + 1)).collect();
    let module = Module {
        name: origin.name,
        is_package: origin.is_package,
        root: origin.root,
        path: origin.path,
        text: decoded.text,
        offset: decoded.offset,
        utf8: decoded.utf8,
        lazy_annotations,
        line_starts,
        exprs: Vec::new(),
        stmts: Vec::new(),
        scopes: Vec::new(),
        guards: Vec::new(),
        functions: Vec::new(),
        classes: Vec::new(),
        bindings: Vec::new(),
        tries: Vec::new(),
        errors,
    };
    let mut lowering = Lowering::new(module);
    lowering.block(&body);
    Ok(lowering.out)
}

impl Module {
    /// An empty span at the start of the file, for findings about the file as a whole.
    pub const TOP: Span = Span { start: 0, end: 0 };
}
