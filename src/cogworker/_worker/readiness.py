"""How many jobs to keep ready beyond the free slots.

A worker that takes only for free slots idles during each round trip to the server. One that takes
more may sit on jobs which another worker could run. So jobs are kept ready only while every job is
short, and never more of them than this worker finishes within a few milliseconds.
"""

MOST_READY = 128
SHORT_S = 0.001
"""A run that takes longer than this ends the keeping of ready jobs, for ``CALM_S``."""
CALM_S = 0.25
AHEAD_S = 0.004
"""Ready jobs are those of the next four milliseconds, at the current pace."""
LONGEST_WAIT_S = 0.005
"""A job that has waited this long for a slot is given back; with the time that takes, it waits
for about ten milliseconds at most."""


class Readiness:
    """The number of ready jobs to aim at, from what finished since the last turn."""

    def __init__(self) -> None:
        self.limit = 0
        self._calm_at = 0.0
        self._last_turn = 0.0

    def learn(self, finished: int, slowest_s: float, now: float) -> None:
        """Note a turn: how many runs ended since the last one, and how long the longest took."""
        elapsed, self._last_turn = now - self._last_turn, now
        if slowest_s > SHORT_S:
            self.retreat(now)
        if now < self._calm_at or elapsed <= 0:
            return
        if finished:
            pace = int(finished / elapsed * AHEAD_S)
            self.limit = min(MOST_READY, max(2 * self.limit, 8), max(pace, 1))

    def retreat(self, now: float) -> None:
        """Keep nothing ready for a while."""
        self.limit = 0
        self._calm_at = now + CALM_S
