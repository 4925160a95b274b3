//! An attribute that a class lacks is initialised in its constructor, with the value that the code agrees on.

use super::{Deriver, Site, Source};
use crate::finding::{Applicability, Edit, Fix};
use crate::link::{ClassRef, FnRef, ModId, Resolution, Value};
use crate::python::Symbol;
use crate::python::ir::{BindingKind, Constant, ExprId, ExprKind, GuardKind, Span, StmtKind};

pub(super) fn derive(deriver: &Deriver<'_>, site: Site<'_>, symbol: &str) -> Option<Fix> {
    let (class_name, attribute) = symbol.rsplit_once('.')?;
    let attribute = Symbol::new(attribute);
    let class = lacking(deriver, site, class_name, attribute)?;
    let (value, agreed) = value_of(deriver, class, attribute)?;
    let edit = initialise(deriver, class, attribute, &value)?;
    let applicability = if agreed { Applicability::Safe } else { Applicability::Unsafe };
    Some(Fix {
        applicability,
        title: format!("Initialise `{attribute}` with {value} in `{class_name}`"),
        edits: vec![edit],
    })
}

/// The class of this name that runs the read.
fn lacking(deriver: &Deriver<'_>, site: Site<'_>, name: &str, attribute: Symbol) -> Option<ClassRef> {
    let linker = &deriver.linker;
    let read = site.module.exprs.iter().enumerate().find_map(|(index, expr)| match expr.kind {
        ExprKind::Attribute(_, attr)
            if attr == attribute && site.module.attribute_span(ExprId(index as u32)).start == site.offset =>
        {
            Some(expr)
        }
        _ => None,
    })?;
    let owner = linker.method_class(site.id, site.module.enclosing_function(read.scope)?)?;
    let mut found = deriver.context.program.class_table().classes.iter().copied().filter(|&class| {
        linker.module(class.module)[class.class].name == *name
            && linker.mro(class).is_some_and(|mro| mro.classes.contains(&owner))
    });
    let class = found.next()?;
    // Two classes of one name in one hierarchy: nobody knows which is meant.
    found.next().is_none().then_some(class)
}

/// The value, as Python writes it, and whether the code of the class itself agrees with what its siblings do.
fn value_of(deriver: &Deriver<'_>, class: ClassRef, attribute: Symbol) -> Option<(String, bool)> {
    let linker = &deriver.linker;
    let table = deriver.context.program.class_table();
    let mro = linker.mro(class)?;
    let mut siblings = Vec::new();
    for &base in &mro.classes[1..] {
        siblings.extend(
            table.descendants(base).filter(|sibling| !linker.mro(*sibling).is_some_and(|m| m.classes.contains(&class))),
        );
    }
    siblings.sort_unstable();
    siblings.dedup();
    let mut values: Vec<Option<String>> = Vec::new();
    for sibling in siblings {
        for store in linker.own_stores(sibling, attribute) {
            values.push(store.value.and_then(|value| default_of(deriver, sibling.module, value)));
        }
    }
    let value = values.iter().flatten().next()?.clone();
    if values.iter().flatten().any(|other| *other != value) {
        return None;
    }
    let own = own_literals(deriver, &mro.classes, attribute);
    if own.iter().any(|other| *other != value) {
        return None;
    }
    Some((value, !own.is_empty()))
}

