#!/usr/bin/env python3
"""Compares the device code that fa-doctor lists with what NVIDIA's cuobjdump lists.

    python3 scripts/cuobjdump.py FOLDER

Downloads cuobjdump and libraries of real wheels into FOLDER (800 MB, kept for the next run; with FA_DOCTOR_CORPUS only
what scripts/corpus.py did not bring) and runs tests/native_cuobjdump.rs on them. Nothing is installed or imported.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

TOOL = "nvidia-cuda-cuobjdump==13.5.37"
# Plain, compressed, family and architecture-specific code of CUDA 12 and 13.
PACKAGES = ["vllm==0.26.0", "xformers==0.0.29.post3", "xformers==0.0.33.post2"]
TAGS = ["manylinux_2_31_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"]


def wheel(folder: Path, package: str) -> Path:
    """The wheel of a package, downloaded once."""
    name, version = package.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    found = sorted(folder.glob(pattern))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder]
        command += ["--python-version", "3.12", "--implementation", "cp"]
        command += [word for abi in ["cp312", "abi3", "none"] for word in ["--abi", abi]]
        command += [word for tag in TAGS for word in ["--platform", tag]]
        subprocess.run([*command, package], check=True)
        found = sorted(folder.glob(pattern))
    return found[0]


def unpack(folder: Path, package: str, wanted: str) -> list[Path]:
    """The files of a package whose names end in `wanted`."""
    corpus = os.environ.get("FA_DOCTOR_CORPUS")
    tree = Path(corpus or folder, "trees", package.replace("==", "-"))
    if tree.is_dir():
        return sorted(path for path in tree.rglob("*") if path.name.endswith(wanted))
    place = folder / package
    with zipfile.ZipFile(wheel(folder, package)) as archive:
        names = [name for name in archive.namelist() if name.endswith(wanted)]
        for name in names:
            if not (place / name).exists():
                archive.extract(name, place)
    return [place / name for name in names]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    [tool] = unpack(folder, TOOL, "bin/cuobjdump")
    tool.chmod(0o755)
    libraries = [path for package in PACKAGES for path in unpack(folder, package, ".so")]
    # Those without device code have nothing to compare, and cuobjdump calls that an error.
    libraries = [path for path in libraries if b".nv_fatbin" in path.read_bytes()]
    environment = dict(os.environ)
    environment["FA_DOCTOR_CUOBJDUMP"] = str(tool)
    environment["FA_DOCTOR_LIBRARIES"] = os.pathsep.join(map(str, libraries))
    command = ["cargo", "test", "--test", "native_cuobjdump", "--", "--ignored", "--nocapture"]
    return subprocess.run(command, env=environment, cwd=Path(__file__).resolve().parent.parent, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
