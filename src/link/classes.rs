//! Classes: bases, C3 linearisation, members, fields, and which classes are made into objects.

use std::sync::{Arc, PoisonError};

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{ClassRef, ExprRef, Linker, ModId, Program, Resolution, Truth, Value};
use crate::packs::Decorator;
use crate::python::ir::{ArgumentKind, BindingKind, ClassId, ExprId, ExprKind, StmtKind};
use crate::python::{Symbol, builtins};

/// The order in which Python looks for a class's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mro {
    /// Classes of the sources, the class itself first.
    pub classes: Vec<ClassRef>,
    /// Bases that are known by name only.
    pub externals: Vec<Symbol>,
    /// Some base may define attributes that no source shows.
    pub open: bool,
    /// Constructing it may not run `__init__` with the arguments as written: a metaclass, an unknown decorator or base.
    pub exotic: bool,
    /// Position in `classes` from which on a base that is not known may come first.
    certain: usize,
}

/// A field of a dataclass or named tuple.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: Symbol,
    /// The module and expression of its default.
    pub default: Option<(ModId, ExprId)>,
    /// It may be left out of the constructor.
    pub has_default: bool,
    /// It is a parameter of the constructor.
    pub init: bool,
    /// Passed by keyword only.
    pub keyword_only: bool,
}

/// Subclasses and constructions among the audited modules and their importers.
#[derive(Debug, Default)]
pub struct ClassTable {
    /// Every class, in order of module and place.
    pub classes: Vec<ClassRef>,
    children: FxHashMap<ClassRef, Vec<ClassRef>>,
    constructed: FxHashSet<ClassRef>,
}

/// One base as the linearisation sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Class(ClassRef),
    External(Symbol),
    Unknown(u32),
}

/// Bases outside the sources that add no attributes that matter and do not change construction.
const PLAIN: &[&str] = &[
    "object",
    "abc.ABC",
    "typing.Generic",
    "typing.Protocol",
    "typing_extensions.Protocol",
    "typing_extensions.Generic",
];

/// Bases outside the sources that answer for attributes of their own, but run `__init__` as written; so do the
/// exceptions of Python.
const ORDINARY: &[&str] =
    &["torch.nn.Module", "torch.nn.modules.module.Module", "typing.NamedTuple", "typing_extensions.NamedTuple"];

/// A builtin exception, by its name.
fn is_exception(name: &str) -> bool {
    builtins::is_builtin(name, None) && ["Error", "Exception", "Warning"].iter().any(|end| name.ends_with(end))
}

