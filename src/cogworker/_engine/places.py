"""Where a job can lie, and where a move can put it.

A job lies in exactly one place: a queue, a worker's in-flight hash, the schedule, retry or dead
set, or nowhere. Sources and targets are values; ``plan.py`` writes them for the scripts.
"""

from enum import Enum
from typing import NamedTuple


class Place(Enum):
    """A place that is neither a queue nor in flight; ``SAME``: a job stays where it is."""

    NOWHERE = "nowhere"
    SAME = "same"
    SCHEDULE = "schedule"
    RETRY = "retry"
    DEAD = "dead"


class InFlight(NamedTuple):
    """With a worker, from taking to settling; a job there is named by its delivery's tag."""

    worker: str


class Queue(NamedTuple):
    """A queue; ``front`` is the end that is taken next, for jobs that come back."""

    name: str
    front: bool = False


class Within(NamedTuple):
    """A queue as a source: the job lies among its ``reach`` newest entries, or, below 0, oldest.

    There a job has to be looked for: each entry on the way costs the server some 60 ns, twice.
    """

    name: str
    reach: int


class Later(NamedTuple):
    """The schedule, or the queue ``name`` when the job turns out to be due already."""

    name: str


class Trimmed(NamedTuple):
    """The dead set, kept to ``most`` entries that are no older than ``age_s`` seconds."""

    most: int
    age_s: float


Source = Place | InFlight | Within
Target = Place | Queue | Later | Trimmed
