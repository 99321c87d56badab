"""A worker without threads: every step is taken by the test, on the real engine."""

import logging
from collections.abc import Callable
from typing import Any

from cogworker import Cogworker
from cogworker._engine.places import InFlight
from cogworker._redis.runner import ONCE, Runner
from cogworker._worker.delivery import Delivery
from cogworker._worker.dispatcher import Dispatcher
from cogworker._worker.facts import new_identity
from cogworker._worker.fetch import Fetch
from cogworker._worker.loops.control import Control
from cogworker._worker.loops.guard import Guard
from cogworker._worker.loops.heartbeat import Heartbeat
from cogworker._worker.loops.poller import Poller
from cogworker._worker.loops.rescuer import Rescuer
from cogworker._worker.order import QueueOrder
from cogworker._worker.orphans import Orphans
from cogworker._worker.outage import Outage
from cogworker._worker.performer import Performer
from cogworker._worker.watch import Watch
from cogworker._worker.wear import Wear
from cogworker.errors import RedisUnavailable


class InlineWorker:
    """The parts of ``Launcher``, with jobs run where they are started.

    With ``run_jobs`` False a delivery only waits in ``started``, as in a worker that is busy.
    """

    def __init__(self, app: Cogworker, *, run_jobs: bool = True, concurrency: int = 4) -> None:
        config, client = app.config, app.client
        outage = Outage(logging.getLogger("cogworker.worker"))
        self.worker = InFlight(new_identity())
        self.run_jobs = run_jobs
        self.started: list[Delivery] = []
        wear = Wear(config, lambda reason: None)
        runner = Runner(client.runner.connector, ONCE)
        fetch = Fetch(config, client.runner.connector)
        self.performer = Performer(app.jobs, client.moves, self.worker, fetch)
        self.dispatcher = Dispatcher(
            runner,
            client.moves,
            self.worker,
            QueueOrder(config),
            self.performer,
            self._start,
            concurrency=concurrency,
            idle_s=config.fetch_idle_max_interval,
            outage=outage,
            wear=wear,
            fetch=fetch,
            on_damage=lambda: None,
        )
        self.heartbeat = Heartbeat(
            outage,
            runner,
            client.keys,
            self.worker,
            lambda: {"busy": "0"},
            config.heartbeat_interval,
            wear,
        )
        self.poller = Poller(outage, runner, client.moves, config.poll_interval, lambda: None)
        self.rescuer = Rescuer(
            outage,
            runner,
            client.moves,
            self.worker,
            threshold_s=config.orphan_threshold,
            interval_s=config.orphan_check_interval,
            orphans=Orphans(client.moves, config.max_orphanings),
            watch=Watch(0.0),  # time passes when a test says so
            answered_since=lambda: 0.0,
        )

        self.orders: list[str] = []
        self._outage, self._runner, self._keys = outage, runner, client.keys
        self.guard = Guard(outage, runner, client.keys, ["default"], 60.0)

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
        control = Control(
            *(self._outage, self._runner, self._keys, self.worker),
            lambda request, by: self.orders.append(request),
            lambda: None,
        )
        self.persist(control.look)
        control.stop(0.0)

    def check_keys(self) -> None:
        self.persist(self.guard.tick)

    def turn(self) -> None:
        self.persist(self.dispatcher.turn)

    def work_off(self) -> None:
        """Turn until nothing is left to take or to settle."""
        while True:
            started = len(self.started)
            self.turn()
            if started == len(self.started) and not self.dispatcher.held:
                return

    def promote(self) -> None:
        self.persist(self.poller.tick)

    def rescue(self) -> None:
        self.persist(self.rescuer.tick)

    def leave(self) -> None:
        self.persist(self.rescuer.leave)

    def perform(self, delivery: Delivery) -> None:
        """Run a delivery that was only started."""
        following: Delivery | None = delivery
        while following is not None:
            move = self.performer.perform(following)
            following = self.dispatcher.slots.finish(following, move)

    def _start(self, delivery: Delivery) -> None:
        self.started.append(delivery)
        if self.run_jobs:
            self.perform(delivery)
