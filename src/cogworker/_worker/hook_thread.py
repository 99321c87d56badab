"""Calls an application's hooks, in a thread of its own: they must not hold up the worker.

One after another, in the order in which things happened; ``async`` ones on the event loop of the
worker's ``async`` jobs. Whatever a hook raises is logged and changes nothing. The thread starts
with the first call, and at the worker's end it gets some time for what still waits.
"""

import contextlib
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from cogworker import clock
from cogworker.middleware import name_of

logger = logging.getLogger("cogworker.worker")

MOST_WAITING = 10_000
"""So many calls wait while a hook hangs; what comes after them is logged and left out."""

RunAsync = Callable[[Coroutine[Any, Any, BaseException | None]], BaseException | None]


class HookCall:
    """One call of a hook; ``error`` is what it raised, once it is ``over``."""

    def __init__(
        self, hook: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]], about: str
    ) -> None:
        self._hook = hook
        self._arguments = arguments
        self._about = about
        self.error: BaseException | None = None
        self.over = threading.Event()

    def __str__(self) -> str:
        return f"hook={name_of(self._hook)} {self._about}"

    def carry_out(self, run_async: RunAsync) -> None:
        """Call the hook, and wait for it."""
        try:
            answer = self._hook(*self._arguments())
            if inspect.isawaitable(answer):
                self.error = run_async(_awaited(answer))
        except BaseException as error:  # the application's own code: it may raise SystemExit
            self.error = error
        self.over.set()
        if self.error is not None:
            _log("a hook failed: %s", self, exc_info=self.error)


class HookThread:
    """Calls hooks for one worker. ``run_async`` runs a coroutine to its end and answers with it."""

    def __init__(self, run_async: RunAsync) -> None:
        self._run_async = run_async
        self._changed = threading.Condition()
        self._waiting: deque[HookCall] = deque()
        self._current: HookCall | None = None
        self._thread: threading.Thread | None = None
        self._ended = False

    def call(
        self,
        hook: Callable[..., Any],
        arguments: Callable[[], tuple[Any, ...]] = tuple,
        about: str = "",
    ) -> HookCall:
        """Have a hook called soon. ``arguments`` makes its arguments, then; ``about`` is logged."""
        call = HookCall(hook, arguments, about)
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                _log("too many hooks wait, left out: %s", call)
                call.over.set()
                return call
            self._waiting.append(call)
            self._start()
            self._changed.notify_all()
        return call

    def end(self, timeout_s: float) -> None:
        """Give what still waits some time, then call nothing more."""
        deadline = clock.monotonic() + timeout_s
        with self._changed:
            while self._waiting or self._current is not None:
                left = deadline - clock.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._ended = True
            if self._waiting or self._current is not None:
                _log(
                    "hooks take too long for a stop: running=(%s) not_called=%d",
                    self._current,
                    len(self._waiting),
                )
            self._waiting.clear()
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._work, name="cogworker-hooks", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the next call tries again
            _log("can't start a thread for hooks", exc_info=True)
        else:
            self._thread = thread

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call.carry_out(self._run_async)

    def _next(self) -> HookCall | None:
        with self._changed:
            self._current = None
            self._changed.notify_all()
            while not self._waiting:
                if self._ended:
                    return None
                self._changed.wait()
            self._current = self._waiting.popleft()
            return self._current


def _log(message: str, *args: object, exc_info: BaseException | bool | None = None) -> None:
    """Log an error; a filter of the application that raises must not end the thread."""
    with contextlib.suppress(BaseException):
        logger.error(message, *args, exc_info=exc_info)


async def _awaited(answer: Awaitable[Any]) -> BaseException | None:
    """Wait for an ``async`` hook; what it raises must not get into the event loop."""
    try:
        await answer
    except BaseException as error:
        return error
    return None
