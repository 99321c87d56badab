"""Signals become requests. A handler only notes a word; the main thread acts on it.

The main thread waits on a pipe, into which the interpreter writes a byte as soon as a signal comes
(``signal.set_wakeup_fd``). Waiting for a lock would not do: a signal that comes just before the
wait begins does not end it. A worker then ran on after TERM, once in fifteen times under load.
"""

import contextlib
import os
import select
import signal
import threading
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Literal

from cogworker import clock

Request = Literal["stop", "retire", "quiet", "resume", "pause intake", "resume intake", "stacks"]
"""``retire`` is a stop after which nobody puts another worker in this one's place. The intake is
that of all workers: this one takes jobs while it is not quiet and the intake is not paused."""

_MEANINGS: dict[signal.Signals, Request] = {
    signal.SIGTERM: "stop",
    signal.SIGINT: "stop",
    signal.SIGTSTP: "quiet",
    signal.SIGCONT: "resume",
    signal.SIGTTIN: "stacks",
}

_taken = False
"""Whether this process's signals are requests now."""


class Requests:
    """What a worker has been asked to do, in order."""

    def __init__(self) -> None:
        self._noted: deque[Request] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._lifeline: int | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def put(self, request: Request) -> None:
        """Ask, from any thread."""
        with self._lock:  # the pipe's number may be another file's once it is closed
            if self._closed:
                return
            self._noted.append(request)
            with contextlib.suppress(BlockingIOError):  # the pipe is full: the reader will wake
                os.write(self._write, b"!")

    def stop_with(self, lifeline: int) -> None:
        """Ask for a stop when the other end of a pipe is closed, as by its process's death."""
        self._lifeline = lifeline

    def get(self, timeout_s: float | None = None) -> Request | None:
        """The next request; None when there is none in time."""
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if self._lifeline is not None:
            poll.register(self._lifeline, select.POLLIN)
        while not self._noted:
            left_s = None if deadline is None else deadline - clock.monotonic()
            if left_s is not None and left_s <= 0:
                return None
            ready = dict(poll.poll(None if left_s is None else left_s * 1000))
            if self._lifeline in ready:
                self._lifeline = None
                return "stop"
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        return self._noted.popleft()

    @contextlib.contextmanager
    def from_signals(self) -> Iterator[None]:
        """Turn this process's signals into requests for a while. Only the main thread can.

        Processes that a job forks get the default signals back: they must obey a TERM.
        """
        global _taken
        before_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        before = {number: signal.signal(number, self._on_signal) for number in _MEANINGS}
        _taken = True
        try:
            yield
        finally:
            _taken = False
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_fd)

    def close(self) -> None:
        """Give back the pipe; later requests are ignored."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._read)
                os.close(self._write)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._noted.append(_MEANINGS[signal.Signals(number)])


def _give_back_signals() -> None:
    """In a forked child: a handler that only notes a word would make it deaf to TERM."""
    global _taken
    if _taken:
        _taken = False
        signal.set_wakeup_fd(-1)
        for number in _MEANINGS:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


os.register_at_fork(after_in_child=_give_back_signals)
