"""The shape of every duty: start, tick, tick, … stop."""

import logging
import threading

from cogworker import clock
from cogworker._worker.outage import Outage
from cogworker.errors import RedisError

logger = logging.getLogger("cogworker.worker")

LONGEST_BACK_OFF_S = 30.0
LONGEST_TICK_S = 120.0
"""A tick that takes longer does not go on: its calls are given up much earlier."""


class Loop:
    """Calls ``tick`` in a thread of its own until it is stopped.

    ``tick`` answers with the seconds until the next one. One that fails is logged, counted, and
    tried again with a growing pause; it never ends the thread.
    """

    name = "loop"

    def __init__(self, outage: Outage) -> None:
        self.failures = 0
        self._outage = outage
        self._stopping = threading.Event()
        self._poked = threading.Event()
        self._thread: threading.Thread | None = None
        self._due_at = 0.0

    def tick(self) -> float:
        """Do the duty once."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to do")

    def start(self, first_in_s: float = 0.0) -> None:
        """Begin, with the first tick after a pause."""
        self._thread = threading.Thread(
            target=self._run, name=f"cogworker-{self.name}", args=(first_in_s,), daemon=True
        )
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Make no more ticks; wait for one that is under way."""
        self._stopping.set()
        self._poked.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def poke(self) -> None:
        """Make the next tick now; from any thread."""
        self._poked.set()

    def close(self) -> None:
        """Give back what the loop alone uses; called in its thread, at its end."""

    @property
    def goes_on(self) -> bool:
        """Whether its thread lives and no tick takes much too long."""
        alive = self._thread is not None and self._thread.is_alive()
        return alive and clock.monotonic() - self._due_at < LONGEST_TICK_S

    @property
    def stopping(self) -> bool:
        """Whether a long tick should come to its end."""
        return self._stopping.is_set()

    def _run(self, pause_s: float) -> None:
        back_off_s = 1.0
        while not self._wait(pause_s):
            try:
                pause_s = self.tick()
            except RedisError as error:
                self._outage.failed(self.name, error)
                pause_s = 1.0
            except Exception:
                self.failures += 1
                logger.exception(
                    "%s failed, trying again: failures=%d in_s=%.0f",
                    self.name,
                    self.failures,
                    back_off_s,
                )
                pause_s, back_off_s = back_off_s, min(2 * back_off_s, LONGEST_BACK_OFF_S)
            else:
                self._outage.worked(self.name)
                back_off_s = 1.0
        self.close()

    def _wait(self, pause_s: float) -> bool:
        """Wait for the next tick, or a poke; answers whether it is time to end."""
        self._due_at = clock.monotonic() + pause_s
        self._poked.wait(pause_s)
        self._poked.clear()
        return self._stopping.is_set()
