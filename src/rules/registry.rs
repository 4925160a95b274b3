//! Every rule, in the order of its code.

use super::Rule;

/// All rules, sorted by code.
pub fn all() -> &'static [&'static dyn Rule] {
    &[&super::fa201_undefined_symbol::UndefinedSymbol]
}
