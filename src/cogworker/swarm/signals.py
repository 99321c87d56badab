"""The signals of a swarm's parent, which it waits for together with its pipes."""

import contextlib
import os
import signal
from collections import deque
from collections.abc import Iterator
from types import FrameType

SIGNALS = frozenset(
    {
        *(signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGCONT, signal.SIGTTIN),
        *(signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD),
    }
)
"""What the parent obeys, and a child must not do in its place."""


def signal_name(number: int) -> str:
    """A signal's name; real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def is_ignored(number: signal.Signals) -> bool:
    """Whether this process ignores a signal."""
    return signal.getsignal(number) is signal.SIG_IGN


class Signals:
    """Notes signals as they come; ``file`` can be read as soon as there is one."""

    def __init__(self) -> None:
        self._noted: deque[signal.Signals] = deque()
        self.file, self._write = os.pipe()
        os.set_blocking(self.file, False)
        os.set_blocking(self._write, False)

    @property
    def files(self) -> tuple[int, int]:
        """What a child has to close."""
        return self.file, self._write

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take this process's signals for a while, also those that its starter had blocked.

        But for a HUP that is ignored: that is how ``nohup`` starts it.
        """
        numbers = SIGNALS - {signal.SIGHUP} if is_ignored(signal.SIGHUP) else SIGNALS
        before_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        before = {number: signal.signal(number, self._note) for number in numbers}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_fd)

    def take(self) -> Iterator[signal.Signals]:
        """Those that have come, in order."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.file, 4096)
        while self._noted:
            yield self._noted.popleft()

    def close(self) -> None:
        """Give back the pipe."""
        for file in self.files:
            os.close(file)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._noted.append(signal.Signals(number))
