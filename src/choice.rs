//! Which attention implementation vLLM takes on an architecture when it is asked for nothing in particular, and why not
//! the others: as its sources decide, with places.

use serde::Serialize;

use crate::environment::Platform;
use crate::environment::arch::capability;
use crate::link::{Linker, ModId, Order, Program};
use crate::python::ir::Span;

/// What is taken on one architecture.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    /// `sm_120`.
    pub arch: String,
    /// The versions of flash attention.
    pub versions: Vec<Version>,
    /// The backends, in the order in which they are tried.
    pub backends: Vec<Backends>,
}

/// One version of flash attention.
#[derive(Debug, Clone, Serialize)]
pub struct Version {
    /// `FA2`.
    pub name: String,
    /// The device supports it.
    pub supported: bool,
    /// It is taken unless something asks for another.
    pub chosen: bool,
    /// Why it is not supported.
    pub reason: Option<String>,
    /// Where that, or the choice, is decided.
    pub place: Option<Place>,
}

/// Backends for one kind of attention.
#[derive(Debug, Clone, Serialize)]
pub struct Backends {
    /// `attention` or `MLA`.
    pub kind: &'static str,
    /// In the order in which they are tried.
    pub order: Vec<Backend>,
    /// Where the order is given.
    pub place: Place,
}

/// One backend.
#[derive(Debug, Clone, Serialize)]
pub struct Backend {
    /// As vLLM calls it.
    pub name: String,
    /// Whether it runs on the architecture, where its class says so.
    pub runs: Option<bool>,
}

/// A line of a file.
#[derive(Debug, Clone, Serialize)]
pub struct Place {
    /// Relative to its root.
    pub path: String,
    /// From 1.
    pub line: u32,
}

/// What is taken on each architecture asked for; nothing where no sources say it.
pub fn choices(program: &Program<'_>) -> Vec<Choice> {
    let environment = program.environment;
    if environment.platform != Platform::Cuda {
        return Vec::new();
    }
    let each = environment.arch.iter().filter_map(|arch| {
        let (major, minor) = capability(arch)?;
        let linker = Linker::for_architecture(program, major, minor);
        let order = |kind, mla| linker.tried(mla).map(|order| backends(program, kind, &order));
        let backends: Vec<Backends> = [order("attention", false), order("MLA", true)].into_iter().flatten().collect();
        let versions = versions(program, &linker);
        (!versions.is_empty() || !backends.is_empty()).then(|| Choice { arch: arch.clone(), versions, backends })
    });
    each.collect()
}

fn versions(program: &Program<'_>, linker: &Linker<'_>) -> Vec<Version> {
    let chosen = linker.chosen();
    let each = program.packs.selection.names.iter().filter_map(|(number, name)| {
        let number: i64 = number.parse().ok()?;
        let supported = linker.is_supported(number)?;
        let refusal = if supported { None } else { linker.refusal(number) };
        let of_choice = chosen.as_ref().filter(|choice| choice.value == number);
        let place = match (&refusal, of_choice) {
            (Some(refusal), _) => Some(place(program, refusal.module, refusal.span)),
            (None, Some(choice)) => Some(place(program, choice.module, choice.span)),
            (None, None) => None,
        };
        let reason = refusal.and_then(|refusal| refusal.reason).map(|reason| reason.to_string());
        Some(Version { name: name.clone(), supported, chosen: of_choice.is_some(), reason, place })
    });
    each.collect()
}

fn backends(program: &Program<'_>, kind: &'static str, order: &Order) -> Backends {
    let each = order.backends.iter().map(|backend| Backend { name: backend.name.to_string(), runs: backend.runs });
    Backends { kind, order: each.collect(), place: place(program, order.module, order.span) }
}

fn place(program: &Program<'_>, id: ModId, span: Span) -> Place {
    let module = program.source(id);
    Place { path: module.path.clone(), line: module.position(span.start).0 }
}
