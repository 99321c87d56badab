"""A swarm's parent: it starts workers, hears of them, replaces them, and stops them.

It runs no jobs and has no connection to Redis. One loop waits for whatever comes first: a signal,
a worker's message or end, or the moment at which something is due. Then it does what is due:

1. Kill workers that did not stop in time.
2. Start workers in seats that are vacant and have waited long enough after a crash.
3. Go on with a restart: stop the next worker whose turn it is; see ``restarts`` for when.
4. Tell the service manager; see ``notices``.

So a signal is obeyed at once, whatever is under way. When the parent dies, even by SIGKILL, its
workers' lifelines break, and they stop by themselves.
"""

import json
import logging
import math
import os
import select
import signal
from collections.abc import Callable

from cogworker import clock
from cogworker.swarm.child import UNUSABLE, Body, Child, Work, fork, reap
from cogworker.swarm.notices import Notices
from cogworker.swarm.restarts import Restarts, State
from cogworker.swarm.seat import Seat
from cogworker.swarm.seats import Seats
from cogworker.swarm.signals import Signals

logger = logging.getLogger("cogworker.swarm")

STOP_MARGIN_S = 10.0
"""How much longer than ``shutdown_timeout`` a worker's stop may take before it is killed."""

SAME_STOP_S = 0.5
"""So soon a second TERM is the first one: ``timeout``, for one, signals a child and its group."""


