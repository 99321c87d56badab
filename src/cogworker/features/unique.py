"""Unique jobs: a lock that a job owns, so that no second one is enqueued, or runs beside it.

A lock is a string, its owner's job id, that goes with the moves of its job:

- ``until_executed``: taken when the job is enqueued, freed when it has succeeded, is dead,
  discarded or deleted;
- ``until_executing``: freed just before it runs, and taken again, if it is free, for a retry;
- ``while_executing``: taken just before it runs, freed when the run is over.

Its expiry guards against jobs that other software has taken away. A lock whose job is still there
is made to last: see ``_worker/loops/keeper.py``.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import msgspec

from cogworker._engine.effects import Effect, claim, hold, release
from cogworker._redis.keys import Keys
from cogworker.features.event import ENDS, Event, Kind
from cogworker.payload import NO_KWARGS, Envelope

Mode = Literal["until_executed", "until_executing", "while_executing"]
MODES = get_args(Mode)


class _Rules(NamedTuple):
    """In which events a lock is claimed, held (taken if it is free), made to last, or freed."""

    claimed: frozenset[Kind]
    held: frozenset[Kind]
    lasts: frozenset[Kind]
    freed: frozenset[Kind]


_ENQUEUED = frozenset({Kind.PUSHED, Kind.REVIVED})
_COMES_BACK = frozenset({Kind.QUEUED, Kind.RETRYING, Kind.RESCHEDULED})
_BEGUN, _HELD, _WAITING = (frozenset({kind}) for kind in (Kind.BEGUN, Kind.HELD, Kind.WAITING))

_RULES: dict[str, _Rules] = {
    "until_executed": _Rules(_ENQUEUED, _COMES_BACK | _HELD, _WAITING, ENDS),
    "until_executing": _Rules(_ENQUEUED, _COMES_BACK, _WAITING, ENDS | _BEGUN),
    "while_executing": _Rules(_BEGUN, _HELD, frozenset(), ENDS | _COMES_BACK),
}


class Unique:
    """Locks, ``ttl_s`` seconds from when their job is due."""

    def __init__(self, keys: Keys, ttl_s: float) -> None:
        self._keys = keys
        self._ttl_s = ttl_s

    def effects(self, event: Event) -> Iterable[Effect]:
        """Take, keep or free the job's lock."""
        job, kind = event.job, event.kind
        rules = _RULES.get(job.unique) if isinstance(job.unique, str) else None
        if rules is None:
            return ()
        key, ttl_s = self.lock_of(job, event.queue), self._ttl_s + event.wait_s
        if kind in rules.claimed:
            return (claim(key, job.jid, ttl_s, anew=kind is Kind.PUSHED),)
        if kind in rules.held:
            return (hold(key, job.jid, ttl_s),)
        if kind in rules.lasts:
            return (hold(key, job.jid, ttl_s, take=False),)
        return (release(key, job.jid),) if kind in rules.freed else ()

    def lock_of(self, job: Envelope, queue: str) -> str:
        """The key of a job's lock: its payload names it, but for jobs of other software."""
        if isinstance(job.lock, str) and job.lock:
            return self._keys.lock(job.lock)
        args = _compact(bytes(job.args))
        if job.kwargs is not NO_KWARGS:
            args += b"|" + _compact(bytes(job.kwargs))
        return self._keys.lock(digest(job.class_, queue, args))


def asks_before(job: Envelope) -> bool:
    """Whether the server decides, just before a job runs, if it may."""
    return job.unique in ("until_executing", "while_executing")


def _compact(args: bytes) -> bytes:
    """JSON without spaces between its words, otherwise as it was written."""
    try:
        return msgspec.json.format(args, indent=-1)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # such as half a surrogate pair
        return args


def digest(name: str, queue: str, args: bytes) -> str:
    """A lock's name from what must be the same: the Ruby system's formula."""
    text = b"|".join((name.encode(), queue.encode(), args))
    return hashlib.sha1(text).hexdigest()  # noqa: S324 - a name, not a secret
