"""Every state transition of a job, as a command.

A delivery's life: ``turn`` takes it; ``done``, ``retry``, ``bury`` or ``give_back`` settle it with
the worker's next ``turn``. ``promote`` brings scheduled and retrying jobs to their queues;
``examine`` and ``rescue`` bring back what a dead worker held.
"""

import secrets
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from cogworker._engine import replies
from cogworker._engine.effects import Effects, Verb
from cogworker._engine.places import InFlight, Later, Place, Queue, Source, Trimmed
from cogworker._engine.plan import KEEP, Move, Plan, merged, move
from cogworker._engine.replies import Due, Held, Moved, Stale, Turned
from cogworker._redis import scripts
from cogworker._redis.command import Command, Word
from cogworker._redis.keys import Keys

PRODUCER_RECORD_S = 900
"""How long a producer's last push is remembered: longer than a lost packet can come late."""


class NewJob(NamedTuple):
    """A job to push. It is due at ``at``, epoch seconds, after ``delay_s``, or at once."""

    queue: str
    payload: bytes
    at: float | None = None
    delay_s: float | None = None
    effects: Effects = ()


class Waiting(NamedTuple):
    """A job that goes to a queue: its ref, its payload or ``KEEP``, and what changes with it."""

    ref: bytes
    payload: bytes
    queue: str
    effects: Effects = ()


