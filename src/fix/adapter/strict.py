def _lose(known: Capability, keyword: str) -> None:
    """Refuse to leave out a value that matters."""
    consequence = _CONSEQUENCE.get(keyword, "without it the function does something else")
    raise TypeError(
        f"{known.name}() in the installed release has no parameter {keyword!r}, and the value "
        f"it was given cannot be left out: {consequence}. Install a release that has it "
        "(`fa-doctor pin` names versions that fit), or do not use the feature."
    )
