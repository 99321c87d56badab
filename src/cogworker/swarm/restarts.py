"""Which worker is replaced next.

The rule: a worker that works is stopped only while all others work. So whatever becomes of a
successor (it starts slowly, it crashes again and again), it costs one worker at a time, and no
more than one. A worker that does not work can be replaced at any time: that costs nothing.
"""

import enum
from collections.abc import Iterable, Sequence


class State(enum.Enum):
    """What is in a seat."""

    VACANT = "vacant"
    """No worker; one starts as soon as it is due."""
    STARTING = "starting"
    """A worker that has not beaten yet."""
    READY = "ready"
    """A worker that works, or is quiet."""
    STOPPING = "stopping"
    """A worker that its parent has told to stop."""
    LEAVING = "leaving"
    """A worker that stops though its parent has not told it to."""
    RETIRED = "retired"
    """No worker, until the next restart: an operator has told it to go."""


class Restarts:
    """Seats whose workers are to be replaced, in order."""

    def __init__(self) -> None:
        self._waiting: list[int] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, seat: int) -> None:
        """Replace this one, too."""
        if seat not in self._waiting:
            self._waiting.append(seat)

    def start_over(self, seats: Iterable[int]) -> None:
        """Replace these, and forget what was asked before."""
        self._waiting = list(seats)

    def drop(self, seat: int) -> None:
        """Its worker has ended: the next one is new anyway."""
        if seat in self._waiting:
            self._waiting.remove(seat)

    def next(self, states: Sequence[State]) -> int | None:
        """The seat whose worker is to stop now, given what is in each; None for "wait"."""
        for seat in self._waiting:
            if states[seat] in (State.STARTING, State.LEAVING):
                self._waiting.remove(seat)
                return seat
        if self._waiting and all(state in (State.READY, State.RETIRED) for state in states):
            return self._waiting.pop(0)
        return None