/// A constant as written: the value itself, or the default of the parameter that is stored.
fn default_of(deriver: &Deriver<'_>, id: ModId, value: ExprId) -> Option<String> {
    let module = deriver.linker.module(id);
    match module[value].kind {
        ExprKind::Constant(
            Constant::Bool(_) | Constant::None | Constant::Int(_) | Constant::Float(_) | Constant::Str(_),
        ) => Some(module.slice(module[value].span).to_owned()),
        ExprKind::Name(name) => {
            let scope = deriver.linker.binding_scope(module, module[value].scope, name)?;
            let [only] = module[scope].names.get(&name)?.as_slice() else { return None };
            let BindingKind::Parameter(function, index) = module[*only].kind else { return None };
            let default = module[function].parameters[index as usize].default?;
            match module[default].kind {
                ExprKind::Constant(_) => default_of(deriver, id, default),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The constants that methods of these classes pass where a parameter has the attribute's name.
fn own_literals(deriver: &Deriver<'_>, classes: &[ClassRef], attribute: Symbol) -> Vec<String> {
    let linker = &deriver.linker;
    let mut found = Vec::new();
    for (id, expr, call) in deriver.calls() {
        let module = linker.module(id);
        let at = module[expr].span;
        let inside = |class: &&ClassRef| class.module == id && covers(module[class.class].whole, at);
        if !classes.iter().any(|class| inside(&class)) {
            continue;
        }
        let arguments = linker.arguments(id, &call.arguments);
        let by_keyword = arguments.keywords.iter().find(|(name, _)| *name == attribute).and_then(|(_, index)| *index);
        let index = by_keyword.or_else(|| {
            let Resolution::Found(values) = linker.eval(id, call.callee) else { return None };
            let [value] = &values[..] else { return None };
            let callee = linker.callee(value)?;
            let position = callee.signature.parameters.iter().position(|parameter| parameter.name == attribute)?;
            *arguments.positional.get(position)?
        });
        let Some(index) = index else { continue };
        let value = call.arguments[index].value;
        if let ExprKind::Constant(_) = module[value].kind {
            found.push(module.slice(module[value].span).to_owned());
        }
    }
    found
}

fn covers(outer: Span, inner: Span) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Where the attribute is set: behind `super().__init__(..)`, in front of it if that reads the attribute already, or as
/// an attribute of the class where it has no constructor of its own.
fn initialise(deriver: &Deriver<'_>, class: ClassRef, attribute: Symbol, value: &str) -> Option<Edit> {
    let linker = &deriver.linker;
    let module = linker.module(class.module);
    let source = Source::of(module)?;
    let data = &module[class.class];
    let constructor = match linker.own_member(class, Symbol::new("__init__")) {
        Resolution::Missing => None,
        Resolution::Found(values) => match values[..] {
            [Value::Function(f)] => Some(f),
            _ => return None,
        },
        Resolution::Unknown(_) => return None,
    };
    let Some(constructor) = constructor else {
        return source.insert_at_body_start(data.body_start, &format!("{attribute} = {value}"));
    };
    let function = &module[constructor.function];
    let this = function.parameters.first()?.name;
    let line = format!("{this}.{attribute} = {value}");
    let super_call = module.own_statements(&function.body, function.scope).find(|(_, stmt)| {
        let StmtKind::Expr(expr) = stmt.kind else { return false };
        let ExprKind::Call(call) = &module[expr].kind else { return false };
        let is_plain = matches!(module[stmt.guard].kind, GuardKind::Body(body) if body == constructor.function);
        is_plain && module.slice(module[call.callee].span).ends_with(".__init__")
    });
    match super_call {
        Some((_, stmt)) if !constructor_reads(deriver, class, attribute) => Some(source.insert_after(stmt.span, &line)),
        _ => source.insert_at_body_start(function.body_start, &line),
    }
}

/// Whether a base's constructor, or a method that it calls, reads the attribute.
fn constructor_reads(deriver: &Deriver<'_>, class: ClassRef, attribute: Symbol) -> bool {
    let linker = &deriver.linker;
    let Some(mro) = linker.mro(class) else { return true };
    let mut queue: Vec<FnRef> = Vec::new();
    for &base in &mro.classes[1..] {
        if let Resolution::Found(values) = linker.own_member(base, Symbol::new("__init__")) {
            queue.extend(values.iter().filter_map(|value| match value {
                Value::Function(f) => Some(*f),
                _ => None,
            }));
        }
    }
    let mut seen: Vec<FnRef> = Vec::new();
    while let Some(f) = queue.pop() {
        if seen.contains(&f) {
            continue;
        }
        seen.push(f);
        let module = linker.module(f.module);
        let Some(owner) = module[f.function].class else { continue };
        let index = linker.self_index(f.module);
        let Some(used) = index.classes.get(&owner) else { continue };
        for read in used.reads.iter().filter(|read| read.function == f.function) {
            let ExprKind::Attribute(_, attr) = module[read.expr].kind else { continue };
            if attr == attribute {
                return true;
            }
            if let Resolution::Found(values) = linker.class_member(class, attr) {
                queue.extend(values.iter().filter_map(|value| match value {
                    Value::Function(f) => Some(*f),
                    _ => None,
                }));
            }
        }
    }
    false
}
