"""A worker without threads: every step is taken by the test, on the real engine."""

from collections.abc import Callable
from typing import Any

from cogworker import Cogworker
from cogworker._worker.delivery import Delivery
from cogworker._worker.parts import Parts
from cogworker.config import for_worker
from cogworker.errors import RedisUnavailable


class InlineWorker:
    """The parts of ``Launcher``, with jobs run where they are started.

    With ``run_jobs`` False a delivery only waits in ``started``, as in a worker that is busy.
    """

    def __init__(self, app: Cogworker, *, run_jobs: bool = True, concurrency: int = 4) -> None:
        self.run_jobs = run_jobs
        self.started: list[Delivery] = []
        self.interrupted: list[Delivery] = []
        self.orders: list[str] = []
        parts = Parts(
            *(app.client, app.jobs, app.timetable),
            for_worker(app.config, {"concurrency": concurrency}),
            start=self._start,
            interrupt=self._interrupt,
            tell=lambda request, by: self.orders.append(request),
            on_worn_out=lambda reason: False,
            watched_beats=0,  # time passes when a test says so
        )
        self.worker, self.performer = parts.worker, parts.performer
        self.dispatcher, self.heartbeat = parts.dispatcher, parts.heartbeat
        self.control, self.guard = parts.control, parts.guard
        self.poller, self.rescuer, self.keeper = parts.poller, parts.rescuer, parts.keeper
        self.hook_thread = parts.hook_thread
        self.ticker = parts.ticker

    def persist(self, step: Callable[[], Any]) -> Any:
        """Do a step as its loop would: again when Redis gave no answer."""
        for _ in range(3):
            try:
                return step()
            except RedisUnavailable:
                continue
        raise AssertionError(f"{step} got no answer three times")

    def beat(self) -> None:
        self.persist(self.heartbeat.tick)

    def obey(self) -> None:
        self.persist(self.control.look)

    def check_keys(self) -> None:
        self.guard.alarm()  # all keys, without drawing lots
        self.persist(self.guard.tick)

    def turn(self) -> None:
        self.persist(self.dispatcher.turn)

    def work_off(self) -> None:
        """Turn until nothing is left to take or to settle."""
        while True:
            started = len(self.started)
            self.turn()
            settled = not (self.dispatcher.held or self.dispatcher.settlements.pending)
            if settled and started == len(self.started):
                return

    def promote(self) -> None:
        self.persist(self.poller.tick)

    def rescue(self) -> None:
        self.persist(self.rescuer.tick)

    def tick(self) -> None:
        """Fire what is due. It must have looked for dead workers before."""
        self.persist(self.ticker.tick)

    def keep(self) -> None:
        """Keep the locks of what is held, and of what has waited for long."""
        self.keeper._round_at = 0.0
        self.persist(self.keeper.tick)

    def leave(self) -> None:
        self.persist(self.rescuer.sign_off)

    def tell_hooks(self) -> None:
        """Have the hooks called that wait, for the last time."""
        self.hook_thread.end(10)

    def perform(self, delivery: Delivery) -> None:
        """Run a delivery that was only started."""
        following: Delivery | None = delivery
        while following is not None:
            move = self.performer.perform(following)
            following = self.dispatcher.slots.finish(following, move)

    def _interrupt(self, delivery: Delivery) -> None:
        delivery.interrupted = True
        self.interrupted.append(delivery)

    def _start(self, delivery: Delivery) -> None:
        self.started.append(delivery)
        if self.run_jobs:
            self.perform(delivery)
