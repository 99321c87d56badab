"""Tells the service manager how a worker fares: the protocol of sd_notify(3), a datagram a word.

Without ``NOTIFY_SOCKET`` in the environment nothing is said.
"""

import logging
import os
import socket

from cogworker._worker.host import Host

logger = logging.getLogger("cogworker.worker")


class Systemd(Host):
    """Readiness, stopping, and the watchdog's pulse, if there is a service manager that listens."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):  # a socket without a file
            self._address = "\0" + self._address[1:]
        self._has_failed = False
        self.pulse_s = _pulse_s() if self._address else None

    def ready(self) -> None:
        """Say that the service is up."""
        self.say("READY=1")

    def well(self) -> None:
        """Keep the watchdog quiet."""
        self.say("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the service goes down."""
        self.say("STOPPING=1")

    def worn_out(self, reason: str) -> bool:
        """Have the worker end: the service manager starts another one."""
        return True

    def status(self, text: str) -> None:
        """Say a line for ``systemctl status``."""
        self.say(f"STATUS={text}")

    def extend(self, by_s: float) -> None:
        """Say that a start, or a stop, goes on and may take so much longer from now."""
        self.say(f"EXTEND_TIMEOUT_USEC={by_s * 1e6:.0f}")

    def say(self, words: str) -> None:
        """Send one message; a manager that does not listen holds up nothing."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(words.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning("can't notify the service manager: words=%s error=%s", words, error)
            self._has_failed = True
        else:
            self._has_failed = False


def _pulse_s() -> float | None:
    """Half the watchdog's time, as sd_watchdog_enabled(3) advises; None when it is off."""
    try:
        microseconds = int(os.environ.get("WATCHDOG_USEC", ""))
        mine = int(os.environ.get("WATCHDOG_PID", os.getpid())) == os.getpid()
    except ValueError:
        return None
    return microseconds / 2e6 if mine and microseconds > 0 else None
