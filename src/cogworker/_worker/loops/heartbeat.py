"""Says every few seconds that this worker lives, and what it does."""

from collections.abc import Callable, Mapping

from cogworker import clock
from cogworker._engine import presence
from cogworker._engine.places import InFlight
from cogworker._redis.keys import Keys
from cogworker._redis.runner import Runner
from cogworker._worker.loops.base import Loop
from cogworker._worker.outage import Outage
from cogworker._worker.wear import Wear

BEATS_A_PRESENCE = 12
"""Presence outlasts this many beats: 60 s at the default interval of 5."""
BEATS_UNTIL_STEADY = 3


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
        wear: Wear,
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._keys = keys
        self._worker = worker
        self._facts = facts
        self._interval_s = interval_s
        self._wear = wear
        self._failing = True
        self._steady_at = 0.0

    @property
    def steady(self) -> bool:
        """False at the start, and from a beat that failed, until all others could beat, too.

        After an outage of the server every worker looks dead for a moment.
        """
        return not self._failing and clock.monotonic() >= self._steady_at

    def tick(self) -> float:
        """Beat once."""
        failed_before, self._failing = self._failing, True
        lasts_s = BEATS_A_PRESENCE * self._interval_s
        beat = presence.beat(self._keys, self._worker.worker, self._facts(), lasts_s)
        self._runner.run(beat)
        self._failing = False
        if failed_before:
            self._steady_at = clock.monotonic() + BEATS_UNTIL_STEADY * self._interval_s
        self._wear.check_memory()
        return self._interval_s
