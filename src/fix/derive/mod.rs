//! Fixes that follow from the sources themselves.

pub mod source;
