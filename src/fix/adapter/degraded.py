_warned: set[tuple[str, str]] = set()


def _lose(known: Capability, keyword: str) -> None:
    """Say once in each process that a value that matters is left out."""
    if (known.name, keyword) in _warned:
        return
    _warned.add((known.name, keyword))
    consequence = _CONSEQUENCE.get(keyword, "without it the function does something else")
    warnings.warn(
        f"{known.name}() in the installed release has no parameter {keyword!r}; it is left out, as "
        f"`fa-doctor fix --allow-degraded` was asked to: {consequence}.",
        RuntimeWarning,
        stacklevel=3,
    )
