"""The two clocks.

``wall()`` is for what is stored and shown; ``monotonic()`` is for waiting and measuring. Whatever
two processes compare is decided by neither: there the server's clock decides, inside a script.
"""

import math
import time
from datetime import timedelta
from typing import Any

wall = time.time
monotonic = time.monotonic


def seconds_of(duration: object) -> Any:
    """A timedelta's seconds; anything else as it is, to be checked."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def is_seconds(value: object) -> bool:
    """Whether a value can be a time or a duration: an int or a float, finite, and no bool."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that is too large for a float
        return False
