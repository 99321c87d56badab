"""Publishes a worker's periodic entries, so that others can show and steer them.

Once a minute a worker writes what entries it has, and when. Whoever reads them leaves out those
that no worker has written for a while, though workers live. What is kept of an entry goes 90 days
after the last time: a rolling deploy, or an installation that was down, must not forget which time
slots were fired.
"""

import logging
import random
from collections.abc import Sequence

from cogworker import clock
from cogworker._engine import timetable
from cogworker._engine.plan import Move
from cogworker._redis.runner import Runner
from cogworker.client import Client
from cogworker.errors import RedisRefused
from cogworker.features.periodic import Slots
from cogworker.timetable import Planned

logger = logging.getLogger("cogworker.worker")

PUBLISH_EVERY_S = 60.0
FORGET_EVERY_S = 3600.0
KEPT_S = 90 * 86400.0
MOST_A_CALL = 500


class Board:
    """What one worker publishes, and how often."""

    def __init__(self, runner: Runner, client: Client, worker: str) -> None:
        self._runner = runner
        self._moves = client.moves
        self._slots = Slots(client.keys)
        self._worker = worker
        self._publish_at = self._forget_at = float("-inf")

    def publish(self, entries: Sequence[Planned], now: float) -> None:
        """Publish, if it is time to; ``now`` is the server's clock.

        Whether that works is no matter of life and death. Raises RedisUnavailable.
        """
        if clock.monotonic() < self._publish_at:
            return
        spread = random.uniform(0.75, 1.0)  # noqa: S311 - only spreads the load
        try:
            for start in range(0, len(entries), MOST_A_CALL):
                portion = entries[start : start + MOST_A_CALL]
                told = {planned.pjid: planned.published for planned in portion}
                self._write([self._moves.note(self._slots.publish(told, now, self._worker))])
            if clock.monotonic() >= self._forget_at:
                self._forget(now)
                self._forget_at = clock.monotonic() + FORGET_EVERY_S * spread
        except RedisRefused as error:
            logger.warning("can't publish the periodic entries: error=%s", error)
        self._publish_at = clock.monotonic() + PUBLISH_EVERY_S * spread

    def _forget(self, now: float) -> None:
        seen = self._runner.run(timetable.seen(self._moves.keys))
        old = [(pjid, noted) for pjid, noted in seen.items() if noted.at < now - KEPT_S]
        if old:
            forget = [self._slots.forget(pjid, noted.raw) for pjid, noted in old[:MOST_A_CALL]]
            self._write([self._moves.note(effects) for effects in forget])

    def _write(self, moves: Sequence[Move]) -> None:
        moved = self._runner.run(self._moves.move(moves))
        for key, error in moved.problems:
            logger.warning("can't publish the periodic entries: key=%s error=%s", key, error)
