//! # What it does
//!
//! Finds `self.x` read in a method that a concrete class really runs, where nothing along the class's method resolution
//! order assigns or declares `x`, and nothing outside assigns it either.
//!
//! # Why is this bad
//!
//! The line raises AttributeError. A base class shared by kernels for several architectures reads what only some of them
//! set: the others fail when the kernel is compiled, on the cards they were made for.
//!
//! # Example
//!
//! ```python
//! class ForwardBase:
//!     def epilogue(self):
//!         if self.is_split: ...
//!
//! class ForwardSm90(ForwardBase):
//!     def __init__(self, is_split):
//!         self.is_split = is_split
//!
//! class ForwardSm80(ForwardBase):  # 'ForwardSm80' object has no attribute 'is_split'
//!     def __call__(self):
//!         self.epilogue()
//! ```
//!
//! # Fix
//!
//! The attribute is initialised in the constructor of the class that lacks it. Safe if the code itself agrees on the
//! value: the default that the siblings give it, and the literal that the class passes for it elsewhere. Unsafe if the
//! value is a guess.
//!
//! # References
//!
//! - <https://docs.python.org/3/howto/mro.html>

use std::collections::BTreeMap;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::fa001_undefined_name::is_evaluated;
use super::sources::{finding, over, related, report};
use super::{Context, Rule, RuleInfo, Sink};
use crate::finding::Finding;
use crate::link::{ClassRef, FnRef, Linker, Located, ModId, Protection, Resolution, Stores, Truth, Value};
use crate::python::Symbol;
use crate::python::ir::{BindingId, BindingKind, ExprId, ExprKind, GuardKind, StmtKind, Usage};

static INFO: RuleInfo = RuleInfo {
    code: "FA002",
    name: "undefined-attribute",
    summary: "`self.x` that a concrete class reads and nothing assigns",
    source: include_str!("fa002_undefined_attribute.rs"),
};

/// FA002.
pub struct UndefinedAttribute;

impl Rule for UndefinedAttribute {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let mentioned = mentioned_methods(context);
        let mut lacks: Vec<Lack> = over(context, &context.program.audited, |linker, id| {
            let module = linker.module(id);
            let classes = (0..module.classes.len())
                .map(|index| ClassRef { module: id, class: crate::python::ir::ClassId(index as u32) });
            classes.flat_map(|class| lacking(linker, class, &mentioned)).collect()
        });
        let given = given_elsewhere(context, &lacks);
        lacks.retain(|lack| !given.contains(&lack.attribute));
        let findings = group(context, lacks);
        report(context, sink, findings);
    }
}

/// An attribute that a class lacks, with the reads that fail.
#[derive(Debug, Clone)]
pub struct Lack {
    /// The concrete class.
    pub class: ClassRef,
    /// The attribute.
    pub attribute: Symbol,
    /// The reads in what it runs, with the module of each.
    pub reads: Vec<(ModId, ExprId)>,
}

/// The attributes among those that modules beyond the audit, which need not import what they are handed, assign to some
/// object.
fn given_elsewhere(context: &Context<'_>, lacks: &[Lack]) -> FxHashSet<Symbol> {
    let Context { environment, program, .. } = context;
    let mut names: Vec<&str> = lacks.iter().map(|lack| lack.attribute.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return FxHashSet::default();
    }
    let known: FxHashSet<ModId> = program.audited.iter().chain(&program.importers).copied().collect();
    let modules = environment.files_mentioning(&names).into_iter().filter_map(|(root, path)| {
        match program.locate(&program.module_name(root, &path)?) {
            Located::Module(id) if !known.contains(&id) => Some(id),
            _ => None,
        }
    });
    modules.flat_map(|id| Stores::of(program, id).attributes).collect()
}

