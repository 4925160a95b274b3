#!/usr/bin/env python3
"""Generate kernels/attention.ptx, check that it is what the source gives, assemble it for every architecture.

    pip install nvidia-cuda-nvrtc==13.5.37 nvidia-cuda-nvcc==13.5.37
    python scripts/kernels.py write      # regenerate kernels/attention.ptx and the digests in the manifest
    python scripts/kernels.py check      # regenerate in memory and compare bytes
    python scripts/kernels.py assemble   # ptxas for every architecture of the manifest; a spill is an error

No GPU and no CUDA toolkit: only the two packages above, found in the Python that runs this.
kernels/manifest.toml names the versions and the flags; another version is an error, not another result.
"""

import ctypes
import hashlib
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

KERNELS = pathlib.Path(__file__).resolve().parent.parent / "kernels"
MANIFEST = KERNELS / "manifest.toml"


def package_file(package, version, pattern):
    """The one file of an installed package that matches the pattern, at exactly this version."""
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found != version:
        sys.exit(f"{package} {version} is needed, {found or 'none'} is installed: pip install {package}=={version}")
    files = [f for f in importlib.metadata.files(package) if re.fullmatch(pattern, f.name)]
    if len(files) != 1:
        sys.exit(f"{package} {version}: {len(files)} files match {pattern}, one expected")
    return str(files[0].locate())


def generate(manifest, source):
    """The PTX text that NVRTC makes of the source, with `.version` lowered."""
    generator = manifest["generator"]
    nvrtc = ctypes.CDLL(package_file(generator["package"], generator["version"], r"libnvrtc\.so\.\d+|nvrtc64_\d+_0\.dll"))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()

    def call(name, *arguments):
        code = getattr(nvrtc, name)(*arguments)
        if code != 0:
            log = b""
            if name == "nvrtcCompileProgram":
                nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
                buffer = ctypes.create_string_buffer(size.value)
                nvrtc.nvrtcGetProgramLog(program, buffer)
                log = buffer.value
            sys.exit(f"{name} failed with code {code}\n{log.decode(errors='replace')}")

    flags = [flag.encode() for flag in generator["flags"]]
    call("nvrtcCreateProgram", ctypes.byref(program), source, b"attention.cu", 0, None, None)
    call("nvrtcCompileProgram", program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, buffer)
    # NVRTC always writes its own toolkit's ISA, which older drivers refuse. The text uses nothing newer than 7.0;
    # `assemble` proves it, because ptxas checks every instruction against the declared version.
    text, replaced = re.subn(r"^\.version \d+\.\d+$", f".version {manifest['isa']}", buffer.value.decode(), flags=re.M)
    if replaced != 1:
        sys.exit(f"{replaced} .version lines in the generated PTX, one expected")
    return text.rstrip("\n").encode() + b"\n"


def assemble(manifest):
    """Runs ptxas for every architecture and prints registers and shared memory; spills fail."""
    assembler = manifest["assembler"]
    ptxas = package_file(assembler["package"], assembler["version"], r"ptxas(\.exe)?")
    os.chmod(ptxas, os.stat(ptxas).st_mode | 0o100)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for arch in manifest["architectures"]:
            command = [ptxas, "-v", f"-arch={arch}", "-o", os.path.join(folder, "out"), str(KERNELS / manifest["ptx"])]
            run = subprocess.run(command, capture_output=True, text=True)
            log = run.stdout + run.stderr
            names = re.findall(r"Compiling entry function '(\w+)'", log)
            registers = re.findall(r"Used (\d+) registers", log)
            spills = [int(n) for n in re.findall(r"(\d+) bytes spill", log)]
            stack = [int(n) for n in re.findall(r"(\d+) bytes stack frame", log)]
            if run.returncode != 0 or len(names) != len(registers) or not names:
                print(f"{arch}: ptxas failed\n{log}")
                failed = True
            else:
                bad = any(spills) or any(stack)
                failed |= bad
                used = ", ".join(f"{n} {r}" for n, r in zip(names, registers))
                print(f"{arch}: {'SPILLS' if bad else 'no spills'}; registers: {used}")
    if failed:
        sys.exit("the PTX does not assemble cleanly everywhere")


def main():
    action = sys.argv[1] if len(sys.argv) == 2 else None
    if action not in ("write", "check", "assemble"):
        sys.exit(__doc__)
    text = MANIFEST.read_text()
    manifest = tomllib.loads(text)
    source_path, ptx_path = KERNELS / manifest["source"], KERNELS / manifest["ptx"]
    if action == "assemble":
        return assemble(manifest)
    source = source_path.read_bytes()
    ptx = generate(manifest, source)
    digests = {"source_sha256": hashlib.sha256(source).hexdigest(), "ptx_sha256": hashlib.sha256(ptx).hexdigest()}
    if action == "write":
        for key, value in digests.items():
            text = re.sub(rf'^{key} = ".*"$', f'{key} = "{value}"', text, flags=re.M)
        ptx_path.write_bytes(ptx)
        MANIFEST.write_text(text)
        print(f"{ptx_path.name}: {len(ptx)} bytes")
        return
    stale = [key for key, value in digests.items() if manifest[key] != value]
    if ptx_path.read_bytes() != ptx or stale:
        sys.exit(f"{ptx_path.name} is not what {source_path.name} gives: run `python scripts/kernels.py write`")
    print(f"{ptx_path.name}: {len(ptx)} bytes, as generated")


if __name__ == "__main__":
    main()
