"""Hears what the worker is told from afar."""

from collections.abc import Callable

from cogworker._engine import control
from cogworker._engine.places import InFlight
from cogworker._redis.doorbell import Doorbell
from cogworker._redis.keys import Keys
from cogworker._redis.runner import Runner
from cogworker._worker.alarm import Alarm
from cogworker._worker.loops.base import Loop
from cogworker._worker.outage import Outage
from cogworker._worker.signals import Request

LISTEN_S = 5.0

_ORDERS: dict[str, Request] = {"quiet": "quiet", "resume": "resume", "stop": "retire"}


class Control(Loop):
    """Reads the orders whenever the worker's bell rings, and every few seconds anyway.

    An order is passed on once, as a request; ``on_bell`` is called for any news, so that the worker
    looks at its queues, too.
    """

    name = "control"

    def __init__(
        self,
        outage: Outage,
        runner: Runner,
        keys: Keys,
        worker: InFlight,
        pass_on: Callable[[Request, str], None],
        on_bell: Callable[[], None],
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._keys = keys
        self._worker = worker
        self._pass_on = pass_on
        self._on_bell = on_bell
        self._doorbell = Doorbell(runner.connector)
        self._alarm = Alarm()
        self._obeyed = ""
        self._intake_paused = False

    def look(self) -> None:
        """Read the orders once and pass on what is new."""
        told = self._runner.run(control.standing(self._keys, self._worker.worker))
        if told.intake_paused != self._intake_paused:
            self._intake_paused = told.intake_paused
            self._pass_on("pause intake" if told.intake_paused else "resume intake", told.intake_by)
        if told.id != self._obeyed:
            self._obeyed = told.id
            if told.order in _ORDERS:
                self._pass_on(_ORDERS[told.order], told.by)

    def tick(self) -> float:
        """Look, and wait at the bell."""
        self.look()
        if self.stopping:
            return 0.0
        if not self._doorbell.listening:
            self._doorbell.listen(
                control.listen(self._keys, self._worker.worker, LISTEN_S), LISTEN_S
            )
        if self._alarm.wait(LISTEN_S, self._doorbell.fileno()) and self._doorbell.answer():
            self._on_bell()
        return 0.0

    def stop(self, timeout_s: float) -> None:
        """Hear nothing any more."""
        self._stopping.set()
        self._alarm.ring()
        super().stop(timeout_s)

    def close(self) -> None:
        """Close what its thread has used; called there."""
        self._doorbell.close()
        self._alarm.close()
