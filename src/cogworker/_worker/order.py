"""In which order a worker looks into its queues."""

import random
from collections.abc import Sequence

from cogworker.config import Config


class QueueOrder:
    """Weighted random order, or always the same one when ``queue_order`` is ``strict``.

    A queue comes first with the probability of its share in the weights, and each is reached in
    the end. The draw is that of Efraimidis and Spirakis (2006): sort by u^(1/weight).
    """

    def __init__(self, config: Config) -> None:
        self.names = [name for name, _ in config.queues]
        self._exponents = [1 / weight for _, weight in config.queues]
        self._fixed = config.queue_order == "strict" or len(self.names) == 1

    def draw(self) -> Sequence[str]:
        """The queues, in the order to look."""
        if self._fixed:
            return self.names
        keys = {
            name: random.random() ** exponent  # noqa: S311 - no secret
            for name, exponent in zip(self.names, self._exponents, strict=True)
        }
        return sorted(self.names, key=keys.__getitem__, reverse=True)
