#!/bin/sh
# Runs all of `fa-doctor smoke` on the GPU of this machine and prints a log fit for the README.
#
#   scripts/gpu-smoke.sh [PYTHON]
#
# PYTHON: an interpreter with torch, and whatever attention packages are to be compared; torch's own attention runs on
# the same inputs beside the native kernel. FA_DOCTOR names the program [default: target/release/fa-doctor, built if
# there is none]. The exit code is that of smoke: 0 right, 1 wrong, 3 no GPU.
set -eu
cd "$(dirname "$0")/.."
program=${FA_DOCTOR:-target/release/fa-doctor}
if [ ! -x "$program" ]; then
    cargo build --release --locked
fi

echo "\$ fa-doctor --version"
"$program" --version
if command -v nvidia-smi >/dev/null; then
    query=index,name,driver_version,compute_cap,memory.total,power.limit
    echo "\$ nvidia-smi --query-gpu=$query --format=csv,noheader"
    nvidia-smi --query-gpu=$query --format=csv,noheader
fi
set -- ${1:+--python "$1"}
echo "\$ fa-doctor smoke ${1:+--python python}"
exec "$program" --color never smoke --timeout 300 "$@"
