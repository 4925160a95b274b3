#!/usr/bin/env bash
# Coverage-guided fuzzing of everything that reads foreign bytes (tests/fuzz/targets.rs), for SECONDS each:
#
#     scripts/fuzz.sh SECONDS [TARGET]..
#
# Needs a C++ compiler for libFuzzer, and no nightly Rust. It starts from tests/fuzz/corpus; what reached new code stays in
# target/fuzz/corpus, and an input that panics, hangs or eats memory is a file in target/fuzz/finds. A find belongs into
# tests/fuzz/corpus, which `cargo test --test fuzz` replays.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: scripts/fuzz.sh SECONDS [TARGET]..}
shift
if [ $# = 0 ]; then set -- native wheel python site text result; fi
root=$PWD/target/fuzz
export CARGO_TARGET_DIR=$root/build
coverage="-Cpasses=sancov-module -Ccodegen-units=16"
for argument in level=4 inline-8bit-counters pc-table trace-compares; do
  coverage+=" -Cllvm-args=-sanitizer-coverage-$argument"
done
RUSTFLAGS=$coverage cargo build --release --manifest-path tests/fuzz/Cargo.toml --target "$(rustc -vV | sed -n 's/^host: //p')"
binary=$(find "$root/build" -path '*/release/fuzz' -type f)
# The program gives its threads this much stack too (src/main.rs).
ulimit -s 262144
export RUST_MIN_STACK=268435456
for target in "$@"; do
  mkdir -p "$root/corpus/$target" "$root/finds"
  FUZZ_TARGET=$target "$binary" "$root/corpus/$target" "tests/fuzz/corpus/$target" -artifact_prefix="$root/finds/$target-" \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 -verbosity=0
done