impl Linker<'_> {
    /// The linearisation of a class; `None` if Python would refuse it or the bases form a cycle.
    pub fn mro(&self, class: ClassRef) -> Option<Arc<Mro>> {
        let known = self.program.mros.read().unwrap_or_else(PoisonError::into_inner).get(&class).cloned();
        if let Some(known) = known {
            return known;
        }
        let cuts = self.cuts.get();
        let mro = self.guarded((class.module, 5, class.class.0), None, || self.linearise(class).map(Arc::new));
        if self.cuts.get() == cuts {
            self.program.mros.write().unwrap_or_else(PoisonError::into_inner).insert(class, mro.clone());
        }
        mro
    }

    fn linearise(&self, class: ClassRef) -> Option<Mro> {
        let order = self.order(class, &mut Vec::new())?;
        let mut mro =
            Mro { classes: Vec::new(), externals: Vec::new(), open: false, exotic: false, certain: usize::MAX };
        for entry in order {
            match entry {
                Entry::Class(base) => {
                    mro.classes.push(base);
                    let (open, exotic) = self.oddities(base);
                    mro.open |= open;
                    mro.exotic |= exotic;
                }
                Entry::External(name) => {
                    if !PLAIN.contains(&name.as_str()) {
                        mro.open = true;
                        mro.exotic |= !(ORDINARY.contains(&name.as_str()) || is_exception(&name));
                        mro.certain = mro.certain.min(mro.classes.len());
                    }
                    mro.externals.push(name);
                }
                Entry::Unknown(_) => {
                    mro.open = true;
                    mro.exotic = true;
                    mro.certain = mro.certain.min(mro.classes.len());
                }
            }
        }
        Some(mro)
    }

    /// C3.
    fn order(&self, class: ClassRef, path: &mut Vec<ClassRef>) -> Option<Vec<Entry>> {
        if path.contains(&class) || path.len() > 64 {
            return None;
        }
        path.push(class);
        let bases = self.bases(class);
        let mut lists: Vec<Vec<Entry>> = Vec::new();
        for base in &bases {
            lists.push(match base {
                Entry::Class(base) => self.order(*base, path)?,
                other => vec![*other],
            });
        }
        path.pop();
        lists.push(bases);
        let mut merged = vec![Entry::Class(class)];
        loop {
            lists.retain(|list| !list.is_empty());
            if lists.is_empty() {
                return Some(merged);
            }
            let head =
                lists.iter().map(|list| list[0]).find(|head| !lists.iter().any(|list| list[1..].contains(head)))?;
            merged.push(head);
            for list in &mut lists {
                if list[0] == head {
                    list.remove(0);
                }
            }
        }
    }

    fn bases(&self, class: ClassRef) -> Vec<Entry> {
        let module = self.module(class.module);
        let mut entries = Vec::new();
        for &base in &module[class.class].bases {
            if let ExprKind::Starred(_) = module[base].kind {
                entries.push(Entry::Unknown(base.0));
                continue;
            }
            let entry = match self.eval(class.module, base) {
                Resolution::Found(values) => match values[..] {
                    [Value::Class(base)] => Entry::Class(base),
                    [Value::External(name)] => Entry::External(name),
                    _ => Entry::Unknown(base.0),
                },
                _ => Entry::Unknown(base.0),
            };
            // Generic may be named again by a base; it always comes last and adds nothing.
            let plain = matches!(entry, Entry::External(name) if PLAIN.contains(&name.as_str()));
            if !plain && !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        entries
    }

    /// Whether a class's own keywords and decorators add attributes, or change how it is constructed.
    fn oddities(&self, class: ClassRef) -> (bool, bool) {
        let module = self.module(class.module);
        let data = &module[class.class];
        let mut odd = (false, false);
        for &(name, value) in &data.keywords {
            let plain = match name {
                Some(name) if &name == "metaclass" => {
                    self.spelled(class.module, value).as_deref() == Some("abc.ABCMeta")
                }
                // Keywords of __init_subclass__.
                Some(_) => true,
                None => false,
            };
            odd.0 |= !plain;
            odd.1 |= !plain;
        }
        for &decorator in &data.decorators {
            match self.decorator_kind(class.module, decorator) {
                Some(Decorator::Class | Decorator::Dataclass | Decorator::Keeps) => {}
                Some(Decorator::Storage) => odd.1 = true,
                _ => odd = (true, true),
            }
        }
        let getattr = ["__getattr__", "__getattribute__"];
        odd.0 |= getattr.iter().any(|name| module[data.scope].names.contains_key(&Symbol::new(name)));
        odd
    }

    /// Whether calling the class makes an object with `__init__` as written.
    pub fn is_plain_class(&self, class: ClassRef) -> bool {
        self.mro(class).is_some_and(|mro| !mro.exotic)
    }

    /// What the body of exactly this class binds `attr` to.
    pub fn own_member(&self, class: ClassRef, attr: Symbol) -> Resolution {
        let module = self.module(class.module);
        let scope = module[class.class].scope;
        let Some(bindings) = module[scope].names.get(&attr) else {
            return if module[scope].dynamic {
                Resolution::Unknown("a class body that makes names at run time")
            } else {
                Resolution::Missing
            };
        };
        match self.bound(class.module, scope, attr, None) {
            Resolution::Missing => {
                let declared = bindings.iter().any(|&b| matches!(module[b].kind, BindingKind::Declaration(_)));
                if declared { Resolution::Unknown("declared by an annotation") } else { Resolution::Missing }
            }
            found => found,
        }
    }

    /// What looking `attr` up on the class gives, before binding; Missing only if every base is known.
    pub fn class_member(&self, class: ClassRef, attr: Symbol) -> Resolution {
        let Some(mro) = self.mro(class) else { return Resolution::Unknown("a class whose bases are not known") };
        for (index, &owner) in mro.classes.iter().enumerate() {
            if index >= mro.certain {
                return Resolution::Unknown("a base that is not known comes first");
            }
            match self.own_member(owner, attr) {
                Resolution::Missing => {}
                found => return found,
            }
        }
        if mro.open { Resolution::Unknown("a base that is not known") } else { Resolution::Missing }
    }

    /// What methods along the linearisation store under `attr` on `self`; ends with Unknown if others may store too.
    pub(super) fn stored_attribute(&self, class: ClassRef, attr: Symbol) -> Vec<Resolution> {
        let mut found = Vec::new();
        let Some(mro) = self.mro(class) else { return vec![Resolution::Unknown("a class whose bases are not known")] };
        for &owner in &mro.classes {
            for store in self.own_stores(owner, attr) {
                let expr = &self.module(owner.module)[store.target];
                if self.truth_of_guard(owner.module, expr.guard, expr.span.start) == Truth::No {
                    continue;
                }
                found.push(match store.value {
                    Some(value) => self.eval(owner.module, value),
                    None => Resolution::Unknown("an attribute whose value is not followed"),
                });
            }
        }
        if self.program.stores().attributes.contains(&attr) {
            found.push(Resolution::Unknown("assigned from outside"));
        }
        found
    }

    /// The class is written as `class C(NamedTuple)`.
    pub fn is_named_tuple(&self, class: ClassRef) -> bool {
        let module = self.module(class.module);
        module[class.class].bases.iter().any(|&base| {
            let path = self.spelled(class.module, base);
            matches!(path.as_deref(), Some("typing.NamedTuple" | "typing_extensions.NamedTuple"))
        })
    }

    /// The fields of a dataclass or named tuple: outer `None` if they are not known, inner `None` if the class is neither.
    pub fn fields(&self, class: ClassRef) -> Option<Option<Vec<Field>>> {
        let mro = self.mro(class)?;
        if self.is_named_tuple(class) {
            return Some(Some(self.own_fields(class, false)?));
        }
        let mut fields: Vec<Field> = Vec::new();
        let mut any = false;
        for (index, &owner) in mro.classes.iter().enumerate().rev() {
            let module = self.module(owner.module);
            let decorator = module[owner.class]
                .decorators
                .iter()
                .copied()
                .find(|&d| self.decorator_kind(owner.module, d) == Some(Decorator::Dataclass));
            let Some(decorator) = decorator else {
                if index == 0 {
                    return Some(None);
                }
                continue;
            };
            let mut keyword_only = false;
            if let ExprKind::Call(call) = &module[decorator].kind {
                for argument in &call.arguments {
                    match argument.kind {
                        ArgumentKind::Keyword(name) => {
                            let value = self.truth(owner.module, argument.value);
                            match (name.as_str(), value) {
                                ("init", Some(true)) => {}
                                ("init", _) if index == 0 => return None,
                                ("kw_only", value) => keyword_only = value?,
                                _ => {}
                            }
                        }
                        _ => return None,
                    }
                }
            }
            any = true;
            for field in self.own_fields(owner, keyword_only)? {
                match fields.iter_mut().find(|known| known.name == field.name) {
                    Some(known) => *known = field,
                    None => fields.push(field),
                }
            }
        }
        if mro.open && any && mro.certain < mro.classes.len() {
            return None;
        }
        Some(any.then_some(fields))
    }

    fn own_fields(&self, class: ClassRef, mut keyword_only: bool) -> Option<Vec<Field>> {
        let module = self.module(class.module);
        let data = &module[class.class];
        let mut fields = Vec::new();
        for (_, stmt) in module.own_statements(&data.body, data.scope) {
            let StmtKind::AnnAssign(target, annotation, value) = &stmt.kind else { continue };
            let ExprKind::Name(name) = module[*target].kind else { continue };
            match self.truth_of_guard(class.module, stmt.guard, stmt.span.start) {
                Truth::Yes => {}
                Truth::No => continue,
                Truth::Maybe => return None,
            }
            let text = module.slice(module[*annotation].span);
            if text.contains("ClassVar") {
                continue;
            }
            if text.ends_with("KW_ONLY") {
                keyword_only = true;
                continue;
            }
            let mut field = Field {
                name,
                default: value.map(|v| (class.module, v)),
                has_default: value.is_some(),
                init: true,
                keyword_only,
            };
            if let Some(value) = *value
                && let ExprKind::Call(call) = &module[value].kind
                && self.spelled(class.module, call.callee).as_deref() == Some("dataclasses.field")
            {
                field.has_default = false;
                field.default = None;
                for argument in &call.arguments {
                    let ArgumentKind::Keyword(keyword) = argument.kind else { return None };
                    match keyword.as_str() {
                        "default" => {
                            field.has_default = true;
                            field.default = Some((class.module, argument.value));
                        }
                        "default_factory" => field.has_default = true,
                        "init" => field.init = self.truth(class.module, argument.value)?,
                        "kw_only" => field.keyword_only = self.truth(class.module, argument.value)?,
                        _ => {}
                    }
                }
            }
            fields.push(field);
        }
        Some(fields)
    }

    /// The expression that a field of an object got from the call that made it.
    pub(super) fn constructed_field(&self, class: ClassRef, at: ExprRef, attr: Symbol) -> Option<(ModId, ExprId)> {
        let fields = self.fields(class)??;
        let position = fields.iter().filter(|f| f.init).position(|field| field.name == attr)?;
        let ExprKind::Call(call) = &self.module(at.module)[at.expr].kind else { return None };
        let mut index = 0;
        for argument in &call.arguments {
            match argument.kind {
                ArgumentKind::Positional if index == position => return Some((at.module, argument.value)),
                ArgumentKind::Positional => index += 1,
                ArgumentKind::Keyword(name) if name == attr => return Some((at.module, argument.value)),
                ArgumentKind::Keyword(_) => {}
                ArgumentKind::Star | ArgumentKind::DoubleStar => return None,
            }
        }
        fields.iter().find(|field| field.name == attr)?.default
    }
}