/// Names of methods that are read from anything but `self`, anywhere in the audited modules and their importers.
fn mentioned_methods(context: &Context<'_>) -> FxHashSet<Symbol> {
    let modules: Vec<ModId> = context.program.audited.iter().chain(&context.program.importers).copied().collect();
    let names_in = |mut names: FxHashSet<Symbol>, id: ModId| {
        let Some(module) = context.program.module(id) else { return names };
        for expr in &module.exprs {
            if let ExprKind::Attribute(object, attr) = expr.kind
                && expr.usage == Usage::Load
                && !matches!(module[object].kind, ExprKind::Name(name) if &name == "self")
            {
                names.insert(attr);
            }
        }
        names
    };
    let union = |mut one: FxHashSet<Symbol>, other: FxHashSet<Symbol>| {
        one.extend(other);
        one
    };
    modules.into_par_iter().fold(FxHashSet::default, names_in).reduce(FxHashSet::default, union)
}

/// The attributes that a class lacks, if it is concrete.
pub fn lacking(linker: &Linker<'_>, class: ClassRef, mentioned: &FxHashSet<Symbol>) -> Vec<Lack> {
    let table = linker.program.class_table();
    let module = linker.module(class.module);
    let data = &module[class.class];
    let swapped = linker.program.stores().swapped.contains(&data.name);
    if !(table.is_leaf(class) || table.is_constructed(class)) || swapped {
        return Vec::new();
    }
    // A class in a function is made for one occasion; its enclosing function may do anything with it.
    if linker.truth_of_guard(class.module, data.guard, data.span.start) == Truth::No {
        return Vec::new();
    }
    let Some(mro) = linker.mro(class) else { return Vec::new() };
    let dynamic = |owner: &ClassRef| linker.is_set_by_name(owner.module);
    if mro.open || mro.classes.iter().any(dynamic) || is_open(linker, &mro.classes) {
        return Vec::new();
    }
    if !table.is_constructed(class) && (is_abstract(linker, class) || is_mixin(linker, class)) {
        return Vec::new();
    }
    if !may_lack(linker, class, &mro.classes) {
        return Vec::new();
    }
    linker.assuming_self(class, || {
        let mut reads: BTreeMap<Symbol, Vec<(ModId, ExprId)>> = BTreeMap::new();
        let mut certain: Option<Vec<FnRef>> = None;
        for f in running(linker, class, mentioned) {
            for (id, expr) in failing_reads(linker, class, f) {
                let ExprKind::Attribute(_, attr) = linker.module(id)[expr].kind else { continue };
                // Somebody calls a method of this name on something: that may be a relative that has the attribute.
                if !a_relative_has(linker, f, attr)
                    || certain.get_or_insert_with(|| certainly_running(linker, class, mentioned)).contains(&f)
                {
                    reads.entry(attr).or_default().push((id, expr));
                }
            }
        }
        reads.into_iter().map(|(attribute, reads)| Lack { class, attribute, reads }).collect()
    })
}

/// Whether any method along the linearisation reads an attribute that the class lacks: cheap, and almost always no. A
/// class body may take functions from elsewhere under a name; then it takes a closer look to tell.
fn may_lack(linker: &Linker<'_>, class: ClassRef, classes: &[ClassRef]) -> bool {
    classes.iter().any(|owner| {
        let module = linker.module(owner.module);
        let takes = |binding: &BindingId| match module[*binding].kind {
            BindingKind::Function(_) | BindingKind::Class(_) | BindingKind::Declaration(_) => false,
            BindingKind::Value(value) => !matches!(module[value].kind, ExprKind::Constant(_)),
            _ => true,
        };
        module[module[owner.class].scope].names.values().flatten().any(takes)
            || linker.self_index(owner.module).classes.get(&owner.class).is_some_and(|used| {
                used.reads.iter().any(|read| match linker.module(owner.module)[read.expr].kind {
                    ExprKind::Attribute(_, attr) => !is_given_by_python(&attr) && !exists(linker, class, attr),
                    _ => true,
                })
            })
    })
}

fn is_open(linker: &Linker<'_>, classes: &[ClassRef]) -> bool {
    classes.iter().any(|owner| {
        let module = linker.module(owner.module);
        linker.self_index(owner.module).classes.get(&owner.class).is_some_and(|used| used.open)
            || module[module[owner.class].scope].dynamic
    })
}

