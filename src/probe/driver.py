"""Compiles the attention kernels of one package of this Python environment for a GPU that need not be there.

    python driver.py REQUEST.json        (written by `fa-doctor probe`)

The package is imported once, without what surrounds it: its parents get a path and nothing else, so that no compiled
extension of theirs is loaded. Then every case runs in a process of its own, forked from this one, with a limit of time
and memory. Nothing is written into the environment, and no driver call is made. What happens is told on standard
output, one JSON object a line; what the packages print goes to standard error.

Whatever is patched below is only patched where it is found: releases of the DSL differ. What is not found and turns out
to be needed shows as an error of the case.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import linecache
import os
import re
import signal
import sys
import threading
import time
import traceback
import types

try:
    import resource
except ImportError:
    # Not on Windows, where the DSL does not exist either.
    resource = None

# Multiprocessors of the usual card of an architecture: schedulers divide by it, and no kernel depends on it otherwise.
MULTIPROCESSORS = {80: 108, 86: 84, 87: 16, 89: 128, 90: 132, 100: 148, 103: 160, 110: 20, 120: 188, 121: 48}
BATCH, LENGTH, PAGE = 2, 1024, 16
TICK = 0.02


class NotOffered(Exception):
    """The package has no way to ask for this case."""


class Stopped(Exception):
    """Nothing can be checked, for this reason."""

    def __init__(self, stage, error):
        super().__init__(stage)
        self.stage, self.error = stage, error


# ---- telling ----

OUT = os.fdopen(os.dup(1), "w", encoding="utf-8")


def tell(event, **fields):
    OUT.write(json.dumps({"event": event, **fields}) + "\n")
    OUT.flush()


def end_with_parent():
    """fa-doctor holds the other end of standard input: when it ends, so do we and all that we have started."""

    def watch():
        while os.read(0, 4096):
            pass
        # Only a group of our own: without one it is that of whoever started us by hand.
        if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def version(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


# ---- before anything is imported ----


def set_environment(request):
    """What the DSL, quack and the packages read when they are imported."""
    number = request["arch"]
    sm = f"sm_{number}"
    os.environ.update(
        FLASH_ATTENTION_ARCH=sm,
        QUACK_ARCH=sm,
        CUTE_DSL_ARCH=request["target"],
        FLASH_ATTENTION_NUM_SMS=str(MULTIPROCESSORS.get(number, 132)),
        # A kernel from yesterday's cache would hide today's defect.
        CUTE_DSL_DISABLE_FILE_CACHING="1",
        FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED="0",
        CUDA_VISIBLE_DEVICES="",
        # Otherwise it compiles an extension on its first import.
        TVM_FFI_DISABLE_TORCH_C_DLPACK="1",
    )
    if request["full"]:
        os.environ.pop("CUTE_DSL_DRYRUN", None)
        # The second is the name of releases before 4.6. The folder is the current one of the process of the case.
        os.environ.update(CUTE_DSL_KEEP="cubin", CUTE_DSL_KEEP_CUBIN="1", CUTE_DSL_DUMP_DIR=".")
    else:
        os.environ["CUTE_DSL_DRYRUN"] = "1"


def set_path(folders):
    """The folders of the environment in its order, behind the standard library. An interpreter may already have another
    copy of the DSL in front, and have imported from it: its `.pth` files do that."""
    real = os.path.realpath
    known = {real(folder) for folder in folders}
    sites = [i for i, p in enumerate(sys.path) if os.path.basename(p) in ("site-packages", "dist-packages")]
    before = sys.path[: sites[0]] if sites else list(sys.path)
    after = sys.path[sites[0] :] if sites else []
    sys.path[:] = [
        *(folder for folder in before if real(folder) not in known),
        *folders,
        *(folder for folder in after if real(folder) not in known),
    ]
    for name, module in list(sys.modules.items()):
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(place and real(place).startswith(tuple(folder + os.sep for folder in known)) for place in places):
            del sys.modules[name]
    importlib.invalidate_caches()


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Modules whose source comes with the request: files as a fix would leave them, and those inside of wheels."""

    def __init__(self, modules):
        self.modules = modules
        for module in modules.values():
            lines = module["text"].splitlines(keepends=True)
            # Without a time of change the entry stays: the DSL reads the source of what it compiles.
            linecache.cache[module["file"]] = (len(module["text"]), None, lines, module["file"])

    def find_spec(self, name, path=None, target=None):
        module = self.modules.get(name)
        if module is None:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, origin=module["file"], is_package=module["package"])
        spec.has_location = True
        if module["package"]:
            folder = os.path.dirname(module["file"])
            spec.submodule_search_locations = [folder] if os.path.isdir(folder) else []
        return spec

    def get_source(self, name):
        return self.modules[name]["text"]

    def get_code(self, name):
        module = self.modules[name]
        return compile(module["text"], module["file"], "exec", dont_inherit=True)

    def is_package(self, name):
        return self.modules[name]["package"]


