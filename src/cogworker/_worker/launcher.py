"""A worker's life, in order.

1. Signals become requests, so that a stop is obeyed from the first moment on.
2. The guard is there for keys of the wrong type, which could keep the first beat from succeeding.
3. The first beat succeeds; without Redis the worker waits for it. Only then may it take a job,
   because a worker that holds jobs without having beaten would look dead. What it was told from
   afar is obeyed, too.
4. The heartbeat starts, because what follows may take long: the application's startup hooks. One
   that fails ends the worker.
5. Dispatcher, control, poller, rescuer, ticker and keeper start.
6. The main thread waits for requests: quiet, resume, stacks, stop, retire, hurry.
7. Stop: take nothing more, and tell the quiet hooks; give back what is ready; wait for what runs,
   up to ``shutdown_timeout``; interrupt the rest and give it back; stop the loops; leave no trace;
   call the shutdown hooks, for which there is what is left of ``shutdown_timeout``; end the event
   loop. A request to hurry cuts the waiting short.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cogworker import clock, payload
from cogworker._worker import failure, stacks
from cogworker._worker.delivery import Delivery
from cogworker._worker.executors.aio import AsyncExecutor
from cogworker._worker.executors.threads import ThreadExecutor
from cogworker._worker.hook_thread import HookCall
from cogworker._worker.host import Host
from cogworker._worker.parts import Parts
from cogworker._worker.signals import Request, Requests
from cogworker.client import Client
from cogworker.config import Config, redacted
from cogworker.errors import RedisError, RedisUnavailable, StartupFailed
from cogworker.hooks import Hook
from cogworker.job import Job
from cogworker.middleware import name_of
from cogworker.timetable import Timetable

logger = logging.getLogger("cogworker.worker")

Ending = Literal["stop", "retire"]
"""Why a worker ended: it was stopped, or told from afar to go and not be replaced."""

FIRST_BEAT_PAUSE_S = 1.0
INTERRUPTED_GRACE_S = 1.0
"""How long interrupted jobs may take to unwind before they are given back anyway."""
LAST_CALLS_S = 5.0
"""How long the last calls may take when Redis does not answer."""
LAST_TRY_S = 1.0
"""The same when it has not answered for a while."""
LEAST_FOR_HOOKS_S = 2.0
"""How long hooks may take at a stop that has used up its time."""
STARTUP_LOOK_S = 0.05
"""How often a worker whose startup hook takes long looks whether it is to stop."""


class Launcher:
    """Runs one worker in this process. Raises ConfigError.

    ``is_ready`` tells whether it takes jobs; ``is_decided`` is set as soon as it does, or is over.
    """

    def __init__(
        self,
        client: Client,
        jobs: Mapping[str, Job[..., Any]],
        timetable: Timetable,
        config: Config,
        host: Host,
    ) -> None:
        self._config = config
        self._jobs = jobs
        self._host = host
        self._pulse_at = 0.0
        self._quiet = False
        self._intake_paused = False
        self._stopping = False
        self._hurried = False
        self._retires = False
        self._dispatching = False
        self._has_started_up = False
        self._hooks = client.hooks
        self.is_ready = False
        self.is_decided = threading.Event()
        self.requests = Requests()
        self._parts = parts = Parts(
            *(client, jobs, timetable, config),
            start=self._start_delivery,
            interrupt=self._interrupt_delivery,
            tell=self._tell,
            on_worn_out=self._wear_out,
            run_async=lambda coroutine: self._aio.run(coroutine),
        )
        self.identity = parts.worker.worker
        self.dispatcher = parts.dispatcher
        slots, performer = parts.dispatcher.slots, parts.performer
        self._threads = ThreadExecutor(
            slots, performer.perform, performer.not_run, self._start_delivery
        )
        self._aio = AsyncExecutor(
            *(slots, performer.perform_async, performer.not_run, self._start_delivery),
            client.aclose,
        )

    def run(self) -> Ending:
        """Live, until a request to stop has been carried out. Signals are taken by the caller."""
        try:
            self._parts.guard.start(self._config.orphan_check_interval)
            if self._beat_first() and self._start_up():
                self._start()
                self._live()
        except BaseException:
            self._hurried = True
            logger.exception("the worker can't go on, and stops: worker=%s", self.identity)
            raise
        finally:
            self._stop()
            self.is_ready = False
            self.is_decided.set()
        return "retire" if self._retires else "stop"

    def _live(self) -> None:
        while not self._obey(self.requests.get(self._pulse())):
            pass

    def _pulse(self) -> float | None:
        """Tell the host that all is well, as often as it wants; answers with the time until then.

        Duties that do not go on, or a main thread that a job in C keeps from running, are told
        by silence.
        """
        every_s = self._host.pulse_s
        if every_s is None:
            return None
        now = clock.monotonic()
        if now >= self._pulse_at and self.dispatcher.goes_on and self._parts.heartbeat.goes_on:
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
        elif request == "retire":
            self._retires = True
        elif request == "hurry":
            self._hurried = True
        self._take_or_not()
        return request in ("stop", "retire", "hurry")

    def _obey_all(self, wait_s: float) -> bool:
        """Carry out what is asked; answers whether one of it asks to stop."""
        while (request := self.requests.get(wait_s)) is not None:
            if self._obey(request):
                return True
            wait_s = 0.0
        return False

    def _take_or_not(self) -> None:
        self._parts.ticker.pause(self._quiet or self._stopping)
        take = not (self._quiet or self._intake_paused or self._stopping)
        if take == self.dispatcher.taking:
            return
        self._parts.poller.paused = not take
        if take:
            self.dispatcher.resume()
            logger.info("resumed: worker=%s", self.identity)
        else:
            self.dispatcher.quiet()
            if not self._stopping:
                logger.info("quiet: takes no more jobs: worker=%s", self.identity)
            if self._has_started_up:
                self._call_hooks(self._hooks.quiet, "quiet")
        self._parts.heartbeat.poke()

    def _tell(self, request: Request, by: str) -> None:
        who = f" by={by!a}" if by else ""
        logger.info("told from afar: %s%s worker=%s", request, who, self.identity)
        self.requests.put(request, f"told from afar{who}")

    def _log_stacks(self) -> None:
        try:
            logger.warning("stacks:\n%s", stacks.describe_stacks(self._aio.loop))
        except Exception:  # a frame's source comes from the application's own loaders
            logger.exception("can't tell the stacks")

    def _beat_first(self) -> bool:
        """Beat once and look for orders; answers False when a request to stop came first."""
        outage = self._parts.outage
        while True:
            try:
                self._parts.heartbeat.tick()
                self._parts.control.look()  # a worker that starts obeys what is stored
            except RedisError as error:
                outage.failed("first beat", error)
                if self._obey_all(FIRST_BEAT_PAUSE_S):
                    return False
            else:
                outage.worked("first beat")
                return not self._obey_all(0.0)

    def _start_up(self) -> bool:
        """Call the startup hooks; answers False when a request to stop came first."""
        self._parts.heartbeat.start(self._config.heartbeat_interval)
        for hook in self._hooks.startup:
            [call] = self._call_hooks([hook], "startup")
            while not call.over.wait(STARTUP_LOOK_S):
                if self._obey_all(0.0):
                    return False
            if call.error is not None:
                problem = f"{failure.class_of(call.error)}: {failure.message_of(call.error)}"
                raise StartupFailed(name_of(hook), problem) from call.error
        self._has_started_up = True
        return not self._obey_all(0.0)

    def _call_hooks(self, hooks: Sequence[Hook], event: str) -> list[HookCall]:
        return [self._parts.hook_thread.call(hook, about=f"event={event}") for hook in hooks]

    def _start(self) -> None:
        parts = self._parts
        self._announce()
        self._host.ready()  # before a job can wear it out
        threading.Thread(
            target=self.dispatcher.run, name="cogworker-dispatcher", daemon=True
        ).start()
        self._dispatching = True
        parts.guard.poke()
        for loop in (parts.control, parts.poller, parts.rescuer, parts.ticker, parts.keeper):
            loop.start()
        self.is_ready = True
        self.is_decided.set()

    def _announce(self) -> None:
        logger.info(
            "ready: worker=%s concurrency=%d queues=%s redis=%s%s",
            self.identity,
            self._config.concurrency,
            ",".join(f"{name}*{weight}" for name, weight in self._config.queues),
            redacted(self._config.redis_url),
            "" if self.dispatcher.taking else " quiet=true",
        )
        if not self._jobs:
            logger.info("no job is declared here; import the modules that declare them")
        served = {name for name, _ in self._config.queues}
        for queue in sorted({job.queue for job in self._jobs.values()} - served):
            logger.info("jobs are declared for a queue that this worker does not take: %s", queue)

    # The end.

    def _stop(self) -> None:
        hooks_until = clock.monotonic() + self._config.shutdown_timeout
        self._stopping = True
        self._host.stopping()
        self._take_or_not()
        settled = self._stop_dispatching() if self._dispatching else True
        for loop in self._parts.loops:
            loop.stop(0.0)
        deadline = clock.monotonic() + LAST_CALLS_S
        for loop in self._parts.loops:
            loop.stop(max(0.0, deadline - clock.monotonic()))
        if not self._dispatching:
            self.dispatcher.alarm.close()
        if self._parts.heartbeat.has_beaten:
            self._sign_off(settled)
        self._end_hooks(0.0 if self._hurried else hooks_until - clock.monotonic())
        self._aio.stop(INTERRUPTED_GRACE_S)
        self._parts.close()
        logger.info("stopped: worker=%s", self.identity)

    def _stop_dispatching(self) -> bool:
        """Drain, interrupt and give back; answers whether the dispatcher came to its end."""
        timeout_s = self._config.shutdown_timeout
        logger.info(
            "stopping: worker=%s jobs=%d timeout_s=%.0f reason=%s",
            self.identity,
            self.dispatcher.held,
            timeout_s,
            self.requests.why or "an error",
        )
        self._parts.poller.stop(0.0)
        self._parts.rescuer.stop(0.0)
        self._parts.ticker.stop(0.0)
        if self._hurried or not self._drain(timeout_s):
            self._interrupt()
        for loop in self._parts.loops:
            loop.stop(0.0)
        away = self._parts.outage.is_on("dispatcher")
        self.dispatcher.abandon(LAST_TRY_S if away else LAST_CALLS_S)
        settled = self.dispatcher.wait_until_ended(LAST_CALLS_S + self._config.redis_timeout)
        self._threads.stop(INTERRUPTED_GRACE_S)
        return settled

    def _end_hooks(self, left_s: float) -> None:
        if self._has_started_up:
            self._call_hooks(self._hooks.shutdown, "shutdown")
        self._parts.hook_thread.end(max(LEAST_FOR_HOOKS_S, left_s))

    def _drain(self, timeout_s: float) -> bool:
        deadline = clock.monotonic() + timeout_s
        while not self.dispatcher.drained.is_set():
            left = deadline - clock.monotonic()
            if left <= 0:
                return False
            if self.dispatcher.drained.wait(min(left, 0.1)):
                break
            self._pulse()
            self._obey_all(0.0)
            if self._hurried:
                logger.warning("asked to stop again: not waiting any longer")
                return False
        return True

    def _interrupt(self) -> None:
        running = self.dispatcher.slots.running()
        if not running:
            return
        logger.warning("interrupting: jobs=%d worker=%s", len(running), self.identity)
        for delivery in running:
            self._interrupt_delivery(delivery)
        self.dispatcher.drained.wait(INTERRUPTED_GRACE_S)

    def _interrupt_delivery(self, delivery: Delivery) -> None:
        delivery.interrupted = True
        (self._aio if delivery.is_async else self._threads).interrupt(delivery)

    def _sign_off(self, settled: bool) -> None:
        """Leave no trace; a server that has just not answered is not asked again."""
        try:
            if not settled:
                raise RedisUnavailable("the last call got no answer")
            self.dispatcher.settle_rest()
            self._parts.rescuer.sign_off()
        except Exception as error:
            logger.error(
                "can't sign off, this worker's jobs will be rescued: worker=%s error=%s",
                self.identity,
                error,
            )

    def _wear_out(self, reason: str) -> bool:
        ends = self._host.worn_out(reason)
        if ends:
            self.requests.put("stop", f"worn out: {reason}")
        return ends

    def _start_delivery(self, delivery: Delivery) -> None:
        try:
            (self._aio if delivery.is_async else self._threads).submit(delivery)
        except (OSError, RuntimeError):  # no thread, or no file for an event loop, can be had
            logger.exception("can't start a job: %s", payload.label(delivery.envelope))
            self.dispatcher.return_unstarted(delivery)
