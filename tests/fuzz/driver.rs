//! libFuzzer's side: FUZZ_TARGET names one of `targets::ALL`.

#![no_main]

mod targets;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<targets::Target> = LazyLock::new(|| {
    let wanted = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET");
    targets::ALL.iter().find(|(name, _)| *name == wanted).expect("a target").1
});

fuzz_target!(|data: &[u8]| TARGET(data));
