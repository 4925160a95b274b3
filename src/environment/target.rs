//! What a TARGET on the command line is.
