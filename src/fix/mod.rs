//! Edits, their application, the journal and undo.
//!
//! A fix is a set of edits that are applied together. The engine applies what fits, looks again, and goes on until nothing
//! changes; the result is a plan in memory. Only a transaction writes it to disk, and undo takes it back.

pub mod adapter;
pub mod apply;
pub mod derive;
pub mod diff;
pub mod engine;
pub mod files;
pub mod journal;
pub mod lock;
pub mod status;
pub mod transaction;
pub mod undo;