def bare_parents(package):
    """Gives the packages around it their path and nothing else: what their `__init__` imports is not under test."""
    names = package.split(".")[:-1]
    for depth, name in enumerate(names, 1):
        full = ".".join(names[:depth])
        if depth == 1:
            spec = importlib.util.find_spec(full)
            path = list(spec.submodule_search_locations or []) if spec else []
        else:
            path = [folder for folder in (os.path.join(above, name) for above in path) if os.path.isdir(folder)]
        module = types.ModuleType(full)
        module.__path__ = path
        sys.modules[full] = module
        if depth > 1:
            setattr(sys.modules[full.rpartition(".")[0]], name, module)


# ---- importing ----


def import_torch(request):
    if request["standin"]:
        import torch_standin

        torch_standin.install()
        # The modules of torch that are asked for come from it; quack's own start imports more than it can stand in for.
        torch_standin.light_quack()
    elif importlib.util.find_spec("torch") is None:
        raise Stopped("torch", ModuleNotFoundError("torch is not installed"))
    import torch

    number = request["arch"]
    torch.cuda.get_device_capability = lambda *_, **__: (number // 10, number % 10)
    return torch


def patch_dsl(request, notes):
    """What would ask the driver answers for the architecture instead."""
    multiprocessors = MULTIPROCESSORS.get(request["arch"], 132)

    def patch(owner, name, function):
        if hasattr(owner, name):
            setattr(owner, name, function)

    def module(name):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            notes.append(f"{name}: {error}")
            return None

    info = getattr(module("cutlass.utils.hardware_info"), "HardwareInfo", None)
    patch(info, "__init__", lambda self, device_id=0: setattr(self, "device_id", device_id))
    patch(info, "get_device_multiprocessor_count", lambda *_, **__: multiprocessors)
    patch(info, "get_l2_cache_size_in_bytes", lambda *_, **__: 50 << 20)
    patch(
        info,
        "get_max_active_clusters",
        lambda self, cluster_size=1, *_, **__: max(1, multiprocessors // max(1, int(cluster_size))),
    )
    # Releases before 4.5 start the driver before they compile.
    compiler = getattr(module("cutlass.base_dsl.compiler"), "Compiler", None)
    patch(compiler, "_check_cuda_dependencies_once", lambda *_, **__: None)


def record_launches(notes):
    """A list that every kernel launch adds its bytes of shared memory to; nothing where the DSL works them out itself."""
    launches = []
    try:
        from cutlass.base_dsl.dsl import BaseDSL

        config = BaseDSL.LaunchConfig
        original = config.__post_init__
    except (ImportError, AttributeError) as error:
        notes.append(f"shared memory of launches: {error}")
        return launches

    def post_init(self):
        original(self)
        launches.append(self.smem if isinstance(self.smem, int) and self.smem > 0 else None)

    config.__post_init__ = post_init
    return launches


def capacity(number):
    """Bytes of shared memory that a block can have, as the DSL has them."""
    for module in ("cutlass.memory", "cutlass.utils"):
        try:
            return int(importlib.import_module(module).get_smem_capacity_in_bytes(f"sm_{number}"))
        except Exception:
            # Where it is depends on the release, and not every release knows every architecture.
            continue
    return None


# ---- the cases ----


class Caller:
    """Asks the package for the kernel of a case, in whichever way it offers."""

    def __init__(self, package, interface, torch, fake_mode):
        self.package, self.interface, self.torch, self.fake_mode = package, interface, torch, fake_mode

    def __call__(self, case):
        with self.fake_mode():
            if case["backward"]:
                return self.backward(case)
            if case["layout"] == "paged":
                return self.paged(case)
            from_specs = getattr(self.interface, "compile_flash_attn_varlen_func_from_specs", None)
            return self.specs(from_specs, case) if from_specs else self.tensors(case)

    def function(self, name):
        function = getattr(self.interface, name, None)
        if function is None:
            raise NotOffered(f"{self.package}.interface has no {name}")
        return function

    def empty(self, *shape, dtype):
        return self.torch.empty(shape, dtype=dtype, device="cuda")

    def qkv(self, case):
        dtype = getattr(self.torch, case["dtype"])
        lead = (BATCH * LENGTH,) if case["layout"] == "varlen" else (BATCH, LENGTH)
        q = self.empty(*lead, case["heads_q"], case["head_dim"], dtype=dtype)
        k = self.empty(*lead, case["heads_kv"], case["head_dim"], dtype=dtype)
        v = self.empty(*lead, case["heads_kv"], case["head_dim_v"], dtype=dtype)
        return q, k, v

    def specs(self, function, case):
        varlen = case["layout"] == "varlen"
        lead = (BATCH * LENGTH,) if varlen else (BATCH, LENGTH)
        starts = (BATCH + 1,) if varlen else None
        function(
            q_shape=(*lead, case["heads_q"], case["head_dim"]),
            k_shape=(*lead, case["heads_kv"], case["head_dim"]),
            v_shape=(*lead, case["heads_kv"], case["head_dim_v"]),
            q_dtype=getattr(self.torch, case["dtype"]),
            cu_seqlens_q_shape=starts,
            cu_seqlens_k_shape=starts,
            max_seqlen_q=LENGTH,
            max_seqlen_k=LENGTH,
            causal=case["causal"],
            window_size=tuple(case["window"]),
            num_splits=1,
            return_lse=True,
        )

    def tensors(self, case):
        mask = {"causal": case["causal"], "window_size": tuple(case["window"])}
        if case["layout"] == "dense":
            return self.function("flash_attn_func")(*self.qkv(case), **mask)
        starts = self.empty(BATCH + 1, dtype=self.torch.int32)
        lengths = dict(cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=LENGTH, max_seqlen_k=LENGTH)
        return self.function("flash_attn_varlen_func")(*self.qkv(case), **lengths, **mask)

    def paged(self, case):
        """As an inference engine calls it: pages of keys, and how many of them each sequence uses."""
        dtype, int32 = getattr(self.torch, case["dtype"]), self.torch.int32
        pages = BATCH * LENGTH // PAGE
        return self.function("flash_attn_varlen_func")(
            self.empty(BATCH * LENGTH, case["heads_q"], case["head_dim"], dtype=dtype),
            self.empty(pages, PAGE, case["heads_kv"], case["head_dim"], dtype=dtype),
            self.empty(pages, PAGE, case["heads_kv"], case["head_dim_v"], dtype=dtype),
            cu_seqlens_q=self.empty(BATCH + 1, dtype=int32),
            seqused_k=self.empty(BATCH, dtype=int32),
            page_table=self.empty(BATCH, LENGTH // PAGE, dtype=int32),
            max_seqlen_q=LENGTH,
            max_seqlen_k=LENGTH,
            causal=case["causal"],
        )

    def backward(self, case):
        q, k, v = self.qkv(case)
        out, dout = (self.empty(*q.shape[:-1], case["head_dim_v"], dtype=q.dtype) for _ in range(2))
        lse = self.empty(BATCH, case["heads_q"], LENGTH, dtype=self.torch.float32)
        return self.function("_flash_attn_bwd")(q, k, v, out, dout, lse, causal=case["causal"])


# ---- what was raised, and where ----


class Judge:
    """Describes an exception: what it was at the bottom, and where in the package."""

    def __init__(self, package, folder):
        self.package, self.folder = package, os.path.abspath(folder) + os.sep

    def causes(self, error):
        """From the one that arrived to the one that began it: the DSL wraps what is raised in what it compiles."""
        seen = []
        while error is not None and error not in seen:
            seen.append(error)
            error = error.__cause__
        return seen

    def is_own(self, frame):
        return os.path.abspath(frame.filename).startswith(self.folder)

    def describe(self, error):
        causes = self.causes(error)
        first = causes[-1]
        frames = [traceback.extract_tb(cause.__traceback__) for cause in causes]
        own = [frame for stack in frames for frame in stack if self.is_own(frame)]
        deepest = next((stack[-1] for stack in reversed(frames) if stack), None)
        place = own[-1] if own else None
        told = {
            "error": type(first).__name__,
            "message": plain(first),
            "subject": getattr(first, "name", None),
            "file": place.filename if place else None,
            "line": place.lineno if place else None,
            "refused": self.is_refusal(first, deepest),
            "foreign": self.is_foreign(first, deepest),
        }
        if isinstance(first, SyntaxError) and first.filename:
            told.update(file=first.filename, line=first.lineno)
        return told

    def is_refusal(self, error, frame):
        """Whether it was raised on purpose. The DSL runs the asserts of what it compiles in code of its own."""
        if isinstance(error, (NameError, AttributeError, ImportError)) or frame is None:
            return False
        if isinstance(error, AssertionError) and str(error):
            return True
        refuses = isinstance(error, (AssertionError, NotImplementedError)) or (frame.line or "").startswith("raise ")
        return refuses and self.is_own(frame)

    def is_foreign(self, error, frame):
        """Whether what does not fit is part of another package: a module, an object of its classes, a function."""
        if isinstance(error, ImportError):
            name = error.name or ""
        elif isinstance(error, AttributeError):
            owner = getattr(error, "obj", None)
            kind = owner if isinstance(owner, type) else type(owner)
            name = owner.__name__ if isinstance(owner, types.ModuleType) else kind.__module__
        elif isinstance(error, TypeError):
            callee = re.match(r"([\w.<>]+)\(\) (takes|got an unexpected|got multiple|got some|missing) ", str(error))
            return callee is not None and not self.defines(callee[1].rpartition(".")[2])
        else:
            return False
        top = name.partition(".")[0]
        return bool(top) and top != "builtins" and not (name + ".").startswith(self.package + ".")

    def defines(self, name):
        """Whether a module of the package, or a class in one, defines a function of this name."""
        for module_name, module in list(sys.modules.items()):
            if (module_name + ".").startswith(self.package + "."):
                own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module_name]
                if any(getattr(value, "__name__", None) == name for value in own):
                    return True
                if any(isinstance(value, type) and name in vars(value) for value in own):
                    return True
        return False


def plain(error):
    """The text of an exception, without colours and without the page that the DSL may put around it."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error)).strip()
    return text[:2000]


# ---- running ----


class Running:
    """A case in its process."""

    def __init__(self, request, case, run):
        self.name, self.begin = case["name"], time.monotonic()
        self.folder = os.path.join(request["folder"], case["name"])
        os.makedirs(self.folder, exist_ok=True)
        self.result = os.path.join(self.folder, "result.json")
        self.deadline = self.begin + request["timeout"]
        tell("begin", case=self.name)
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            # Whatever happens, this process must not return into the loop of its parent.
            try:
                self.child(request, case, run)
                status = 0
            finally:
                os._exit(status)

    def child(self, request, case, run):
        os.chdir(self.folder)
        errors = os.open("stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(errors, 2)
        limit_memory(request["memory"])
        result = run(case)
        with open(self.result + ".part", "w", encoding="utf-8") as file:
            json.dump(result, file)
        os.rename(self.result + ".part", self.result)

    def ended(self):
        """Whether it has; then it has been told."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        late = pid == 0 and time.monotonic() > self.deadline
        if late:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        elif pid == 0:
            return False
        seconds = round(time.monotonic() - self.begin, 2)
        if os.path.exists(self.result):
            with open(self.result, encoding="utf-8") as file:
                told = json.load(file)
        elif late:
            told = {"result": "ended", "reason": "timeout"}
        elif os.WIFSIGNALED(status):
            told = {"result": "ended", "reason": signal.Signals(os.WTERMSIG(status)).name}
        else:
            told = {"result": "ended", "reason": f"exit status {os.WEXITSTATUS(status)}"}
        tell("case", case=self.name, seconds=seconds, stderr=self.stderr(), **told)
        return True

    def stderr(self):
        with contextlib.suppress(OSError):
            with open(os.path.join(self.folder, "stderr"), encoding="utf-8", errors="replace") as file:
                return re.sub("\x1b\\[[0-9;]*m", "", file.read()).strip()[-4000:]
        return ""


def limit_memory(growth):
    """Lets this process grow by so many bytes: address space, since most of what torch maps is never touched."""
    if resource is None or not growth:
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/statm", encoding="ascii") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + growth, mapped + growth))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_all(request, run):
    waiting, running = list(request["cases"]), []
    while waiting or running:
        while waiting and len(running) < request["jobs"]:
            running.append(Running(request, waiting.pop(0), run))
        running = [case for case in running if not case.ended()]
        time.sleep(TICK)


def prepare(request):
    """Imports everything that is under test; the function that runs a case in its process."""
    package, notes = request["package"], []
    set_environment(request)
    set_path(request["path"])
    if request["sources"]:
        sys.meta_path.insert(0, Sources(request["sources"]))
    if importlib.util.find_spec("cutlass") is None:
        raise Stopped("dsl", ModuleNotFoundError("the CuTe DSL (module cutlass) is not installed"))
    try:
        torch = import_torch(request)
    except Stopped:
        raise
    except Exception as error:
        raise Stopped("torch", error) from error
    try:
        import cutlass
        import cutlass.cute
    except Exception as error:
        raise Stopped("dsl", error) from error
    bare_parents(package)
    try:
        interface = importlib.import_module(package + ".interface")
        if request["standin"]:
            import torch_standin

            torch_standin.describe_tensors(package)
    except Exception as error:
        raise Stopped("package", error) from error
    from torch._subclasses.fake_tensor import FakeTensorMode

    patch_dsl(request, notes)
    launches = record_launches(notes)
    call = Caller(package, interface, torch, FakeTensorMode)
    judge = Judge(package, os.path.dirname(interface.__file__))
    most = capacity(request["arch"])
    tell(
        "ready",
        torch=str(torch.__version__),
        dsl=getattr(cutlass, "__version__", None) or version("nvidia-cutlass-dsl"),
        quack=version("quack-kernels"),
        notes=notes,
    )

    def run(case):
        launches.clear()
        try:
            call(case)
        except NotOffered as error:
            return {"result": "not-offered", "message": str(error)}
        except MemoryError:
            return {"result": "ended", "reason": "memory"}
        except BaseException as error:
            return {"result": "raised", **judge.describe(error)}
        cubins = sorted(os.path.abspath(name) for name in os.listdir(".") if name.endswith(".cubin"))
        return {"result": "compiled", "launches": launches, "capacity": most, "cubins": cubins}

    return run


def main(path):
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    end_with_parent()
    # What packages print is not for the reader of the events.
    os.dup2(2, 1)
    try:
        run = prepare(request)
    except Stopped as stopped:
        folder = os.path.join(request["folder"], "none")
        spec = None
        with contextlib.suppress(Exception):
            spec = importlib.util.find_spec(request["package"])
        if spec is not None and spec.origin:
            folder = os.path.dirname(spec.origin)
        told = Judge(request["package"], folder).describe(stopped.error)
        return tell("stopped", stage=stopped.stage, dsl=version("nvidia-cutlass-dsl"), **told)
    run_all(request, run)
    tell("done")


if __name__ == "__main__":
    main(sys.argv[1])
