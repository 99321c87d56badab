"""What a message adds to a name that is not known."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """A question for the known name that is most like one, or other words when none is like it."""
    near = difflib.get_close_matches(name[:100], list(known), 1)
    return f"did you mean {near[0]}?" if near else otherwise
