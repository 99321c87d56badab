"""Unique jobs: a lock that a job owns, so that no second one is enqueued, or runs beside it.

A lock is a string, its owner's job id, that goes with the moves of its job:

- ``until_executed``: taken when the job is enqueued, freed when it has succeeded, is dead,
  discarded or deleted;
- ``until_executing``: freed just before it runs;
- ``while_executing``: taken just before it runs, freed when the run is over.

Its expiry guards against jobs that other software has taken away.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal, get_args

from cogworker._engine.effects import Effect, claim, hold, release
from cogworker._redis.keys import Keys
from cogworker.features.event import ENDS, Event, Kind
from cogworker.payload import Envelope

Mode = Literal["until_executed", "until_executing", "while_executing"]
MODES = get_args(Mode)

_WAITS = frozenset({Kind.QUEUED, Kind.RETRYING, Kind.RESCHEDULED})


class Unique:
    """Locks, ``ttl_s`` seconds from when their job is due."""

    def __init__(self, keys: Keys, ttl_s: float) -> None:
        self._keys = keys
        self._ttl_s = ttl_s

    def effects(self, event: Event) -> Iterable[Effect]:
        """Take, keep or free the job's lock."""
        job, kind = event.job, event.kind
        if job.unique not in MODES:
            return ()
        key, ttl_s = self.lock_of(job, event.queue), self._ttl_s + event.wait_s
        if kind in ENDS:
            return (release(key, job.jid),)
        if job.unique == "while_executing":
            if kind is Kind.BEGUN:
                return (claim(key, job.jid, ttl_s),)
            return (release(key, job.jid),) if kind in _WAITS else ()
        if kind in (Kind.PUSHED, Kind.REVIVED):
            return (claim(key, job.jid, ttl_s),)
        if kind in _WAITS:
            return (hold(key, job.jid, ttl_s),)
        return (release(key, job.jid),) if job.unique == "until_executing" else ()

    def keeps(self, job: Envelope, queue: str) -> Iterable[Effect]:
        """Have the lock of a job that lasts long not run out."""
        if job.unique in ("until_executed", "while_executing"):
            yield hold(self.lock_of(job, queue), job.jid, self._ttl_s)

    def lock_of(self, job: Envelope, queue: str) -> str:
        """The key of a job's lock: its payload names it, but for jobs of the Ruby system."""
        if isinstance(job.lock, str) and job.lock:
            return self._keys.lock(job.lock)
        return self._keys.lock(digest(job.class_, queue, bytes(job.args)))


def asks_before(job: Envelope) -> bool:
    """Whether the server decides, just before a job runs, if it may."""
    return job.unique in ("until_executing", "while_executing")


def digest(name: str, queue: str, args: bytes) -> str:
    """A lock's name from what must be the same: the Ruby system's formula."""
    text = b"|".join((name.encode(), queue.encode(), args))
    return hashlib.sha1(text).hexdigest()  # noqa: S324 - a name, not a secret
