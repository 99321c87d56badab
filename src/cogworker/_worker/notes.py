"""What the runs of a worker say of themselves, on its way to the server.

A run that begins, or makes progress, is noted; the dispatcher carries all that is noted with a turn
every quarter of a second at most, however many runs there are and however much they say. A run that
ends before has its end written only.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf

from cogworker._engine.places import InFlight
from cogworker._engine.plan import Move
from cogworker._worker.delivery import Delivery
from cogworker.features.transitions import Transitions
from cogworker.progress import Progress

SOON_S = 0.05
"""How long the first note waits for others, and for the end of a short run."""
PAUSE_S = 0.25


class Notes:
    """The runs of one worker that have something to tell; ``ring`` wakes the dispatcher.

    But for ``open``, only the dispatcher asks.
    """

    def __init__(
        self, transitions: Transitions, worker: InFlight, ring: Callable[[], None]
    ) -> None:
        self._transitions = transitions
        self._worker = worker
        self._ring = ring
        self._noted: deque[Delivery] = deque()
        self._taken_at = -inf
        self.due_at = inf

    def open(self, delivery: Delivery) -> None:
        """A run begins: if its job has a status, it gets where to note its progress."""
        envelope = delivery.envelope
        if self._transitions.features.status.ttl_of(envelope) is not None:
            delivery.progress = Progress(envelope.class_, partial(self._note, delivery))
            delivery.progress.news()

    def is_due(self, now: float) -> bool:
        """Whether a turn has something to carry; if not yet, ``due_at`` says when."""
        if not self._noted:
            return False
        if self.due_at == inf:
            self.due_at = max(now + SOON_S, self._taken_at + PAUSE_S)
        return now >= self.due_at

    def take(self, now: float) -> list[Move]:
        """What a turn is to carry now."""
        if not self.is_due(now):
            return []
        self.due_at, self._taken_at = inf, now
        moves: list[Move] = []
        for _ in range(len(self._noted)):  # more may come in the meantime
            delivery = self._noted.popleft()
            progress = delivery.progress
            notes = None if progress is None else progress.take()
            if notes is not None:
                moves.append(
                    self._transitions.tell(
                        *(self._worker, delivery.tag, delivery.envelope, delivery.queue),
                        delivery.run(notes=notes),
                    )
                )
        return moves

    def _note(self, delivery: Delivery) -> None:
        self._noted.append(delivery)
        self._ring()
