"""How many jobs to keep ready beyond the free slots.

A worker that takes only for free slots idles during each round trip to the server, and wakes a
thread for each job. One that takes more may sit on jobs which another worker could run. So jobs are
kept ready only while runs are short on average, never more of them than this worker finishes within
a few milliseconds, and not for a while after one had to be given back.

The average counts, not the longest run: a thread that waits for the interpreter's lock makes a
no-op look like a run of 5 ms.
"""

MOST_READY = 128
SHORT_S = 0.0005
"""Runs are short when they take less than this on average. No-op jobs with a lock and a status seem
to take a quarter of a millisecond beside the dispatcher, which writes down what becomes of them."""
AHEAD_S = 0.004
"""Ready jobs are those of the next four milliseconds, at the current pace."""
SPREAD_AFTER_S = 0.001
"""A ready job that has waited this long is started in a free slot of its own."""
LONGEST_WAIT_S = 0.005
"""A job that has waited this long without a free slot is given back; with the time that takes,
it waits for about ten milliseconds at most."""
CALM_S = 0.05
"""How long nothing is kept ready after that."""

_MEMORY = 1000
"""About how many runs the average remembers: enough that one long run in a hundred shows."""


class Readiness:
    """The number of ready jobs to aim at, from what finished since the last turn."""

    def __init__(self) -> None:
        self.limit = 0
        self._mean_s = SHORT_S
        self._calm_at = 0.0
        self._last_turn = 0.0

    def learn(self, finished: int, ran_s: float, now: float) -> None:
        """Note a turn: how many runs ended since the last one, and how long they took together."""
        elapsed, self._last_turn = now - self._last_turn, now
        if not finished:
            return
        weight = finished / (finished + _MEMORY)
        self._mean_s += weight * (ran_s / finished - self._mean_s)
        if self._mean_s > SHORT_S or now < self._calm_at:
            self.limit = 0
            return
        pace = int(finished / max(elapsed, 1e-6) * AHEAD_S)
        self.limit = max(1, min(MOST_READY, pace, 2 * self.limit + 8))

    def retreat(self, now: float) -> None:
        """Keep nothing ready for a while."""
        self.limit = 0
        self._calm_at = now + CALM_S
