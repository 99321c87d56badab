"""What a swarm's parent tells the service manager, and when it has to tell it again.

A start may take long, as when Redis is away: the manager is asked to wait as long as workers start,
but not for those that crash, which the pauses between them show.
"""

import math
from collections.abc import Sequence

from cogworker._worker.systemd import Systemd
from cogworker.swarm.restarts import State

EXTENSION_S = 30.0
EXTEND_EVERY_S = 10.0


class Notices:
    """Readiness, the watchdog's pulse, and a line for ``systemctl status``."""

    def __init__(self) -> None:
        self._systemd = Systemd()
        self._status = ""
        self._pulse_at = -math.inf
        self._extend_at = -math.inf
        self.next_at = math.inf
        """When something has to be told again."""

    def tell(self, now: float, states: Sequence[State], *, is_up: bool, is_stopping: bool) -> None:
        """Tell what is due, given what is in each seat."""
        self.next_at = math.inf
        self._describe(status(states, is_up=is_up, is_stopping=is_stopping))
        if not is_up and not is_stopping and State.STARTING in states:
            if now >= self._extend_at:
                self._extend_at = now + EXTEND_EVERY_S
                self._systemd.extend(EXTENSION_S)
            self.next_at = self._extend_at
        every_s = self._systemd.pulse_s
        if every_s is not None:
            if now >= self._pulse_at:
                self._pulse_at = now + every_s
                self._systemd.well()
            self.next_at = min(self.next_at, self._pulse_at)

    def ready(self) -> None:
        """The swarm is up."""
        self._systemd.ready()

    def stopping(self) -> None:
        """The swarm goes down."""
        self._systemd.stopping()

    def _describe(self, text: str) -> None:
        if text != self._status:
            self._status = text
            self._systemd.status(text)


def status(states: Sequence[State], *, is_up: bool, is_stopping: bool) -> str:
    """How a swarm fares, in a line."""
    if is_stopping:
        return "stopping"
    ready = states.count(State.READY)
    if not is_up:
        return f"starting, {ready} of {len(states)} workers are ready"
    return f"running {ready} of {len(states)} workers"
