"""Reads what ``history`` and ``attempts`` have written. What can't be read is shown as such."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from cogworker._engine.books import LogEntry

UNREADABLE = "unreadable"
"""The outcome of an entry that can't be read."""

RANKS = ("success", "failed")
"""Of two runs that were logged in the same millisecond the one that failed counts as later."""


class Place(NamedTuple):
    """Where a run stands in the run log. The larger is the newer; as text it names a run."""

    ms: int
    rank: int
    number: int
    nth: int

    def __str__(self) -> str:
        return f"{self.ms}-{RANKS[self.rank]}-{self.number}-{self.nth}"

    @classmethod
    def read(cls, text: str) -> "Place":
        """Read what ``str`` has written. Raises ValueError."""
        ms, rank, number, nth = text.split("-")
        return cls(int(ms), RANKS.index(rank), int(number), int(nth))

    def until(self, rank: int) -> str:
        """From which entry on, in the log of a rank, there can be older runs."""
        if rank == self.rank:
            return f"{self.ms}-{self.number}"
        return str(self.ms if rank < self.rank else self.ms - 1)


class LoggedRun(NamedTuple):
    """A run in the run log. Times are in epoch seconds, by the worker's clock.

    ``id`` names it. ``status`` is ``success`` or ``failed``; ``outcome`` what became of the job:
    ``done``, ``rescheduled``, ``retrying``, ``dead``, ``discarded``, or ``unreadable`` for an entry
    that can't be read, of which there is ``raw``. Of arguments that were too large to keep,
    ``args`` is None and ``excerpt`` their beginning.
    """

    id: str
    status: str
    raw: bytes
    jid: str = ""
    name: str = ""
    queue: str = ""
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    excerpt: str = ""
    tags: tuple[str, ...] = ()
    outcome: str = UNREADABLE
    attempt: int = 0
    started_at: float = 0.0
    finished_at: float = 0.0
    error_class: str = ""
    error_message: str = ""
    backtrace: tuple[str, ...] = ()


class Attempt(NamedTuple):
    """A failure in a job's attempts log; ``failed_at`` is in epoch seconds.

    ``outcome``: ``retrying``, ``dead``, ``killed``, ``discarded``; or ``unreadable``.
    """

    attempt: int = 0
    failed_at: float = 0.0
    outcome: str = UNREADABLE
    error_class: str = ""
    error_message: str = ""


class _Entry(msgspec.Struct, gc=False):
    jid: str
    name: str = msgspec.field(name="class")
    queue: str
    started_at: float
    finished_at: float
    attempt: int = 1
    outcome: str = "done"
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    excerpt: str = ""
    tags: tuple[str, ...] = ()
    error_class: str = ""
    error_message: str = ""
    backtrace: tuple[str, ...] = ()


class _Failure(msgspec.Struct, gc=False):
    attempt: int
    failed_at: float
    outcome: str
    error_class: str
    error_message: str


_lists = msgspec.json.Decoder(list[Raw])
_entries = msgspec.json.Decoder(_Entry)
_failures = msgspec.json.Decoder(_Failure)
_MOST_IN_A_GROUP = 10_000
_PROBLEMS = (msgspec.MsgspecError, UnicodeError, RecursionError)


def raw_runs(
    entry: LogEntry, rank: int, needles: tuple[bytes, ...]
) -> Iterator[tuple[Place, bytes]]:
    """The runs of an entry, the newest first, but for groups that lack one of ``needles``.

    The entry's own place, with nothing, comes last.
    """
    for first in reversed(range(len(entry.groups))):
        group, others = entry.groups[first]
        if all(needle in group for needle in needles):
            for place, raw in reversed(list(enumerate(_split(group), 1))):
                if place not in others:
                    nth = first * _MOST_IN_A_GROUP + place
                    yield Place(entry.ms, rank, entry.number, nth), raw
    yield Place(entry.ms, rank, entry.number, 0), b""


def read_run(place: Place, raw: bytes) -> LoggedRun:
    """A run of the log."""
    status = RANKS[place.rank]
    try:
        entry = _entries.decode(raw)
    except _PROBLEMS:
        return LoggedRun(str(place), status, raw)
    fields = {name: getattr(entry, name) for name in _Entry.__struct_fields__}
    return LoggedRun(str(place), status, raw, **fields)


def read_attempt(raw: bytes) -> Attempt:
    """A failure of the attempts log."""
    try:
        entry = _failures.decode(raw)
    except _PROBLEMS:
        return Attempt()
    return Attempt(*msgspec.structs.astuple(entry))


def _split(group: bytes) -> list[bytes]:
    """The entries of a group; one that is no list is an entry that can't be read."""
    try:
        return [bytes(raw) for raw in _lists.decode(group)]
    except _PROBLEMS:
        return [group]
