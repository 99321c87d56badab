"""What a worker is made of, put together and not yet started.

``launcher.py`` brings it to life; tests take its parts by hand.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from cogworker._engine.places import InFlight
from cogworker._engine.timetable import server_time
from cogworker._redis.runner import ONCE, Runner
from cogworker._worker import facts
from cogworker._worker.board import Board
from cogworker._worker.claims import Claims
from cogworker._worker.deaths import Deaths
from cogworker._worker.delivery import Delivery
from cogworker._worker.dispatcher import Dispatcher
from cogworker._worker.endings import Endings
from cogworker._worker.fetch import Fetch
from cogworker._worker.hook_thread import HookThread, RunAsync
from cogworker._worker.loops.base import Loop
from cogworker._worker.loops.control import Control
from cogworker._worker.loops.guard import Guard
from cogworker._worker.loops.heartbeat import Heartbeat
from cogworker._worker.loops.keeper import Keeper
from cogworker._worker.loops.poller import Poller
from cogworker._worker.loops.rescuer import Rescuer
from cogworker._worker.loops.ticker import Ticker
from cogworker._worker.notes import Notes
from cogworker._worker.order import QueueOrder
from cogworker._worker.orphans import Orphans
from cogworker._worker.outage import Outage
from cogworker._worker.performer import Performer
from cogworker._worker.signals import Request
from cogworker._worker.watch import Watch
from cogworker._worker.wear import Wear
from cogworker.client import Client
from cogworker.config import Config
from cogworker.job import Job
from cogworker.timetable import Timetable

logger = logging.getLogger("cogworker.worker")

WATCHED_BEATS = 3
"""For how many beats of its own a worker watches a silent one before it takes it for dead."""


class Parts:
    """The parts of one worker. Raises ConfigError, when a periodic entry can't be had.

    ``start`` begins a delivery, for which there is a slot; ``interrupt`` has one that runs end
    early; ``tell`` passes on what the worker was told from afar, and by whom; ``on_worn_out`` hears
    that it has lived long enough; ``run_async`` waits for an ``async`` hook.
    """

    def __init__(
        self,
        client: Client,
        jobs: Mapping[str, Job[..., Any]],
        timetable: Timetable,
        config: Config,
        *,
        start: Callable[[Delivery], None],
        interrupt: Callable[[Delivery], None],
        tell: Callable[[Request, str], None],
        on_worn_out: Callable[[str], bool],
        watched_beats: int = WATCHED_BEATS,
        run_async: RunAsync = asyncio.run,
    ) -> None:
        self._client = client
        self._config = config
        self.worker = InFlight(facts.new_identity())
        self._fixed_facts = facts.fixed_facts(self.worker.worker, config)
        self.hot, self.side = (Runner(client.runner.connector, ONCE) for _ in range(2))
        self.outage = Outage(logger, lambda: self.guard.alarm())
        self.guard = Guard(
            *(self.outage, self.side, client.keys, self.worker.worker),
            [name for name, _ in config.queues],
            config.orphan_check_interval,
        )
        fetch = Fetch(config, client.runner.connector)
        self.hook_thread = HookThread(run_async)
        self._deaths, self._deaths_of_orphans = (
            Deaths(client.hooks, jobs, self.hook_thread) for _ in range(2)
        )
        self.notes = Notes(client.transitions, self.worker, lambda: self.dispatcher.alarm.ring())
        self.performer = self._make_performer(jobs, fetch)
        wear = Wear(config, on_worn_out)
        self.dispatcher = self._make_dispatcher(start, wear, fetch)
        self.control = Control(
            *(self.outage, self.side, client.keys, self.worker), tell, self.dispatcher.look
        )
        self.heartbeat = Heartbeat(
            *(self.outage, self.side, client.keys, self.worker),
            self._facts,
            config.heartbeat_interval,
            wear,
            Claims(self.side, client.keys, self.worker, self.dispatcher.slots, interrupt).check,
        )
        self.keeper = Keeper(
            *(self.outage, self.side, client.transitions, self.worker, self.dispatcher.deliveries),
            config.heartbeat_interval,
            config.unique_lock_ttl,
        )
        self.poller = Poller(
            *(self.outage, self.side, client.transitions), config.poll_interval, self.guard.alarm
        )
        self.rescuer = self._make_rescuer(watched_beats)
        self.ticker = self._make_ticker(timetable, jobs)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The duties that have a thread each."""
        return (
            *(self.heartbeat, self.control, self.poller, self.rescuer, self.ticker),
            *(self.keeper, self.guard),
        )

    def close(self) -> None:
        """Close the connections."""
        self.hot.close()
        self.side.close()

    def _make_performer(self, jobs: Mapping[str, Job[..., Any]], fetch: Fetch) -> Performer:
        client = self._client
        endings = Endings(
            *(client.transitions, self.worker, fetch),
            *(self._deaths, client.hooks, self.hook_thread),
        )
        return Performer(
            *(jobs, client.transitions, self.worker, endings),
            *(client.middleware.server, self.notes),
        )

    def _make_dispatcher(
        self, start: Callable[[Delivery], None], wear: Wear, fetch: Fetch
    ) -> Dispatcher:
        config = self._config
        return Dispatcher(
            *(self.hot, self._client.transitions, self.worker, QueueOrder(config)),
            *(self.performer, start),
            concurrency=config.concurrency,
            idle_s=config.fetch_idle_max_interval,
            # Each of its calls is sent twice, and waits for a connection and for an answer.
            longest_step_s=30.0 + 4 * config.redis_timeout,
            outage=self.outage,
            wear=wear,
            fetch=fetch,
            notes=self.notes,
            on_damage=self.guard.alarm,
            deaths=self._deaths,
        )

    def _make_rescuer(self, watched_beats: int) -> Rescuer:
        config = self._config
        return Rescuer(
            *(self.outage, self.side, self._client.moves, self.worker),
            threshold_s=config.orphan_threshold,
            interval_s=config.orphan_check_interval,
            orphans=Orphans(
                self._client.transitions, config.max_orphanings, self._deaths_of_orphans
            ),
            watch=Watch(watched_beats * config.heartbeat_interval),
            answered_since=lambda: self.heartbeat.answered_since,
            clockless=lambda: self.side.connector.clockless,
            on_damage=self.guard.alarm,
        )

    def _make_ticker(self, timetable: Timetable, jobs: Mapping[str, Job[..., Any]]) -> Ticker:
        configured = timetable.configured(self._config, jobs)
        board = Board(self.side, self._client, self.worker.worker)
        return Ticker(
            *(self.outage, self.side, self._client, board),
            entries=lambda: [*timetable.declared(), *configured],
            server_time=lambda: self.side.run(server_time()),
            may_fire=lambda: self.rescuer.has_looked,
            on_damage=self.guard.alarm,
        )

    def _facts(self) -> dict[str, str]:
        return facts.presence_facts(
            self._fixed_facts, self.dispatcher.slots.running(), not self.dispatcher.taking
        )
