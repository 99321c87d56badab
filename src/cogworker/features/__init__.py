"""What changes together with a job's moves, one module for each feature.

A feature is told what happens to a job (``event``) and answers with effects (``_engine/effects``).
It never talks to Redis itself, and features do not know one another. ``Features`` asks them all.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from cogworker import clock
from cogworker._engine.effects import Effect, Verb
from cogworker._redis.command import Word
from cogworker._redis.keys import Keys
from cogworker.config import Config
from cogworker.features.attempts import Attempts
from cogworker.features.event import Event, Feature, Kind, Run
from cogworker.features.history import History, entry_of
from cogworker.features.stats import Stats, bucket_of
from cogworker.features.status import Status
from cogworker.features.unique import Unique
from cogworker.payload import Envelope, encode

__all__ = ["Alike", "Event", "Features", "Kind", "Run", "Success"]


class Success(Protocol):
    """A delivery whose run succeeded; ``started_at`` is by the monotonic clock."""

    tag: bytes
    envelope: Envelope
    started_at: float
    ran_s: float

    @property
    def queue(self) -> str:
        """The queue that it was taken from."""
        ...


class Alike(NamedTuple):
    """Deliveries that succeeded, as items of a move, and what changes with them."""

    verbs: Sequence[Verb]
    items: Sequence[Word]


class Features:
    """All features of one installation."""

    def __init__(self, keys: Keys, config: Config) -> None:
        self.stats = Stats(keys)
        self.unique = Unique(keys, config.unique_lock_ttl)
        self.history = History(
            keys,
            always=config.history,
            most=config.history_max_runs,
            age_s=config.history_max_age,
        )
        self.status = Status(keys, config.status_ttl)
        self._all: tuple[Feature, ...] = (
            *(self.unique, self.stats, Attempts(keys), self.history),
            self.status,
        )

    def effects(self, event: Event) -> list[Effect]:
        """What must change with an event; the conditions come first."""
        return [effect for feature in self._all for effect in feature.effects(event)]

    def of_plain_successes(self, successes: Iterable[Success]) -> list[Alike]:
        """What changes with runs of plain jobs, in as few groups as can be: it is the hot path."""
        history, always = self.history, self.history.always
        past = clock.wall() - clock.monotonic()
        groups: dict[tuple[str, int, bool], list[Word]] = {}
        for each in successes:
            job, ran_s = each.envelope, each.ran_s
            logged = always if job.history is None else history.wants(job)
            key = job.class_, bucket_of(ran_s), logged
            items = groups.get(key)
            if items is None:
                items = groups[key] = []
            items.append(each.tag)
            if logged:
                entry = entry_of(job, each.queue, past + each.started_at, ran_s)
                items.append(encode(entry))
        return [Alike(self._of_plain_success(*key), items) for key, items in groups.items()]

    def _of_plain_success(self, name: str, bucket: int, logged: bool) -> Sequence[Verb]:
        verbs = self.stats.of_success(name, bucket)
        return (*verbs, self.history.success) if logged else verbs

    @staticmethod
    def is_plain(job: Envelope) -> bool:
        """Whether a job asks for nothing that goes along with it, as a lock or a status does.

        Nothing else changes when it is queued again, and its success is settled with others.
        """
        return job.unique is None and job.status is None
