"""Deliveries that wait for the server's word before they begin.

A job whose lock is taken or freed just before it runs must not begin when that is refused, or when
it is not this worker's any more. It costs a turn.
"""

import logging
import random
from collections.abc import Iterable

from cogworker import payload
from cogworker._engine.places import InFlight
from cogworker._engine.plan import Move
from cogworker._engine.replies import Moved
from cogworker._worker.delivery import Delivery
from cogworker.errors import InvalidPayload
from cogworker.features.transitions import Transitions
from cogworker.features.unique import asks_before

logger = logging.getLogger("cogworker.worker")

LONGEST_WAIT_S = 10.0
"""Between two tries: a lock may be free for that long before the next job gets it."""
MOST_WAITS = 30
"""Whoever wrote the payload: more doublings than that make no difference."""


class Gate:
    """Holds back. A job that may not run is put in the schedule, for a time that doubles."""

    def __init__(self, transitions: Transitions, worker: InFlight) -> None:
        self._transitions = transitions
        self._worker = worker
        self._waiting: dict[bytes, Delivery] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def tags(self) -> set[bytes]:
        """The deliveries that wait."""
        return set(self._waiting)

    def enter(self, deliveries: Iterable[Delivery]) -> tuple[list[Delivery], list[Move]]:
        """Those that need not wait; and what the next turn must ask for the others."""
        free: list[Delivery] = []
        asked: list[Move] = []
        for each in deliveries:
            if asks_before(each.envelope):
                each.admitted = False
                asked.append(
                    self._transitions.begin(self._worker, each.tag, each.envelope, each.queue)
                )
                self._waiting[each.tag] = each  # last: what was not asked about must not begin
            else:
                free.append(each)
        return free, asked

    def answered(self, moved: Moved) -> tuple[list[Delivery], list[Move]]:
        """After the turn that asked: those that may begin, and what becomes of the refused ones."""
        if not self._waiting:
            return [], []
        refused = {refusal.job: refusal.why for refusal in moved.refused}
        waiting, self._waiting = self._waiting, {}
        for tag in moved.lost:
            waiting.pop(tag, None)
        moves = [self._postpone(waiting.pop(tag), why) for tag, why in refused.items()]
        for each in waiting.values():
            each.admitted = True
        return list(waiting.values()), moves

    def clear(self) -> None:
        """None of them will begin."""
        self._waiting = {}

    def _postpone(self, delivery: Delivery, holder: str) -> Move:
        job = delivery.envelope
        waits = job.lock_waits if type(job.lock_waits) is int else 0
        waits = max(0, min(waits, MOST_WAITS))
        delay_s = min(2.0**waits, LONGEST_WAIT_S) * random.uniform(0.75, 1.0)  # noqa: S311
        logger.info(
            "not begun, its like is running: %s holder=%s again_in_s=%.1f",
            payload.label(job),
            payload.one_line(holder),
            delay_s,
        )
        try:
            kept = payload.amend(
                delivery.payload,
                {"lock_waits": waits + 1},
                missing={"queue": delivery.queue},
            )
        except InvalidPayload as problem:
            return self._transitions.bury_unreadable(
                self._worker, delivery.tag, delivery.payload, problem, delivery.queue, job
            )
        return self._transitions.reschedule(
            self._worker, delivery.tag, kept, job, delivery.queue, delay_s
        )
