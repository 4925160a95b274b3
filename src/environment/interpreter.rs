//! Asks an interpreter for its search path and version, through a small JSON probe.
