"""Build backend (PEP 517) for the wheel that carries the fa-doctor binary: Cargo, the standard library, no network.

The metadata comes from pyproject.toml and Cargo.toml. FA_DOCTOR_BINARY names a finished binary to pack instead of
building one.
"""

import base64
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = "fa-doctor.exe" if os.name == "nt" else "fa-doctor"
# Zip archives cannot say "no time"; this is the earliest they can.
EPOCH = (1980, 1, 1, 0, 0, 0)


def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_sdist(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    version = _version()
    info = f"fa_doctor-{version}.dist-info"
    folder = pathlib.Path(metadata_directory, info)
    folder.mkdir()
    (folder / "METADATA").write_text(_metadata(version), encoding="utf-8")
    return info


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = _version()
    tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    info = f"fa_doctor-{version}.dist-info"
    name = f"fa_doctor-{version}-{tag}.whl"
    files = [
        (f"fa_doctor-{version}.data/scripts/{BINARY}", _binary().read_bytes(), 0o755),
        (f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        (f"{info}/METADATA", _metadata(version).encode(), 0o644),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fa-doctor\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644),
    ]
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data, _ in files)
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data, mode in files:
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    version = _version()
    top = f"fa_doctor-{version}"
    listed = _cargo("package", "--list", "--allow-dirty", "--offline").decode().splitlines()
    # Cargo lists files that only its own archive has.
    paths = sorted({path for path in listed if (ROOT / path).is_file() and not path.endswith(".orig")})
    with tarfile.open(os.path.join(sdist_directory, f"{top}.tar.gz"), "w:gz") as archive:
        for path in paths:
            archive.add(ROOT / path, f"{top}/{path}")
        metadata = _metadata(version).encode()
        entry = tarfile.TarInfo(f"{top}/PKG-INFO")
        entry.size = len(metadata)
        archive.addfile(entry, io.BytesIO(metadata))
    return f"{top}.tar.gz"


def _binary():
    given = os.environ.get("FA_DOCTOR_BINARY")
    if given:
        return pathlib.Path(given)
    built = _cargo("build", "--release", "--locked", "--bin", "fa-doctor", "--message-format", "json-render-diagnostics")
    for line in reversed(built.decode().splitlines()):
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "fa-doctor":
            return pathlib.Path(message["executable"])
    sys.exit("error: cargo built no fa-doctor binary")


def _cargo(*arguments):
    cargo = shutil.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))
    if cargo is None:
        sys.exit("error: building fa-doctor needs Rust, and there is no cargo\nhint: install it from rustup.rs, or take a release wheel")
    # Without a network, the sources that Cargo already has are used.
    result = subprocess.run([cargo, *arguments], cwd=ROOT, stdout=subprocess.PIPE)
    if result.returncode:
        sys.exit(f"error: cargo {arguments[0]} failed (see above)")
    return result.stdout


def _version():
    package = (ROOT / "Cargo.toml").read_text(encoding="utf-8").split("[package]", 1)[1]
    return re.search(r'^version = "([^"]+)"', package, re.MULTILINE)[1]


def _project(key):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(rf'^{key} = "([^"]+)"', text.split("[project]", 1)[1], re.MULTILINE)[1]


def _metadata(version):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return (
        "Metadata-Version: 2.4\n"
        "Name: fa-doctor\n"
        f"Version: {version}\n"
        f"Summary: {_project('description')}\n"
        f"License-Expression: {_project('license')}\n"
        "License-File: LICENSE\n"
        f"Requires-Python: {_project('requires-python')}\n"
        "Description-Content-Type: text/markdown\n"
        f"\n{readme}"
    )


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
