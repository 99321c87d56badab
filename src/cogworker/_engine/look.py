"""What a look at an installation asks. Nothing here changes anything."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cogworker._engine.replies import pairs, text
from cogworker._redis import scripts
from cogworker._redis.command import Command
from cogworker._redis.keys import Keys

KEYS_A_STEP = 1000
MOST_BYTES = 4 * 1024 * 1024
"""Of payloads that one answer has."""
GONE = -2


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


class Backlog(NamedTuple):
    """How many jobs a queue has, and the oldest one; empty when it was too large to be read."""

    size: int
    oldest: bytes


def backlogs(keys: Keys, names: Sequence[str]) -> Command[tuple[float, list[Backlog]]]:
    """The server's time, and the backlog of each queue."""

    def read(reply: Any) -> tuple[float, list[Backlog]]:
        return float(reply[0]), list(map(Backlog, reply[1::2], reply[2::2]))

    keys_of = [keys.queue(name) for name in names]
    return Command("queues", scripts.QUEUES, keys_of, (MOST_BYTES,), read)


class Said(NamedTuple):
    """What a worker said of itself with its last beat, and what it was told last.

    ``info`` is JSON; what is not there is empty. ``held`` is how many jobs it has now.
    """

    info: bytes
    busy: bytes
    quiet: bytes
    held: int
    order: str
    by: str
    at: str


def fleet(keys: Keys, workers: Sequence[str]) -> Command[list[Said]]:
    """The same of some workers."""
    names = [
        key
        for name in workers
        for key in (keys.presence(name), keys.in_flight(name), keys.orders(name))
    ]

    def read(reply: Any) -> list[Said]:
        return [Said(*said[:4], *map(text, said[4:])) for said in reply]

    return Command("fleet", scripts.FLEET, names, (), read)


class Held(NamedTuple):
    """What a worker has in flight: tags with payloads, empty ones of what was too large to be read.

    ``began`` says which of them run, and since when: JSON, at the time of its last beat.
    """

    began: bytes
    jobs: list[tuple[bytes, bytes]]


def held(keys: Keys, workers: Sequence[str]) -> Command[list[Held]]:
    """The same of some workers."""
    names = [key for name in workers for key in (keys.in_flight(name), keys.presence(name))]

    def read(reply: Any) -> list[Held]:
        return [Held(began, list(pairs(jobs))) for began, *jobs in reply]

    return Command("held", scripts.HELD, names, (MOST_BYTES,), read)


def waiting(keys: Keys, queue: str, limit: int) -> Command[list[bytes]]:
    """Payloads in a queue, the next to be taken first."""
    words = ("LRANGE", keys.queue(queue))
    return Command("waiting", None, words, (-limit, -1), lambda reply: reply[::-1])


def length(keys: Keys, queue: str) -> Command[int]:
    """How many jobs are in a queue."""
    return Command("length", None, ("LLEN", keys.queue(queue)), (), int)


def stretch(keys: Keys, queue: str, first: int, last: int) -> Command[list[bytes]]:
    """Payloads in a queue, counted from its newest, number 0; the oldest of them comes last."""
    return Command("stretch", None, ("LRANGE", keys.queue(queue)), (first, last), list)


def overdue(key: str, before: float, skip: int, limit: int) -> Command[list[bytes]]:
    """Entries of the schedule, or of the retry set, due before a time, the latest first."""
    args = (repr(before), "-inf", "LIMIT", skip, limit)
    return Command("overdue", None, ("ZREVRANGEBYSCORE", key), args, list)


def tags(keys: Keys, worker: str) -> Command[set[bytes]]:
    """The tags of the deliveries that a worker has in flight, and the field ``@turn``."""
    return Command("tags", None, ("HKEYS", keys.in_flight(worker)), (), set)


class Lock(NamedTuple):
    """A unique job's lock: its name, and the id of the job that holds it.

    ``left_s`` is how long it lasts, in seconds, if nothing happens; None: for ever. ``holder`` is
    empty when its key is damaged.
    """

    name: str
    holder: str
    left_s: float | None


def scan_locks(keys: Keys, cursor: int) -> Command[tuple[int, list[str]]]:
    """A step through all keys: where to go on, 0 at the end, and the locks found."""
    prefix = keys.lock("")
    pattern = re.sub(r"([*?[\]\\])", r"\\\1", prefix) + "*"
    return Command(
        "scan_locks",
        None,
        ("SCAN", str(cursor), "MATCH", pattern),
        ("COUNT", KEYS_A_STEP),
        lambda reply: (int(reply[0]), [text(key).removeprefix(prefix) for key in reply[1]]),
    )


def locks(keys: Keys, names: Sequence[str]) -> Command[list[Lock]]:
    """Those of some locks that are still there."""

    def read(reply: Any) -> list[Lock]:
        return [
            Lock(name, text(holder), left_s(left_ms))
            for name, holder, left_ms in zip(names, reply[::2], reply[1::2], strict=True)
            if left_ms != GONE
        ]

    return Command("locks", scripts.LOCKS, [keys.lock(name) for name in names], (), read)


def left_s(left_ms: int) -> float | None:
    """The seconds that a key lasts, from what the server says; None: for ever."""
    return None if left_ms < 0 else left_ms / 1000


def newest_dead(keys: Keys, limit: int) -> Command[list[tuple[bytes, float]]]:
    """Entries of the dead set with their time of death, the newest first."""
    words = ("ZREVRANGE", keys.dead)
    return Command("dead", None, words, (0, limit - 1, "WITHSCORES"), _scored)


def status(keys: Keys, jid: str) -> Command[dict[str, bytes]]:
    """The fields of a job's status; none when there is none."""
    return Command("status", None, ("HGETALL", keys.status(jid)), (), _fields)


def last_end(keys: Keys) -> Command[str]:
    """Where the stream of ends has got to."""
    words = ("XREVRANGE", keys.status_ends)
    return Command(
        "last end", None, words, ("+", "-", "COUNT", 1), lambda reply: _last_id(reply, "0-0")
    )


def ends_since(keys: Keys, position: str, block_s: float) -> Command[tuple[str, set[str]]]:
    """Wait for ends after a position in their stream: the new position, and the jobs' ids."""
    words = (*("XREAD", "COUNT", "1000", "BLOCK"), str(max(1, int(block_s * 1000))))

    def read(reply: Any) -> tuple[str, set[str]]:
        entries = reply[0][1] if reply else []
        lists = [words for _, fields in entries for words in fields[1::2]]
        return _last_id(entries[::-1], position), {jid for words in lists for jid in _jids(words)}

    return Command("ends", None, (*words, "STREAMS", keys.status_ends), (position,), read)


def decoded(payload: bytes) -> dict[str, Any] | None:
    """A payload as a dict; None when it is not one."""
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _sorted_texts(reply: Any) -> list[str]:
    return sorted(text(word) for word in reply)


def _fields(reply: Any) -> dict[str, bytes]:
    return {text(name): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _jids(words: bytes) -> list[str]:
    """The ids in a list; none in what is no such list, as which jobs say nothing after all."""
    try:
        return msgspec.json.decode(words, type=list[str])
    except (msgspec.MsgspecError, UnicodeError):
        return []


def _last_id(newest_first: Any, otherwise: str) -> str:
    return text(newest_first[0][0]) if newest_first else otherwise


def _scored(reply: Any) -> list[tuple[bytes, float]]:
    return [(raw, float(score)) for raw, score in zip(reply[::2], reply[1::2], strict=True)]
