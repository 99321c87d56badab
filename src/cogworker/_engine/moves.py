"""Every state transition of a job, as a command.

A delivery's life: ``turn`` takes it; ``done``, ``retry``, ``bury`` or ``give_back`` settle it with
the worker's next ``turn``. ``promote`` brings scheduled and retrying jobs to their queues;
``examine`` and ``rescue`` bring back what a dead worker held.
"""

from collections.abc import Iterable, Sequence

from cogworker._engine import replies
from cogworker._engine.effects import Count
from cogworker._engine.places import InFlight, Later, Place, Queue, Source, Trimmed
from cogworker._engine.plan import KEEP, Move, Plan
from cogworker._engine.replies import Due, Held, Moved, Stale, Turned
from cogworker._redis import scripts
from cogworker._redis.command import Command
from cogworker._redis.keys import Keys

PRODUCER_RECORD_S = 900
"""How long a producer's last push is remembered: longer than a lost packet can come late."""

NewJob = tuple[str, bytes, float | None, float | None]
"""A job to push: its queue, its payload, and when it is due: epoch seconds, or seconds from now."""


class Moves:
    """The moves of one installation."""

    def __init__(self, keys: Keys, *, dead_max_jobs: int, dead_max_age_s: float) -> None:
        self.keys = keys
        self._dead = Trimmed(dead_max_jobs, dead_max_age_s)
        self._processed = (Count(keys.processed),)
        self._failed = (Count(keys.failed),)

    # What a delivery can come to.

    def done(self, worker: InFlight, tags: Sequence[bytes]) -> Move:
        """The jobs succeeded."""
        return Move(worker, Place.NOWHERE, len(tags), tags, self._processed)

    def retry(self, worker: InFlight, tag: bytes, payload: bytes, delay_s: float) -> Move:
        """A job failed and runs again after a delay."""
        items = (tag, payload, f"+{delay_s!r}")
        return Move(worker, Place.RETRY, 1, items, self._failed)

    def bury(self, source: Source, ref: bytes, payload: bytes) -> Move:
        """A job failed for good, or was never a job."""
        return Move(source, self._dead, 1, (ref, payload, "+0"), self._failed)

    def give_back(self, worker: InFlight, jobs: Iterable[tuple[bytes, bytes]]) -> list[Move]:
        """Unfinished jobs, each a tag and a payload or ``KEEP``, go to the front of their queue."""
        queues: dict[str, list[bytes]] = {}
        newest_first = sorted(jobs, key=lambda job: replies.order_of(job[0]), reverse=True)
        for tag, payload in newest_first:
            queues.setdefault(replies.queue_of(tag), []).extend((tag, payload))
        return [
            Move(worker, Queue(name, front=True), len(items) // 2, items)
            for name, items in queues.items()
        ]

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

    def promote(self, source: Source, jobs: Iterable[tuple[bytes, bytes, str]]) -> Sequence[Move]:
        """Due jobs, each an entry, its new payload and its queue, go to their queues."""
        queues: dict[str, list[bytes]] = {}
        for entry, payload, queue in jobs:
            queues.setdefault(queue, []).extend((entry, payload))
        return [Move(source, Queue(name), len(items) // 2, items) for name, items in queues.items()]

    def postpone(self, place: Place, entries: Sequence[bytes], delay_s: float) -> Move:
        """Entries that could not be promoted are due again after a delay."""
        items = [word for entry in entries for word in (entry, KEEP, f"+{delay_s!r}")]
        return Move(place, place, len(entries), items)

    def move(self, moves: Sequence[Move]) -> Command[Moved]:
        """Carry out moves of jobs that no worker holds."""
        plan = Plan(self.keys, (self.keys.queues,))
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
        plan = Plan(keys, fixed, (name, _threshold(threshold_s)))
        plan.moves(moves)
        return Command("rescue", scripts.RESCUE, plan.keys, plan.args, replies.read_rescued)

    # What a producer asks.

    def push(
        self, lane: str, number: int, first_jid: str, jobs: Iterable[NewJob]
    ) -> Command[Moved | None]:
        """Put new jobs where they belong; None when another process uses the same lane.

        A producer's pushes in one lane have rising numbers. The same number with the same first
        job id is the same push, sent again: it adds nothing.
        """
        queued: dict[str, list[bytes]] = {}
        later: dict[str, list[bytes | str]] = {}
        for queue, payload, at, delay_s in jobs:
            if at is not None:
                later.setdefault(queue, []).extend((payload, repr(at)))
            elif delay_s is not None:
                later.setdefault(queue, []).extend((payload, f"+{delay_s!r}"))
            else:
                queued.setdefault(queue, []).append(payload)
        moves = [
            Move(Place.NOWHERE, Queue(name), len(items), items) for name, items in queued.items()
        ]
        moves += [
            Move(Place.NOWHERE, Later(name), len(timed) // 2, timed)
            for name, timed in later.items()
        ]
        plan = Plan(
            self.keys,
            (self.keys.queues, self.keys.producer(lane)),
            (number, first_jid, PRODUCER_RECORD_S),
        )
        plan.moves(moves)
        return Command("push", scripts.PUSH, plan.keys, plan.args, replies.read_pushed)


def _threshold(threshold_s: float | None) -> str:
    return "" if threshold_s is None else repr(threshold_s)


__all__ = ["KEEP", "Moves", "NewJob"]
