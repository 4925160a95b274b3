//! What the installed attention functions accept: read from their definitions, not from version numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::link::{Linker, Located, Program, Value};
use crate::python::Symbol;
use crate::python::ir::ParameterKind;

/// An installed attention function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionFunction {
    /// Dotted path.
    pub path: String,
    /// What it belongs to: "vLLM's vendored FA4".
    pub title: String,
    /// The distribution that holds the definition.
    pub package: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Where it is defined: the file, relative to its root.
    pub file: String,
    /// Where it is defined: the line, from 1.
    pub line: u32,
}

/// Which arguments the installed functions accept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// The columns.
    pub functions: Vec<AttentionFunction>,
    /// The rows, by name.
    pub arguments: Vec<AcceptedArgument>,
}

/// An argument, and who accepts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedArgument {
    /// Its name.
    pub name: String,
    /// Whether it changes which scores count, or what they are.
    pub mask: bool,
    /// What is lost without it, as the end of a sentence.
    pub consequence: String,
    /// One for each function: accepted or not.
    pub accepted: Vec<bool>,
}

impl Matrix {
    /// Looks up every function that the packs know, and keeps those that are installed and whose signature is certain.
    pub fn of(program: &Program<'_>) -> Matrix {
        let linker = Linker::new(program);
        let mut functions = Vec::new();
        let mut accepted: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
        for known in &program.packs.functions {
            let Some((module, name)) = known.path.rsplit_once('.') else { continue };
            // What starts with an underscore is called by its own package; users call the others.
            if name.starts_with('_') {
                continue;
            }
            let Located::Module(id) = program.locate(module) else { continue };
            let Some(source) = program.module(id) else { continue };
            let member = linker.module_member(id, Symbol::new(name));
            let Some(&Value::Function(function)) = member.single() else { continue };
            let Some(callee) = linker.callee(&Value::Function(function)) else { continue };
            let parameters = &callee.signature.parameters;
            let open = parameters.iter().any(|parameter| parameter.kind == ParameterKind::KwArgs);
            let takes = |argument: &str| open || parameters.iter().any(|parameter| parameter.name.as_str() == argument);
            // A function that takes none of them is not about attention itself: a scheduler, a combination of splits.
            let about_attention = ["q", "qkv"].iter().any(|name| takes(name))
                && program.packs.arguments.iter().any(|(name, argument)| argument.mask && takes(name));
            if open || !about_attention {
                continue;
            }
            for argument in program.packs.arguments.keys() {
                accepted.entry(argument).or_default().push(takes(argument));
            }
            let owner = program.environment.owner(source.root, &source.path);
            functions.push(AttentionFunction {
                path: known.path.clone(),
                title: known.title.clone(),
                package: owner.map(|owner| owner.display_name.clone()),
                version: owner.map(|owner| owner.raw_version.clone()),
                file: source.path.clone(),
                line: source.position(source[function.function].span.start).0,
            });
        }
        let arguments =
            accepted.into_iter().filter(|(_, accepted)| accepted.contains(&true)).filter_map(|(name, accepted)| {
                let argument = program.packs.arguments.get(name)?;
                Some(AcceptedArgument {
                    name: name.to_owned(),
                    mask: argument.mask,
                    consequence: argument.consequence.clone(),
                    accepted,
                })
            });
        Matrix { arguments: arguments.collect(), functions }
    }
}
