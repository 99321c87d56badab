"""A job's transitions, each a move together with what all features say must change with it.

Whoever decides what becomes of a job (client, performer, rescuer, poller, inspector) says it here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cogworker import clock
from cogworker._engine.effects import Effects
from cogworker._engine.moves import Moves, NewJob, Waiting
from cogworker._engine.places import InFlight, Place, Source
from cogworker._engine.plan import Move
from cogworker.errors import InvalidPayload
from cogworker.features import Features, Success
from cogworker.features.event import Event, Kind, Run
from cogworker.payload import NOT_A_JOB, Envelope, described, wrap_unparseable


class Transitions:
    """The transitions of one installation.

    ``job`` is what can be read of a payload, ``queue`` the one it came from or goes to; ``run`` is
    the run that led to a transition, if one did; ``reason`` is an error that no run failed with.
    """

    def __init__(self, moves: Moves, features: Features) -> None:
        self.moves = moves
        self.features = features

    # Of a new job.

    def push(
        self, payload: bytes, job: Envelope, queue: str, at: float | None, wait_s: float | None
    ) -> NewJob:
        """A job is enqueued, due at a time in epoch seconds, or after ``wait_s``, or at once."""
        effects = self._effects(Kind.PUSHED, job, queue, wait_s or 0.0)
        return NewJob(queue, payload, at, None if at is not None else wait_s, effects)

    # Of a delivery.

    def begin(self, worker: InFlight, tag: bytes, job: Envelope, queue: str) -> Move:
        """A job is about to run; refused when it may not."""
        return self.moves.stay(worker, tag, self._effects(Kind.BEGUN, job, queue))

    def tell(self, worker: InFlight, tag: bytes, job: Envelope, queue: str, run: Run) -> Move:
        """A run goes on, and what it says of itself is recorded."""
        event = Event(Kind.WORKING, job, queue, run=run)
        return self.moves.stay(worker, tag, list(self.features.status.effects(event)))

    def done(self, worker: InFlight, tag: bytes, job: Envelope, queue: str, run: Run) -> Move:
        """A run succeeded."""
        return self.moves.drop(worker, tag, self._effects(Kind.DONE, job, queue, run=run))

    def done_alike(self, worker: InFlight, successes: Iterable[Success]) -> list[Move]:
        """Runs of plain jobs succeeded: one move for those that differ only in themselves."""
        alike = self.features.of_plain_successes(successes)
        return [self.moves.done(worker, items, verbs) for verbs, items in alike]

    def retry(
        self,
        worker: InFlight,
        tag: bytes,
        payload: bytes,
        job: Envelope,
        queue: str,
        delay_s: float,
        run: Run,
    ) -> Move:
        """A run failed; another one follows after a delay."""
        effects = self._effects(Kind.RETRYING, job, queue, delay_s, run)
        return self.moves.retry(worker, tag, payload, delay_s, effects)

    def reschedule(
        self,
        worker: InFlight,
        tag: bytes,
        payload: bytes,
        job: Envelope,
        queue: str,
        delay_s: float,
        run: Run | None = None,
        *,
        at: float | None = None,
    ) -> Move:
        """A job runs again later, though it did not fail; ``at``: not after a delay, but then."""
        effects = self._effects(Kind.RESCHEDULED, job, queue, delay_s, run)
        when = f"+{delay_s!r}" if at is None else repr(at)
        return self.moves.reschedule(worker, tag, payload, when, effects)

    def back(self, worker: InFlight, jobs: Sequence[Waiting]) -> list[Move]:
        """Jobs go back to the front of their queues, in their order; see ``waiting``."""
        return self.moves.give_back(worker, jobs)

    def keep(self, worker: InFlight, tag: bytes, job: Envelope, queue: str) -> Move | None:
        """A worker still holds a job; None when that changes nothing."""
        effects = self._effects(Kind.HELD, job, queue)
        return self.moves.stay(worker, tag, effects) if effects else None

    # Of a job wherever it is.

    def keep_waiting(self, job: Envelope, queue: str) -> Move | None:
        """A job has been seen waiting, for long already; None when that changes nothing."""
        effects = self._effects(Kind.WAITING, job, queue)
        return self.moves.note(effects) if effects else None

    def waiting(
        self, ref: bytes, payload: bytes, job: Envelope, queue: str, run: Run | None = None
    ) -> Waiting:
        """A job that is to go back to its queue, with ``KEEP`` or a new payload.

        ``run`` is the one that was cut off for that, if one was.
        """
        if self.features.is_plain(job):  # thousands may be due at once
            return Waiting(ref, payload, queue)
        return Waiting(ref, payload, queue, self._effects(Kind.QUEUED, job, queue, run=run))

    def revive(
        self, source: Source, ref: bytes, payload: bytes, job: Envelope, queue: str
    ) -> Sequence[Move]:
        """A dead job goes to its queue; refused when another one has its lock."""
        effects = self._effects(Kind.REVIVED, job, queue)
        return self.moves.promote(source, [Waiting(ref, payload, queue, effects)])

    def put_off(
        self,
        place: Place,
        ref: bytes,
        payload: bytes,
        job: Envelope,
        queue: str,
        at: float,
        wait_s: float,
    ) -> Move:
        """Somebody has a scheduled or retrying job be due at another time, in ``wait_s``."""
        kind = Kind.RETRYING if place is Place.RETRY else Kind.RESCHEDULED
        effects = self._effects(kind, job, queue, wait_s)
        return self.moves.put_off(place, ref, payload, at, effects)

    def bury(
        self,
        source: Source,
        ref: bytes,
        payload: bytes,
        job: Envelope,
        queue: str,
        run: Run | None = None,
        reason: Mapping[str, Any] | None = None,
    ) -> Move:
        """A job failed for good."""
        event = Event(Kind.DEAD, job, queue, 0.0, run, reason)
        return self.moves.bury(source, ref, payload, self.features.effects(event))

    def bury_unreadable(
        self,
        source: Source,
        ref: bytes,
        payload: bytes,
        problem: InvalidPayload,
        queue: str | None,
        job: Envelope = NOT_A_JOB,
        run: Run | None = None,
    ) -> Move:
        """What was found is no job, or some part of it, which had to be read now, can't be."""
        wrapped = wrap_unparseable(payload, queue, problem, clock.wall())
        return self.bury(source, ref, wrapped, job, queue or "", run, described(problem))

    def kill(self, source: Source, ref: bytes, payload: bytes, job: Envelope, queue: str) -> Move:
        """Somebody has a waiting job put in dead."""
        return self.moves.bury(source, ref, payload, self._effects(Kind.KILLED, job, queue))

    def discard(
        self,
        source: Source,
        ref: bytes,
        job: Envelope,
        queue: str,
        run: Run | None = None,
        reason: Mapping[str, Any] | None = None,
    ) -> Move:
        """A job is dropped on purpose."""
        event = Event(Kind.DISCARDED, job, queue, 0.0, run, reason)
        return self.moves.drop(source, ref, self.features.effects(event))

    def delete(self, source: Source, ref: bytes, job: Envelope, queue: str) -> Move:
        """Somebody deletes a job, and all that is kept of it."""
        return self.moves.drop(source, ref, self._effects(Kind.DELETED, job, queue))

    def _effects(
        self, kind: Kind, job: Envelope, queue: str, wait_s: float = 0.0, run: Run | None = None
    ) -> Effects:
        return self.features.effects(Event(kind, job, queue, wait_s, run))
