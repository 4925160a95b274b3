#!/usr/bin/env python3
"""Times fa-doctor against ruff, ty and pyrefly on the same files, in one run.

    python3 scripts/bench.py BINARY CORPUS [--runs 5] [--python PY] [--write docs/benchmarks.md]

BINARY is a release build, CORPUS what scripts/corpus.py prepares; the others are looked for on PATH, and left out of the table where
they are not there. ty and pyrefly are given the environment to resolve imports in, the CuTe DSL's packages with it, so that they can
check what fa-doctor checks. With --python, which has tests/probe/requirements.txt, the probe of one architecture is timed too. The figures are the best of the runs of a warm cache: wall seconds, processor seconds and peak memory of
the process.
"""

import argparse
import datetime
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path


def measure(command, runs):
    best = None
    for _ in range(runs):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        # 0 and 1 are "nothing found" and "findings" for all of them; anything else did not do the work.
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            return None
        row = (time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
        best = row if best is None else tuple(map(min, best, row))
    return best


def flag(name, values):
    return [part for value in values for part in (name, value)]


def version(program):
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    environment = args.corpus / "envs" / "vllm-0.26.0"
    package = environment / "vllm"
    wheels = args.corpus / "wheels"
    wheel = next(wheels.glob("vllm-0.26.0-*.whl"), None)
    scan = [args.binary, "scan", "--format", "json", "--fail-on", "never"]
    search = [environment, environment / "nvidia_cutlass_dsl" / "dsl_packages"]
    ty = ["ty", "check", "--project", environment, "--python-version", "3.12", *flag("--extra-search-path", search)]
    pyrefly = ["pyrefly", "check", "--python-version", "3.12", *flag("--search-path", search)]
    rows = [
        ("fa-doctor scan, vLLM 0.26.0 with DSL 4.6.0 and quack 0.6.3, unpacked", [*scan, environment]),
        ("ruff check --no-cache --select F821, all of vllm/", ["ruff", "check", "--no-cache", "--select", "F821", package]),
        ("ty check, vllm/vllm_flash_attn alone", [*ty, package / "vllm_flash_attn"]),
        ("pyrefly check, vllm/vllm_flash_attn alone", [*pyrefly, package / "vllm_flash_attn"]),
        ("ty check, all of vllm/", [*ty, package]),
        ("pyrefly check, all of vllm/", [*pyrefly, package]),
    ]
    if wheel:
        dsl = [next(wheels.glob(f"{name}-4.6.0-*.whl"), None) for name in (
            "nvidia_cutlass_dsl_libs_core", "nvidia_cutlass_dsl_libs_base", "nvidia_cutlass_dsl_libs_cu13", "nvidia_cutlass_dsl")]
        quack = next(wheels.glob("quack_kernels-0.6.3-*.whl"), None)
        rows.insert(1, ("fa-doctor scan, the same as wheels, in place", [*scan, wheel, *filter(None, [*dsl, quack])]))
    crowded = args.corpus / "envs" / "vllm-0.26.0-crowded"
    if crowded.is_dir():
        rows.insert(1, ("fa-doctor scan, torch, triton, transformers and flashinfer beside it", [*scan, crowded]))
    native = args.corpus / "envs" / "xformers-0.0.33.post2-torch-2.11.0"
    if native.is_dir():
        size = sum(path.stat().st_size for path in native.rglob("*.so*") if path.is_file()) / 1e9
        name = f"fa-doctor scan --select FA2, xformers 0.0.33.post2 with torch 2.11.0: {size:.1f} GB of libraries"
        rows.append((name, [*scan, native, "--select", "FA2", "--arch", "sm_120"]))
    if args.python:
        probe = [args.binary, "probe", "--arch", "sm_120", "--no-torch", "--python", args.python, environment]
        rows.append(("fa-doctor probe --arch sm_120, every case traced", probe))
    lines = [
        "# Benchmarks",
        "",
        f"{datetime.date.today()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, best of {args.runs} runs with a warm",
        "cache: `python3 scripts/bench.py target/release/fa-doctor CORPUS --write docs/benchmarks.md`.",
        "",
        f"Compared with: {', '.join(version(other) for other in ('ruff', 'ty', 'pyrefly') if shutil.which(other)) or 'nothing'}.",
        "",
        "| command | wall s | cpu s | peak MB |",
        "|---|---|---|---|",
    ]
    for name, command in rows:
        if shutil.which(command[0]) is None:
            continue
        figures = measure([str(part) for part in command], args.runs)
        if figures is None:
            print(f"left out, it ended with an error: {name}")
            continue
        wall, cpu, memory = figures
        lines.append(f"| {name} | {wall:.2f} | {cpu:.2f} | {memory:.0f} |")
        print(lines[-1], flush=True)
    if args.write:
        args.write.write_text("\n".join(lines) + "\n")


main()
