//! Which functions anything refers to: a defect in one that nothing does lies on no path that is known to be taken.

use std::cell::RefCell;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{FnRef, Linker, Located, ModId, Program, Resolution, Value, absolute};
use crate::python::ir::{BindingKind, ExprId, ExprKind, FunctionId, ScopeId, ScopeKind, StmtKind, Usage as Use};
use crate::python::{Module, Symbol};

/// Where each name is mentioned in the audited modules and their importers.
#[derive(Debug, Default)]
pub struct Mentions {
    /// Reads of names and attributes, by name.
    reads: FxHashMap<Symbol, Vec<(ModId, ExprId)>>,
    /// Names that imports or strings (`__all__`, getattr, registries) mention.
    tables: FxHashSet<Symbol>,
    /// Modules whose public names a star import hands on.
    stars: FxHashSet<ModId>,
}

impl Mentions {
    pub(super) fn build(program: &Program<'_>) -> Mentions {
        let mut mentions = Mentions::default();
        for &id in program.audited.iter().chain(&program.importers) {
            let Some(module) = program.module(id) else { continue };
            for (index, expr) in module.exprs.iter().enumerate() {
                match expr.kind {
                    ExprKind::Name(name) | ExprKind::Attribute(_, name) if expr.usage == Use::Load => {
                        mentions.reads.entry(name).or_default().push((id, ExprId(index as u32)));
                    }
                    ExprKind::Constant(crate::python::ir::Constant::Str(text)) => {
                        if let Some(last) = text.rsplit(['.', ':']).next()
                            && last.len() < 80
                            && last.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                        {
                            mentions.tables.insert(Symbol::new(last));
                        }
                    }
                    _ => {}
                }
            }
            for stmt in &module.stmts {
                if let StmtKind::ImportFrom(import) = &stmt.kind {
                    mentions.tables.insert(import.name);
                    if &import.name == "*"
                        && let Some(source) = absolute(module, import.level, &import.module)
                        && let Located::Module(from) = program.locate(&source)
                    {
                        mentions.stars.insert(from);
                    }
                }
            }
        }
        mentions
    }

    /// Reads of a name, or of an attribute of that name.
    pub fn reads_of(&self, name: Symbol) -> &[(ModId, ExprId)] {
        self.reads.get(&name).map_or(&[], Vec::as_slice)
    }

    /// Whether a name or attribute of that name is read anywhere, or a string spells it.
    pub(super) fn is_mentioned(&self, name: Symbol) -> bool {
        self.reads.contains_key(&name) || self.tables.contains(&name)
    }
}

/// Answers which functions are referred to.
pub struct Usage<'p> {
    linker: Linker<'p>,
    mentions: &'p Mentions,
    known: RefCell<FxHashMap<FnRef, bool>>,
}

impl<'p> Usage<'p> {
    /// Over the mentions of a program.
    pub fn new(program: &'p Program<'p>) -> Usage<'p> {
        Usage { linker: Linker::new(program), mentions: program.mentions(), known: RefCell::default() }
    }

    /// Whether something that may itself run refers to the outermost function around `scope`; module code always runs.
    pub fn is_referred_to(&self, id: ModId, scope: ScopeId) -> bool {
        match outermost(self.linker.module(id), scope) {
            Some(function) => self.function(FnRef { module: id, function }),
            None => true,
        }
    }

    fn function(&self, f: FnRef) -> bool {
        if let Some(&known) = self.known.borrow().get(&f) {
            return known;
        }
        // Functions that only refer to each other are referred to by nothing.
        self.known.borrow_mut().insert(f, false);
        let answer = self.search(f);
        self.known.borrow_mut().insert(f, answer);
        answer
    }

    fn search(&self, f: FnRef) -> bool {
        let module = self.linker.module(f.module);
        let function = &module[f.function];
        // Whoever holds an object may call its methods. A decorator may register a function; a name that is imported or
        // stands in a table is for others to call.
        let handed_on = function.outer == Module::SCOPE
            && !function.name.starts_with('_')
            && self.mentions.stars.contains(&f.module);
        if handed_on
            || function.class.is_some()
            || self.mentions.tables.contains(&function.name)
            || !function.decorators.is_empty() && self.registers(f)
        {
            return true;
        }
        let mentions = self.mentions.reads.get(&function.name).into_iter().flatten();
        mentions.into_iter().any(|&(id, expr)| {
            let other = self.linker.module(id);
            let inside = id == f.module && function.exprs.contains(&expr.0);
            !inside
                && self.may_be(id, expr, f)
                && match outermost(other, other[expr].scope) {
                    Some(caller) => self.function(FnRef { module: id, function: caller }),
                    None => true,
                }
        })
    }

    /// A mention may be the function unless it certainly is something else.
    fn may_be(&self, id: ModId, expr: ExprId, f: FnRef) -> bool {
        match self.linker.eval(id, expr) {
            Resolution::Found(values) => values.iter().any(|value| match value {
                Value::Function(g) | Value::Bound(g) => *g == f,
                Value::Class(_) | Value::Module(_) | Value::Constant(_) | Value::Instance(..) => false,
                _ => true,
            }),
            _ => true,
        }
    }

    fn registers(&self, f: FnRef) -> bool {
        let module = self.linker.module(f.module);
        let decorators = &module[f.function].decorators;
        decorators.iter().any(|&decorator| self.linker.decorator_kind(f.module, decorator).is_none())
    }
}

/// The outermost function around a scope; for a method the method itself.
fn outermost(module: &Module, scope: ScopeId) -> Option<FunctionId> {
    let mut found = None;
    let mut at = scope;
    while at != Module::SCOPE {
        if let ScopeKind::Function(function) = module[at].kind
            && module[function].lambda.is_none()
        {
            found = Some(function);
        }
        at = module[at].parent;
    }
    // A redefinition under the same name is bound where the last one is.
    found.filter(|&function| {
        let data = &module[function];
        module[data.outer].names.get(&data.name).is_some_and(|bindings| {
            bindings.iter().any(|&b| matches!(module[b].kind, BindingKind::Function(g) if g == function))
        })
    })
}
