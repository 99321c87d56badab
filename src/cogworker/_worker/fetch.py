"""Which promise a worker makes for the jobs that it holds when it dies.

``reliable``: they run again. ``basic``: they must not, and are put in dead. A worker changes over
to basic when the server has no clock for its scripts: then only the presence, which expires after a
minute, says who is dead, so a worker that was merely cut off may be rescued, and a job run twice.
"""

from cogworker._redis.connection import Connector
from cogworker.config import Config
from cogworker.payload import Envelope


class Fetch:
    """A worker's fetch mode."""

    def __init__(self, config: Config, connector: Connector) -> None:
        self._configured = config.fetch == "basic"
        self._connector = connector

    @property
    def basic(self) -> bool:
        """Whether no job that this worker has begun may run again elsewhere."""
        return self._configured or self._connector.clockless

    def at_most_once(self, envelope: Envelope) -> bool:
        """Whether this job, once begun here, may not run again when its end is unknown."""
        return self.basic or envelope.at_most_once is True