/// Some method along the linearisation is still abstract.
fn is_abstract(linker: &Linker<'_>, class: ClassRef) -> bool {
    let Some(mro) = linker.mro(class) else { return true };
    mro.classes.iter().any(|owner| {
        let module = linker.module(owner.module);
        module[module[owner.class].scope].names.keys().any(|&name| {
            matches!(linker.class_member(class, name).single(), Some(Value::Function(f)) if linker.is_abstract(*f))
        })
    })
}

/// Nothing makes objects of the class, and it has no way to set up one of its own: it is there for others to inherit.
fn is_mixin(linker: &Linker<'_>, class: ClassRef) -> bool {
    ["__init__", "__new__"].iter().all(|method| linker.class_member(class, Symbol::new(method)) == Resolution::Missing)
        && matches!(linker.fields(class), Some(None))
}

/// Some class that shares a method has the attribute.
fn a_relative_has(linker: &Linker<'_>, f: FnRef, attr: Symbol) -> bool {
    let Some(owner) = linker.method_class(f.module, f.function) else { return false };
    linker.program.class_table().descendants(owner).any(|relative| exists(linker, relative, attr))
}

/// What an object of the class runs for sure: inherited methods only if something calls them on an object of this very
/// class, or if they are what runs a method that the class had to supply.
fn certainly_running(linker: &Linker<'_>, class: ClassRef, mentioned: &FxHashSet<Symbol>) -> Vec<FnRef> {
    let called = |name: Symbol| {
        linker.program.mentions().reads_of(name).iter().any(|&(id, expr)| match linker.module(id)[expr].kind {
            ExprKind::Attribute(object, _) => match linker.eval(id, object) {
                Resolution::Found(values) => values.iter().any(|v| matches!(v, Value::Instance(c, _) if *c == class)),
                _ => false,
            },
            _ => false,
        })
    };
    let supplied = |attr: Symbol| {
        let is_own = linker.own_member(class, attr) != Resolution::Missing;
        is_own
            && linker.mro(class).is_some_and(|mro| {
                mro.classes[1..].iter().any(|&base| {
                matches!(linker.own_member(base, attr).single(), Some(&Value::Function(f)) if linker.is_stub(f))
            })
            })
    };
    let completed = |name: Symbol| {
        methods(linker, class, name).into_iter().any(|f| {
            self_reads(linker, f).into_iter().any(|(id, expr)| match linker.module(id)[expr].kind {
                ExprKind::Attribute(_, attr) => supplied(attr),
                _ => false,
            })
        })
    };
    let Some(mro) = linker.mro(class) else { return Vec::new() };
    let inherited = mro.classes[1..].iter().flat_map(|owner| {
        let module = linker.module(owner.module);
        module[module[owner.class].scope].names.keys().copied()
    });
    let names = inherited.filter(|name| mentioned.contains(name)).filter(|&name| called(name) || completed(name));
    running(linker, class, &names.collect())
}

/// The functions that an object of the class runs: special methods, the class's own methods, inherited ones that
/// something calls, and what all of these call on `self`.
fn running(linker: &Linker<'_>, class: ClassRef, mentioned: &FxHashSet<Symbol>) -> Vec<FnRef> {
    let Some(mro) = linker.mro(class) else { return Vec::new() };
    let mut names: Vec<Symbol> = Vec::new();
    for owner in &mro.classes {
        let module = linker.module(owner.module);
        for &name in module[module[owner.class].scope].names.keys() {
            let special = name.starts_with("__") && name.ends_with("__");
            let own = *owner == class;
            if special || own || mentioned.contains(&name) {
                names.push(name);
            }
        }
    }
    names.sort();
    names.dedup();
    let mut seen: FxHashSet<FnRef> = FxHashSet::default();
    let mut queue: Vec<FnRef> = Vec::new();
    let mut run = Vec::new();
    for name in names {
        queue.extend(methods(linker, class, name));
    }
    while let Some(f) = queue.pop() {
        if !seen.insert(f) {
            continue;
        }
        run.push(f);
        let Some(stop) = stop_of(linker, class, f) else { continue };
        for (id, expr) in self_reads(linker, f) {
            let module = linker.module(id);
            if module[expr].span.start >= stop || !is_live(linker, id, expr) {
                continue;
            }
            if let ExprKind::Attribute(_, attr) = module[expr].kind {
                queue.extend(methods(linker, class, attr));
            }
        }
        queue.extend(supers(linker, class, f));
    }
    run.sort();
    run
}

