//! One file per output format.

pub mod style;

pub use style::Style;
