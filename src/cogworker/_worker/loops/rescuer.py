"""Brings back the jobs of workers that died, and does the same for this one at its end."""

import logging
import random
from collections.abc import Callable, Iterator

from cogworker import clock, payload
from cogworker._engine.moves import Moves
from cogworker._engine.places import InFlight
from cogworker._engine.plan import KEEP, Move
from cogworker._engine.replies import Taken
from cogworker._redis.runner import Runner
from cogworker._worker import failure
from cogworker._worker.loops.base import Loop
from cogworker._worker.outage import Outage
from cogworker.errors import InvalidPayload, JobOrphaned, RedisUnavailable

logger = logging.getLogger("cogworker.worker")

MOST_CANDIDATES = 100
MOST_JOBS = 500
MOST_BYTES = 4 * 1024 * 1024
NOT_STEADY_PAUSE_S = 1.0


class Rescuer(Loop):
    """Rescues. Every worker looks, at its start and then once a minute; any may win.

    A worker is dead when its presence has expired and its last beat is older than
    ``threshold_s``. That is decided in the script that moves its jobs. Just after an outage nobody
    is declared dead (``steady``, see ``Heartbeat``).
    """

    name = "rescuer"

    def __init__(
        self,
        outage: Outage,
        runner: Runner,
        moves: Moves,
        worker: InFlight,
        *,
        threshold_s: float,
        interval_s: float,
        max_orphanings: int,
        steady: Callable[[], bool],
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._moves = moves
        self._worker = worker
        self._threshold_s = threshold_s
        self._interval_s = interval_s
        self._max_orphanings = max_orphanings
        self._steady = steady

    def tick(self) -> float:
        """Look for dead workers and bring back what they held."""
        if not self._steady():
            return min(NOT_STEADY_PAUSE_S, self._interval_s)
        for name in self._runner.run(self._moves.stale(self._threshold_s, MOST_CANDIDATES)):
            if name != self._worker.worker and not self.stopping:
                self._try_to_rescue(InFlight(name))
        return self._interval_s * random.uniform(0.75, 1.0)  # noqa: S311 - only spreads the load

    def leave(self) -> None:
        """At this worker's end: give back whatever is still in its name, and forget it."""
        held = self._runner.run(self._moves.examine(self._worker, None)) or []
        for jobs in _newest_first(held):
            moves = self._moves.give_back(self._worker, [(job.tag, KEEP) for job in jobs])
            self._runner.run(self._moves.rescue(self._worker, None, moves))

    def _try_to_rescue(self, dead: InFlight) -> None:
        """One worker whose jobs can't be brought back must not stand before the others."""
        try:
            self._rescue(dead)
        except RedisUnavailable:
            raise
        except Exception:
            logger.exception("can't rescue a worker's jobs: worker=%s", dead.worker)

    def _rescue(self, dead: InFlight) -> None:
        held = self._runner.run(self._moves.examine(dead, self._threshold_s))
        if held is None:
            return
        rescued = 0
        for jobs in _newest_first(held):
            moves = self._decide(dead, jobs)
            moved = self._runner.run(self._moves.rescue(dead, self._threshold_s, moves))
            if moved is None:
                logger.info("a worker thought dead beats again: worker=%s", dead.worker)
                break
            rescued += len(jobs) - len(moved.lost) - len(moved.failed)
            for tag, error in moved.failed:
                logger.error(
                    "can't rescue a job: tag=%r worker=%s error=%s", tag, dead.worker, error
                )
        if rescued:
            logger.warning("rescued: jobs=%d worker=%s", rescued, dead.worker)

    def _decide(self, dead: InFlight, jobs: list[Taken]) -> list[Move]:
        back: list[tuple[bytes, bytes]] = []
        moves: list[Move] = []
        for job in jobs:
            try:
                times = payload.parse(job.payload).orphaned
            except InvalidPayload:
                back.append((job.tag, KEEP))  # whoever takes it says what is wrong with it
                continue
            try:
                times = times + 1 if type(times) is int and times > 0 else 1
                if times > self._max_orphanings:
                    moves.append(self._bury(dead, job, times))
                else:
                    back.append((job.tag, payload.amend(job.payload, {"orphaned": times})))
            except InvalidPayload as error:  # it could not be counted, and come back for ever
                wrapped = payload.wrap_unparseable(job.payload, job.queue, error, clock.wall())
                moves.append(self._moves.bury(dead, job.tag, wrapped))
        return [*self._moves.give_back(dead, back), *moves]

    def _bury(self, dead: InFlight, job: Taken, times: int) -> Move:
        changes = {
            **failure.describe(JobOrphaned(times, self._max_orphanings)),
            "orphaned": times,
        }
        kept = payload.amend(job.payload, changes, missing={"failed_at": clock.wall()})
        logger.error(
            "moved to dead, its worker died %d times: payload=%s",
            times,
            payload.excerpt(job.payload),
        )
        return self._moves.bury(dead, job.tag, kept)


def _newest_first(held: list[Taken]) -> Iterator[list[Taken]]:
    """What a worker held, in portions, at least one: the last portion put back is taken first."""
    portion: list[Taken] = []
    size = 0
    for job in reversed(held):
        portion.insert(0, job)
        size += len(job.payload)
        if len(portion) == MOST_JOBS or size >= MOST_BYTES:
            yield portion
            portion, size = [], 0
    if portion or not held:
        yield portion