/// The functions that `attr` may be on an object of the class.
fn methods(linker: &Linker<'_>, class: ClassRef, attr: Symbol) -> Vec<FnRef> {
    match linker.class_member(class, attr) {
        Resolution::Found(values) => values
            .into_iter()
            .filter_map(|value| match value {
                Value::Function(f) | Value::Bound(f) => Some(f),
                _ => None,
            })
            .collect(),
        // An unknown decorator hides the signature, not the body: the definition runs all the same.
        _ => {
            let Some(mro) = linker.mro(class) else { return Vec::new() };
            let owner = mro.classes.iter().find(|owner| {
                let module = linker.module(owner.module);
                module[module[owner.class].scope].names.contains_key(&attr)
            });
            let Some(owner) = owner else { return Vec::new() };
            let module = linker.module(owner.module);
            let bindings = module[module[owner.class].scope].names[&attr].iter();
            bindings
                .filter_map(|&binding| match module[binding].kind {
                    crate::python::ir::BindingKind::Function(function) => {
                        Some(FnRef { module: owner.module, function })
                    }
                    _ => None,
                })
                .collect()
        }
    }
}

/// Methods that a method reaches through `super()`.
fn supers(linker: &Linker<'_>, class: ClassRef, f: FnRef) -> Vec<FnRef> {
    let module = linker.module(f.module);
    let Some(mro) = linker.mro(class) else { return Vec::new() };
    let Some(owner) = linker.method_class(f.module, f.function) else { return Vec::new() };
    let Some(at) = mro.classes.iter().position(|&c| c == owner) else { return Vec::new() };
    let range = module[f.function].exprs.clone();
    let mut found = Vec::new();
    for expr in &module.exprs[range.start as usize..range.end as usize] {
        let ExprKind::Attribute(object, attr) = expr.kind else { continue };
        let order = match &module[object].kind {
            ExprKind::Call(call) if module.dotted(call.callee).as_deref() == Some("super") => {
                mro.classes[at + 1..].to_vec()
            }
            // Base.method(self, ..) looks where Base would.
            ExprKind::Name(_) | ExprKind::Attribute(..) => match linker.eval(f.module, object).single() {
                Some(&Value::Class(base)) if mro.classes.contains(&base) => {
                    linker.mro(base).map(|mro| mro.classes.clone()).unwrap_or_default()
                }
                _ => continue,
            },
            _ => continue,
        };
        for next in &order {
            if let Resolution::Found(values) = linker.own_member(*next, attr) {
                found.extend(values.iter().filter_map(|value| match value {
                    Value::Function(f) => Some(*f),
                    _ => None,
                }));
                break;
            }
        }
    }
    found
}

/// The reads of `self` attributes in a method, nested functions included.
fn self_reads(linker: &Linker<'_>, f: FnRef) -> Vec<(ModId, ExprId)> {
    let Some(class) = linker.module(f.module)[f.function].class else { return Vec::new() };
    let index = linker.self_index(f.module);
    let Some(used) = index.classes.get(&class) else { return Vec::new() };
    used.reads.iter().filter(|read| read.function == f.function).map(|read| (f.module, read.expr)).collect()
}

