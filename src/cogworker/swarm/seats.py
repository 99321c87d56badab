"""All seats of a swarm, asked and told together."""

import math
import signal
from collections.abc import Iterator

from cogworker.swarm.child import Child
from cogworker.swarm.restarts import State
from cogworker.swarm.seat import Seat


class Seats:
    """A number of seats, which stays the same; at first they are vacant."""

    def __init__(self, count: int) -> None:
        self._all = [Seat(number) for number in range(count)]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Seat]:
        return iter(self._all)

    def __getitem__(self, number: int) -> Seat:
        return self._all[number]

    def of(self, pid: int) -> Seat | None:
        """The seat of a worker, by its process."""
        return next((seat for seat in self._all if seat.pid == pid), None)

    @property
    def states(self) -> list[State]:
        """What is in each."""
        return [seat.state for seat in self._all]

    @property
    def children(self) -> list[Child]:
        """The workers that there are now."""
        return [seat.child for seat in self._all if seat.child is not None]

    @property
    def are_ready(self) -> bool:
        """Whether everybody works who should."""
        return all(state in (State.READY, State.RETIRED) for state in self.states)

    @property
    def are_retired(self) -> bool:
        """Whether all workers were told to go."""
        return all(state is State.RETIRED for state in self.states)

    @property
    def kill_at(self) -> float:
        """When the first one has to be killed, if it has not stopped."""
        return min(seat.kill_at for seat in self._all)

    @property
    def due_at(self) -> float:
        """When the next worker has to be started."""
        vacant = (seat.due_at for seat in self._all if seat.state is State.VACANT)
        return min(vacant, default=math.inf)

    def signal(self, number: signal.Signals) -> None:
        """Send all workers a signal."""
        for child in self.children:
            child.signal(number)

    def stop(self, kill_at: float) -> None:
        """Tell all workers to stop, within a time."""
        for seat in self._all:
            seat.stop(kill_at)
