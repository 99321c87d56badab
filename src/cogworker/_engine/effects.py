"""What changes together with a move: a closed set of small verbs.

A feature returns effects and never writes to Redis during a job's life; the script that moves the
job applies them in the same step, or not at all (``include/effects.lua``).
"""

from typing import NamedTuple


class Count(NamedTuple):
    """Add ``amount`` to the counter ``key``, once for each job that is moved."""

    key: str
    amount: int = 1


Effect = Count
