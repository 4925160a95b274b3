//! The Python front end: decode, parse and lower to the index; the only user of the parser crates.

pub mod builtins;
pub mod decode;
pub mod ir;
mod lower;
pub mod symbol;

pub use ir::Module;
pub use symbol::Symbol;

use ruff_python_ast::PySourceType;
use ruff_text_size::Ranged;

use rustc_hash::FxHashSet;

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

/// The parser recurses as deep as an expression nests, which is at most once for each of the characters that open
/// something or apply to what follows: with this many in one line it could need more than any stack.
const DEEPEST_LINE: usize = 200_000;

/// The most of those characters in one line of a file that is large enough to matter.
fn deepest_line(bytes: &[u8]) -> usize {
    if bytes.len() <= DEEPEST_LINE {
        return 0;
    }
    let depth = |line: &[u8]| line.iter().filter(|byte| b"([{-+~.*".contains(byte)).count();
    bytes.split(|&byte| byte == b'\n').map(depth).max().unwrap_or(0)
}

/// Decodes, parses and indexes one file. Syntax errors do not stop it: what the parser could recover is indexed, and
/// [`Module::errors`] says what is wrong. The error says why the bytes are not text.
pub fn index(bytes: &[u8], origin: Origin) -> Result<Module, String> {
    if deepest_line(bytes) > DEEPEST_LINE {
        return Err("a line that nests deeper than anything that anybody wrote".to_owned());
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
    let text_length = decoded.text.len();
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
        // Growing a large arena touches its memory again and again; most sources have a longer text per expression.
        exprs: Vec::with_capacity(text_length / 14),
        stmts: Vec::new(),
        scopes: Vec::new(),
        guards: Vec::new(),
        functions: Vec::new(),
        classes: Vec::new(),
        bindings: Vec::new(),
        tries: Vec::new(),
        mutated: FxHashSet::default(),
        errors,
    };
    let mut lowering = Lowering::new(module);
    lowering.block(&body);
    let mut module = lowering.out;
    module.shrink();
    Ok(module)
}

impl Module {
    /// An empty span at the start of the file, for findings about the file as a whole.
    pub const TOP: Span = Span { start: 0, end: 0 };

    /// Gives back what the arenas hold in reserve, once the index is complete.
    fn shrink(&mut self) {
        self.exprs.shrink_to_fit();
        self.stmts.shrink_to_fit();
        self.guards.shrink_to_fit();
        self.bindings.shrink_to_fit();
        self.scopes.shrink_to_fit();
        self.functions.shrink_to_fit();
    }
}
