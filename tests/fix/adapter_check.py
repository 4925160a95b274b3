"""Asserts what the adapter promises. Run with the folder of the rendered module on the path; argument: strict or degraded."""

import functools
import operator
import sys
import warnings

import _fa_doctor_compat as compat
from _fa_doctor_compat import _fa_doctor_call as call

degraded = sys.argv[1] == "degraded"


class Tensor:
    """Compares elementwise, as tensors do: using the result as a truth value is a bug."""

    def __eq__(self, other):
        return self

    def __bool__(self):
        raise RuntimeError("a tensor has no truth value")

    __hash__ = None


def old(q, k, v, softmax_scale=None, causal=False):
    return ("old", q, k, v, softmax_scale, causal)


def new(q, k, v, softmax_scale=None, causal=False, *, window_size=None, dynamic_causal=None):
    return ("new", q, k, v, softmax_scale, causal, window_size, dynamic_causal)


def passes_on(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def opaque(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Owner:
    def method(self, q, causal=False):
        return ("method", self, q, causal)

    @classmethod
    def made(cls, q, causal=False):
        return ("made", cls, q, causal)

    def __call__(self, q, causal=False):
        return ("called", q, causal)


class Slotted:
    __slots__ = ()

    def __call__(self, q):
        return ("slotted", q)


class Built:
    def __init__(self, head_dim, is_causal=False):
        self.state = (head_dim, is_causal)


def refused(keyword, function, *args, **kwargs):
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = call(function, *args, **kwargs)
    except TypeError as error:
        assert not degraded
        assert keyword in str(error) and function.__name__ in str(error), error
        return
    assert degraded, result
    assert "fix --allow-degraded" in str(caught[0].message), caught
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        call(function, *args, **kwargs)
    assert not again, "one warning in each process"


# Neutral values go away without a word, from plain, wrapped and partial functions.
for function in (old, passes_on(old), passes_on(passes_on(old)), functools.partial(old, causal=False)):
    for neutral in ({}, {"dynamic_causal": None}, {"window_size": (-1, -1)}, {"window_size": [-1, -1]}, {"s_aux": None}, {"softcap": 0.0}, {"unheard_of": None}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert call(function, 1, 2, v=3, **neutral) == ("old", 1, 2, 3, None, False), (function, neutral)

# What is supported is always passed on, neutral or not.
mask = Tensor()
for function in (new, passes_on(new)):
    assert call(function, 1, 2, 3, dynamic_causal=mask)[-1] is mask
    assert call(function, 1, 2, 3, window_size=(-1, -1))[-2] == (-1, -1)
    assert call(function, 1, 2, 3, window_size=None, softcap=0.0) == ("new", 1, 2, 3, None, False, None, None)

# A value that matters is not dropped quietly.
refused("dynamic_causal", old, 1, 2, 3, dynamic_causal=mask)
refused("window_size", old, 1, 2, 3, window_size=(128, 0))
refused("softcap", old, 1, 2, 3, softcap=30.0)
refused("window_size_left", old, 1, 2, 3, window_size_left=mask)
refused("unheard_of", old, 1, 2, 3, unheard_of=0)
refused("window_size", Owner().method, 1, window_size=(mask, 0))
if not degraded:
    try:
        call(old, 1, 2, 3, dynamic_causal=mask)
    except TypeError as error:
        assert "bidirectional" in str(error), error

# Callables that say nothing get everything.
assert call(opaque(new), 1, 2, 3, dynamic_causal=mask)[-1] is mask
assert call(max, 1, 2, key=lambda value: -value) == 1
assert call(dict, a=1, b=None) == {"a": 1, "b": None}
assert call(operator.itemgetter(1), [1, 2]) == 2

# Methods, constructors, callable objects, positional-only parameters, mistakes of other kinds.
owner = Owner()
assert call(owner.method, 1, window_size=None) == ("method", owner, 1, False)
assert call(Owner().method, 1, causal=True)[-1] is True
assert call(Owner.made, 1, window_size=None) == ("made", Owner, 1, False)
assert call(owner, 1, window_size=None) == ("called", 1, False)
assert call(Slotted(), 1, window_size=None) == ("slotted", 1)
assert call(Built, 64, is_causal=True, is_local=None).state == (64, True)
assert call(lambda function, /, **kw: kw, 1, function=2) == {"function": 2}
for wrong in (lambda: call(old, 1), lambda: call(old, 1, 2, 3, 4, 5, 6)):
    try:
        wrong()
    except TypeError:
        pass
    else:
        raise AssertionError("a call that lacks or repeats an argument still raises")

# The signature is read once in each process, also for methods of many objects.
reads = []
real = compat.inspect.signature
compat.inspect.signature = lambda *args, **kwargs: reads.append(args) or real(*args, **kwargs)


def fresh(q):
    return q


for _ in range(5):
    call(fresh, 1, s_aux=None)
assert len(reads) == 1, reads
for _ in range(5):
    call(Owner().method, 1, s_aux=None)
assert len(reads) == 1, "known from above"
print("ok")
