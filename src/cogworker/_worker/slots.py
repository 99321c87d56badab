"""The worker's ``concurrency`` places to run a job, and the short queue before them.

The dispatcher offers deliveries. A slot that has finished one takes the next ready one by itself,
without asking the dispatcher; so a worker with short jobs spends its time on them and not on
handing them over. While jobs are short, one slot at work is enough: waking more threads only makes
them fight for the interpreter's lock. As soon as a ready job has waited for a millisecond, all free
slots are put to work (``spread``).
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cogworker import clock
from cogworker._engine.plan import Move
from cogworker._worker.delivery import Delivery


class Finished(NamedTuple):
    """Deliveries that ended since the last look, and how long they ran together.

    A delivery comes with its move, None for a success.
    """

    deliveries: Sequence[tuple[Delivery, Move | None]]
    ran_s: float


class Slots:
    """Who runs, what is ready, what has finished. Shared by the dispatcher and all slots."""

    def __init__(self, size: int, on_finished: Callable[[], None]) -> None:
        self.size = size
        self._free = size
        self._lock = threading.Lock()
        self._ready: deque[Delivery] = deque()
        self._running: dict[bytes, Delivery] = {}
        self._finished: list[tuple[Delivery, Move | None]] = []
        self._ran_s = 0.0
        self._closed = False
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

    def unfinished(self) -> list[Delivery]:
        """The deliveries that run now or are ready to."""
        with self._lock:
            return [*self._running.values(), *self._ready]

    def tags(self) -> set[bytes]:
        """All that it knows of: what runs, is ready, or has finished and was not collected."""
        with self._lock:
            ready = (delivery.tag for delivery in self._ready)
            return {*self._running, *ready, *(each.tag for each, _ in self._finished)}

    def offer(self, deliveries: Sequence[Delivery], *, sparing: bool) -> list[Delivery]:
        """Add deliveries; answers with those that must be started now, in free slots.

        Sparing: only so that one slot is at work.
        """
        with self._lock:
            self._ready.extend(deliveries)
            return self._start(self._free - (self.size - 1) if sparing else self._free)

    def spread(self, waited_s: float) -> list[Delivery]:
        """Ready deliveries to start now in free slots, if the oldest has waited that long."""
        with self._lock:
            return self._start(self._free) if self._has_waited(waited_s) else []

    def finish(self, delivery: Delivery, move: Move | None) -> Delivery | None:
        """Note the end of a run; answers with the next delivery for the same slot, if any."""
        now = clock.monotonic()
        with self._lock:
            if self._closed:
                return None
            delivery.ran_s = now - delivery.started_at
            self._ran_s += delivery.ran_s
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
            finished = Finished(self._finished, self._ran_s)
            self._finished, self._ran_s = [], 0.0
        return finished

    def close(self) -> Finished:
        """What ``collect`` answers, for the last time: runs that end later are not noted."""
        with self._lock:
            self._closed = True
            self._ready.clear()
            finished = Finished(self._finished, self._ran_s)
            self._finished = []
        return finished

    def drop(self, delivery: Delivery) -> None:
        """Free the slot of a delivery that could not be started."""
        with self._lock:
            self._running.pop(delivery.tag, None)
            self._free += 1

    def reclaim(self, waited_s: float) -> list[Delivery]:
        """Take back all that is ready, if the oldest of it has waited that long."""
        with self._lock:
            if not self._has_waited(waited_s):
                return []
            reclaimed = list(self._ready)
            self._ready.clear()
            return reclaimed

    def _has_waited(self, waited_s: float) -> bool:
        return bool(self._ready) and clock.monotonic() - self._ready[0].ready_at >= waited_s

    def _start(self, most: int) -> list[Delivery]:
        now = clock.monotonic()
        start = [self._ready.popleft() for _ in range(min(most, len(self._ready)))]
        self._free -= len(start)
        for delivery in start:
            delivery.started_at = now
            self._running[delivery.tag] = delivery
        return start