/// What one module adds to the table.
#[derive(Debug, Default)]
struct Part {
    classes: Vec<ClassRef>,
    /// Base and class.
    derived: Vec<(ClassRef, ClassRef)>,
    constructed: Vec<ClassRef>,
}

impl Part {
    fn of(program: &Program<'_>, id: ModId, audited: bool) -> Part {
        let mut part = Part::default();
        let Some(module) = program.module(id) else { return part };
        let linker = Linker::flat(program);
        for index in 0..module.classes.len() {
            let class = ClassRef { module: id, class: ClassId(index as u32) };
            // Of the classes elsewhere only those that derive from the stack's matter.
            let bases = &module[class.class].bases;
            if !audited && !bases.iter().any(|&base| linker.touches_attention(id, base)) {
                continue;
            }
            part.classes.push(class);
            part.derived.extend(linker.bases(class).into_iter().filter_map(|entry| match entry {
                Entry::Class(base) => Some((base, class)),
                _ => None,
            }));
        }
        for expr in &module.exprs {
            let ExprKind::Call(call) = &expr.kind else { continue };
            if !may_construct(&linker, id, call.callee) || (!audited && !linker.touches_attention(id, call.callee)) {
                continue;
            }
            if let Resolution::Found(values) = linker.eval(id, call.callee) {
                part.constructed.extend(values.iter().filter_map(|value| match value {
                    Value::Class(class) => Some(*class),
                    _ => None,
                }));
            }
        }
        part
    }
}

