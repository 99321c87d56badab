"""What a look at an installation asks. Nothing here changes anything."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cogworker._engine.replies import text
from cogworker._redis import scripts
from cogworker._redis.command import Command
from cogworker._redis.keys import Keys


def queues(keys: Keys) -> Command[list[str]]:
    """Names of the queues ever used."""
    return Command("queues", None, ("SMEMBERS", keys.queues), (), _sorted_texts)


def workers(keys: Keys) -> Command[list[str]]:
    """Identities of the workers that have beaten and not been forgotten."""
    return Command("workers", None, ("ZRANGE", keys.workers), (0, -1), _sorted_texts)


def beats(keys: Keys) -> Command[list[tuple[bytes, float]]]:
    """The same with the seconds since their last beat."""
    return Command("beats", scripts.BEATS, (keys.workers,), (), _scored)


def stats(keys: Keys, queues: Sequence[str], workers: Sequence[str]) -> Command[list[int]]:
    """Processed, failed, discarded, lost claims, enqueued, in flight, scheduled, retrying, dead."""
    names = [
        *(keys.processed, keys.failed, keys.discarded, keys.lost_claims),
        *(keys.schedule, keys.retry, keys.dead),
        *(keys.queue(name) for name in queues),
        *(keys.in_flight(name) for name in workers),
    ]
    return Command("stats", scripts.STATS, names, (len(queues),), list)


def present(keys: Keys, worker: str) -> Command[bool]:
    """Whether a worker's presence has not expired."""
    return Command("present", None, ("EXISTS", keys.presence(worker)), (), bool)


def waiting(keys: Keys, queue: str, limit: int) -> Command[list[bytes]]:
    """Payloads in a queue, the next to be taken first."""
    words = ("LRANGE", keys.queue(queue))
    return Command("waiting", None, words, (-limit, -1), lambda reply: reply[::-1])


def newest_dead(keys: Keys, limit: int) -> Command[list[tuple[bytes, float]]]:
    """Entries of the dead set with their time of death, the newest first."""
    words = ("ZREVRANGE", keys.dead)
    return Command("dead", None, words, (0, limit - 1, "WITHSCORES"), _scored)


def decoded(payload: bytes) -> dict[str, Any] | None:
    """A payload as a dict; None when it is not one."""
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _sorted_texts(reply: Any) -> list[str]:
    return sorted(text(word) for word in reply)


def _scored(reply: Any) -> list[tuple[bytes, float]]:
    return [(raw, float(score)) for raw, score in zip(reply[::2], reply[1::2], strict=True)]
