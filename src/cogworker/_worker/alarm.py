"""Wakes the one thread that waits for several things at once."""

import contextlib
import os
import select
import threading


class Alarm:
    """A flag that can be waited for together with a socket.

    ``ring`` may be called from any thread and costs nothing while nobody waits.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._waiting = False
        self._rung = False
        self._lock = threading.Lock()
        self._closed = False

    def ring(self) -> None:
        """End the current wait, or the next one."""
        self._rung = True
        if self._waiting:
            # The pipe's number may be another file's once it is closed; a full one is awake.
            with self._lock, contextlib.suppress(BlockingIOError):
                if not self._closed:
                    os.write(self._write, b"!")

    def wait(self, timeout_s: float, also: int | None = None) -> bool:
        """Wait for a ring or the time-out; answers whether the file ``also`` can be read."""
        self._waiting = True
        if self._rung:
            timeout_s = 0.0
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if also is not None:
            poll.register(also, select.POLLIN)
        ready = {file for file, _ in poll.poll(max(0.0, timeout_s) * 1000)}
        self._waiting = False
        self._rung = False
        if self._read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        return also is not None and also in ready

    def close(self) -> None:
        """Give back the pipe; later rings are ignored, since nobody waits."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._read)
                os.close(self._write)

    def __del__(self) -> None:
        self.close()
