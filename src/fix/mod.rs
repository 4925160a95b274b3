//! Edits, their application, the journal and undo.
