#!/usr/bin/env python3
"""Prepares the corpus: real released packages, composed into environments.

    python3 scripts/corpus.py TARGET                 the judged environments (what CI uses)
    python3 scripts/corpus.py TARGET --set large     the larger ones as well
    python3 scripts/corpus.py TARGET --only NAME..   just these environments
    python3 scripts/corpus.py TARGET --package P..   just download and unpack name==version

Leaves TARGET/wheels (what was downloaded), TARGET/trees (one folder per distribution) and
TARGET/envs (one site-packages folder per environment), and describes them in TARGET/README.
Everything that is already there is kept, so a second run only adds what is missing. Nothing is
installed, built or imported. What exists is said by tests/corpus/packages.toml.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "tests" / "corpus" / "packages.toml"
# Above this size an environment links to the tree's file instead of copying it.
LINK_ABOVE = 1 << 20

# Enough of torch for the setup.py of an attention package to be asked for its name and version.
STUB_CPP_EXTENSION = """\
from setuptools.command.build_ext import build_ext as BuildExtension
CUDA_HOME = ROCM_HOME = IS_HIP_EXTENSION = None
def CUDAExtension(*args, **kwargs): raise RuntimeError("nothing is built here")
CppExtension = CUDAExtension
"""


def split(requirement):
    name, _, version = requirement.partition("==")
    if not version:
        sys.exit(f"{requirement}: expected name==version")
    return name, version


def fold(name):
    return re.sub(r"[-_.]+", "-", name).lower()


class Corpus:
    def __init__(self, target, data):
        self.target = target
        self.data = data
        self.wheels = target / "wheels"
        self.trees = target / "trees"
        self.envs = target / "envs"
        for folder in (self.wheels, self.trees, self.envs):
            folder.mkdir(parents=True, exist_ok=True)

    def archive(self, requirement):
        """The downloaded file of a distribution, if it is there."""
        name, version = split(requirement)
        for file in sorted(self.wheels.iterdir()):
            if file.name.endswith(".whl"):
                parts = file.name.split("-")
                found = parts[0], parts[1]
            elif file.name.endswith(".tar.gz"):
                found = file.name.removesuffix(".tar.gz").rsplit("-", 1)
            else:
                continue
            if fold(found[0]) == fold(name) and found[1] == version:
                return file
        return None

    def download(self, requirement):
        if self.archive(requirement):
            return
        name, _ = split(requirement)
        # A folder of its own, so that an interrupted download never looks complete.
        with tempfile.TemporaryDirectory(dir=self.target) as partial:
            if name in self.data["sdist"]:
                self.pip_sdist(requirement, partial)
            else:
                self.pip_wheel(requirement, partial)
            for file in Path(partial).iterdir():
                file.rename(self.wheels / file.name)
        if not self.archive(requirement):
            sys.exit(f"{requirement}: pip downloaded something else")

    def pip_wheel(self, requirement, folder):
        platform = self.data["platform"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--pre", "--only-binary=:all:"]
        command += ["--implementation", "cp", "--python-version", platform["python"]]
        for abi in platform["abis"]:
            command += ["--abi", abi]
        for tag in platform["tags"]:
            command += ["--platform", tag]
        subprocess.run([*command, "--dest", folder, requirement], check=True)

    def pip_sdist(self, requirement, folder):
        """pip reads a source distribution's metadata by running its setup.py: give it a torch to import."""
        tools = self.target / "tools"
        python = tools / "bin" / "python"
        if not python.exists():
            venv.create(tools, with_pip=True)
            needs = ["setuptools", "wheel", "packaging", "psutil"]
            subprocess.run([python, "-m", "pip", "install", "--quiet", *needs], check=True)
        stub = tools / "stub"
        (stub / "torch" / "utils").mkdir(parents=True, exist_ok=True)
        (stub / "torch" / "__init__.py").write_text('__version__ = "2.0.0"\n')
        (stub / "torch" / "utils" / "__init__.py").write_text("")
        (stub / "torch" / "utils" / "cpp_extension.py").write_text(STUB_CPP_EXTENSION)
        environment = dict(os.environ, PYTHONPATH=str(stub), FLASH_ATTENTION_SKIP_CUDA_BUILD="TRUE")
        command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary=:all:"]
        subprocess.run([*command, "--dest", folder, requirement], check=True, env=environment)

    def tree(self, requirement):
        name, version = split(requirement)
        return self.trees / f"{name}-{version}"

    def unpack(self, requirement):
        tree = self.tree(requirement)
        if tree.exists():
            return
        archive = self.archive(requirement)
        partial = tree.with_name(tree.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(partial)
            spread_data(partial)
        else:
            self.unpack_sdist(requirement, archive, partial)
        partial.rename(tree)

    def unpack_sdist(self, requirement, archive, folder):
        """What an installation of it would hold, without its compiled part."""
        name, version = split(requirement)
        wanted = self.data["sdist"][name]
        with tarfile.open(archive) as source:
            for member in source.getmembers():
                path = member.name.partition("/")[2]
                if not member.isfile():
                    continue
                if path.split("/")[0] in wanted:
                    write(folder / path, source.extractfile(member).read())
                elif path == "PKG-INFO":
                    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
                    write(info / "METADATA", source.extractfile(member).read())

    def layers(self, environment):
        bundles = self.data["bundle"]
        return [one for layer in environment["layers"] for one in bundles.get(layer, [layer])]

    def sources(self, environment):
        return self.layers(environment) + [one["from"] for one in environment.get("replace", [])]

    def compose(self, environment):
        folder = self.envs / environment["name"]
        if folder.exists():
            return
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        for layer in self.layers(environment):
            overlay(self.tree(layer), partial)
        for path in environment.get("remove", []):
            shutil.rmtree(partial / path)
        for change in environment.get("replace", []):
            shutil.rmtree(partial / change["path"])
            overlay(self.tree(change["from"]) / change["source"], partial / change["path"])
        for change in environment.get("rewrite", []):
            for file in sorted((partial / change["under"]).rglob("*.py")):
                text = file.read_bytes()
                file.write_bytes(text.replace(change["from"].encode(), change["to"].encode()))
        partial.rename(folder)

    def describe(self, environments):
        lines = [
            "Prepared by scripts/corpus.py from tests/corpus/packages.toml.",
            "",
            "wheels/  what pip downloaded",
            "trees/   one unpacked distribution per folder: <name>-<version>",
            "envs/    one site-packages folder per environment, later layers over earlier ones.",
            "         Files over 1 MiB are hard links into trees/: never write to them in place.",
            "",
        ]
        for environment in environments:
            if not (self.envs / environment["name"]).exists():
                continue
            lines.append(f"envs/{environment['name']}: {', '.join(self.layers(environment))}")
            for path in environment.get("remove", []):
                lines.append(f"    without {path}")
            for change in environment.get("replace", []):
                lines.append(f"    {change['path']} is {change['source']} of {change['from']}")
            for change in environment.get("rewrite", []):
                lines.append(f"    under {change['under']}: {change['from']} -> {change['to']}")
        (self.target / "README").write_text("\n".join(lines) + "\n")


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def overlay(source, folder):
    """Puts the files of `source` over those of `folder`."""
    for here, _, names in os.walk(source):
        there = folder / Path(here).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            one, other = Path(here, name), there / name
            other.unlink(missing_ok=True)
            if one.stat().st_size > LINK_ABOVE:
                os.link(one, other)
            else:
                shutil.copy2(one, other)


def spread_data(tree):
    """pip installs NAME.data/purelib and platlib beside the packages."""
    for scheme in [*tree.glob("*.data/purelib"), *tree.glob("*.data/platlib")]:
        overlay(scheme, tree)
        shutil.rmtree(scheme)


def parallel(work, items, workers):
    items = list(dict.fromkeys(items))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work, item) for item in items]:
            future.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--set", action="append", default=["judged"], choices=["judged", "large"], dest="sets")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--package", nargs="+", metavar="NAME==VERSION", default=[])
    arguments = parser.parse_args()

    data = tomllib.loads(DATA.read_text())
    corpus = Corpus(arguments.target.resolve(), data)
    known = data["environment"]
    names = {environment["name"] for environment in known}
    for name in arguments.only:
        if name not in names:
            sys.exit(f"{name}: no such environment in {DATA.name}")
    if arguments.package and not arguments.only:
        chosen = []
    elif arguments.only:
        chosen = [one for one in known if one["name"] in arguments.only]
    else:
        chosen = [one for one in known if set(one["sets"]) & set(arguments.sets)]

    packages = [*arguments.package, *(one for environment in chosen for one in corpus.sources(environment))]
    missing = [one for one in packages if not corpus.archive(one)]
    # One after the other: they share the folder of tools that the first one makes.
    parallel(corpus.download, [one for one in missing if split(one)[0] in data["sdist"]], 1)
    parallel(corpus.download, missing, 4)
    parallel(corpus.unpack, packages, 2)
    parallel_environments = {environment["name"]: environment for environment in chosen}
    parallel(lambda name: corpus.compose(parallel_environments[name]), parallel_environments, 2)
    corpus.describe(known)
    print(f"{len(chosen)} environments in {corpus.envs}")


if __name__ == "__main__":
    main()
