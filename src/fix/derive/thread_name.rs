//! A name that a kernel reads and its launcher has is handed through the launch: one argument, one parameter.

use super::source::{argument_spans, parameter_spans};
use super::{Deriver, Site, Source};
use crate::finding::{Applicability, Edit, Fix};
use crate::link::{FnRef, ModId, Resolution, Value, is_ancestor};
use crate::python::ir::{
    Argument, ArgumentKind, BindingKind, Call, Constant, ExprId, ExprKind, Function, Parameter, ParameterKind,
};
use crate::python::{Module, Symbol};

/// A launch: a call that may reach some of the kernels.
struct Launch<'c> {
    module: ModId,
    expr: ExprId,
    call: &'c Call,
    /// The kernels, and whether the call binds their first parameter itself.
    kernels: Vec<(FnRef, bool)>,
}

/// How the launcher declares what is handed through.
struct Declared {
    module: ModId,
    annotation: Option<String>,
    /// As written, and whether it means the same in another module.
    default: Option<(String, bool)>,
}

pub(super) fn derive(deriver: &Deriver<'_>, site: Site<'_>) -> Option<Fix> {
    let module = site.module;
    let (read, name) = module.exprs.iter().find_map(|expr| match expr.kind {
        ExprKind::Name(name) if expr.span.start == site.offset => Some((expr, name)),
        _ => None,
    })?;
    let kernel = deriver.kernel_around(site.id, read.scope)?;
    let (kernels, launches) = reachable(deriver, kernel);
    if launches.is_empty() {
        return None;
    }
    let has_name: Vec<bool> = launches.iter().map(|launch| is_in_reach(deriver, launch, name)).collect();
    let declared =
        launches.iter().zip(&has_name).filter(|(_, has)| **has).find_map(|(launch, _)| declared(deriver, launch, name));
    if !has_name.contains(&true) {
        return None;
    }
    let mut edits = Vec::new();
    let by_keyword =
        kernels.iter().any(|&f| has_kind(&deriver.linker.module(f.module)[f.function], ParameterKind::VarArgs));
    // Without a default every launch has to pass it.
    let mut optional = true;
    let mut positions = Vec::new();
    for &f in &kernels {
        let data = &deriver.linker.module(f.module)[f.function];
        if data.parameters.iter().any(|parameter| parameter.name == name) {
            positions.push((f, None));
            continue;
        }
        let (position, has_default, edit) = parameter(deriver, f, name, declared.as_ref(), by_keyword)?;
        optional &= has_default;
        positions.push((f, Some(position)));
        edits.extend(edit);
    }
    if !optional && has_name.contains(&false) {
        return None;
    }
    for launch in launches.iter().zip(&has_name).filter(|(_, has)| **has).map(|(launch, _)| launch) {
        edits.extend(argument(deriver, launch, name, &positions, by_keyword)?);
    }
    Some(Fix {
        applicability: Applicability::Safe,
        title: format!("Pass `{name}` from the launcher to the kernel"),
        edits,
    })
}

/// The kernels that must agree on their parameters, because one launch may reach several of them (an overriding kernel in
/// a subclass), and all launches of these.
fn reachable<'c>(deriver: &Deriver<'c>, kernel: FnRef) -> (Vec<FnRef>, Vec<Launch<'c>>) {
    let name = deriver.linker.module(kernel.module)[kernel.function].name;
    let candidates: Vec<Launch<'c>> = deriver
        .calls()
        .filter_map(|(module, expr, call)| {
            let called = match deriver.linker.module(module)[call.callee].kind {
                ExprKind::Name(called) | ExprKind::Attribute(_, called) => called,
                _ => return None,
            };
            if called != name {
                return None;
            }
            let Resolution::Found(values) = deriver.linker.eval(module, call.callee) else { return None };
            let kernels: Vec<(FnRef, bool)> = values
                .iter()
                .filter_map(|value| match value {
                    Value::Function(f) => Some((*f, false)),
                    Value::Bound(f) => Some((*f, true)),
                    _ => None,
                })
                .collect();
            Some(Launch { module, expr, call, kernels })
        })
        .collect();
    let mut kernels = vec![kernel];
    loop {
        let reached: Vec<FnRef> = candidates
            .iter()
            .filter(|launch| launch.kernels.iter().any(|(f, _)| kernels.contains(f)))
            .flat_map(|launch| launch.kernels.iter().map(|(f, _)| *f))
            .filter(|f| !kernels.contains(f))
            .collect();
        let Some(&next) = reached.first() else { break };
        kernels.push(next);
    }
    let launches = candidates.into_iter().filter(|launch| launch.kernels.iter().any(|(f, _)| kernels.contains(f)));
    let launches = launches.collect();
    (kernels, launches)
}

