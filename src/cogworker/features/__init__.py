"""What changes together with a job's moves, one module for each feature.

A feature is told what happens to a job (``event``) and answers with effects (``_engine/effects``).
It never talks to Redis itself, and features do not know one another. ``Features`` asks them all.
"""

from cogworker._engine.effects import Effect, Verb
from cogworker._redis.keys import Keys
from cogworker.config import Config
from cogworker.features.attempts import Attempts
from cogworker.features.event import Event, Feature, Kind, Run
from cogworker.features.stats import Stats
from cogworker.features.unique import Unique
from cogworker.payload import Envelope

__all__ = ["Event", "Features", "Kind", "Run"]


class Features:
    """All features of one installation."""

    def __init__(self, keys: Keys, config: Config) -> None:
        self.stats = Stats(keys)
        self.unique = Unique(keys, config.unique_lock_ttl)
        self._all: tuple[Feature, ...] = (self.unique, self.stats, Attempts(keys))

    def effects(self, event: Event) -> list[Effect]:
        """What must change with an event; the conditions come first."""
        return [effect for feature in self._all for effect in feature.effects(event)]

    def of_plain_success(self, name: str, ran_s: float) -> tuple[Verb, ...]:
        """What changes with a run of a job that asks for no feature, and differs in no two."""
        return self.stats.of_success(name, ran_s)

    @staticmethod
    def is_plain(job: Envelope) -> bool:
        """Whether a job's own payload asks for no feature."""
        return job.unique is None