class Supervisor:
    """Keeps ``count`` workers going until it is told to stop.

    ``shutdown_timeout_s`` is as far as the parent knows; its workers may tell it of a longer one.
    ``watch`` runs in a child of its own, each of whose messages restarts the workers. With
    ``preloaded`` they run the application that this process has imported, for ever.
    """

    def __init__(
        self,
        work: Work,
        count: int,
        *,
        shutdown_timeout_s: float,
        phased: bool,
        preloaded: bool = False,
        watch: Body | None = None,
    ) -> None:
        self._work = work
        self._watch = watch
        self._name = "swarm" if watch is None else "reloader"
        self._preloaded = preloaded
        self._watcher: Child | None = None
        self._seats = Seats(count)
        self._shutdown_timeout_s = shutdown_timeout_s
        self._phased = phased
        self._restarts = Restarts()
        self._restarting_since: float | None = None
        self._stopping = False
        self._stop_again_at = 0.0
        self._quiet = False
        self._has_been_ready = False
        self._last_error = ""
        self._is_up = False
        self._status = 0
        self._notices = Notices()
        self._signals = Signals()
        self._meanings: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: self._stop,
            signal.SIGINT: self._stop,
            signal.SIGHUP: self._stop,
            signal.SIGTSTP: self._be_quiet,
            signal.SIGCONT: self._resume,
            signal.SIGTTIN: self._describe,
            signal.SIGUSR1: lambda: logger.warning("SIGUSR1 means nothing, and is ignored"),
            signal.SIGUSR2: self._restart,
        }

    def run(self) -> int:
        """Run until all workers have stopped, or retired; answers with the exit status."""
        with self._signals.taken():
            how = f" phased_restart={self._phased}".lower() if self._watch is None else ""
            logger.info(
                "%s started: pid=%d workers=%d%s", self._name, os.getpid(), len(self._seats), how
            )
            if self._watch is not None:
                self._watcher = fork(self._watch, self._files())
            while True:
                self._act(clock.monotonic())
                if self._is_over():
                    break
                self._wait(clock.monotonic())
        if self._watcher is not None:
            self._watcher.close()
        self._signals.close()
        logger.info("%s ended: pid=%d status=%d", self._name, os.getpid(), self._status)
        return self._status

    # What is due.

    def _act(self, now: float) -> None:
        for seat in self._seats:
            seat.kill_if_late(now)
            if seat.state is State.VACANT and now >= seat.due_at and not self._stopping:
                self._start(seat, now)
        while (number := self._restarts.next(self._seats.states)) is not None:
            logger.info("replacing a worker: pid=%d seat=%d", self._seats[number].pid, number)
            self._seats[number].stop(now + self._bound_s())
        if self._seats.are_ready:
            self._all_ready(now)
        self._notices.tell(now, self._seats.states, is_up=self._is_up, is_stopping=self._stopping)

    def _start(self, seat: Seat, now: float) -> None:
        seat.start(self._work, self._files(), now)
        if self._quiet and seat.child is not None:
            seat.child.signal(signal.SIGTSTP)  # it waits until there is a worker to obey it

    def _all_ready(self, now: float) -> None:
        if not self._is_up:
            self._is_up = True
            logger.info("%s ready: workers=%d", self._name, len(self._seats))
            self._notices.ready()
        if not self._restarts:
            self._end_restart("done", now)

    def _is_over(self) -> bool:
        return not self._seats.children if self._stopping else self._seats.are_retired

    def _wait(self, now: float) -> None:
        poll = select.poll()
        poll.register(self._signals.file, select.POLLIN)
        for child in self._children():
            if child.messages is not None:
                poll.register(child.messages, select.POLLIN)
        start_at = math.inf if self._stopping else self._seats.due_at
        wake_at = min(self._notices.next_at, self._seats.kill_at, start_at)
        wait_ms = None if wake_at == math.inf else 1000 * max(0.0, wake_at - now)
        ready = {file for file, _ in poll.poll(wait_ms)}
        for number in self._signals.take():
            if number in self._meanings:
                self._meanings[number]()
        for seat in self._seats:
            if seat.child is not None and seat.child.messages in ready:
                self._hear(seat, seat.child)
        if self._watcher is not None and self._watcher.messages in ready:
            self._hear_watcher(self._watcher)
        self._reap()

    # What workers say, and their ends.

    def _hear(self, seat: Seat, worker: Child) -> None:
        for word, fact in worker.hear():
            if word == "ready":
                self._has_been_ready = True
                self._last_error = ""
                self._shutdown_timeout_s = max(self._shutdown_timeout_s, float(fact))
                if seat.state is State.STARTING:
                    seat.state = State.READY
            elif word == "stopping":
                seat.leave(clock.monotonic() + self._bound_s())
            elif word == "unusable":
                self._tell_error(seat, json.loads(fact))
            elif word == "worn":
                seat.worn = fact
            if seat.worn and seat.state is State.READY and not self._stopping:
                logger.info("worn out: pid=%d seat=%d reason=%s", seat.pid, seat.number, seat.worn)
                seat.worn = ""
                self._restarts.add(seat.number)

    def _tell_error(self, seat: Seat, error: str) -> None:
        """Log why a worker could not start; again: one line, or none at the end."""
        if error == self._last_error:
            if self._stopping or (self._watch is None and not self._has_been_ready):
                return
            error = error.partition("\n")[0]
        else:
            self._last_error = error
        logger.error("can't start a worker: seat=%d error=%s", seat.number, error)

    def _hear_watcher(self, watcher: Child) -> None:
        for word, fact in watcher.hear():
            logger.info("%s: %s", word, fact)
            self._restart()

    def _reap(self) -> None:
        for pid, code in reap():
            if (seat := self._seats.of(pid)) is not None:
                self._ended(seat, code)
            elif self._watcher is not None and self._watcher.pid == pid:
                self._watcher.close()
                self._watcher = None
                if not self._stopping:
                    logger.error("no changes are noticed any more: watcher=%d status=%d", pid, code)
            else:
                logger.debug("reaped a process that was no worker: pid=%d status=%d", pid, code)

    def _ended(self, seat: Seat, code: int) -> None:
        was_starting = seat.state is State.STARTING
        if seat.child is not None:
            self._hear(seat, seat.child)  # its last words
        pause_s = seat.ended(code, clock.monotonic())
        self._restarts.drop(seat.number)
        if pause_s is None or self._stopping:
            return
        if code == UNUSABLE and self._watcher is not None:
            seat.wait_for_restart()
            logger.info("waiting for a change: seat=%d", seat.number)
            return
        if code == UNUSABLE and not self._has_been_ready:
            self._status = code  # nothing to go back to: as a worker by itself would end
            self._stop()
            return
        logger.warning("restarting a worker: seat=%d in_s=%.0f", seat.number, pause_s)
        if was_starting and self._restarting_since is not None:
            logger.error(
                "the restart waits, a new worker ended before it was ready: seat=%d old_workers=%d",
                seat.number,
                len(self._restarts),
            )

    # What signals mean.

    def _stop(self) -> None:
        now = clock.monotonic()
        if self._stopping:
            if now < self._stop_again_at:
                return
            logger.warning("asked to stop again: not waiting any longer")
            for child in self._seats.children:
                child.hurry()
            return
        self._stopping = True
        self._stop_again_at = now + SAME_STOP_S
        logger.info("%s stopping: timeout_s=%.0f", self._name, self._bound_s())
        self._end_restart("stopped", now)
        self._notices.stopping()
        self._restarts.start_over(())
        self._seats.stop(now + self._bound_s())

    def _be_quiet(self) -> None:
        self._quiet = True
        self._seats.signal(signal.SIGTSTP)

    def _resume(self) -> None:
        self._quiet = False
        self._seats.signal(signal.SIGCONT)

    def _describe(self) -> None:
        now = clock.monotonic()
        for seat in self._seats:
            logger.warning("seat: %s", seat.describe(now))
        self._seats.signal(signal.SIGTTIN)

    def _restart(self) -> None:
        """Replace all workers that run now, and start those that are missing at once."""
        if self._stopping:
            return
        now = clock.monotonic()
        self._end_restart("superseded", now)
        logger.info("restart begins: phased=%s", str(self._phased).lower())
        if self._preloaded:
            logger.warning("the application was preloaded: new workers run the same, old code")
        self._restarting_since = now
        for seat in self._seats:
            seat.start_afresh(now)
        if self._phased:
            running = (State.STARTING, State.READY, State.LEAVING)
            self._restarts.start_over(
                number for number, state in enumerate(self._seats.states) if state in running
            )
        else:
            self._seats.stop(now + self._bound_s())

    def _end_restart(self, how: str, now: float) -> None:
        if self._restarting_since is not None:
            logger.info("restart ends: %s took_s=%.1f", how, now - self._restarting_since)
            self._restarting_since = None

    # What it knows.

    def _bound_s(self) -> float:
        return self._shutdown_timeout_s + STOP_MARGIN_S

    def _children(self) -> list[Child]:
        workers = self._seats.children
        return workers if self._watcher is None else [*workers, self._watcher]

    def _files(self) -> list[int]:
        """What a child has to close."""
        return [*self._signals.files, *(file for child in self._children() for file in child.files)]
