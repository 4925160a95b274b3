#!/usr/bin/env bash
# The scan of action.yml: one run, annotations in the log, a job summary, SARIF and JSON as outputs. The step itself does
# not fail on findings; the last step of the action does, after the upload.
set -euo pipefail

binary=${INPUT_BINARY:-}
if [ -z "$binary" ]; then
    if command -v fa-doctor >/dev/null; then
        binary=fa-doctor
    elif ! command -v cargo >/dev/null; then
        echo "::error title=fa-doctor::no fa-doctor on PATH, and no cargo to build it; install the wheel first, or name a binary"
        exit 2
    else
        cargo install --quiet --locked --path "$GITHUB_ACTION_PATH" --root "$RUNNER_TEMP/fa-doctor"
        binary=$RUNNER_TEMP/fa-doctor/bin/fa-doctor
    fi
fi

folder=$(mktemp -d "$RUNNER_TEMP/fa-doctor-XXXXXX")
command=("$binary" scan --format github --fail-on "$INPUT_FAIL_ON"
    --output "$folder/fa-doctor.sarif" --output "$folder/fa-doctor.json" --output "$folder/summary.md")
if [ -n "${INPUT_ARCH:-}" ]; then
    command+=(--arch "$INPUT_ARCH")
fi
# One argument a line: paths may hold spaces.
while IFS= read -r line; do
    if [ -n "$line" ]; then command+=("$line"); fi
done <<<"${INPUT_ARGS:-}"
command+=(--)
while IFS= read -r line; do
    if [ -n "$line" ]; then command+=("$line"); fi
done <<<"${INPUT_TARGET:-}"

code=0
"${command[@]}" || code=$?
echo "exit-code=$code" >>"$GITHUB_OUTPUT"
if [ -f "$folder/summary.md" ]; then
    cat "$folder/summary.md" >>"$GITHUB_STEP_SUMMARY"
fi
if [ -f "$folder/fa-doctor.json" ]; then
    count() { sed -n "s/^    \"$1\": \([0-9]*\),*$/\1/p" "$folder/fa-doctor.json" | tail -n 1; }
    {
        echo "errors=$(count errors)"
        echo "warnings=$(count warnings)"
        echo "sarif=$folder/fa-doctor.sarif"
        echo "json=$folder/fa-doctor.json"
    } >>"$GITHUB_OUTPUT"
fi
