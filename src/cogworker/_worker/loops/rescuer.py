"""Brings back the jobs of workers that died, and does the same for this one at its end."""

import logging
import random
from collections.abc import Callable, Iterator, Sequence

from cogworker import clock
from cogworker._engine.moves import Moves
from cogworker._engine.places import InFlight, Queue
from cogworker._engine.quarantine import is_wrong_type
from cogworker._engine.replies import NOTHING_HELD, Moved, Taken
from cogworker._kinds import printable
from cogworker._redis.runner import Runner
from cogworker._worker.loops.base import Loop
from cogworker._worker.orphans import Orphans
from cogworker._worker.outage import Outage
from cogworker._worker.watch import Watch
from cogworker.errors import RedisUnavailable

logger = logging.getLogger("cogworker.worker")

PAGE = 100
MOST_JOBS = 500
MOST_BYTES = 4 * 1024 * 1024
WATCH_PAUSE_S = 1.0
"""How soon to look again while it is not certain who is dead."""


class Rescuer(Loop):
    """Rescues. Every worker looks, at its start and then once a minute; any may win.

    ``has_looked``: it has looked once, and knew of all that were silent whether they were dead.

    A worker is dead when its presence has expired and its last beat is older than
    ``threshold_s``. That is decided in the script that moves its jobs, for workers that this one
    has watched for a while (``Watch``).
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
        orphans: Orphans,
        watch: Watch,
        answered_since: Callable[[], float | None],
        clockless: Callable[[], bool],
        on_damage: Callable[[], None],
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._moves = moves
        self._worker = worker
        self._threshold_s = threshold_s
        self._interval_s = interval_s
        self._orphans = orphans
        self._watch = watch
        self._answered_since = answered_since
        self._clockless = clockless
        self._on_damage = on_damage
        self.has_looked = False

    def tick(self) -> float:
        """Look for dead workers and bring back what they held."""
        since = self._answered_since()
        for name in self._watch.look(self._silent(), since, clock.monotonic()):
            if not self.stopping:
                self._try_to_rescue(InFlight(name))
        if since is None or self._watch.undecided:
            return min(WATCH_PAUSE_S, self._interval_s)
        self.has_looked = True
        return self._interval_s * random.uniform(0.75, 1.0)  # noqa: S311 - only spreads the load

    def sign_off(self) -> None:
        """At this worker's end: give back whatever is still in its name, and forget it."""
        held = self._runner.run(self._moves.examine(self._worker, None)) or NOTHING_HELD
        for jobs in _newest_first(held.jobs):
            moves = self._orphans.of_stopped(self._worker, jobs, held.at_most_once)
            moved = self._runner.run(self._moves.rescue(self._worker, None, moves))
            if moved is not None:
                self._orphans.moved(moved)
            _log_failures(self._worker, moved)

    def _silent(self) -> dict[str, float]:
        """The last beats of all workers that have been silent for longer than the threshold."""
        silent: dict[str, float] = {}
        while True:
            command = self._moves.stale(self._threshold_s, len(silent), PAGE)
            page = self._runner.run(command)
            silent.update(page)
            if len(page) < PAGE:
                silent.pop(self._worker.worker, None)
                return silent

    def _try_to_rescue(self, dead: InFlight) -> None:
        """One worker whose jobs can't be brought back must not stand before the others."""
        try:
            self._rescue(dead)
        except RedisUnavailable:
            raise
        except Exception as error:
            if is_wrong_type(error):
                self._on_damage()
            logger.exception("can't rescue a worker's jobs: worker=%s", printable(dead.worker))

    def _rescue(self, dead: InFlight) -> None:
        held = self._runner.run(self._moves.examine(dead, self._threshold_s))
        if held is None:
            return
        rescued = buried = 0
        for jobs in _newest_first(held.jobs):
            # Who has no clock of the server's may be wrong: what it rescues must not run twice.
            at_most_once = held.at_most_once or self._clockless()
            moves = self._orphans.of_dead(dead, jobs, at_most_once)
            moved = self._runner.run(self._moves.rescue(dead, self._threshold_s, moves))
            if moved is None:
                logger.info("a worker thought dead beats again: worker=%s", printable(dead.worker))
                break
            self._orphans.moved(moved)
            dead_now = sum(move.jobs for move in moves if not isinstance(move.target, Queue))
            buried += dead_now
            rescued += len(jobs) - dead_now - len(moved.lost) - len(moved.failed)
            _log_failures(dead, moved)
        if rescued or buried:
            logger.warning(
                "rescued: jobs=%d worker=%s%s",
                rescued,
                printable(dead.worker),
                f" dead={buried}" if buried else "",
            )


def _log_failures(worker: InFlight, moved: Moved | None) -> None:
    for tag, error in moved.failed if moved else ():
        logger.error(
            "can't rescue a job: tag=%r worker=%s error=%s", tag, printable(worker.worker), error
        )


def _newest_first(held: Sequence[Taken]) -> Iterator[list[Taken]]:
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
