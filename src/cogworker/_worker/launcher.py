"""A worker's life, in order.

1. Signals become requests, so that a stop is obeyed from the first moment on.
2. The first beat succeeds; without Redis the worker waits for it. Only then may it take a job,
   because a worker that holds jobs without having beaten would look dead.
3. Heartbeat, dispatcher, poller and rescuer start.
4. The main thread waits for requests: quiet, resume, stacks, stop, retire.
5. Stop: take nothing more; give back what is ready; wait for what runs, up to
   ``shutdown_timeout``; interrupt the rest and give it back; stop the loops; leave no trace.
   A second stop request cuts the waiting short.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Any

from cogworker import clock, payload
from cogworker._engine.places import InFlight
from cogworker._redis.runner import ONCE, Runner
from cogworker._worker import facts, stacks
from cogworker._worker.delivery import Delivery
from cogworker._worker.dispatcher import Dispatcher
from cogworker._worker.executors.aio import AsyncExecutor
from cogworker._worker.executors.threads import ThreadExecutor
from cogworker._worker.fetch import Fetch
from cogworker._worker.host import Host
from cogworker._worker.loops.control import Control
from cogworker._worker.loops.guard import Guard
from cogworker._worker.loops.heartbeat import Heartbeat
from cogworker._worker.loops.poller import Poller
from cogworker._worker.loops.rescuer import Rescuer
from cogworker._worker.order import QueueOrder
from cogworker._worker.orphans import Orphans
from cogworker._worker.outage import Outage
from cogworker._worker.performer import Performer
from cogworker._worker.signals import Request, Requests
from cogworker._worker.watch import Watch
from cogworker._worker.wear import Wear
from cogworker.client import Client
from cogworker.config import Config, redacted
from cogworker.errors import RedisError
from cogworker.job import Job

logger = logging.getLogger("cogworker.worker")

FIRST_BEAT_PAUSE_S = 1.0
WATCHED_BEATS = 3
"""For how many beats of its own a worker watches a silent one before it takes it for dead."""
INTERRUPTED_GRACE_S = 1.0
"""How long interrupted jobs may take to unwind before they are given back anyway."""
LAST_CALLS_S = 5.0
"""How long the last calls may take when Redis does not answer."""


class Launcher:
    """Runs one worker in this process."""

    def __init__(
        self, client: Client, jobs: Mapping[str, Job[..., Any]], config: Config, host: Host
    ) -> None:
        self._config = config
        self._host = host
        self._pulse_at = 0.0
        self._quiet = False
        self._intake_paused = False
        self.is_ready = False
        self.settled_in = threading.Event()
        self._jobs = jobs
        self.identity = facts.new_identity()
        self._worker = InFlight(self.identity)
        self._fixed = facts.fixed_facts(self.identity, config)
        self.requests = Requests()
        outage = Outage(logger, lambda: self._guard.alarm())
        self._outage = outage
        connector = client.runner.connector
        side = Runner(connector, ONCE)
        self._guard = Guard(
            *(outage, side, client.keys),
            [name for name, _ in config.queues],
            config.orphan_check_interval,
        )
        fetch = Fetch(config, connector)
        self._performer = Performer(jobs, client.moves, self._worker, fetch)
        hot = Runner(connector, ONCE)
        wear = Wear(config, self._wear_out)
        self.dispatcher = Dispatcher(
            hot,
            client.moves,
            self._worker,
            QueueOrder(config),
            self._performer,
            self._start_delivery,
            concurrency=config.concurrency,
            idle_s=config.fetch_idle_max_interval,
            outage=outage,
            wear=wear,
            fetch=fetch,
            on_damage=self._guard.alarm,
        )
        slots = self.dispatcher.slots
        self._threads = ThreadExecutor(
            slots, self._performer.perform, self._performer.not_run, self._start_delivery
        )
        self._aio = AsyncExecutor(
            slots,
            self._performer.perform_async,
            self._performer.not_run,
            self._start_delivery,
            client.aclose,
        )
        self._runners = (hot, side)
        self._heartbeat = Heartbeat(
            outage, side, client.keys, self._worker, self._facts, config.heartbeat_interval, wear
        )
        self._control = Control(
            outage, side, client.keys, self._worker, self._pass_on, self.dispatcher.look
        )
        self._poller = Poller(outage, side, client.moves, config.poll_interval, self._guard.alarm)
        self._rescuer = Rescuer(
            outage,
            side,
            client.moves,
            self._worker,
            threshold_s=config.orphan_threshold,
            interval_s=config.orphan_check_interval,
            orphans=Orphans(client.moves, config.max_orphanings),
            watch=Watch(WATCHED_BEATS * config.heartbeat_interval),
            answered_since=lambda: self._heartbeat.answered_since,
        )

    def run(self) -> Request:
        """Live, until a stop request has been carried out; answers with it.

        Signals are taken by the caller.
        """
        self._guard.start(self._config.orphan_check_interval)
        ending = self._beat_first()
        if ending is not None:
            self._guard.stop(0.0)
            self._control.stop(0.0)
            self.dispatcher.alarm.close()
            if self._heartbeat.answered_since is not None:
                self._leave()
            logger.info("stopped before it could begin: worker=%s", self.identity)
        else:
            self._start()
            ending = self._live()
            self._stop()
        self.is_ready = False
        self.settled_in.set()
        for runner in self._runners:
            runner.close()
        return ending

    def _live(self) -> Request:
        while True:
            request = self.requests.get(self._pulse())
            if self._obey(request):
                assert request is not None  # noqa: S101 - it was obeyed
                return request

    def _pulse(self) -> float | None:
        """Tell the host that all is well, as often as it wants; answers with the time until then.

        Duties that do not go on, or a main thread that a job in C keeps from running, are told
        by silence.
        """
        every_s = self._host.pulse_s
        if every_s is None:
            return None
        now = clock.monotonic()
        if now >= self._pulse_at and self.dispatcher.goes_on and self._heartbeat.goes_on:
            self._pulse_at = now + every_s
            self._host.well()
        return min(every_s, max(0.01, self._pulse_at - now))

    def _obey(self, request: Request | None) -> bool:
        """Carry out a request; answers whether it asks to stop, which the caller carries out."""
        if request == "stacks":
            self._log_stacks()
        elif request in ("quiet", "resume"):
            self._quiet = request == "quiet"
        elif request in ("pause intake", "resume intake"):
            self._intake_paused = request == "pause intake"
        self._take_or_not()
        return request in ("stop", "retire")

    def _obey_all(self, wait_s: float) -> Request | None:
        """Carry out what is asked; answers with a request to stop, if there is one."""
        while (request := self.requests.get(wait_s)) is not None:
            if self._obey(request):
                return request
            wait_s = 0.0
        return None

    def _take_or_not(self) -> None:
        take = not self._quiet and not self._intake_paused
        if take == self.dispatcher.taking:
            return
        self._poller.paused = not take
        if take:
            self.dispatcher.resume()
            logger.info("resumed: worker=%s", self.identity)
        else:
            self.dispatcher.quiet()
            logger.info("quiet: takes no more jobs: worker=%s", self.identity)
        self._heartbeat.poke()

    def _pass_on(self, request: Request, by: str) -> None:
        logger.info("told from afar: %s by=%s worker=%s", request, ascii(by), self.identity)
        self.requests.put(request)

    def _log_stacks(self) -> None:
        try:
            logger.warning("stacks:\n%s", stacks.describe_stacks(self._aio.loop))
        except Exception:  # a frame's source comes from the application's own loaders
            logger.exception("can't tell the stacks")

    def _beat_first(self) -> Request | None:
        """Beat once; answers with a request to stop, when one came first."""
        while True:
            try:
                self._heartbeat.tick()
                self._control.look()  # a worker that starts obeys what is stored
            except RedisError as error:
                self._outage.failed("first beat", error)
            else:
                self._outage.worked("first beat")
                return self._obey_all(0.0)
            if (request := self._obey_all(FIRST_BEAT_PAUSE_S)) is not None:
                return request

    def _start(self) -> None:
        self._heartbeat.start(self._config.heartbeat_interval)
        threading.Thread(
            target=self.dispatcher.run, name="cogworker-dispatcher", daemon=True
        ).start()
        self._guard.poke()
        self._control.start()
        self._poller.start()
        self._rescuer.start()
        logger.info(
            "ready: worker=%s concurrency=%d queues=%s redis=%s",
            self.identity,
            self._config.concurrency,
            ",".join(f"{name}*{weight}" for name, weight in self._config.queues),
            redacted(self._config.redis_url),
        )
        served = {name for name, _ in self._config.queues}
        for queue in sorted({job.queue for job in self._jobs.values()} - served):
            logger.info("jobs are declared for a queue that this worker does not take: %s", queue)
        self.is_ready = True
        self.settled_in.set()
        self._host.ready()

    def _stop(self) -> None:
        timeout_s = self._config.shutdown_timeout
        logger.info("stopping: worker=%s timeout_s=%.0f", self.identity, timeout_s)
        self._host.stopping()
        self._quiet = True
        self._take_or_not()
        self._poller.stop(0.0)
        self._rescuer.stop(0.0)
        if not self._drain(timeout_s):
            self._interrupt()
        self.dispatcher.abandon(LAST_CALLS_S)
        self.dispatcher.wait_until_ended(LAST_CALLS_S + self._config.redis_timeout)
        self._threads.stop(INTERRUPTED_GRACE_S)
        self._aio.stop(INTERRUPTED_GRACE_S)
        for loop in (self._heartbeat, self._control, self._poller, self._rescuer, self._guard):
            loop.stop(LAST_CALLS_S)
        self._leave()
        logger.info("stopped: worker=%s", self.identity)

    def _drain(self, timeout_s: float) -> bool:
        deadline = clock.monotonic() + timeout_s
        while not self.dispatcher.drained.is_set():
            left = deadline - clock.monotonic()
            if left <= 0:
                return False
            if self.dispatcher.drained.wait(min(left, 0.1)):
                break
            slots = self.dispatcher.slots
            if slots.busy == slots.ready == 0 and self._outage.is_on("dispatcher"):
                break  # nothing runs any more, and nothing can be settled
            self._pulse()
            request = self.requests.get(0.0)
            if request == "stacks":
                self._obey(request)
            elif request in ("stop", "retire"):
                logger.warning("asked to stop again: not waiting any longer")
                return False
        return True

    def _interrupt(self) -> None:
        running = self.dispatcher.slots.running()
        if not running:
            return
        logger.warning("interrupting: jobs=%d worker=%s", len(running), self.identity)
        for delivery in running:
            delivery.interrupted = True
            (self._aio if delivery.is_async else self._threads).interrupt(delivery)
        self.dispatcher.drained.wait(INTERRUPTED_GRACE_S)

    def _leave(self) -> None:
        try:
            self.dispatcher.settle_rest()
            self._rescuer.leave()
        except Exception as error:
            logger.error(
                "can't sign off, this worker's jobs will be rescued: worker=%s error=%s",
                self.identity,
                error,
            )

    def _wear_out(self, reason: str) -> None:
        if self._host.worn_out(reason):
            self.requests.put("stop")

    def _facts(self) -> dict[str, str]:
        return facts.presence_facts(
            self._fixed, self.dispatcher.slots.busy, not self.dispatcher.taking
        )

    def _start_delivery(self, delivery: Delivery) -> None:
        try:
            (self._aio if delivery.is_async else self._threads).submit(delivery)
        except (OSError, RuntimeError):  # no thread, or no file for an event loop, can be had
            logger.exception("can't start a job: %s", payload.label(delivery.envelope))
            self.dispatcher.return_unstarted(delivery)
