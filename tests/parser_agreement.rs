//! The second opinion: rustpython-parser and the front end must agree on every function's signature.
//!
//! rustpython-parser cannot read PEP 701 f-strings, PEP 695 generics with defaults and other newer syntax: files that it
//! refuses are counted, and there may only be few of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fa_doctor::environment::RootId;
use fa_doctor::python::ir::ParameterKind;
use fa_doctor::python::{self, Origin, Symbol};
use rustpython_parser::ast::{self, Ranged};
use rustpython_parser::{Parse, ast::Suite};

/// Offset of the name and parameters in order, with their kind and whether they have a default.
type Signatures = BTreeMap<String, Vec<(String, &'static str, bool)>>;

fn ours(text: &str) -> Signatures {
    let origin = Origin { name: Symbol::new("m"), is_package: false, root: RootId(0), path: "m.py".to_owned() };
    let module = python::index(text.as_bytes(), origin).unwrap();
    assert!(module.errors.is_empty(), "{:?}", module.errors);
    let functions = module.functions.iter().filter(|function| function.lambda.is_none());
    functions
        .map(|function| {
            let parameters = function.parameters.iter().map(|parameter| {
                let kind = match parameter.kind {
                    ParameterKind::PositionalOnly => "positional-only",
                    ParameterKind::Normal => "normal",
                    ParameterKind::VarArgs => "*",
                    ParameterKind::KeywordOnly => "keyword-only",
                    ParameterKind::KwArgs => "**",
                };
                // As it is written: the index has the name that a private one stands for.
                let start = module.text[parameter.span.start as usize..].trim_start_matches(['*', ' ']);
                let end = start.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(start.len());
                (start[..end].to_owned(), kind, parameter.default.is_some())
            });
            (format!("{}@{}", function.name, function.whole.end), parameters.collect())
        })
        .collect()
}

fn theirs(suite: &Suite) -> Signatures {
    fn arguments(arguments: &ast::Arguments) -> Vec<(String, &'static str, bool)> {
        let mut all = Vec::new();
        let mut add = |kind, list: &[ast::ArgWithDefault]| {
            all.extend(list.iter().map(|arg| (arg.def.arg.to_string(), kind, arg.default.is_some())));
        };
        add("positional-only", &arguments.posonlyargs);
        add("normal", &arguments.args);
        let star = arguments.vararg.iter().map(|arg| (arg.arg.to_string(), "*", false));
        let keyword_only =
            arguments.kwonlyargs.iter().map(|arg| (arg.def.arg.to_string(), "keyword-only", arg.default.is_some()));
        let stars = arguments.kwarg.iter().map(|arg| (arg.arg.to_string(), "**", false));
        all.into_iter().chain(star).chain(keyword_only).chain(stars).collect()
    }
    fn walk(stmts: &[ast::Stmt], found: &mut Signatures) {
        for stmt in stmts {
            match stmt {
                ast::Stmt::FunctionDef(f) => {
                    found.insert(format!("{}@{}", f.name, u32::from(stmt.end())), arguments(&f.args));
                    walk(&f.body, found);
                }
                ast::Stmt::AsyncFunctionDef(f) => {
                    found.insert(format!("{}@{}", f.name, u32::from(stmt.end())), arguments(&f.args));
                    walk(&f.body, found);
                }
                ast::Stmt::ClassDef(class) => walk(&class.body, found),
                ast::Stmt::If(node) => {
                    walk(&node.body, found);
                    walk(&node.orelse, found);
                }
                ast::Stmt::For(node) => {
                    walk(&node.body, found);
                    walk(&node.orelse, found);
                }
                ast::Stmt::While(node) => {
                    walk(&node.body, found);
                    walk(&node.orelse, found);
                }
                ast::Stmt::With(node) => walk(&node.body, found),
                ast::Stmt::AsyncWith(node) => walk(&node.body, found),
                ast::Stmt::AsyncFor(node) => {
                    walk(&node.body, found);
                    walk(&node.orelse, found);
                }
                ast::Stmt::Try(node) => {
                    walk(&node.body, found);
                    walk(&node.orelse, found);
                    walk(&node.finalbody, found);
                    for ast::ExceptHandler::ExceptHandler(handler) in &node.handlers {
                        walk(&handler.body, found);
                    }
                }
                ast::Stmt::Match(node) => node.cases.iter().for_each(|case| walk(&case.body, found)),
                _ => {}
            }
        }
    }
    let mut found = Signatures::new();
    walk(suite, &mut found);
    found
}

/// Compares one file; false if rustpython-parser refuses it.
fn compare(text: &str, name: &str) -> bool {
    let Ok(suite) = Suite::parse(text, name) else { return false };
    assert_eq!(ours(text), theirs(&suite), "{name}");
    true
}

#[test]
fn both_parsers_agree_on_every_kind_of_signature() {
    let text = "\
def a(x, /, y, z=1, *args, k, l=2, **kw): pass
async def b(*, only): pass
class C:
    @staticmethod
    def c(x: int = 3) -> int:
        def inner(*, a=None): return a
        return inner
    if True:
        def d(self): pass
    else:
        def d(self, *rest): pass
try:
    def e(): pass
except ImportError:
    def e(x): pass
with open('f') as g:
    for h in g:
        def f(h=h): pass
match 1:
    case 1:
        def g(**kw): pass
";
    assert!(compare(text, "kinds.py"));
    assert_eq!(ours(text).len(), 10);
}

fn python_files(folder: &Path) -> Vec<PathBuf> {
    let files = walkdir::WalkDir::new(folder).into_iter().filter_map(Result::ok).map(walkdir::DirEntry::into_path);
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "py")).collect();
    files.sort();
    files
}

#[test]
#[ignore = "needs the corpus of released packages: scripts/corpus.py, then FA_DOCTOR_CORPUS"]
fn both_parsers_agree_on_the_corpus() {
    let corpus = PathBuf::from(std::env::var_os("FA_DOCTOR_CORPUS").expect("FA_DOCTOR_CORPUS names the corpus"));
    let (mut compared, mut refused) = (0, 0);
    for environment in ["vllm-0.26.0", "fa4-b36"] {
        for path in python_files(&corpus.join("envs").join(environment)) {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            if compare(&text, &path.display().to_string()) {
                compared += 1;
            } else {
                refused += 1;
            }
        }
    }
    println!("{compared} files agree, {refused} are refused by rustpython-parser");
    assert!(compared > 1000 && refused * 10 < compared, "{compared} compared, {refused} refused");
}
