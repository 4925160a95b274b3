//! # What it does
//!
//! Links the extension modules of the attention stack as the dynamic loader would: every symbol that a module expects
//! torch or the C++ runtime to define must be exported by a library that is really installed.
//!
//! # Why is this bad
//!
//! A module with one undefined symbol cannot be loaded at all. `import` raises ImportError with a mangled name in it,
//! or the package falls back to a slower path, or to none. It happens whenever torch is upgraded under an extension: the
//! C++ interface of torch is not stable between releases.
//!
//! # Example
//!
//! ```text
//! ImportError: flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol:
//! _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib
//! ```
//!
//! The extension was built when the fourth parameter of that function was an `int`; the installed torch has it as
//! `unsigned int`.
//!
//! # Fix
//!
//! Install the torch that the extension was built for, or a build of the extension for the installed torch.
//!
//! Symbols of the interpreter, of the driver and weak ones are not judged, and nothing is reported where torch is not part
//! of what is scanned.
//!
//! # References
//!
//! - <https://gcc.gnu.org/onlinedocs/libstdc++/manual/using_dual_abi.html>
//! - <https://pytorch.org/cppdocs/>

use std::collections::BTreeMap;

use super::libraries::{distribution_of, file_name, finding, list, related, torch_built_for};
use super::{Context, Rule, RuleInfo, Sink};
use crate::environment::{Distribution, Environment};
use crate::finding::{Finding, Related};
use crate::native::inspection::{Extension, Inspection};
use crate::native::symbols::{Cause, Family, Missing, demangle_name};

static INFO: RuleInfo = RuleInfo {
    code: "FA201",
    name: "undefined-symbol",
    summary: "an extension needs a C++ symbol that no installed library exports",
    source: include_str!("fa201_undefined_symbol.rs"),
};

/// FA201.
pub struct UndefinedSymbol;

impl Rule for UndefinedSymbol {
    fn info(&self) -> &'static RuleInfo {
        &INFO
    }

    fn check(&self, context: &Context<'_>, sink: &mut Sink) {
        let inspection = context.inspection();
        sink.findings.extend(report(context.environment, inspection));
        sink.incomplete.extend(inspection.incomplete.iter().cloned());
    }
}

/// One finding for each distribution: its modules miss the same symbols for the same reason.
fn report(environment: &Environment, inspection: &Inspection) -> Vec<Finding> {
    let mut broken: BTreeMap<_, Vec<&Extension>> = BTreeMap::new();
    for extension in inspection.extensions.iter().filter(|extension| !extension.missing_symbols.is_empty()) {
        let subject = &extension.subject;
        let key = (subject.distribution, subject.distribution.is_none().then_some(&subject.path));
        broken.entry(key).or_default().push(extension);
    }
    broken.into_values().map(|extensions| one(environment, &extensions)).collect()
}

fn one(environment: &Environment, extensions: &[&Extension]) -> Finding {
    let first = extensions[0];
    let missing = &first.missing_symbols;
    let mut found = finding(&INFO, environment, &first.subject);
    // The one that explains most is shown.
    let rank = |symbol: &&Missing| match symbol.cause {
        Cause::OldString | Cause::NewString => 0,
        Cause::Changed(_) => 1,
        Cause::Absent => 2,
    };
    let shown = missing.iter().min_by_key(rank).unwrap_or(&missing[0]);
    found.symbol = demangle_name(&shown.mangled);
    let more = match missing.len() {
        1 => String::new(),
        number => format!(" and {} more", number - 1),
    };
    let torch = environment.distribution("torch");
    let provider = match Family::of(shown.mangled.as_bytes()) {
        Family::Torch => torch.map_or("torch".to_owned(), |torch| format!("torch {}", torch.raw_version)),
        Family::Library(library) => format!("the installed {library}"),
        _ => "the C++ runtime of this machine".to_owned(),
    };
    found.message = format!(
        "{} cannot be loaded (undefined symbol {}): {provider} does not define `{}`{more}",
        file_name(&first.subject.path),
        shown.mangled,
        shown.demangled,
    );
    found.related = extensions.iter().map(|extension| needs(extension)).collect();
    let all: Vec<&Missing> = extensions.iter().flat_map(|extension| &extension.missing_symbols).collect();
    found.help = Some(help(environment, distribution_of(environment, &first.subject), torch, shown, &all));
    found
}

