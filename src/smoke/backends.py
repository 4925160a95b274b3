"""Runs one attention function of this Python environment on the inputs that `fa-doctor smoke` wrote.

    python backends.py FOLDER BACKEND DEVICE

FOLDER holds cases.json and the raw tensors it names; the outputs go beside them as CASE.BACKEND.o. What happens is told
on standard output, one JSON object a line; other lines there come from the packages and are ignored by the reader.
Nothing is pickled, nothing is written into the environment, and this file needs nothing but the package under test.
"""

import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import signal
import sys
import threading
import traceback

# Before anything is imported: no caches, since a result of yesterday's code hides today's defect.
os.environ.setdefault("CUTE_DSL_DISABLE_FILE_CACHING", "1")
os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


class NotOffered(Exception):
    """The function has no way to ask for this case."""


class Gated(Exception):
    """The package says that it does not support this GPU."""


def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


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


# ---- what is installed ----


def has_file(package, path):
    """Whether a top-level package has that file, found without importing it."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations or []) if spec else []
    return any(os.path.exists(os.path.join(folder, path)) for folder in folders)


def version(*distributions):
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return None


# ---- how each is called: a function of a case that returns (total_q, heads, head_dim) ----


def accepted(function, arguments, needed):
    """Only the keywords that the function has; without one of those in `needed` the case cannot be asked for."""
    parameters = inspect.signature(function).parameters
    if any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
        return arguments
    for name in needed:
        if name not in parameters:
            raise NotOffered(f"{name} is no parameter of {function.__module__}.{function.__name__}")
    return {name: value for name, value in arguments.items() if name in parameters}


def first(result):
    return result[0] if isinstance(result, (tuple, list)) else result


def varlen(function, case, unbounded=-1, table="block_table", lengths_with_pages=False, **extra):
    """The calling convention of the flash-attn family: sequences one after the other, cumulative lengths."""
    left, right = case["window"]
    windowed = left >= 0 or right > 0
    arguments = dict(
        cu_seqlens_q=case["starts_q"],
        cu_seqlens_k=case["starts_k"],
        max_seqlen_q=case["max_q"],
        max_seqlen_k=case["max_k"],
        softmax_scale=case["scale"],
        causal=right == 0,
        **extra,
    )
    needed = ["cu_seqlens_q", "cu_seqlens_k", "causal", *extra]
    if windowed:
        arguments["window_size"] = tuple(unbounded if side < 0 else side for side in (left, right))
        needed.append("window_size")
    if case["page_size"]:
        arguments[table] = case["pages"]
        needed.append(table)
        if lengths_with_pages:
            del arguments["cu_seqlens_k"]
            needed.remove("cu_seqlens_k")
            arguments["seqused_k"] = case["lengths_k"]
            needed.append("seqused_k")
    arguments = accepted(function, arguments, needed)
    return first(function(case["q"], case["k"], case["v"], **arguments))


def load_flash_attn_2():
    function = importlib.import_module("flash_attn").flash_attn_varlen_func
    return lambda case: varlen(function, case)


def load_flash_attn_3():
    function = importlib.import_module("flash_attn_interface").flash_attn_varlen_func
    return lambda case: varlen(function, case, table="page_table", lengths_with_pages=True)


def load_cute(module):
    function = importlib.import_module(module).flash_attn_varlen_func
    return lambda case: varlen(function, case, unbounded=None, table="page_table", lengths_with_pages=True)


def load_vllm(generation):
    module = importlib.import_module("vllm.vllm_flash_attn")
    function = module.flash_attn_varlen_func
    reason = getattr(module, "fa_version_unsupported_reason", lambda _: None)(generation)
    if reason:
        # A library that does not load is a defect; one that is not made for this GPU, or not there, is not.
        broken = re.search("undefined symbol|GLIBC|cannot open shared object", reason)
        raise ImportError(reason) if broken else Gated(reason)
    return lambda case: varlen(function, case, lengths_with_pages=True, fa_version=generation)


def load_flashinfer():
    function = importlib.import_module("flashinfer").single_prefill_with_kv_cache

    def run(case):
        left, right = case["window"]
        if right > 0:
            raise NotOffered("a window to the right")
        if case["page_size"]:
            raise NotOffered("pages, in the single-request function")

        def one(q, k, v, mask):
            return first(function(q, k, v, causal=right == 0, window_left=left, sm_scale=case["scale"]))

        return each_sequence(case, one)

    return run


def load_torch_sdpa():
    import torch

    def run(case):
        if case["page_size"]:
            raise NotOffered("pages")

        def one(q, k, v, mask):
            # Its own causal mask is aligned at the top left, which is the same only for a square.
            causal = case["window"] == [-1, 0] and len(q) == len(k)
            mask = {"is_causal": True} if causal else {"attn_mask": mask()}
            groups = q.shape[1] // k.shape[1]
            k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
            q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=case["scale"], **mask)
            return out.squeeze(0).transpose(0, 1)

        return each_sequence(case, one)

    return run


def each_sequence(case, one):
    """For functions that take one sequence at a time; the mask is made for those that ask for it."""
    import torch

    outputs = []
    starts_q, starts_k = case["starts_q"].tolist(), case["starts_k"].tolist()
    left, right = case["window"]
    for i in range(len(starts_q) - 1):
        q = case["q"][starts_q[i] : starts_q[i + 1]]
        k, v = (case[name][starts_k[i] : starts_k[i + 1]] for name in "kv")

        def mask():
            position = torch.arange(len(q), device=q.device)[:, None] + len(k) - len(q)
            n = torch.arange(len(k), device=q.device)[None, :]
            visible = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device)
            if left >= 0:
                visible &= n >= position - left
            if right >= 0:
                visible &= n <= position + right
            return visible

        outputs.append(one(q, k, v, mask))
    return torch.cat(outputs)


# Name: is it there, which distribution, how to get the function.
BACKENDS = {
    "torch-sdpa": (lambda: has_file("torch", "__init__.py"), ["torch"], load_torch_sdpa),
    "flash-attn-2": (lambda: has_file("flash_attn", "flash_attn_interface.py"), ["flash-attn"], load_flash_attn_2),
    "flash-attn-3": (
        lambda: importlib.util.find_spec("flash_attn_interface") is not None,
        ["flash-attn-3", "flash_attn_3", "hopper"],
        load_flash_attn_3,
    ),
    "flash-attn-4": (
        lambda: has_file("flash_attn", "cute/interface.py"),
        ["flash-attn-4", "sgl-fa4", "tokenspeed-fa4", "flash-attn"],
        lambda: load_cute("flash_attn.cute"),
    ),
    "vllm-fa2": (lambda: has_file("vllm", "vllm_flash_attn"), ["vllm"], lambda: load_vllm(2)),
    "vllm-fa3": (lambda: has_file("vllm", "vllm_flash_attn"), ["vllm"], lambda: load_vllm(3)),
    "vllm-fa4": (lambda: has_file("vllm", "vllm_flash_attn"), ["vllm"], lambda: load_vllm(4)),
    # What vLLM's own choice keeps away from some GPUs, called directly, as other programs do.
    "vllm-cute": (
        lambda: has_file("vllm", "vllm_flash_attn/cute/interface.py"),
        ["vllm"],
        lambda: load_cute("vllm.vllm_flash_attn.cute.interface"),
    ),
    "flashinfer": (lambda: has_file("flashinfer", "__init__.py"), ["flashinfer-python", "flashinfer"], load_flashinfer),
}


# ---- running ----


def read_case(folder, case, device):
    import torch

    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[case["dtype"]]

    def tensor(name, kind, shape):
        with open(os.path.join(folder, f"{case['name']}.{name}"), "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=kind).reshape(shape).to(device)

    head_dim, heads_k = case["head_dim"], case["heads_k"]
    keys = (-1, case["page_size"], heads_k, head_dim) if case["page_size"] else (-1, heads_k, head_dim)
    sequences = len(case["lengths_k"])
    return {
        **case,
        "q": tensor("q", dtype, (-1, case["heads_q"], head_dim)),
        "k": tensor("k", dtype, keys),
        "v": tensor("v", dtype, keys),
        "starts_q": tensor("starts_q", torch.int32, (-1,)),
        "starts_k": tensor("starts_k", torch.int32, (-1,)),
        "lengths_k": torch.tensor(case["lengths_k"], dtype=torch.int32, device=device),
        "pages": tensor("pages", torch.int32, (sequences, -1)) if case["page_size"] else None,
    }


def throughput_case(case, device):
    """The large case, on inputs made here: only its time counts."""
    import torch

    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[case["dtype"]]
    tokens, head_dim = case["max_q"], case["head_dim"]
    starts = torch.tensor([0, tokens], dtype=torch.int32, device=device)
    made = {"starts_q": starts, "starts_k": starts, "pages": None}
    for name, heads in (("q", case["heads_q"]), ("k", case["heads_k"]), ("v", case["heads_k"])):
        made[name] = torch.randn(tokens, heads, head_dim, dtype=dtype, device=device)
    return {**case, **made}


def median_ms(function, case):
    import torch

    function(case)
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function(case)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def write_output(folder, case, backend, output):
    import torch

    output = output.contiguous().view(torch.uint8).flatten().cpu()
    with open(os.path.join(folder, f"{case['name']}.{backend}.o"), "wb") as file:
        file.write(bytes(output.tolist()))


def root_cause(error):
    """What was raised first: compilers wrap it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def place(error):
    """Where it was raised, relative to the folder of the packages."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].filename == __file__:
        return ""
    path = frames[-1].filename
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        if path.startswith(folder + os.sep):
            path = path[len(folder) + 1 :]
            break
    return f" ({path}:{frames[-1].lineno})"


def describe(error):
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}{place(error)}" if text else f"{type(error).__name__}{place(error)}"


def outcome(error):
    """How an exception counts, and what it says."""
    error = root_cause(error)
    if isinstance(error, (Gated, NotOffered)):
        return {"result": "gated" if isinstance(error, Gated) else "not-offered", "message": str(error)}
    return {"result": "gated" if is_gate(error) else "raises", "message": describe(error)}


def is_gate(error):
    """Whether the package refuses on purpose: an assert or error that speaks of what it supports."""
    if isinstance(error, NotImplementedError):
        return True
    if isinstance(error, (NameError, AttributeError, TypeError, ImportError)):
        return False
    # What the driver refuses ("an unsupported toolchain") is no decision of the package.
    if re.search(r"CUDA error|\[CUDA\]|CUDA_ERROR", str(error)):
        return False
    words = r"support|compute capabilit|must be divisible|requires (hopper|ampere|blackwell|sm_?\d)"
    return re.search(words, str(error), re.IGNORECASE) is not None


def check_torch(device):
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        raise RuntimeError(f"torch {torch.__version__}, built {built}, cannot use the GPU")


def run(folder, backend, device):
    installed, distributions, load = BACKENDS[backend]
    if not installed():
        return tell("absent")
    tell("installed", version=version(*distributions))
    if importlib.util.find_spec("torch") is None:
        return tell("stopped", result="raises", message="ModuleNotFoundError: torch is not installed")
    try:
        check_torch(device)
        function = load()
    except Exception as error:
        return tell("stopped", **outcome(error))
    with open(os.path.join(folder, "cases.json"), encoding="utf-8") as file:
        described = json.load(file)
    for case in described["cases"]:
        name = case["name"]
        tell("begin", case=name)
        try:
            output = function(read_case(folder, case, device))
            write_output(folder, case, backend, output)
            tell("case", case=name, result="ran", message="")
        except Exception as error:
            tell("case", case=name, **outcome(error))
    if described["throughput"]:
        tell("begin", case="throughput")
        try:
            tell("timed", ms=median_ms(function, throughput_case(described["throughput"], device)))
        except Exception as error:
            # The verdict is about right and wrong numbers; the time is there if it can be had.
            tell("untimed", **outcome(error))
    tell("done")


if __name__ == "__main__":
    end_with_parent()
    run(*sys.argv[1:4])
