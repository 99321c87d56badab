"""Looks at what is there, and steers: counters, places, queues, workers. Never used by a worker."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from cogworker._engine import control, look
from cogworker._engine.control import Answer
from cogworker._engine.look import Lock
from cogworker._engine.places import Place, Queue
from cogworker._kinds import Refusal, check_queue_name
from cogworker._redis.command import Command
from cogworker.app import Cogworker
from cogworker.errors import CogworkerError, RedisError
from cogworker.jobs_at import JobsAt
from cogworker.live import Live
from cogworker.published import PeriodicEntry, Published, RunNow
from cogworker.records import Records

logger = logging.getLogger("cogworker.inspector")


class Stats(NamedTuple):
    """Totals since the installation began, and how many jobs lie in each place now.

    ``processed`` counts runs that succeeded, ``failed`` those that did not, ``discarded`` jobs that
    were dropped on purpose, by themselves, by hand, or as too late.
    """

    processed: int
    failed: int
    discarded: int
    lost_claims: int
    enqueued: int
    in_flight: int
    scheduled: int
    retrying: int
    dead: int


class DeadJob(NamedTuple):
    """An entry of the dead set; ``payload`` is None when it can't be read."""

    died_at: float
    raw: bytes
    payload: dict[str, Any] | None


_SETS = {"scheduled": Place.SCHEDULE, "retrying": Place.RETRY, "dead": Place.DEAD}


