"""One place of a swarm: the worker that is in it, or how long it stays empty."""

import functools
import logging
import math
import signal
from collections.abc import Iterable

from cogworker.swarm.back_off import BackOff
from cogworker.swarm.child import MEANINGS, RETIRED, Child, Work, fork, work_off
from cogworker.swarm.restarts import State
from cogworker.swarm.signals import signal_name

logger = logging.getLogger("cogworker.swarm")


class Seat:
    """A worker's process and its pipes. Times are those of the monotonic clock."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = State.VACANT
        self.due_at = 0.0
        """When a worker is to start here, while it is vacant."""
        self.kill_at = math.inf
        """When its worker, which was told to stop, has had time enough."""
        self.worn = ""
        """Why its worker wants to be replaced, until that is seen to; it may say so early."""
        self.child: Child | None = None
        self._started_at = 0.0
        self._back_off = BackOff()

    @property
    def pid(self) -> int:
        """Its worker's process, or 0."""
        return 0 if self.child is None else self.child.pid

    def start(self, work: Work, parent_files: Iterable[int], now: float) -> None:
        """Fork a worker into a vacant seat; a system that can't is asked again later."""
        try:
            self.child = fork(functools.partial(work_off, work), parent_files)
        except OSError as error:
            self._wait(now, self._back_off.after(0.0) + 1.0)
            logger.error("can't fork a worker: seat=%d error=%s", self.number, error)
            return
        self._started_at = now
        self.state = State.STARTING
        logger.info("worker started: pid=%d seat=%d", self.pid, self.number)

    def start_afresh(self, now: float) -> None:
        """Forget what crashed here, and wait no longer."""
        self._back_off.forget()
        if self.child is None:
            self._wait(now, 0.0)

    def wait_for_restart(self) -> None:
        """Stay vacant until somebody wants a worker here."""
        self._wait(0.0, math.inf)

    def stop(self, kill_at: float) -> None:
        """Tell its worker to stop, within a time."""
        if self.child is not None and self.state is not State.STOPPING:
            self.state = State.STOPPING
            self.kill_at = min(self.kill_at, kill_at)
            self.child.signal(signal.SIGTERM)

    def leave(self, kill_at: float) -> None:
        """Its worker has begun to stop; one that was not told to has the same time for it."""
        if self.state in (State.STARTING, State.READY):
            self.state = State.LEAVING
            self.kill_at = kill_at

    def kill_if_late(self, now: float) -> None:
        """Kill its worker, once, when it has not stopped in time."""
        if self.child is not None and now >= self.kill_at:
            self.kill_at = math.inf
            logger.warning(
                "killing, it did not stop in time: pid=%d seat=%d", self.pid, self.number
            )
            self.child.signal(signal.SIGKILL)

    def ended(self, code: int, now: float) -> float | None:
        """Its worker has ended, with an exit code or, negative, by a signal.

        Answers with the seconds until the next one starts, if nobody had asked it to end.
        """
        lived_s = now - self._started_at
        asked = self.state is State.STOPPING
        logger.log(
            logging.INFO if asked or code in (0, RETIRED) else logging.WARNING,
            "worker ended: pid=%d seat=%d %s lived_s=%.1f",
            self.pid,
            self.number,
            _how(code),
            lived_s,
        )
        self._let_go()
        if asked:
            self._wait(now, 0.0)
            return None
        if code == RETIRED:
            self.state = State.RETIRED
            logger.info("a worker retired, none follows until a restart: seat=%d", self.number)
            return None
        pause_s = self._back_off.after(lived_s)
        self._wait(now, pause_s)
        return pause_s

    def describe(self, now: float) -> str:
        """Its state, for the log."""
        words = f"seat={self.number} state={self.state.value}"
        if self.child is not None:
            return f"{words} pid={self.pid} for_s={now - self._started_at:.0f}"
        if self.state is State.VACANT:
            return f"{words} starts_in_s={max(0.0, self.due_at - now):.0f}"
        return words

    def _wait(self, now: float, pause_s: float) -> None:
        self.state = State.VACANT
        self.due_at = now + pause_s

    def _let_go(self) -> None:
        if self.child is not None:
            self.child.close()
        self.child = None
        self.worn = ""
        self.kill_at = math.inf


def _how(code: int) -> str:
    if code < 0:
        return f"signal={signal_name(-code)}"
    return f"status={code} ({MEANINGS[code]})" if code in MEANINGS else f"status={code}"