class Moves:
    """The moves of one installation. ``effects`` is what changes together with a move."""

    def __init__(self, keys: Keys, *, dead_max_jobs: int, dead_max_age_s: float) -> None:
        self.keys = keys
        self._dead = Trimmed(dead_max_jobs, dead_max_age_s)

    # What a delivery can come to.

    def done(self, worker: InFlight, items: Sequence[Word], verbs: Sequence[Verb] = ()) -> Move:
        """The jobs succeeded; ``items`` are each one's tag and its own words of each verb."""
        width = 1 + sum([verb.own for verb in verbs])
        return Move(worker, Place.NOWHERE, len(items) // width, items, verbs)

    def drop(self, source: Source, ref: bytes, effects: Effects = ()) -> Move:
        """A job is over: it succeeded, was discarded, or is deleted."""
        return move(source, Place.NOWHERE, (ref,), effects)

    def retry(
        self, worker: InFlight, tag: bytes, payload: bytes, delay_s: float, effects: Effects = ()
    ) -> Move:
        """A job failed and runs again after a delay."""
        return move(worker, Place.RETRY, (tag, payload, f"+{delay_s!r}"), effects)

    def reschedule(
        self, worker: InFlight, tag: bytes, payload: bytes, when: str, effects: Effects = ()
    ) -> Move:
        """A job runs again later, though it did not fail; ``when`` as in ``Move.items``."""
        return move(worker, Place.SCHEDULE, (tag, payload, when), effects)

    def bury(self, source: Source, ref: bytes, payload: bytes, effects: Effects = ()) -> Move:
        """A job failed for good, or was never a job."""
        return move(source, self._dead, (ref, payload, "+0"), effects)

    def give_back(self, worker: InFlight, jobs: Iterable[Waiting]) -> list[Move]:
        """Unfinished jobs go to the front of their queues, in their order."""
        return in_order(
            move(worker, Queue(job.queue, front=True), (job.ref, job.payload), job.effects)
            for job in jobs
        )

    def put(self, job: NewJob, effects: Effects = ()) -> Move:
        """A new job goes to its queue, with more effects, whose conditions come before its own."""
        return move(Place.NOWHERE, Queue(job.queue), (job.payload,), (*effects, *job.effects))

    def note(self, effects: Effects) -> Move:
        """What changes without a job being moved, wherever it lies."""
        return move(Place.NOWHERE, Place.SAME, (), effects)

    def stay(self, source: Source, ref: bytes, effects: Effects) -> Move:
        """What changes with a job that stays where it is, if it is still there."""
        return move(source, Place.SAME, (ref,), effects)

    # What a worker asks.

    def turn(
        self,
        worker: InFlight,
        number: int,
        moves: Sequence[Move],
        want: int,
        queues: Iterable[str],
        *,
        at_most_once: bool = False,
    ) -> Command[Turned | Stale]:
        """Settle what ended and take up to ``want`` jobs, looking into ``queues`` in that order.

        Numbers rise from 1. A turn whose reply was lost is sent again with the same number.
        ``at_most_once``: what the worker holds when it dies must not run again.
        """
        keys = self.keys
        fixed = (
            keys.queues,
            keys.in_flight(worker.worker),
            keys.paused_queues,
            keys.lost_claims,
            keys.workers,
        )
        plan = Plan(keys, fixed, (number, "basic" if at_most_once else "reliable"))
        plan.moves(moves)
        names = [plan.queue(name) for name in queues]
        plan.args += (worker.worker, want, len(names))
        for name in names:
            plan.args += name
        return Command("turn", scripts.TURN, plan.keys, plan.args, replies.read_turned)

    # What comes back by itself.

    def due(self, limit: int, most_bytes: int) -> Command[Due]:
        """Read up to ``limit`` due entries of the schedule and of the retry set, oldest first.

        Reading a set stops early after ``most_bytes``.
        """
        keys = (self.keys.workers, self.keys.schedule, self.keys.retry)
        return Command("due", scripts.DUE, keys, (limit, most_bytes), replies.read_due)

    def promote(self, source: Source, jobs: Iterable[Waiting]) -> Sequence[Move]:
        """Due, retrying or dead jobs go to their queues."""
        moves: list[Move] = []
        for (queue, verbs), alike in groupby(sorted(jobs, key=_queue_of), _queue_and_verbs):
            items: list[Word] = []
            same = list(alike)
            for job in same:
                items += (job.ref, job.payload)
                for effect in job.effects:
                    items += effect.own
            moves.append(Move(source, Queue(queue), len(same), items, verbs))
        return moves

    def put_off(
        self, place: Place, ref: bytes, payload: bytes, at: float, effects: Effects = ()
    ) -> Move:
        """A job of a set is due at another time, epoch seconds."""
        return move(place, place, (ref, payload, repr(at)), effects)

    def postpone(self, place: Place, entries: Sequence[bytes], delay_s: float) -> Move:
        """Entries that could not be promoted are due again after a delay."""
        items = [word for entry in entries for word in (entry, KEEP, f"+{delay_s!r}")]
        return Move(place, place, len(entries), items)

    def move(self, moves: Sequence[Move], *, answer_again: bool = False) -> Command[Moved]:
        """Carry out moves, and take no jobs.

        Sent again, it finds the jobs gone, and answers that they are lost; with ``answer_again`` it
        answers as the first time.
        """
        plan = Plan(self.keys, (self.keys.queues,))
        plan.args.append(self._record(plan) if answer_again else 0)
        plan.moves(moves)
        return Command("move", scripts.MOVE, plan.keys, plan.args, replies.read_moved)

    def stale(self, threshold_s: float, skip: int, limit: int) -> Command[dict[str, float]]:
        """Workers whose last beat is older than ``threshold_s``, with that beat."""
        args = (repr(threshold_s), skip, limit)
        return Command("stale", scripts.STALE, (self.keys.workers,), args, replies.read_stale)

    def examine(self, worker: InFlight, threshold_s: float | None) -> Command[Held | None]:
        """Read what a dead worker held; None when it lives.

        ``threshold_s`` None: the worker itself asks, at its end.
        """
        name, keys = worker.worker, self.keys
        return Command(
            "examine",
            scripts.EXAMINE,
            (keys.workers, keys.presence(name), keys.in_flight(name)),
            (name, _threshold(threshold_s)),
            replies.read_examined,
        )

    def rescue(
        self, worker: InFlight, threshold_s: float | None, moves: Sequence[Move]
    ) -> Command[Moved | None]:
        """Move what a dead worker held, and forget it; None when it lives after all."""
        name, keys = worker.worker, self.keys
        fixed = (
            *(keys.queues, keys.workers, keys.presence(name), keys.in_flight(name)),
            *(keys.orders(name), keys.order_bell(name)),
        )
        plan = Plan(keys, fixed)
        plan.args += (self._record(plan), name, _threshold(threshold_s))
        plan.moves(moves)
        return Command("rescue", scripts.RESCUE, plan.keys, plan.args, replies.read_rescued)

    def _record(self, plan: Plan) -> int:
        """A key for a call's answer, should it be sent again."""
        return plan.key(self.keys.call(secrets.token_hex(8)))

    # What a producer asks.

    def push(
        self, lane: str, number: int, first_jid: str, jobs: Iterable[NewJob]
    ) -> Command[Moved | None]:
        """Put new jobs where they belong; None when another process uses the same lane.

        A producer's pushes in one lane have rising numbers. The same number with the same first
        job id is the same push, sent again: it adds nothing.
        """
        plan = Plan(
            self.keys,
            (self.keys.queues, self.keys.producer(lane)),
            (number, first_jid, PRODUCER_RECORD_S),
        )
        plan.moves(_pushes(jobs))
        return Command("push", scripts.PUSH, plan.keys, plan.args, replies.read_pushed)


def in_order(back: Iterable[Move]) -> list[Move]:
    """Moves of deliveries to the front of queues, such that the oldest is taken next."""
    singles = [single for each in back for single in each.singles()]
    singles.sort(key=lambda each: replies.order_of(each.ref), reverse=True)
    return merged(sorted(singles, key=lambda each: str(each.target)))


def _pushes(jobs: Iterable[NewJob]) -> list[Move]:
    """One move for neighbours that differ only in their payloads; it is made for each bulk."""
    moves: list[Move] = []
    for (queue, is_due, verbs), alike in groupby(jobs, _all_but_payload):
        items: list[Word] = []
        same = list(alike)
        for job in same:
            items.append(job.payload)
            if not is_due:
                items.append(f"+{job.delay_s!r}" if job.at is None else repr(job.at))
            for effect in job.effects:
                items += effect.own
        target = Queue(queue) if is_due else Later(queue)
        moves.append(Move(Place.NOWHERE, target, len(same), items, verbs))
    return moves


def _queue_of(job: Waiting) -> str:
    return job.queue


def _queue_and_verbs(job: Waiting) -> tuple[str, tuple[Verb, ...]]:
    return job.queue, tuple(effect.verb for effect in job.effects) if job.effects else ()


def _all_but_payload(job: NewJob) -> tuple[str, bool, tuple[Verb, ...]]:
    verbs = tuple(effect.verb for effect in job.effects) if job.effects else ()
    return job.queue, job.at is None and job.delay_s is None, verbs


def _threshold(threshold_s: float | None) -> str:
    return "" if threshold_s is None else repr(threshold_s)


__all__ = ["KEEP", "Moves", "NewJob", "Waiting", "in_order"]
