"""Runs plain functions in threads that are started as they are needed."""

import contextlib
import ctypes
import threading
from collections.abc import Callable
from queue import SimpleQueue

from cogworker._engine.plan import Move
from cogworker._worker.delivery import Delivery
from cogworker._worker.slots import Slots
from cogworker.errors import JobInterrupted


class ThreadExecutor:
    """At most as many threads as there are slots. Threads are daemons: a stuck one ends with us."""

    def __init__(
        self,
        slots: Slots,
        perform: Callable[[Delivery], Move | None],
        pass_on: Callable[[Delivery], None],
    ) -> None:
        self._slots = slots
        self._perform = perform
        self._pass_on = pass_on
        self._queue: SimpleQueue[Delivery | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._runs: dict[bytes, int] = {}

    def submit(self, delivery: Delivery) -> None:
        """Run a delivery, for which its caller has taken a slot."""
        if len(self._threads) < self._slots.size:
            self._start_thread()
        self._queue.put(delivery)

    def interrupt(self, delivery: Delivery) -> None:
        """Raise JobInterrupted in the thread that runs a delivery, as soon as it runs Python."""
        thread = self._runs.get(delivery.tag)
        if thread is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread), ctypes.py_object(JobInterrupted)
            )

    def stop(self) -> None:
        """Let the threads end once they have nothing to run."""
        for _ in self._threads:
            self._queue.put(None)

    def _start_thread(self) -> None:
        name = f"cogworker-slot-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        # An interrupt may arrive just after the run that it was meant for.
        with contextlib.suppress(JobInterrupted):
            self._run_jobs(threading.get_ident())

    def _run_jobs(self, ident: int) -> None:
        while (delivery := self._queue.get()) is not None:
            following: Delivery | None = delivery
            while following is not None:
                delivery = following
                if delivery.is_async:
                    self._pass_on(delivery)
                    break
                self._runs[delivery.tag] = ident
                try:
                    move = self._perform(delivery)
                finally:
                    del self._runs[delivery.tag]
                following = self._slots.finish(delivery, move)
