"""A stand-in for torch: enough of it to import the CuTe attention packages and to trace their kernels.

Tensors have a shape, strides and an element type, and hold nothing. Whatever else is asked for is there and does
nothing, so that a module that merely imports can be imported. The kernels come out the same as with torch: they are
made from shapes and types only.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

# Bytes of an element.
SIZES = {
    1: "bool int8 uint8 int1 uint1 float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz float4_e2m1fn_x2",
    2: "float16 bfloat16 int16 uint16",
    4: "float32 int32 uint32",
    8: "float64 int64 uint64 complex64",
    16: "complex128",
}
OTHER_NAMES = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32", "short": "int16"}


class dtype:
    def __init__(self, name, itemsize):
        self.name, self.itemsize = name, itemsize

    def __repr__(self):
        return "torch." + self.name


DTYPES = {name: dtype(name, size) for size, names in SIZES.items() for name in names.split()}
DTYPES.update({other: DTYPES[name] for other, name in OTHER_NAMES.items()})


class device:
    def __init__(self, type="cuda", index=0):
        self.type, self.index = str(type), index

    def __eq__(self, other):
        return isinstance(other, device) and self.type == other.type

    def __hash__(self):
        return hash(self.type)


def contiguous_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Tensor:
    requires_grad, is_cuda, grad_fn, layout = False, True, None, "strided"

    def __init__(self, shape, dtype, strides=None):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device()
        self.strides = contiguous_strides(self.shape) if strides is None else tuple(strides)

    @property
    def ndim(self):
        return len(self.shape)

    def dim(self):
        return len(self.shape)

    def size(self, axis=None):
        return self.shape if axis is None else self.shape[axis]

    def stride(self, axis=None):
        return self.strides if axis is None else self.strides[axis]

    def element_size(self):
        return self.dtype.itemsize

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    def is_contiguous(self):
        return self.strides == contiguous_strides(self.shape)

    def contiguous(self):
        return Tensor(self.shape, self.dtype)

    def detach(self):
        return self

    def data_ptr(self):
        return 0

    def storage_offset(self):
        return 0

    def zero_(self):
        return self

    def transpose(self, a, b):
        shape, strides = list(self.shape), list(self.strides)
        shape[a], shape[b] = shape[b], shape[a]
        strides[a], strides[b] = strides[b], strides[a]
        return Tensor(shape, self.dtype, strides)

    def view(self, *shape):
        if len(shape) == 1 and isinstance(shape[0], dtype):
            return Tensor(self.shape, shape[0])
        return Tensor(shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape, self.dtype)

    reshape = view

    def to(self, *arguments, **_):
        kinds = [argument for argument in arguments if isinstance(argument, dtype)]
        return Tensor(self.shape, kinds[0] if kinds else self.dtype, self.strides)


def empty(*shape, dtype=None, **_):
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    return Tensor(shape, dtype or DTYPES["float32"])


def empty_like(tensor, dtype=None, **_):
    return Tensor(tensor.shape, dtype or tensor.dtype)


class Function:
    """`torch.autograd.Function`, without what it records."""

    class Context:
        needs_input_grad = (False,) * 64

        def save_for_backward(self, *_):
            pass

        def mark_non_differentiable(self, *_):
            pass

        def set_materialize_grads(self, _):
            pass

    @classmethod
    def apply(cls, *arguments):
        return cls.forward(cls.Context(), *arguments)


class FakeTensorMode:
    active = []

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        self.active.append(self)
        return self

    def __exit__(self, *_):
        self.active.pop()
        return False


# ---- what nobody thought of ----


class Anything:
    """Can be called, used as a decorator, entered, or asked for more of the same."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, *arguments, **keywords):
        alone = len(arguments) == 1 and callable(arguments[0]) and not keywords
        return arguments[0] if alone else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{self.__name__}.{name}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def __or__(self, _):
        return object

    __ror__ = __or__

    def __mro_entries__(self, _):
        return (Base,)


class Kind(type):
    """The class of classes that stand in: they have every attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{cls.__name__}.{name}")


class Base(metaclass=Kind):
    pass


class Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = Kind(name, (), {}) if name[:1].isupper() else Anything(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


def no_gpu(*_):
    raise RuntimeError("there is no GPU")


def contents(name):
    """What a module of torch really has here."""
    if name == "torch":
        return {
            **DTYPES,
            "__version__": "2.11.0+standin",
            "dtype": dtype,
            "device": device,
            "Tensor": Tensor,
            **dict.fromkeys(("empty", "zeros", "ones"), empty),
            **dict.fromkeys(("empty_like", "zeros_like", "ones_like"), empty_like),
            "is_grad_enabled": lambda: False,
        }
    if name == "torch.autograd":
        return {"Function": Function}
    if name == "torch.version":
        return {"cuda": "13.0", "hip": None}
    if name == "torch._guards":
        return {"active_fake_mode": lambda: FakeTensorMode.active[-1] if FakeTensorMode.active else None}
    if name == "torch._subclasses.fake_tensor":
        return {"FakeTensorMode": FakeTensorMode}
    if name == "torch.cuda":
        return {"is_available": lambda: False, "device_count": lambda: 0, "get_device_capability": no_gpu}
    return {}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every module of torch there could be."""

    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith("torch."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Module(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        vars(module).update(contents(module.__name__))


def install():
    sys.meta_path.insert(0, Finder())
    for name in ("torch", "torch.version", "torch.cuda", "torch.autograd"):
        importlib.import_module(name)


def light_quack():
    """Gives `quack` its path without what its `__init__` imports; what it changes in the DSL stays."""
    spec = importlib.util.find_spec("quack")
    if spec is None:
        return
    module = types.ModuleType("quack")
    module.__path__, module.__spec__ = list(spec.submodule_search_locations), spec
    sys.modules["quack"] = module
    if importlib.util.find_spec("quack.dsl"):
        importlib.import_module("quack.dsl")


def describe_tensors(package):
    """Makes the package's `to_cute_tensor` take tensors of this module: the layout that it would have read from memory."""
    try:
        utilities = importlib.import_module(package + ".cute_dsl_utils")
        from quack.compile_utils import make_fake_tensor
    except ImportError:
        return
    if not hasattr(utilities, "to_cute_tensor"):
        return
    import cutlass
    import cutlass.cute as cute

    original = utilities.to_cute_tensor
    kinds = {
        **utilities.torch2cute_dtype_map,
        DTYPES["int32"]: cutlass.Int32,
        DTYPES["int64"]: cutlass.Int64,
        DTYPES["uint8"]: cutlass.Uint8,
        DTYPES["bool"]: cutlass.Boolean,
    }

    def to_cute_tensor(tensor, assumed_align=16, leading_dim=-1, fully_dynamic=False, enable_tvm_ffi=True):
        if not isinstance(tensor, Tensor):
            return original(tensor, assumed_align, leading_dim, fully_dynamic, enable_tvm_ffi)
        kind = kinds[tensor.dtype]
        if fully_dynamic:
            leading_dim = None
        elif leading_dim == -1:
            leading_dim = tensor.ndim - 1
        divisibility = max(1, assumed_align * 8 // kind.width) if assumed_align else 1
        shape = tuple(cute.sym_int() for _ in tensor.shape)
        return make_fake_tensor(kind, shape, divisibility=divisibility, leading_dim=leading_dim)

    for name, module in list(sys.modules.items()):
        if name.startswith(package) and getattr(module, "to_cute_tensor", None) is original:
            module.to_cute_tensor = to_cute_tensor
