//! Compiles the installed kernels for an architecture, in the user's Python, without a GPU.
