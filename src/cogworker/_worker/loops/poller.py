"""Brings due jobs from the schedule and the retry set to their queues."""

import logging
import random
from collections.abc import Callable, Sequence

from cogworker import payload
from cogworker._engine.moves import Waiting
from cogworker._engine.places import Place
from cogworker._engine.plan import Move
from cogworker._engine.quarantine import is_wrong_type
from cogworker._engine.replies import Due, Moved
from cogworker._redis.runner import Runner
from cogworker._worker.loops.base import Loop
from cogworker._worker.outage import Outage
from cogworker.errors import InvalidPayload
from cogworker.features.transitions import Transitions

logger = logging.getLogger("cogworker.worker")

PAGE = 200
PAGE_BYTES = 1024 * 1024
POSTPONED_S = 60.0
SHORTEST_PAUSE_S = 0.05
"""The fleet together asks about every 50 ms while something is due soon: each worker waits that
long times the number of workers, so twice the workers don't ask twice as often."""


class Poller(Loop):
    """Promotes. It sleeps until the next entry is due, or for ``interval_s`` at most."""

    name = "poller"

    def __init__(
        self,
        outage: Outage,
        runner: Runner,
        transitions: Transitions,
        interval_s: float,
        on_damage: Callable[[], None],
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._transitions = transitions
        self._moves = transitions.moves
        self._interval_s = interval_s
        self._on_damage = on_damage
        self.paused = False

    def tick(self) -> float:
        """Promote all that is due, a page at a time."""
        while not self.paused and not self.stopping:
            due = self._runner.run(self._moves.due(PAGE, PAGE_BYTES))
            for key, error in due.problems:
                logger.error("a set can't be read: key=%s error=%s", key, error)
                self._note_damage(error)
            moves = [
                *self._promotions(Place.SCHEDULE, due.schedule, due.time),
                *self._promotions(Place.RETRY, due.retry, due.time),
            ]
            if moves:
                self._postpone(self._runner.run(self._moves.move(moves)), due)
            if not due.more:
                return self._pause(due.next_in_s, due.workers)
        return self._interval_s

    def _pause(self, next_in_s: float | None, workers: int) -> float:
        spread = random.uniform(0.75, 1.0)  # noqa: S311 - only spreads the load
        longest = self._interval_s * spread
        shortest = min(SHORTEST_PAUSE_S * workers * spread, longest)
        return longest if next_in_s is None else min(max(next_in_s, shortest), longest)

    def _promotions(self, source: Place, entries: Sequence[bytes], now: float) -> list[Move]:
        valid: list[Waiting] = []
        invalid: list[Move] = []
        for entry in entries:
            job = payload.NOT_A_JOB
            try:
                job = payload.parse(entry)
                queue = payload.queue_of(entry)
                stamped = payload.amend(entry, {"enqueued_at": now})
                valid.append(self._transitions.waiting(entry, stamped, job, queue))
            except InvalidPayload as error:
                logger.error(
                    "not a job, moved to dead: set=%s error=%s payload=%s",
                    source.value,
                    error,
                    payload.excerpt(entry),
                )
                invalid.append(
                    self._transitions.bury_unreadable(source, entry, entry, error, None, job)
                )
        return [*self._moves.promote(source, valid), *invalid]

    def _postpone(self, moved: Moved, due: Due) -> None:
        """What the server refused to put down must not stand before what it would take."""
        for entry, error in moved.failed:
            logger.error(
                "the server refused to promote a job, trying again in %.0f s: error=%s payload=%s",
                POSTPONED_S,
                error,
                payload.excerpt(entry),
            )
            self._note_damage(error)
        failed = {entry for entry, _ in moved.failed}
        if failed:
            moves = [
                self._moves.postpone(
                    place, [entry for entry in entries if entry in failed], POSTPONED_S
                )
                for place, entries in ((Place.SCHEDULE, due.schedule), (Place.RETRY, due.retry))
            ]
            self._runner.run(self._moves.move(moves))

    def _note_damage(self, error: str) -> None:
        if is_wrong_type(error):
            self._on_damage()
