"""Looks at what is there: counters, places, workers. Never used by a worker."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cogworker._engine import look
from cogworker._engine.replies import text
from cogworker._worker.facts import host_of
from cogworker.app import Cogworker


class Stats(NamedTuple):
    """Totals since the installation began, and how many jobs lie in each place now."""

    processed: int
    failed: int
    lost_claims: int
    enqueued: int
    in_flight: int
    scheduled: int
    retrying: int
    dead: int


class DeadJob(NamedTuple):
    """An entry of the dead set; ``payload`` is None when it can't be read."""

    died_at: float
    raw: bytes
    payload: dict[str, Any] | None


class Beat(NamedTuple):
    """How long ago a worker has last said that it lives, on the server's clock."""

    worker: str
    host: str
    age_s: float


class Inspector:
    """Reads of one installation. Every method raises RedisUnavailable and RedisRefused."""

    def __init__(self, app: Cogworker) -> None:
        self._run = app.client.runner.run
        self._keys = app.client.keys

    def stats(self) -> Stats:
        """Counters and sizes."""
        queues = self._run(look.queues(self._keys))
        workers = self._run(look.workers(self._keys))
        return Stats(*self._run(look.stats(self._keys, queues, workers)))

    def workers(self) -> Sequence[str]:
        """The identities of all workers that are alive or not yet rescued."""
        return self._run(look.workers(self._keys))

    def beats(self) -> Sequence[Beat]:
        """The last beats of the same workers."""
        beats = self._run(look.beats(self._keys))
        now = self._run(look.time())
        return [Beat(text(name), host_of(text(name)), now - beaten_at) for name, beaten_at in beats]

    def held(self, worker: str) -> int:
        """How many jobs a worker has in flight."""
        return self._run(look.stats(self._keys, [], [worker]))[4]

    def is_present(self, worker: str) -> bool:
        """Whether a worker's presence has not expired."""
        return self._run(look.present(self._keys, worker))

    def waiting(self, queue: str, limit: int = 100) -> Sequence[bytes]:
        """Payloads in a queue, the next to be taken first."""
        return self._run(look.waiting(self._keys, queue, limit))

    def dead(self, limit: int = 100) -> Sequence[DeadJob]:
        """The last to die, the newest first."""
        return [
            DeadJob(score, raw, look.decoded(raw))
            for raw, score in self._run(look.newest_dead(self._keys, limit))
        ]
