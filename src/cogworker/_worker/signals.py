"""Signals become requests. A handler only puts a word into a queue; the main thread acts on it."""

import signal
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Literal

Request = Literal["stop", "quiet", "resume", "stacks"]

_MEANINGS: dict[signal.Signals, Request] = {
    signal.SIGTERM: "stop",
    signal.SIGINT: "stop",
    signal.SIGTSTP: "quiet",
    signal.SIGCONT: "resume",
    signal.SIGTTIN: "stacks",
}


class Requests:
    """What a worker has been asked to do, in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Request] = SimpleQueue()

    def put(self, request: Request) -> None:
        """Ask, from any thread or from a signal handler."""
        self._queue.put(request)

    def get(self, timeout_s: float | None = None) -> Request | None:
        """The next request; None when there is none in time."""
        try:
            return self._queue.get(timeout=timeout_s)
        except Empty:
            return None

    def take_signals(self) -> None:
        """Turn this process's signals into requests. Only the main thread can."""
        for number in _MEANINGS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._queue.put(_MEANINGS[signal.Signals(number)])