impl ClassTable {
    pub(super) fn build(program: &Program<'_>) -> ClassTable {
        let audited = program.audited.iter().map(|&id| (id, true));
        let modules: Vec<_> = audited.chain(program.importers.iter().map(|&id| (id, false))).collect();
        let parts: Vec<Part> = modules.into_par_iter().map(|(id, audited)| Part::of(program, id, audited)).collect();
        let mut table = ClassTable::default();
        for part in parts {
            table.classes.extend(part.classes);
            table.constructed.extend(part.constructed);
            for (base, class) in part.derived {
                table.children.entry(base).or_default().push(class);
            }
        }
        table
    }

    /// Every class known to derive from this one, itself left out.
    pub fn descendants(&self, class: ClassRef) -> impl Iterator<Item = ClassRef> + '_ {
        let mut seen = FxHashSet::default();
        let mut queue: Vec<ClassRef> = self.children.get(&class).cloned().unwrap_or_default();
        std::iter::from_fn(move || {
            loop {
                let next = queue.pop()?;
                if seen.insert(next) {
                    queue.extend(self.children.get(&next).into_iter().flatten());
                    return Some(next);
                }
            }
        })
    }

    /// Nothing known derives from it.
    pub fn is_leaf(&self, class: ClassRef) -> bool {
        !self.children.contains_key(&class)
    }

    /// Some call makes an object of exactly this class.
    pub fn is_constructed(&self, class: ClassRef) -> bool {
        self.constructed.contains(&class)
    }

    /// Some class derives from it and from something else too.
    pub fn has_mixed_descendants(&self, linker: &Linker<'_>, class: ClassRef) -> bool {
        self.descendants(class).any(|child| linker.bases(child).len() > 1)
    }
}

/// Whether a callee can be a class at all, judged without resolving it.
fn may_construct(linker: &Linker<'_>, id: ModId, callee: ExprId) -> bool {
    let module = linker.module(id);
    match module[callee].kind {
        ExprKind::Name(name) => match linker.binding_scope(module, module[callee].scope, name) {
            None => !module[crate::python::Module::SCOPE].stars.is_empty(),
            Some(scope) => module[scope].names[&name]
                .iter()
                .any(|&binding| !matches!(module[binding].kind, BindingKind::Function(_) | BindingKind::Parameter(..))),
        },
        ExprKind::Attribute(value, attr) => {
            matches!(module[value].kind, ExprKind::Name(_) | ExprKind::Attribute(..))
                && attr.starts_with(|c: char| c.is_uppercase() || c == '_')
        }
        ExprKind::Subscript(..) | ExprKind::If(_) => true,
        _ => false,
    }
}