/// Names of symbols that are listed for one module.
const MOST_NAMES: usize = 12;

/// What one module misses.
fn needs(extension: &Extension) -> Related {
    let mut names: Vec<String> =
        extension.missing_symbols.iter().map(|symbol| demangle_name(&symbol.mangled)).collect();
    names.dedup();
    if names.len() > MOST_NAMES {
        let rest = names.split_off(MOST_NAMES - 1).len();
        names.push(format!("{rest} more"));
    }
    let message = format!("{} needs {}", file_name(&extension.subject.path), list(&names));
    related(extension.subject.root, &extension.subject.path, message)
}

/// Why, what it was built for, and one command.
fn help(
    environment: &Environment,
    distribution: Option<&Distribution>,
    torch: Option<&Distribution>,
    shown: &Missing,
    all: &[&Missing],
) -> String {
    let has = |cause: Cause| all.iter().any(|symbol| symbol.cause == cause);
    if let Family::Library(library) = Family::of(shown.mangled.as_bytes()) {
        return vendor_help(library, torch);
    }
    let why = match &shown.cause {
        _ if has(Cause::OldString) => {
            "it was compiled with the old std::string ABI (_GLIBCXX_USE_CXX11_ABI=0), the installed torch with the new one"
                .to_owned()
        }
        _ if has(Cause::NewString) => {
            "it was compiled with the new std::string ABI (_GLIBCXX_USE_CXX11_ABI=1), the installed torch with the old one"
                .to_owned()
        }
        Cause::Changed(now) => format!("the signature changed between torch releases; the installed one has `{now}`"),
        _ => "torch's C++ interface differs between releases, and it was compiled against another one".to_owned(),
    };
    let Some(distribution) = distribution else {
        return format!("{why}; build it again in this environment");
    };
    let name = &distribution.display_name;
    let installed = torch.map_or("", |torch| torch.raw_version.as_str());
    let built_for = torch_built_for(distribution).filter(|version| !same_release(installed, version));
    let holders = pinned_by_others(environment, distribution, installed);
    let Some(built_for) = built_for else {
        return format!(
            "{why}; build it against the installed torch: pip install --force-reinstall --no-deps --no-cache-dir \
             --no-build-isolation {name}=={}",
            public(&distribution.raw_version)
        );
    };
    let built = format!("{name} {} was built for torch {built_for}", distribution.raw_version);
    if holders.is_empty() {
        format!("{why}; {built}: pip install torch=={built_for}")
    } else {
        format!(
            "{why}; {built}, and {} needs torch {installed}: install the release of {name} that was built for it: \
             pip install --upgrade {name}",
            list(&holders)
        )
    }
}

/// A library that torch pins, in another version than that.
fn vendor_help(library: &str, torch: Option<&Distribution>) -> String {
    let name = library.trim_start_matches("lib").trim_end_matches(".so").replace("_host", "").to_lowercase();
    let pin = torch.and_then(|torch| {
        let (line, _) = torch.requires.iter().find(|(line, _)| line.contains(&name) && line.contains("=="))?;
        line.split(';').next().map(|line| line.replace([' ', '(', ')'], ""))
    });
    match (pin, torch) {
        (Some(pin), Some(torch)) => {
            format!(
                "torch {} was built against another release of it; install that one: pip install {pin}",
                torch.raw_version
            )
        }
        _ => "it is of another release than the library that needs it: pip check".to_owned(),
    }
}

/// Distributions that pin the installed torch.
fn pinned_by_others(environment: &Environment, but: &Distribution, installed: &str) -> Vec<String> {
    let others = environment.distributions.iter().filter(|other| other.name != but.name);
    let pins = |other: &&Distribution| torch_built_for(other).is_some_and(|version| same_release(installed, &version));
    others.filter(pins).map(|other| other.display_name.clone()).collect()
}

/// Whether `2.6` or `2.6.0` names the release that `2.6.0+cu124` is.
fn same_release(installed: &str, named: &str) -> bool {
    let installed = public(installed);
    installed == named || installed.strip_prefix(named).is_some_and(|rest| rest.starts_with('.'))
}

/// A version without its local part.
fn public(version: &str) -> &str {
    version.split('+').next().unwrap_or(version)
}
