//! GPUs and driver of this machine, where there are any.
