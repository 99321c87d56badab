"""Runs ``async`` functions as tasks of one event loop, in a thread of its own."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context

from cogworker._engine.plan import Move
from cogworker._worker.delivery import Delivery
from cogworker._worker.slots import Slots


class AsyncExecutor:
    """One loop for all ``async`` jobs; a job that blocks it holds up only its like."""

    def __init__(
        self,
        slots: Slots,
        perform: Callable[[Delivery], Awaitable[Move | None]],
        pass_on: Callable[[Delivery], None],
        close_connections: Callable[[], Awaitable[None]],
    ) -> None:
        self._slots = slots
        self._perform = perform
        self._pass_on = pass_on
        self._close_connections = close_connections
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inbox: deque[Delivery] = deque()
        self._drain_is_due = False
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop, once an ``async`` job has run."""
        return self._loop

    def submit(self, delivery: Delivery) -> None:
        """Run a delivery, for which its caller has taken a slot."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run_loop, name="cogworker-async", args=(self._loop,), daemon=True
            )
            self._thread.start()
        self._inbox.append(delivery)
        if not self._drain_is_due:  # each call writes to the loop's pipe: one serves for many
            self._drain_is_due = True
            self._loop.call_soon_threadsafe(self._drain)

    def interrupt(self, delivery: Delivery) -> None:
        """Cancel the task that runs a delivery."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, delivery.tag)

    def stop(self, timeout_s: float) -> None:
        """End the loop, if it gets there in time."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        try:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(self._close_connections())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _drain(self) -> None:
        self._drain_is_due = False
        while self._inbox:
            self._start(self._inbox.popleft())

    def _start(self, delivery: Delivery) -> None:
        assert self._loop is not None  # noqa: S101 - this runs on it
        task = self._loop.create_task(
            self._run(delivery),
            name=f"{delivery.envelope.class_} jid={delivery.envelope.jid}",
            context=Context(),
        )
        self._tasks[delivery.tag] = task

    def _cancel(self, tag: bytes) -> None:
        if (task := self._tasks.get(tag)) is not None:
            task.cancel()

    async def _run(self, delivery: Delivery) -> None:
        try:
            move = await self._perform(delivery)
        finally:
            self._tasks.pop(delivery.tag, None)
        following = self._slots.finish(delivery, move)
        if following is None:
            return
        if following.is_async:
            self._start(following)
        else:
            self._pass_on(following)