/// Where a method certainly ends early for this class: the first unconditional call of a method that always raises.
/// `None` if it raises from the start.
fn stop_of(linker: &Linker<'_>, class: ClassRef, f: FnRef) -> Option<u32> {
    let module = linker.module(f.module);
    let function = &module[f.function];
    let mut stop = u32::MAX;
    for (id, expr) in self_reads(linker, f) {
        let data = &linker.module(id)[expr];
        let unconditional = matches!(module[data.guard].kind, GuardKind::Body(body) if body == f.function);
        if !unconditional || data.scope != function.scope {
            continue;
        }
        let ExprKind::Attribute(_, attr) = data.kind else { continue };
        let range = function.exprs.start as usize..function.exprs.end as usize;
        let called =
            module.exprs[range].iter().find(|e| matches!(&e.kind, ExprKind::Call(call) if call.callee == expr));
        let Some(call) = called else { continue };
        let raising = methods(linker, class, attr);
        if !raising.is_empty() && raising.iter().all(|&g| linker.always_raises(g)) {
            stop = stop.min(call.span.end);
        }
    }
    (stop > 0).then_some(stop)
}

fn is_live(linker: &Linker<'_>, id: ModId, expr: ExprId) -> bool {
    let module = linker.module(id);
    let data = &module[expr];
    is_evaluated(data.phase, linker.program.environment.python)
        && linker.truth_of_guard(id, data.guard, data.span.start) != Truth::No
}

/// The reads in a method that fail on an object of the class.
fn failing_reads(linker: &Linker<'_>, class: ClassRef, f: FnRef) -> Vec<(ModId, ExprId)> {
    let Some(stop) = stop_of(linker, class, f) else { return Vec::new() };
    let mut failing = Vec::new();
    for (id, expr) in self_reads(linker, f) {
        let module = linker.module(id);
        let data = &module[expr];
        let ExprKind::Attribute(object, attr) = data.kind else { continue };
        if data.span.start >= stop || is_given_by_python(&attr) || exists(linker, class, attr) {
            continue;
        }
        let object = module.slice(module[object].span);
        if !is_live(linker, id, expr)
            || linker.is_protected(id, data.guard, Protection::Attribute)
            || linker.is_known_attribute(id, data.guard, object, attr)
            || linker.is_behind_open_question(id, data.guard)
            || depends_on_self(linker, id, expr)
        {
            continue;
        }
        failing.push((id, expr));
    }
    failing
}

/// The read stands under a condition on the object that is not decided: the object may be one that never gets there.
fn depends_on_self(linker: &Linker<'_>, id: ModId, expr: ExprId) -> bool {
    let module = linker.module(id);
    module.conditions(module[expr].guard).any(|kind| match kind {
        GuardKind::Test { test, .. } => {
            linker.truth(id, test).is_none() && {
                let span = module[test].span;
                let inside = |e: &crate::python::ir::Expr| e.span.start >= span.start && e.span.end <= span.end;
                module.exprs.iter().any(|e| match e.kind {
                    ExprKind::Attribute(object, attr) if inside(e) => {
                        matches!(module[object].kind, ExprKind::Name(name) if &name == "self")
                            && !matches!(module[expr].kind, ExprKind::Attribute(_, own) if own == attr)
                    }
                    _ => false,
                })
            }
        }
        _ => false,
    })
}

/// Attributes of every object and class.
fn is_given_by_python(attr: &str) -> bool {
    attr.starts_with("__") && attr.ends_with("__")
}

/// Whether anything gives objects of the class the attribute.
fn exists(linker: &Linker<'_>, class: ClassRef, attr: Symbol) -> bool {
    if linker.program.stores().attributes.contains(&attr) {
        return true;
    }
    let Some(mro) = linker.mro(class) else { return true };
    mro.classes.iter().any(|owner| {
        let module = linker.module(owner.module);
        module[module[owner.class].scope].names.contains_key(&attr)
            || linker.own_stores(*owner, attr).iter().any(|store| !store.augmented)
            || slots(linker, *owner).is_some_and(|slots| slots.contains(&attr))
    })
}

