"""Hears of the ends of jobs, for all that wait for one in this process.

One thread reads the stream of ends (``features/status.py``) while anybody waits, so a wait costs
one connection however many there are, and nobody has to ask again and again. It only rings: who
was rung looks for itself. It begins to read at the stream's end, and rings everybody once it has
got there, since an end may have come before.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cogworker._engine import look
from cogworker._redis.runner import ONCE, Runner
from cogworker.client import Client
from cogworker.errors import RedisError

logger = logging.getLogger("cogworker.redis")

LONGEST_READ_S = 5.0
FAILED_PAUSE_S = 1.0

Ring = Callable[[], None]


class Waiters:
    """Those who wait for the ends of jobs, by the jobs' ids."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._forget()
        _all.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._rings: dict[str, list[Ring]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def ringing(self, jid: str, ring: Ring) -> Iterator[None]:
        """Have ``ring`` called, from another thread, when a job has ended or may have.

        Who looks for the job's end only after this was entered misses none.
        """
        with self._lock:
            self._rings.setdefault(jid, []).append(ring)
            if self._thread is None:
                self._thread = self._start()
        try:
            yield
        finally:
            with self._lock:
                rings = self._rings[jid]
                rings.remove(ring)
                if not rings:
                    del self._rings[jid]

    def _start(self) -> threading.Thread | None:
        """Start to listen; None when the system gives no thread: who waits looks now and then."""
        thread = threading.Thread(target=self._listen, name="cogworker-waiters", daemon=True)
        try:
            thread.start()  # it looks at what is written here only when it has the lock
        except RuntimeError as error:
            logger.warning("can't start a thread to hear of the ends of jobs: error=%s", error)
            return None
        return thread

    def _listen(self) -> None:
        runner = Runner(self._client.runner.connector, ONCE)
        try:
            self._read(runner)
        except Exception:
            logger.exception("can't hear of the ends of jobs, those who wait look now and then")
        finally:
            runner.close()
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _read(self, runner: Runner) -> None:
        """Read until nobody waits."""
        # Well before the connection takes a silent server for dead.
        read_s = min(LONGEST_READ_S, self._client.config.redis_timeout / 2)
        position: str | None = None
        while self._anybody():
            try:
                if position is None:
                    position = runner.run(look.last_end(self._client.keys))
                    self._ring(None)
                else:
                    command = look.ends_since(self._client.keys, position, read_s)
                    position, ended = runner.run(command)
                    self._ring(ended)
            except RedisError as error:
                logger.warning("can't hear of the ends of jobs, trying again: error=%s", error)
                time.sleep(FAILED_PAUSE_S)

    def _anybody(self) -> bool:
        with self._lock:
            if not self._rings:
                self._thread = None
            return bool(self._rings)

    def _ring(self, jids: set[str] | None) -> None:
        """Ring those who wait for some jobs; None: all."""
        with self._lock:
            known = self._rings.keys() if jids is None else jids & self._rings.keys()
            rings = [ring for jid in known for ring in self._rings[jid]]
        for ring in rings:
            ring()


_all: weakref.WeakSet[Waiters] = weakref.WeakSet()


def _forget_thread() -> None:
    """A forked child has no such thread, and nobody in it waits."""
    for waiters in _all:
        waiters._forget()


os.register_at_fork(after_in_child=_forget_thread)