/// Whether `name` certainly has a value where the launch stands.
fn is_in_reach(deriver: &Deriver<'_>, launch: &Launch<'_>, name: Symbol) -> bool {
    let module = deriver.linker.module(launch.module);
    let place = &module[launch.expr];
    let Some(scope) = deriver.linker.binding_scope(module, place.scope, name) else { return false };
    module[scope].names.get(&name).is_some_and(|bindings| {
        bindings.iter().any(|&binding| {
            let binding = &module[binding];
            let comes_before = binding.span.start < place.span.start;
            match binding.kind {
                BindingKind::Parameter(..) => true,
                BindingKind::Value(_) | BindingKind::Element { .. } => {
                    comes_before && is_ancestor(module, place.guard, binding.guard)
                }
                _ => false,
            }
        })
    })
}

/// The parameter of the launcher that the name is, if it is one.
fn declared(deriver: &Deriver<'_>, launch: &Launch<'_>, name: Symbol) -> Option<Declared> {
    let module = deriver.linker.module(launch.module);
    let scope = deriver.linker.binding_scope(module, module[launch.expr].scope, name)?;
    let (function, index) = module[scope].names.get(&name)?.iter().find_map(|&binding| match module[binding].kind {
        BindingKind::Parameter(function, index) => Some((function, index)),
        _ => None,
    })?;
    let parameter: &Parameter = &module[function].parameters[index as usize];
    let text = |expr: ExprId| module.slice(module[expr].span).to_owned();
    let is_constant =
        |expr: ExprId| matches!(module[expr].kind, ExprKind::Constant(constant) if constant != Constant::Other);
    Some(Declared {
        module: launch.module,
        annotation: parameter.annotation.map(text),
        default: parameter.default.map(|expr| (text(expr), is_constant(expr))),
    })
}

fn has_kind(function: &Function, kind: ParameterKind) -> bool {
    function.parameters.iter().any(|parameter| parameter.kind == kind)
}

/// The new parameter of a kernel: its index among the positional ones, whether it may be left out, and the edits.
fn parameter(
    deriver: &Deriver<'_>,
    f: FnRef,
    name: Symbol,
    declared: Option<&Declared>,
    by_keyword: bool,
) -> Option<(usize, bool, Vec<Edit>)> {
    let module = deriver.linker.module(f.module);
    let source = Source::of(module)?;
    let function = &module[f.function];
    let same_module = declared.is_some_and(|declared| declared.module == f.module);
    let annotation = declared.and_then(|declared| declared.annotation.as_deref()).filter(|_| same_module);
    let default = declared.and_then(|declared| declared.default.as_ref());
    let default = default.filter(|(_, portable)| same_module || *portable).map(|(text, _)| text.as_str());
    let text = match (annotation, default) {
        (Some(annotation), Some(default)) => format!("{name}: {annotation} = {default}"),
        (Some(annotation), None) => format!("{name}: {annotation}"),
        (None, Some(default)) => format!("{name}={default}"),
        (None, None) => name.to_string(),
    };
    let parameters = &function.parameters;
    let is_positional =
        |parameter: &Parameter| matches!(parameter.kind, ParameterKind::Normal | ParameterKind::PositionalOnly);
    let positional = parameters.iter().take_while(|parameter| is_positional(parameter)).count();
    let position = if by_keyword {
        // Behind `*args` everything is passed by keyword.
        parameters.iter().position(|parameter| parameter.kind == ParameterKind::KwArgs).unwrap_or(parameters.len())
    } else if default.is_none() {
        parameters[..positional].iter().position(|parameter| parameter.default.is_some()).unwrap_or(positional)
    } else {
        positional
    };
    let edits = source.insert_item(&parameter_spans(function), function.parentheses, position.checked_sub(1), &text);
    Some((position, default.is_some(), edits))
}

/// The new argument of a launch: at the index of the parameter where the launch is positional, by keyword elsewhere.
fn argument(
    deriver: &Deriver<'_>,
    launch: &Launch<'_>,
    name: Symbol,
    positions: &[(FnRef, Option<usize>)],
    by_keyword: bool,
) -> Option<Vec<Edit>> {
    let module: &Module = deriver.linker.module(launch.module);
    let source = Source::of(module)?;
    let arguments = &launch.call.arguments;
    let is_keyword = |argument: &Argument| argument.kind == ArgumentKind::Keyword(name);
    if arguments.iter().any(is_keyword) {
        return Some(Vec::new());
    }
    let all_positional = arguments.iter().all(|argument| argument.kind == ArgumentKind::Positional);
    // Each kernel that the launch reaches has to have it at the same place, and everything in front has to be passed.
    let mut places = launch.kernels.iter().map(|(f, bound)| {
        let position = positions.iter().find(|(other, _)| other == f).and_then(|(_, position)| *position)?;
        position.checked_sub(usize::from(*bound))
    });
    let place = places.next().flatten();
    let agree = places.all(|other| other == place);
    let spans = argument_spans(launch.call);
    let parentheses = launch.call.parentheses;
    Some(match place {
        Some(place) if !by_keyword && all_positional && agree && place <= arguments.len() && !arguments.is_empty() => {
            source.insert_item(&spans, parentheses, place.checked_sub(1), &name)
        }
        _ => source.insert_item(&spans, parentheses, arguments.len().checked_sub(1), &format!("{name}={name}")),
    })
}
