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

Request = Literal[
    "stop", "retire", "hurry", "quiet", "resume", "pause intake", "resume intake", "stacks"
]
"""``retire`` is a stop after which nobody puts another worker in this one's place, ``hurry`` one
that does not wait for running jobs. The intake is that of all workers: this one takes jobs while it
is not quiet and the intake is not paused."""

_MEANINGS: dict[signal.Signals, Request] = {
    signal.SIGTERM: "stop",
    signal.SIGINT: "stop",
    signal.SIGHUP: "stop",
    signal.SIGTSTP: "quiet",
    signal.SIGCONT: "resume",
    signal.SIGTTIN: "stacks",
}

SAME_SIGNAL_S = 0.05
"""A second stop signal that comes this soon is the first one: ``timeout``, for one, sends it to the
process and to its group."""

_taken = False
"""Whether this process's signals are requests now."""


class Requests:
    """What a worker has been asked to do, in order."""

    def __init__(self) -> None:
        self._noted: deque[tuple[Request, str]] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._stopped = False
        self._signalled_at: float | None = None
        self.why = ""
        """The reason of the request that was answered last."""
        self._lifeline: int | None = None
        self._has_parent = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def put(self, request: Request, why: str = "") -> None:
        """Ask, from any thread, and say why."""
        with self._lock:  # the pipe's number may be another file's once it is closed
            if self._closed:
                return
            self._stopped = self._stopped or request in ("stop", "retire", "hurry")
            self._noted.append((request, why))
            with contextlib.suppress(BlockingIOError):  # the pipe is full: the reader will wake
                os.write(self._write, b"!")

    def obey_parent(self, lifeline: int) -> None:
        """Listen to a parent, too, by a pipe that it holds the other end of.

        When that is closed, as by the parent's death, a stop is asked for; each byte in it asks to
        hurry. Signals then ask for one stop only, however many there are: Ctrl-C and service
        managers signal all processes, and the parent passes on what its worker has got already.
        """
        self._lifeline = lifeline
        self._has_parent = True

    def get(self, timeout_s: float | None = None) -> Request | None:
        """The next request; None when there is none in time."""
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        while not self._noted:
            left_s = None if deadline is None else max(0.0, deadline - clock.monotonic())
            poll = select.poll()
            for file in (self._read, self._lifeline):
                if file is not None:
                    poll.register(file, select.POLLIN)
            ready = dict(poll.poll(None if left_s is None else left_s * 1000))
            if self._read in ready:
                os.read(self._read, 4096)
            if self._lifeline in ready:
                self._hear_parent()
            if not ready and not self._noted:
                return None
        request, self.why = self._noted.popleft()
        return request

    def _hear_parent(self) -> None:
        assert self._lifeline is not None  # noqa: S101 - it was ready
        if os.read(self._lifeline, 1):
            self._stopped = True
            self._noted.append(("hurry", "the parent hurries"))
        else:
            self._lifeline = None
            self._stop_once("the parent is gone")

    def _stop_once(self, why: str) -> None:
        if not self._stopped:
            self._stopped = True
            self._noted.append(("stop", why))

    @contextlib.contextmanager
    def from_signals(self) -> Iterator[None]:
        """Turn this process's signals into requests for a while. Only the main thread can.

        Processes that a job forks get the default signals back: they must obey a TERM. Signals that
        whoever started this process has blocked come through from now on.
        """
        global _taken
        before_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        # A hang-up that is ignored, as under nohup, stays ignored.
        obeyed = [
            number
            for number in _MEANINGS
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
        ]
        before = {number: signal.signal(number, self._on_signal) for number in obeyed}
        _taken = True
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _MEANINGS)
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
        request, why = _MEANINGS[signal.Signals(number)], f"signal={signal.Signals(number).name}"
        if request != "stop":
            self._noted.append((request, why))
        elif self._has_parent:
            self._stop_once(why)
        else:
            now = clock.monotonic()
            if self._signalled_at is None:
                self._signalled_at = now
                self._noted.append(("stop", why))
            elif now - self._signalled_at > SAME_SIGNAL_S:
                self._noted.append(("hurry", why))


def _give_back_signals() -> None:
    """In a forked child: a handler that only notes a word would make it deaf to TERM."""
    global _taken
    if _taken:
        _taken = False
        signal.set_wakeup_fd(-1)
        for number in _MEANINGS:
            if signal.getsignal(number) == signal.SIG_IGN:
                continue
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


_forking = threading.local()


def _hold_signals() -> None:
    """Before a fork: a TERM that hits the child before it has given them back would be lost.

    A pool of processes that ended early then waited for such a child for ever.
    """
    if _taken:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _MEANINGS)


def _let_signals_through() -> None:
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin_child() -> None:
    _give_back_signals()
    _let_signals_through()


os.register_at_fork(
    before=_hold_signals, after_in_parent=_let_signals_through, after_in_child=_begin_child
)
