//! Resolution across modules: imports, names, attributes, classes and calls, over the index of `python`.

use std::marker::PhantomData;

/// The linked program.
pub struct Program<'a> {
    _environment: PhantomData<&'a ()>,
}
