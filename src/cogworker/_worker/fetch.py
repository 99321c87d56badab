"""Which promise a worker makes for the jobs that it holds when it dies.

``reliable``: they run again. ``basic``: they must not, and are put in dead. A worker changes over
to basic when the server has no clock for its scripts: then beats are stamped by the clocks of many
hosts, so a worker that was merely cut off may be taken for dead, and its jobs would run twice.
"""

from cogworker._redis.connection import Connector
from cogworker._worker.delivery import Delivery
from cogworker.config import Config


class Fetch:
    """A worker's fetch mode."""

    def __init__(self, config: Config, connector: Connector) -> None:
        self._configured = config.fetch == "basic"
        self._connector = connector

    @property
    def basic(self) -> bool:
        """Whether no job that this worker has begun may run again elsewhere."""
        return self._configured or self._connector.clockless

    def at_most_once(self, delivery: Delivery) -> bool:
        """Whether a job, once begun here, may not run again when its end is unknown."""
        declared = delivery.job is not None and delivery.job.options.at_most_once
        return self.basic or declared or delivery.envelope.at_most_once is True
