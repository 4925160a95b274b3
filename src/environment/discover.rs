//! Which environment to look at when no target is given.
