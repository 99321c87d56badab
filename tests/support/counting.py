"""Moves that count as the features do, for tests of the scripts by themselves."""

from cogworker._engine.effects import count
from cogworker._engine.moves import KEEP, Moves, Waiting
from cogworker._engine.replies import queue_of


class CountingMoves(Moves):
    """Adds to the totals of runs that succeeded and failed."""

    def done(self, worker, tags):
        return super().done(worker, tags, [count(self.keys.processed).verb])

    def retry(self, worker, tag, payload, delay_s):
        return super().retry(worker, tag, payload, delay_s, [count(self.keys.failed)])

    def bury(self, source, ref, payload):
        return super().bury(source, ref, payload, [count(self.keys.failed)])


def back(tag, payload=KEEP):
    """A delivery that goes back to its queue."""
    return Waiting(tag, payload, queue_of(tag))
