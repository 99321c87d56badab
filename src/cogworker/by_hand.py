"""What a person does to a job that waits or is dead: an entry of a place, and its moves.

Decisions only. A move by hand is a move like any other: what belongs to the job goes with it. In
order: read the entry, refuse what is no job with InvalidPayload, make its new payload, move.
"""

import hashlib
from typing import Any, Literal, NamedTuple

from cogworker import clock, payload
from cogworker._engine import browse, look
from cogworker._engine.places import Place, Queue, Source
from cogworker._engine.plan import KEEP, Move
from cogworker._engine.replies import Moved
from cogworker.errors import InvalidPayload, RedisRefused
from cogworker.features.transitions import Transitions
from cogworker.payload import NOT_A_JOB, UNPARSEABLE, Envelope

Word = Literal[
    "requeued",
    "rescheduled",
    "killed",
    "discarded",
    "deleted",
    "gone",
    "invalid",
    "duplicate",
    "refused",
]

NO_JID = "raw:"
"""So begins what an entry is called that has no id."""

_OF_FAILURES = (
    *("retry_count", "failed_at", "error_class", "error_message", "error_backtrace"),
    *("orphaned", "lock_waits", "killed_at"),
)
"""What a revived job does not keep: it has all its retries again."""


class Outcome(NamedTuple):
    """What has come of a move by hand.

    ``gone``: there is no such job at that place. ``invalid``: it is no job that could go there, and
    stays where it is; ``detail`` says why. ``duplicate``: it is unique, and ``detail`` is the id of
    the job that has its lock; it stays. ``refused``: something else keeps it, ``detail``.
    """

    word: Word
    detail: str = ""


class JobEntry(NamedTuple):
    """What lies at a place; ``job`` is None when it is no job.

    ``where`` is its score in a set, and in a queue its distance from the end, see ``Found``.
    """

    place: Place | Queue
    raw: bytes
    where: float
    job: Envelope | None

    @property
    def jid(self) -> str:
        """The job's id; what has none is called by a digest of its bytes."""
        if self.job is not None and self.job.jid:
            return self.job.jid
        return f"{NO_JID}{hashlib.sha1(self.raw).hexdigest()}"  # noqa: S324 - a name, not a secret

    @property
    def name(self) -> str | None:
        """The job's name."""
        return None if self.job is None else self.job.class_

    @property
    def tags(self) -> tuple[str, ...]:
        """The job's tags."""
        return () if self.job is None else payload.tags(self.job)

    @property
    def at(self) -> float | None:
        """When it is due, or has died, epoch seconds; None in a queue."""
        return None if isinstance(self.place, Queue) else self.where

    @property
    def payload(self) -> dict[str, Any] | None:
        """The payload; None when it can't be read."""
        return look.decoded(self.raw)

    @property
    def source(self) -> Source:
        """Where a move finds it."""
        if isinstance(self.place, Queue):
            return browse.near(self.place, self.where)
        return self.place

    @property
    def queue(self) -> str:
        """The queue that it is in, or goes to; empty when it names none."""
        if isinstance(self.place, Queue):
            return self.place.name
        try:
            return payload.destination(self.raw)[1]
        except InvalidPayload:
            return ""


def read(place: Place | Queue, found: browse.Found) -> JobEntry:
    """An entry, whatever it is."""
    try:
        job = payload.parse(found.raw)
    except InvalidPayload:
        job = None
    return JobEntry(place, found.raw, found.where, job)


class ByHand:
    """Makes the moves. ``now`` is in epoch seconds."""

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions

    def delete(self, entry: JobEntry, source: Source | None = None) -> Move:
        """It is over, and all that is kept of it goes."""
        job = entry.job or NOT_A_JOB
        return self._transitions.delete(source or entry.source, entry.raw, job, entry.queue)

    def discard(self, entry: JobEntry) -> Move:
        """It is over; what is kept of it stays, and it counts as discarded."""
        job, queue = _read(entry)
        return self._transitions.discard(entry.source, entry.raw, job, queue)

    def kill(self, entry: JobEntry, now: float) -> Move:
        """It is dead, with the error that it had, if any."""
        job, queue = _read(entry)
        kept = payload.amend(entry.raw, {"killed_at": now}, missing={"queue": queue})
        return self._transitions.kill(entry.source, entry.raw, kept, job, queue)

    def promote(self, entry: JobEntry, now: float) -> Move:
        """It goes to its queue, as if it were due."""
        job, queue = _read(entry)
        stamped = _due(entry, job, {"enqueued_at": now}, now)
        waiting = self._transitions.waiting(entry.raw, stamped, job, queue)
        [move] = self._transitions.moves.promote(entry.source, [waiting])
        return move

    def revive(self, entry: JobEntry, now: float) -> Move:
        """It goes to its queue as if it had never failed."""
        job, queue = _read(entry)
        stamped = _due(entry, job, {"enqueued_at": now}, now, drop=_OF_FAILURES)
        [move] = self._transitions.revive(entry.source, entry.raw, stamped, job, queue)
        return move

    def reschedule(self, entry: JobEntry, at: float, now: float) -> Move:
        """It is due at another time, epoch seconds."""
        job, queue = _read(entry)
        assert isinstance(entry.place, Place)  # noqa: S101 - a queue has no times
        changes: dict[str, Any] = {}
        if entry.place is Place.SCHEDULE:
            changes["at"] = at
            before: Any = (entry.payload or {}).get("at")
            expires_at = payload.expires_at(job)
            if expires_at is not None and clock.is_seconds(before):
                changes["expires_at"] = at + expires_at - before
        kept = _due(entry, job, changes, at)
        wait_s = max(0.0, at - now)
        return self._transitions.put_off(entry.place, entry.raw, kept, job, queue, at, wait_s)


def outcome(moved: Moved, word: Word) -> Outcome:
    """What has come of a move of one job. Raises RedisRefused when it could not be put down."""
    if moved.failed:
        raise RedisRefused(f"the job was not moved, and is where it was: {moved.failed[0][1]}")
    for refused in moved.refused:
        return Outcome("duplicate" if refused.verb == "claim" else "refused", refused.why)
    return Outcome("gone" if moved.lost else word)


def _read(entry: JobEntry) -> tuple[Envelope, str]:
    """The job and its queue. Raises InvalidPayload."""
    if isinstance(entry.place, Queue):
        return payload.parse(entry.raw), entry.place.name
    job, queue = payload.destination(entry.raw)
    if job.class_ == UNPARSEABLE:
        raise InvalidPayload("it is kept for what was found in place of a job")
    return job, queue


def _due(
    entry: JobEntry, job: Envelope, changes: dict[str, Any], at: float, drop: tuple[str, ...] = ()
) -> bytes:
    """The payload of a job that somebody wants to run at a time, even if that is too late."""
    if payload.is_over(job, at) and "expires_at" not in changes:
        drop = (*drop, "expires_at")
    if not changes and not drop:
        return KEEP
    return payload.amend(entry.raw, changes, drop=drop)
