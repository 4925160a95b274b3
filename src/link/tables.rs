//! Literal tables of the sources: `__all__`, and the strings that an expression may be over the tables that its loops run
//! through.

use super::guards::Truth;
use super::{ExprRef, Linker, ModId, Value};
use crate::python::ir::{BindingKind, ExprId, ExprKind, FStringPart, Operator, StmtKind};
use crate::python::{Module, Symbol};

/// The names in `__all__`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum All {
    /// There is none.
    Absent,
    /// These.
    Names(Vec<Symbol>),
    /// It is built in a way that is not followed.
    Unknown,
}

impl Linker<'_> {
    /// The names in `__all__`.
    pub fn all(&self, id: ModId) -> All {
        let all = Symbol::new("__all__");
        let Some(module) = self.program.module(id) else { return All::Unknown };
        if !module[Module::SCOPE].names.contains_key(&all) {
            return All::Absent;
        }
        let key = (id, u32::MAX - 1, 0);
        self.guarded(key, All::Unknown, || self.search_all(id, module, all))
    }

    fn search_all(&self, id: ModId, module: &Module, all: Symbol) -> All {
        let mut names: Vec<Symbol> = Vec::new();
        let is_all = |expr: ExprId| matches!(module[expr].kind, ExprKind::Name(name) if name == all);
        for stmt in module.stmts.iter().filter(|stmt| stmt.scope == Module::SCOPE) {
            if self.truth_of_guard(id, stmt.guard, stmt.span.start) == Truth::No {
                continue;
            }
            let added = match &stmt.kind {
                StmtKind::Assign(targets, value) if targets.iter().any(|&t| is_all(t)) => {
                    names.clear();
                    *value
                }
                StmtKind::AnnAssign(target, _, Some(value)) if is_all(*target) => {
                    names.clear();
                    *value
                }
                StmtKind::AugAssign(target, _, value) if is_all(*target) => *value,
                StmtKind::Expr(expr) => match &module[*expr].kind {
                    ExprKind::Call(call) => match module[call.callee].kind {
                        ExprKind::Attribute(list, method) if is_all(list) => {
                            match (method.as_str(), &call.arguments[..]) {
                                ("append", [argument]) => {
                                    match self.string(id, argument.value) {
                                        Some(name) => names.push(name),
                                        None => return All::Unknown,
                                    }
                                    continue;
                                }
                                ("extend", [argument]) => argument.value,
                                _ => return All::Unknown,
                            }
                        }
                        _ => continue,
                    },
                    _ => continue,
                },
                _ => continue,
            };
            match self.name_list(id, added) {
                Some(more) => names.extend(more),
                None => return All::Unknown,
            }
        }
        All::Names(names)
    }

    /// A list of names: displays, sums, `other.__all__`, unpacked lists.
    fn name_list(&self, id: ModId, expr: ExprId) -> Option<Vec<Symbol>> {
        let module = self.module(id);
        match &module[expr].kind {
            ExprKind::List(items) | ExprKind::Tuple(items) | ExprKind::Set(items) => {
                let mut names = Vec::new();
                for &item in items {
                    match module[item].kind {
                        ExprKind::Starred(inner) => names.extend(self.name_list(id, inner)?),
                        _ => names.push(self.string(id, item)?),
                    }
                }
                Some(names)
            }
            ExprKind::Binary(Operator::Add, left, right) => {
                let mut names = self.name_list(id, *left)?;
                names.extend(self.name_list(id, *right)?);
                Some(names)
            }
            ExprKind::Attribute(value, attr) if attr == "__all__" => match self.eval(id, *value).single()? {
                Value::Module(other) => match self.all(*other) {
                    All::Names(names) => Some(names),
                    _ => None,
                },
                _ => None,
            },
            ExprKind::Name(_) => match self.eval(id, expr).single()? {
                Value::Sequence(at) => self.name_list(at.module, at.expr),
                _ => None,
            },
            ExprKind::Call(call) if call.arguments.len() == 1 => match module.dotted(call.callee).as_deref() {
                Some("list" | "tuple" | "sorted" | "set") => self.name_list(id, call.arguments[0].value),
                _ => None,
            },
            _ => None,
        }
    }

    fn string(&self, id: ModId, expr: ExprId) -> Option<Symbol> {
        match self.constant(id, expr)? {
            super::Const::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Whether evaluating `key` (of `globals()[key] = ..`, or a setattr name) may give `name`.
    pub fn may_produce(&self, id: ModId, key: ExprId, name: Symbol) -> bool {
        self.strings(id, key).is_none_or(|produced| produced.contains(&name))
    }

    /// Every string that an expression may be, over the literal tables that its loop variables run through; `None` if
    /// that is not known.
    pub fn strings(&self, id: ModId, expr: ExprId) -> Option<Vec<Symbol>> {
        let module = self.module(id);
        if let Some(text) = self.string(id, expr) {
            return Some(vec![text]);
        }
        match &module[expr].kind {
            ExprKind::FString(parts) => {
                let mut texts = vec![String::new()];
                for part in parts {
                    let choices = match *part {
                        FStringPart::Text(text) => vec![text],
                        FStringPart::Value { value, plain: true } => self.strings(id, value)?,
                        FStringPart::Value { plain: false, .. } => return None,
                    };
                    if texts.len().saturating_mul(choices.len()) > 4096 {
                        return None;
                    }
                    texts = texts.iter().flat_map(|t| choices.iter().map(move |c| format!("{t}{c}"))).collect();
                }
                Some(texts.iter().map(|text| Symbol::new(text)).collect())
            }
            ExprKind::Binary(Operator::Add, left, right) => {
                let (left, right) = (self.strings(id, *left)?, self.strings(id, *right)?);
                if left.len().saturating_mul(right.len()) > 4096 {
                    return None;
                }
                Some(left.iter().flat_map(|l| right.iter().map(move |r| Symbol::new(&format!("{l}{r}")))).collect())
            }
            ExprKind::Call(call) => {
                let ExprKind::Attribute(text, method) = module[call.callee].kind else { return None };
                let change: fn(&str) -> String = match method.as_str() {
                    "upper" => |s| s.to_uppercase(),
                    "lower" => |s| s.to_lowercase(),
                    "strip" => |s| s.trim().to_owned(),
                    "title" | "capitalize" => return None,
                    _ => return None,
                };
                if !call.arguments.is_empty() {
                    return None;
                }
                Some(self.strings(id, text)?.iter().map(|s| Symbol::new(&change(s))).collect())
            }
            ExprKind::If(parts) => {
                let mut all = self.strings(id, parts[1])?;
                all.extend(self.strings(id, parts[2])?);
                Some(all)
            }
            ExprKind::Name(name) => {
                let scope = self.binding_scope(module, module[expr].scope, *name)?;
                let mut all = Vec::new();
                for &binding in &module[scope].names[name] {
                    let binding = &module[binding];
                    match binding.kind {
                        BindingKind::Value(value) if value != expr => {
                            let key = (id, 3, value.0);
                            all.extend(self.guarded(key, None, || self.strings(id, value))?);
                        }
                        BindingKind::Iteration { iter, column } => {
                            all.extend(self.items(id, iter, column.map(|column| column as usize))?);
                        }
                        _ => return None,
                    }
                }
                Some(all)
            }
            _ => None,
        }
    }

    /// The strings that a loop variable takes from an iterable: its elements, the keys of a dict, or one column of a
    /// table of tuples.
    fn items(&self, id: ModId, iter: ExprId, column: Option<usize>) -> Option<Vec<Symbol>> {
        let module = self.module(id);
        let (at, keys_only) = match &module[iter].kind {
            ExprKind::Call(call) => match module[call.callee].kind {
                ExprKind::Attribute(table, method) if call.arguments.is_empty() => match method.as_str() {
                    "items" if column == Some(0) => (table, true),
                    "keys" if column.is_none() => (table, true),
                    "values" if column.is_none() => return self.dict_values(id, table),
                    _ => return None,
                },
                _ => match (module.dotted(call.callee).as_deref(), &call.arguments[..]) {
                    (Some("list" | "tuple" | "sorted" | "set" | "reversed"), [only]) => (only.value, false),
                    _ => return None,
                },
            },
            _ => (iter, false),
        };
        let table = match &module[at].kind {
            ExprKind::Tuple(_) | ExprKind::List(_) | ExprKind::Set(_) | ExprKind::Dict(_) => {
                ExprRef { module: id, expr: at }
            }
            _ => match self.eval(id, at).single()? {
                Value::Sequence(at) | Value::Mapping(at) => *at,
                _ => return None,
            },
        };
        let owner = self.module(table.module);
        match &owner[table.expr].kind {
            ExprKind::Dict(items) if keys_only || column.is_none() => {
                items.iter().map(|(key, _)| self.string(table.module, (*key)?)).collect()
            }
            ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::Set(items) if !keys_only => {
                let mut all = Vec::new();
                for &item in items {
                    match column {
                        None => all.push(self.string(table.module, item)?),
                        Some(column) => match &owner[item].kind {
                            ExprKind::Tuple(cells) | ExprKind::List(cells) => {
                                all.push(self.string(table.module, *cells.get(column)?)?);
                            }
                            _ => return None,
                        },
                    }
                }
                Some(all)
            }
            _ => None,
        }
    }

    fn dict_values(&self, id: ModId, table: ExprId) -> Option<Vec<Symbol>> {
        let resolved = self.eval(id, table);
        let Value::Mapping(at) = resolved.single()? else { return None };
        match &self.module(at.module)[at.expr].kind {
            ExprKind::Dict(items) => items.iter().map(|(_, value)| self.string(at.module, *value)).collect(),
            _ => None,
        }
    }
}
