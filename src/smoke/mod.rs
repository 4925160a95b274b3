//! Runs the bundled attention kernel on the GPU.
