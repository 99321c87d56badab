"""Runs plain functions in threads that are started as they are needed."""

import contextlib
import ctypes
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from cogworker._engine.plan import Move
from cogworker._worker.delivery import Delivery
from cogworker._worker.slots import Slots
from cogworker.errors import JobInterrupted

logger = logging.getLogger("cogworker.worker")


class ThreadExecutor:
    """At most as many threads as there are slots. Threads are daemons: a stuck one ends with us."""

    def __init__(
        self,
        slots: Slots,
        perform: Callable[[Delivery], Move | None],
        not_run: Callable[[Delivery], Move],
        pass_on: Callable[[Delivery], None],
    ) -> None:
        self._slots = slots
        self._perform = perform
        self._not_run = not_run
        self._pass_on = pass_on
        self._waiting: deque[Delivery | None] = deque()
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._load = 0
        self._runs: dict[bytes, int] = {}
        self._pid = os.getpid()

    def submit(self, delivery: Delivery) -> None:
        """Run a delivery, for which its caller has taken a slot.

        Raises RuntimeError when there is no thread and none can be started.
        """
        with self._lock:
            if len(self._threads) <= self._load and len(self._threads) < self._slots.size:
                self._start_thread()
            self._load += 1
        self._put(delivery)

    def interrupt(self, delivery: Delivery) -> None:
        """Raise JobInterrupted in the thread that runs a delivery, as soon as it runs Python."""
        with self._lock:  # a run that ends now must have ended before or after
            thread = self._runs.get(delivery.tag)
            if thread is not None:
                _raise_in(thread, JobInterrupted)

    def stop(self, timeout_s: float) -> None:
        """Let the threads end once they have nothing to run; wait for those that do."""
        for _ in self._threads:
            self._put(None)
        for thread in self._threads:
            if not self._runs:
                thread.join(timeout_s)

    def _start_thread(self) -> None:
        name = f"cogworker-slot-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
            logger.warning("can't start another thread, %d must do", len(self._threads))
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while True:
            try:
                return self._run_deliveries(threading.get_ident())
            except BaseException as error:  # an exception meant for a run that was over already
                self._tokens.put(None)  # it may have come with one
                if not isinstance(error, JobInterrupted):
                    logger.exception("an exception reached an idle slot, and is ignored")

    def _put(self, delivery: Delivery | None) -> None:
        self._waiting.append(delivery)
        self._tokens.put(None)

    def _get(self) -> Delivery | None:
        """Wait for the next delivery; None when there will be no more.

        A token only says that something may be there. An exception that was raised into this thread
        while it waited comes as the wait ends, and what the wait would have answered is lost.
        """
        while True:
            self._tokens.get()
            if self._waiting:
                with contextlib.suppress(IndexError):  # another thread was faster
                    return self._waiting.popleft()

    def _run_deliveries(self, ident: int) -> None:
        while (delivery := self._get()) is not None:
            following: Delivery | None = delivery
            try:
                while following is not None and not following.is_async:
                    following = self._run(following, ident)
                if following is not None:
                    self._pass_on(following)
            finally:
                with self._lock:
                    self._load -= 1

    def _run(self, delivery: Delivery, ident: int) -> Delivery | None:
        self._runs[delivery.tag] = ident
        try:
            move = self._perform(delivery)
            self._end_run(delivery, ident)
        except BaseException:  # it came between the end of the run and the end of _end_run
            move = delivery.move if delivery.returned else self._not_run(delivery)
            self._end_run(delivery, ident)
        if os.getpid() != self._pid:
            os._exit(0)  # the job forked and came back here in the child, which has no slot
        return self._slots.finish(delivery, move)

    def _end_run(self, delivery: Delivery, ident: int) -> None:
        """From here on no interrupt can come: it must not hit what comes after the run."""
        if os.getpid() != self._pid:
            return  # another thread may have held the lock when the job forked
        with self._lock:
            self._runs.pop(delivery.tag, None)
            if delivery.interrupted:
                _raise_in(ident, None)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have a thread raise an exception; None takes back one that it has not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error)
    )
