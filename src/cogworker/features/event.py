"""What can happen to a job, as features are told of it."""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from cogworker._engine.effects import Effect
from cogworker.payload import Envelope


class Kind(Enum):
    """What has become of a job."""

    PUSHED = auto()
    """It is new: in its queue, or in the schedule."""
    QUEUED = auto()
    """It is back in its queue: its time has come, its worker stopped or died."""
    REVIVED = auto()
    """It was dead, and is in its queue again."""
    BEGUN = auto()
    """A worker is about to run it."""
    WORKING = auto()
    """It runs, and has something to tell; only its status hears of that."""
    DONE = auto()
    RETRYING = auto()
    RESCHEDULED = auto()
    """It runs again later, though it did not fail."""
    DEAD = auto()
    """It failed for good, lost its worker too often, or was never a job."""
    KILLED = auto()
    """Somebody had it put in dead while it was waiting."""
    DISCARDED = auto()
    """It is dropped on purpose, its own or a person's."""
    DELETED = auto()
    HELD = auto()
    """A worker still holds it: told every few seconds of a job that asks for some feature."""
    WAITING = auto()
    """It still waits, and has for long: told now and then, wherever it is by now."""

    __hash__ = object.__hash__  # Enum's own is Python, and each feature looks a kind up


ENDS = frozenset({Kind.DONE, Kind.DEAD, Kind.KILLED, Kind.DISCARDED, Kind.DELETED})
"""After these a job does not run again by itself."""


NO_RESULT_YET = "its worker was stopped before it could write down what it returned"


class Run(NamedTuple):
    """A run that has ended, or, when its job is WORKING or QUEUED, went on until then.

    ``error`` is what ``_worker/failure.py`` keeps of a failure; ``result`` is what a success
    returned, as JSON, if that is wanted, and ``no_result`` why there is none. ``killed``: it
    failed, and is dead with retries left. ``notes`` are fields of its job's status that it has set
    and that are not recorded yet.
    """

    attempt: int
    started_at: float
    ran_s: float
    error: dict[str, Any] | None = None
    result: bytes | None = None
    killed: bool = False
    no_result: str = NO_RESULT_YET
    notes: Mapping[str, bytes] = MappingProxyType({})


class Event(NamedTuple):
    """What has become of a job that goes to, or came from, ``queue``.

    ``wait_s``: how long until it is due. ``run``: the run that led to it, if one did. ``reason``:
    an error that it was not a run's end, as in ``Run.error``.
    """

    kind: Kind
    job: Envelope
    queue: str
    wait_s: float = 0.0
    run: Run | None = None
    reason: Mapping[str, Any] | None = None


class Feature(Protocol):
    """One feature: pure, and without a memory of jobs."""

    def effects(self, event: Event) -> Iterable[Effect]:
        """What must change with an event."""
        ...
