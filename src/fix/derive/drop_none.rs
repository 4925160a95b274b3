//! A keyword that the callee does not have and that is literally None is left out.

use super::adapter::unexpected;
use super::source::argument_spans;
use super::{Deriver, Site, is_literal_none};
use crate::finding::{Applicability, Fix};

pub(super) fn derive(deriver: &Deriver<'_>, site: Site<'_>) -> Option<Fix> {
    let (expr, call) = site.call_of_argument()?;
    let surplus = unexpected(deriver, site.id, expr)?;
    if !surplus.iter().all(|&index| is_literal_none(site.module, &call.arguments[index])) {
        return None;
    }
    let spans = argument_spans(call);
    let edits = surplus.iter().map(|&index| site.source.remove_item(&spans, index, call.parentheses));
    let names: Vec<String> =
        surplus.iter().map(|&index| format!("`{}`", site.module.slice(call.arguments[index].span))).collect();
    Some(Fix {
        applicability: Applicability::Safe,
        title: format!("Leave out {}, which the callee does not have", names.join(" and ")),
        edits: edits.collect(),
    })
}
