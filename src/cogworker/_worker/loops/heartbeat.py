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


class Heartbeat(Loop):
    """Beats. The first beat comes before the first job: see ``launcher``.

    ``check_claims`` is called after a silence for which this worker's presence may have expired, on
    the server's clock: without that nobody can have rescued its jobs.
    """

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
        check_claims: Callable[[], None],
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._keys = keys
        self._worker = worker
        self._facts = facts
        self._interval_s = interval_s
        self._wear = wear
        self._check_claims = check_claims
        self._beat_at: float | None = None
        self._was_silent = False
        self._answered_since: float | None = None
        self.has_beaten = False

    @property
    def answered_since(self) -> float | None:
        """Since when all beats have been answered, monotonic; None when the last one was not."""
        return self._answered_since

    def tick(self) -> float:
        """Beat once."""
        lasts_s = BEATS_A_PRESENCE * self._interval_s
        try:
            beat_at = self._runner.run(
                presence.beat(self._keys, self._worker.worker, self._facts(), lasts_s)
            )
        except BaseException:
            self._answered_since = None
            raise
        if self._beat_at is not None and beat_at - self._beat_at >= lasts_s:
            self._was_silent = True
        self._beat_at = beat_at
        self.has_beaten = True
        if self._answered_since is None:
            self._answered_since = clock.monotonic()
        if self._was_silent:
            self._check_claims()
            self._was_silent = False
        self._wear.check_memory()
        return self._interval_s
