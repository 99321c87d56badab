"""Says every few seconds that this worker lives, and what it does."""

from collections.abc import Callable, Mapping

from cogworker._engine import presence
from cogworker._engine.places import InFlight
from cogworker._redis.keys import Keys
from cogworker._redis.runner import Runner
from cogworker._worker.loops.base import Loop
from cogworker._worker.outage import Outage

BEATS_A_PRESENCE = 12
"""Presence outlasts this many beats: 60 s at the default interval of 5."""


class Heartbeat(Loop):
    """Beats. The first beat comes before the first job: see ``launcher``."""

    name = "heartbeat"

    def __init__(
        self,
        outage: Outage,
        runner: Runner,
        keys: Keys,
        worker: InFlight,
        facts: Callable[[], Mapping[str, str]],
        interval_s: float,
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._keys = keys
        self._worker = worker
        self._facts = facts
        self._interval_s = interval_s

    def tick(self) -> float:
        """Beat once."""
        lasts_s = BEATS_A_PRESENCE * self._interval_s
        self._runner.run(presence.beat(self._keys, self._worker.worker, self._facts(), lasts_s))
        return self._interval_s
