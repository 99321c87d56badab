"""The worker's ``concurrency`` places to run a job, and the short queue before them.

The dispatcher offers deliveries. A slot that has finished one takes the next ready one by itself,
without asking the dispatcher; so a worker with short jobs spends its time on them and not on
handing them over.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cogworker import clock
from cogworker._engine.plan import Move
from cogworker._worker.delivery import Delivery


class Finished(NamedTuple):
    """Deliveries that ended since the last look; ``move`` is None for a success."""

    deliveries: Sequence[tuple[Delivery, Move | None]]
    slowest_s: float


class Slots:
    """Who runs, what is ready, what has finished. Shared by the dispatcher and all slots."""

    def __init__(self, size: int, on_finished: Callable[[], None]) -> None:
        self.size = size
        self._free = size
        self._lock = threading.Lock()
        self._ready: deque[Delivery] = deque()
        self._running: dict[bytes, Delivery] = {}
        self._finished: list[tuple[Delivery, Move | None]] = []
        self._slowest_s = 0.0
        self._on_finished = on_finished

    @property
    def free(self) -> int:
        """Slots without a job."""
        return self._free

    @property
    def ready(self) -> int:
        """Deliveries that wait for a slot."""
        return len(self._ready)

    @property
    def busy(self) -> int:
        """Slots with a job."""
        return self.size - self._free

    @property
    def has_finished(self) -> bool:
        """Whether ``collect`` has something to answer."""
        return bool(self._finished)

    def running(self) -> list[Delivery]:
        """The deliveries that run now."""
        with self._lock:
            return list(self._running.values())

    def offer(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Add deliveries; answers with those that must be started now, in free slots."""
        with self._lock:
            self._ready.extend(deliveries)
            start = [self._ready.popleft() for _ in range(min(self._free, len(self._ready)))]
            self._free -= len(start)
            self._note_started(start)
            return start

    def finish(self, delivery: Delivery, move: Move | None) -> Delivery | None:
        """Note the end of a run; answers with the next delivery for the same slot, if any."""
        now = clock.monotonic()
        with self._lock:
            self._slowest_s = max(self._slowest_s, now - delivery.started_at)
            self._running.pop(delivery.tag, None)
            self._finished.append((delivery, move))
            if self._ready:
                following = self._ready.popleft()
                following.started_at = now
                self._running[following.tag] = following
            else:
                following = None
                self._free += 1
        self._on_finished()
        return following

    def collect(self) -> Finished:
        """Take what has finished since the last call."""
        with self._lock:
            finished = Finished(self._finished, self._slowest_s)
            self._finished, self._slowest_s = [], 0.0
        return finished

    def peek(self) -> list[tuple[Delivery, Move | None]]:
        """What ``collect`` would answer, left in place."""
        with self._lock:
            return list(self._finished)

    def reclaim(self, waited_s: float) -> list[Delivery]:
        """Take back all that is ready, if the oldest of it has waited that long."""
        with self._lock:
            if not self._ready or clock.monotonic() - self._ready[0].ready_at < waited_s:
                return []
            reclaimed = list(self._ready)
            self._ready.clear()
            return reclaimed

    def slowest_running_s(self) -> float:
        """How long the longest current run has been running."""
        with self._lock:
            started = [delivery.started_at for delivery in self._running.values()]
        return clock.monotonic() - min(started) if started else 0.0

    def _note_started(self, deliveries: Sequence[Delivery]) -> None:
        now = clock.monotonic()
        for delivery in deliveries:
            delivery.started_at = now
            self._running[delivery.tag] = delivery