/// The names in `__slots__`.
fn slots(linker: &Linker<'_>, class: ClassRef) -> Option<Vec<Symbol>> {
    let module = linker.module(class.module);
    let scope = module[class.class].scope;
    let name = Symbol::new("__slots__");
    if !module[scope].names.contains_key(&name) {
        return None;
    }
    for (_, stmt) in module.own_statements(&module[class.class].body, scope) {
        let (StmtKind::Assign(_, value) | StmtKind::AnnAssign(_, _, Some(value))) = stmt.kind else { continue };
        let items: Vec<ExprId> = match &module[value].kind {
            ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::Set(items) => items.to_vec(),
            _ => vec![value],
        };
        let names = items.iter().filter_map(|&item| match module[item].kind {
            ExprKind::Constant(crate::python::ir::Constant::Str(name)) => Some(name),
            _ => None,
        });
        return Some(names.collect());
    }
    None
}

/// One finding per cause: for the concrete class nearest to the root, with the subclasses that inherit the lack.
fn group(context: &Context<'_>, lacks: Vec<Lack>) -> Vec<Finding> {
    let linker = Linker::new(context.program);
    let mut by_attribute: FxHashMap<Symbol, Vec<Lack>> = FxHashMap::default();
    for lack in lacks {
        by_attribute.entry(lack.attribute).or_default().push(lack);
    }
    let mut findings = Vec::new();
    for (attribute, lacks) in by_attribute {
        let ancestors = |lack: &Lack| -> Vec<ClassRef> {
            linker.mro(lack.class).map(|mro| mro.classes[1..].to_vec()).unwrap_or_default()
        };
        for lack in &lacks {
            let above = ancestors(lack);
            if lacks.iter().any(|other| other.class != lack.class && above.contains(&other.class)) {
                continue;
            }
            let inheriting: Vec<&Lack> = lacks.iter().filter(|other| ancestors(other).contains(&lack.class)).collect();
            findings.push(describe(context, &linker, attribute, lack, &inheriting));
        }
    }
    findings.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    findings
}

fn describe(
    context: &Context<'_>,
    linker: &Linker<'_>,
    attribute: Symbol,
    lack: &Lack,
    inheriting: &[&Lack],
) -> Finding {
    let mut reads = lack.reads.clone();
    reads.sort_by_key(|&(id, expr)| (linker.module(id).path.clone(), linker.module(id)[expr].span));
    reads.dedup();
    let (first, expr) = reads[0];
    let name = linker.module(lack.class.module)[lack.class.class].name;
    let span = linker.module(first).attribute_span(expr);
    let message = format!("AttributeError: '{name}' object has no attribute '{attribute}'");
    let mut item = finding(context, &INFO, first, span, format!("{name}.{attribute}"), message);
    let mut lines = vec![item.line];
    for &(id, expr) in &reads[1..] {
        let place = related(context, id, linker.module(id).attribute_span(expr).start, "read here too");
        if id != first || !lines.contains(&place.line) {
            lines.push(place.line);
            item.related.push(place);
        }
    }
    let class = linker.module(lack.class.module);
    let message = format!("`{name}` runs this and never assigns `{attribute}`");
    item.related.push(related(context, lack.class.module, class[lack.class.class].span.start, message));
    for other in inheriting {
        let module = linker.module(other.class.module);
        let data = &module[other.class.class];
        let message = format!("`{}` inherits the lack", data.name);
        item.related.push(related(context, other.class.module, data.span.start, message));
    }
    // The siblings that do assign it show what is meant.
    let mut siblings = Vec::new();
    if let Some(mro) = linker.mro(lack.class) {
        for &base in &mro.classes[1..] {
            for other in linker.program.class_table().descendants(base) {
                for store in linker.own_stores(other, attribute) {
                    let module = linker.module(other.module);
                    let message = format!("`{}` assigns it here", module[other.class].name);
                    let place = related(context, other.module, module[store.target].span.start, message);
                    if !siblings.contains(&place) {
                        siblings.push(place);
                    }
                }
            }
        }
    }
    siblings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    item.related.extend(siblings);
    item.help = Some(format!("initialise `self.{attribute}` in `{name}.__init__`"));
    item
}
