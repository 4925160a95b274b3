//! Every rule, in the order of its code.

use super::Rule;

/// All rules, sorted by code.
pub fn all() -> &'static [&'static dyn Rule] {
    &[&super::fa105_patch_state::PatchState, &super::fa201_undefined_symbol::UndefinedSymbol]
}