class Inspector(Live, Records):
    """Looks at one installation, its records (``Records``) included, and steers it.

    ``by`` says who steers; it is stored and logged. Every method raises RedisUnavailable and
    RedisRefused, and those that take the name of a queue CogworkerError when it can't be one.
    """

    def __init__(self, app: Cogworker) -> None:
        Live.__init__(self, app)
        Records.__init__(self, app)
        self._app = app
        self._published = Published(app.client)

    def stats(self) -> Stats:
        """Counters and sizes."""
        queues = self._run(look.queues(self._keys))
        workers = self._run(look.workers(self._keys))
        return Stats(*self._run(look.stats(self._keys, queues, workers)))

    def identities(self) -> Sequence[str]:
        """The identities of all workers that are alive or not yet rescued."""
        return self._run(look.workers(self._keys))

    def held(self, worker: str) -> int:
        """How many jobs a worker has in flight."""
        return self._run(look.stats(self._keys, [], [worker]))[5]

    def waiting(self, queue: str, limit: int = 100) -> Sequence[bytes]:
        """Payloads in a queue, the next to be taken first."""
        return self._run(look.waiting(self._keys, queue, limit))

    def dead(self, limit: int = 100) -> Sequence[DeadJob]:
        """The last to die, the newest first."""
        return [
            DeadJob(score, raw, look.decoded(raw))
            for raw, score in self._run(look.newest_dead(self._keys, limit))
        ]

    def jobs(self, where: Literal["scheduled", "retrying", "dead"]) -> JobsAt:
        """The scheduled, retrying or dead jobs, to look at and to move by hand."""
        if where not in _SETS:
            raise CogworkerError(
                f"there are {', '.join(_SETS)} jobs, not {where!r:.100}; "
                f"for those of a queue there is jobs_in(queue)"
            )
        return JobsAt(self._app, _SETS[where])

    def jobs_in(self, queue: str) -> JobsAt:
        """The jobs in a queue, to look at and to move by hand."""
        return JobsAt(self._app, Queue(_checked(queue)))

    def pause_queue(self, queue: str, by: str = "") -> bool:
        """Have no worker take from a queue, from the very next take on.

        Answers whether that changed anything.
        """
        return self._pause_queue(queue, True, by)

    def resume_queue(self, queue: str, by: str = "") -> bool:
        """Have workers take from a queue again; answers whether that changed anything."""
        return self._pause_queue(queue, False, by)

    def pause_intake(self, by: str = "") -> bool:
        """Have no worker take any job, also those that start later.

        Answers whether that changed anything.
        """
        return self._steer(control.pause_intake(self._keys, True, by))

    def resume_intake(self, by: str = "") -> bool:
        """Have workers take jobs again, but for those that are quiet on their own account.

        Answers whether that changed anything.
        """
        return self._steer(control.pause_intake(self._keys, False, by))

    def quiet_worker(self, worker: str, by: str = "") -> Answer:
        """Have one worker, by its identity, take no more jobs; it finishes what runs.

        The order is stored: a worker that is cut off at the moment obeys later.
        """
        return self._run(control.order(self._keys, worker, "quiet", by))

    def resume_worker(self, worker: str, by: str = "") -> Answer:
        """Have a quiet worker take jobs again."""
        return self._run(control.order(self._keys, worker, "resume", by))

    def stop_worker(self, worker: str, by: str = "") -> Answer:
        """Have one worker stop as after TERM, and its process end.

        A swarm does not put another one in its place. It can't be undone.
        """
        return self._run(control.order(self._keys, worker, "stop", by))

    def stop_workers(self, by: str = "") -> dict[str, Answer]:
        """Stop all workers that there are now.

        All are told, also when the server does not answer for one of them; its error comes then.
        """
        answers: dict[str, Answer] = {}
        problem: RedisError | None = None
        for worker in self.identities():
            try:
                answers[worker] = self.stop_worker(worker, by)
            except RedisError as error:
                problem = error
        if problem is not None:
            raise problem
        return answers

    def periodic(self) -> Sequence[PeriodicEntry]:
        """The periodic entries that workers have, with their next and last time slots."""
        return self._published.entries()

    def disable_periodic(self, entry: str, by: str = "") -> bool:
        """Have a periodic entry, by its id or its name, fire no more, whoever registers it.

        Answers whether that changed anything. This one and those below raise CogworkerError when
        there is no such entry.
        """
        return self._published.disable(entry, by)

    def enable_periodic(self, entry: str, by: str = "") -> bool:
        """Have a periodic entry fire again, from its next time slot on.

        Answers whether that changed anything.
        """
        return self._published.enable(entry, by)

    def run_periodic_now(self, entry: str, by: str = "") -> RunNow:
        """Push a periodic entry's job now, with its lock; its time slots stay as they are.

        Answers with the job's id, or with that of the job which has the lock.
        """
        return self._published.run_now(entry, by)

    def locks(self) -> Iterator[Lock]:
        """The locks of unique jobs, in no order.

        Read in steps of about a thousand keys while locks come and go: one that was there all the
        time is told at least once, another one perhaps.
        """
        cursor = None
        while cursor != 0:
            cursor, names = self._run(look.scan_locks(self._keys, cursor or 0))
            if names:
                yield from self._run(look.locks(self._keys, names))

    def release_lock(self, name: str, by: str = "", *, holder: str = "") -> Lock | None:
        """Free a lock, whoever holds it; with ``holder``, a job's id, only when that job does.

        Answers with the lock as it was, None when there was none to free. It is meant for locks
        whose job is gone: while a worker runs the job, the lock is soon taken again.
        """
        lock = self._run(control.release_lock(self._keys, name, holder))
        if lock is not None:
            logger.info("lock released: name=%s holder=%s by=%a", name, lock.holder, by)
        return lock

    def _pause_queue(self, queue: str, paused: bool, by: str) -> bool:
        return self._steer(control.pause_queue(self._keys, _checked(queue), paused, by))

    def _steer(self, command: Command[bool]) -> bool:
        """Do it, then have all workers look at once."""
        changed = self._run(command)
        workers = self._run(look.workers(self._keys))
        for bells in control.ring(self._keys, workers):
            self._run(bells)
        return changed


def _checked(queue: object) -> str:
    try:
        return check_queue_name(queue)
    except Refusal as refusal:
        raise CogworkerError(str(refusal)) from None
