"""Runs ``async`` functions as tasks of one event loop, in a thread of its own."""

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from cogworker._engine.plan import Move
from cogworker._worker.delivery import Delivery
from cogworker._worker.slots import Slots

logger = logging.getLogger("cogworker.worker")

R = TypeVar("R")


class AsyncExecutor:
    """One loop for all ``async`` jobs; a job that blocks it holds up only its like."""

    def __init__(
        self,
        slots: Slots,
        perform: Callable[[Delivery], Coroutine[Any, Any, Move | None]],
        not_run: Callable[[Delivery], Move],
        pass_on: Callable[[Delivery], None],
        close_connections: Callable[[], Awaitable[None]],
    ) -> None:
        self._slots = slots
        self._perform = perform
        self._not_run = not_run
        self._pass_on = pass_on
        self._close_connections = close_connections
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._pid = os.getpid()
        self._inbox: deque[Delivery] = deque()
        self._tasks: dict[bytes, asyncio.Task[Move | None]] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop, once an ``async`` job has run."""
        return self._loop

    def submit(self, delivery: Delivery) -> None:
        """Run a delivery, for which its caller has taken a slot.

        Raises OSError or RuntimeError when no loop can be started.
        """
        with self._lock:
            loop = self._loop or self._start_loop()
            self._inbox.append(delivery)
            if len(self._inbox) == 1:  # each call writes to the loop's pipe: one serves for many
                loop.call_soon_threadsafe(self._drain)

    def interrupt(self, delivery: Delivery) -> None:
        """Cancel the task that runs a delivery."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, delivery.tag)

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine beside the jobs and wait for it; in any thread but the loop's own.

        Raises OSError or RuntimeError when no loop can be started.
        """
        try:
            with self._lock:
                loop = self._loop or self._start_loop()
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except BaseException:
            coroutine.close()
            raise
        return future.result()

    def stop(self, timeout_s: float) -> None:
        """End the loop, if it gets there in time."""
        if self._loop is None or self._thread is None:
            return
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(
            target=self._run_loop, name="cogworker-async", args=(loop,), daemon=True
        )
        thread.start()
        self._loop, self._thread = loop, thread
        return loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._stopping:
            try:
                loop.run_forever()  # a job can stop it, or raise SystemExit in a task of its own
            except BaseException:
                logger.exception("the event loop was ended by a job, and goes on")
        try:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(self._close_connections())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _drain(self) -> None:
        with self._lock:
            deliveries = list(self._inbox)
            self._inbox.clear()
        for delivery in deliveries:
            self._start(delivery)

    def _start(self, delivery: Delivery) -> None:
        assert self._loop is not None  # noqa: S101 - this runs on it
        task = Context().run(
            self._loop.create_task,
            self._perform(delivery),
            name=f"{delivery.envelope.class_} jid={delivery.envelope.jid}",
        )
        self._tasks[delivery.tag] = task
        task.add_done_callback(partial(self._finish, delivery))

    def _cancel(self, tag: bytes) -> None:
        if (task := self._tasks.get(tag)) is not None:
            task.cancel()

    def _finish(self, delivery: Delivery, task: "asyncio.Task[Move | None]") -> None:
        self._tasks.pop(delivery.tag, None)
        if os.getpid() != self._pid:
            os._exit(0)  # the job forked and came back here in the child, which has no slot
        if task.cancelled() or task.exception() is not None:
            # Cancelled before its first step, or, too late, after its last.
            move = delivery.move if delivery.returned else self._not_run(delivery)
        else:
            move = task.result()
        following = self._slots.finish(delivery, move)
        if following is None:
            return
        if following.is_async:
            self._start(following)
        else:
            self._pass_on(following)
