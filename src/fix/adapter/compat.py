"""Calls attention functions with the keywords that the installed release takes.

Written by fa-doctor {version}. `fa-doctor fix` put this module beside the ones
that import it: they pass keywords that the functions they call do not have.
To remove it, and get those modules back byte for byte: `fa-doctor undo`.

A keyword that the function takes is always passed on. One that it does not take
is left out if its value changes nothing: None, or a value listed in _NEUTRAL.
{policy}
"""

from __future__ import annotations

import functools
import inspect
{imports}from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Result = TypeVar("Result")

# Values that change nothing, by keyword. None is one for every keyword.
_NEUTRAL: dict[str, tuple[object, ...]] = {neutral}

# What leaving out any other value would mean.
_CONSEQUENCE: dict[str, str] = {consequences}


class Capability:
    """What a function can be asked for: its keywords, read from its signature."""

    def __init__(self, function: Callable[..., object]) -> None:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.name = f"{getattr(function, '__module__', None) or '?'}.{name}"
        self.keywords = _keywords(function)

    def takes(self, keyword: str) -> bool:
        """Whether the function can be called with this keyword."""
        return self.keywords is None or keyword in self.keywords


def _keywords(function: Callable[..., object]) -> frozenset[str] | None:
    """The keywords of a function; None if it takes any, or does not say."""
    keywords: set[str] = set()
    while True:
        try:
            signature = inspect.signature(function, follow_wrapped=False)
        except (TypeError, ValueError):  # written in C, without a signature
            return None
        open_ended = False
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                open_ended = True
            elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                keywords.add(parameter.name)
        if not open_ended:
            return frozenset(keywords)
        # A wrapper that passes on whatever it gets takes what it wraps takes.
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return None


_capabilities: WeakKeyDictionary[Any, Capability] = WeakKeyDictionary()


def capability(function: Callable[..., object]) -> Capability:
    """The capability of a function, worked out at the first call of it."""
    key = getattr(function, "__func__", function)
    try:
        known = _capabilities.get(key)
    except TypeError:  # not hashable, or without weak references
        return Capability(function)
    if known is None:
        known = _capabilities[key] = Capability(function)
    return known


def _changes_nothing(keyword: str, value: object) -> bool:
    if value is None:
        return True
    # Plain values only: comparing a tensor would give a tensor, or wait for a GPU.
    parts = value if isinstance(value, (tuple, list)) else (value,)
    if not all(part is None or isinstance(part, (bool, int, float, str)) for part in parts):
        return False
    return value in _NEUTRAL.get(keyword, ())


{lose}

def _fa_doctor_call(function: Callable[..., Result], /, *args: Any, **keywords: Any) -> Result:
    """Call `function` with `args` and those of `keywords` that it takes."""
    known = capability(function)
    for keyword in [keyword for keyword in keywords if not known.takes(keyword)]:
        if not _changes_nothing(keyword, keywords.pop(keyword)):
            _lose(known, keyword)
    return function(*args, **keywords)
