"""What a worker does that was away for so long that its jobs may have been rescued.

A frozen worker that wakes goes on with runs whose jobs may run elsewhere by now. What they come to
changes nothing, since deliveries are fenced; but they go on beside the second run, so they are
interrupted as soon as the worker knows.
"""

import logging
from collections.abc import Callable

from cogworker import payload
from cogworker._engine import look
from cogworker._engine.places import InFlight
from cogworker._redis.keys import Keys
from cogworker._redis.runner import Runner
from cogworker._worker.delivery import Delivery
from cogworker._worker.slots import Slots

logger = logging.getLogger("cogworker.worker")


class Claims:
    """A worker's claims to the jobs that it runs."""

    def __init__(
        self,
        runner: Runner,
        keys: Keys,
        worker: InFlight,
        slots: Slots,
        interrupt: Callable[[Delivery], None],
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._worker = worker
        self._slots = slots
        self._interrupt = interrupt

    def check(self) -> None:
        """Interrupt the runs, and let none begin, whose job is not this worker's any more."""
        before = self._slots.unfinished()
        if not before:
            return
        held = self._runner.run(look.tags(self._keys, self._worker.worker))
        # What has ended, or begun, since it was asked was settled, or taken, by this worker itself.
        suspects = {delivery.tag for delivery in before} - held
        for delivery in self._slots.unfinished():
            if delivery.tag in suspects:
                delivery.lost = True
                logger.warning(
                    "interrupting, the job was rescued while this worker was away: %s tag=%s",
                    payload.label(delivery.envelope),
                    delivery.tag.decode("utf-8", "backslashreplace"),
                )
                self._interrupt(delivery)
