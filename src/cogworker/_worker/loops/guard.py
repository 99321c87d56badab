"""Moves keys of the wrong type aside, so that they hold up nothing."""

import logging
import random
from collections.abc import Mapping

from cogworker import clock
from cogworker._engine import look, quarantine
from cogworker._kinds import printable
from cogworker._redis.keys import Keys
from cogworker._redis.runner import Runner
from cogworker._worker.loops.base import Loop
from cogworker._worker.outage import Outage

logger = logging.getLogger("cogworker.worker")

SHORTEST_PAUSE_S = 1.0


class Guard(Loop):
    """Checks keys once in a while, and at once when one was found damaged.

    In time each worker checks the keys that are always there and those of its own; the keys of all
    queues and workers are checked by one of them, by lot, so that a large fleet asks no more than a
    small one. ``queues`` are this worker's, which are checked even if no job was ever in them.
    """

    name = "guard"

    def __init__(
        self,
        outage: Outage,
        runner: Runner,
        keys: Keys,
        worker: str,
        queues: list[str],
        interval_s: float,
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._keys = keys
        self._worker = worker
        self._queues = queues
        self._interval_s = interval_s
        self._alarmed = False
        self._looked_at = float("-inf")

    def alarm(self) -> None:
        """Somebody met a key of the wrong type: check all, now or a second after the last time."""
        if not self._alarmed:
            self._alarmed = True
            self.poke()

    def tick(self) -> float:
        """Check the keys that are always there, then those that they name."""
        if (early_s := self._looked_at + SHORTEST_PAUSE_S - clock.monotonic()) > 0:
            return early_s
        self._looked_at = clock.monotonic()
        alarmed, self._alarmed = self._alarmed, False
        self._check(quarantine.fixed(self._keys))
        workers = self._runner.run(look.workers(self._keys))
        if alarmed or random.random() * len(workers) <= 1.0:  # noqa: S311 - a lot, no secret
            queues = {*self._queues, *self._runner.run(look.queues(self._keys))}
            self._check(quarantine.growing(self._keys, queues, {*workers, self._worker}))
        else:
            self._check(quarantine.growing(self._keys, self._queues, [self._worker]))
        return self._interval_s * random.uniform(0.75, 1.0)  # noqa: S311 - only spreads the load

    def _check(self, expected: Mapping[str, str]) -> None:
        for question in quarantine.wrong(expected):
            for name in self._runner.run(question):
                aside = self._runner.run(quarantine.put_aside(self._keys, name, expected[name]))
                if aside is not None:
                    logger.error(
                        "a key of the wrong type was moved aside for 30 days: "
                        "key=%s type=%s expected=%s aside=%s",
                        printable(name),
                        aside.found,
                        expected[name],
                        printable(aside.name),
                    )
