"""Looks through a place for jobs, a part of it in each call.

Sets are read by score, from the end that matters: what is due next, what died last. A queue is read
from its newest job on. What stays at its place meanwhile is found, whatever comes and goes; an
entry can be found twice.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cogworker._engine.places import Place, Queue, Within
from cogworker._engine.plan import key_of_set
from cogworker._redis import scripts
from cogworker._redis.command import Command, Word
from cogworker._redis.keys import Keys

MOST_FOUND = 500
"""The most entries that one call answers with; it looks at a thousand, or a megabyte, at most."""
SLACK = 10_000
"""By how many entries a job of a queue may have moved on since it was seen: 0.5 ms to look at."""


class Cursor(NamedTuple):
    """Where a look ended: see ``page.lua``."""

    position: bytes
    last: bytes


START = Cursor(b"", b"")


class Found(NamedTuple):
    """An entry, with its score in a set; in a queue with its distance from the newest one.

    Below 0 it is the distance from the oldest one, where that is nearer.
    """

    raw: bytes
    where: float


class Part(NamedTuple):
    """What one call has found; ``end`` is where to go on, None at the end of the place."""

    found: Sequence[Found]
    end: Cursor | None


def page(
    keys: Keys, place: Place | Queue, start: Cursor, limit: int, texts: Sequence[bytes] = ()
) -> Command[Part]:
    """Find up to ``limit`` entries, 500 at most, of a queue, or of a set, that have all the texts.

    It may find none and yet not be at the end.
    """
    order = "falling" if place is Place.DEAD else "rising"
    if isinstance(place, Queue):
        order = "newest"
    args: list[Word] = [order, limit, *start, len(texts), *texts]
    return Command("page", scripts.PAGE, (_key(keys, place),), args, _read)


def oldest(keys: Keys, queue: Queue, limit: int) -> Command[Part]:
    """Find some of the jobs that are next to be taken, the next one last."""
    return page(keys, queue, Cursor(b"%d" % limit, b""), limit)


def size(keys: Keys, place: Place | Queue) -> Command[int]:
    """How many entries lie at a place."""
    word = "LLEN" if isinstance(place, Queue) else "ZCARD"
    return Command("size", None, (word, _key(keys, place)), (), int)


def near(queue: Queue, where: float) -> Within:
    """Where to look for a job that was found in a queue."""
    return Within(queue.name, int(where) + (SLACK if where > 0 else -SLACK))


def _key(keys: Keys, place: Place | Queue) -> str:
    if isinstance(place, Queue):
        return keys.queue(place.name)
    return key_of_set(keys, place)


def _read(reply: tuple[int, bytes | int, bytes, list[bytes]]) -> Part:
    more, position, last, flat = reply
    found = [Found(raw, float(at)) for raw, at in zip(flat[::2], flat[1::2], strict=True)]
    word = b"%d" % position if isinstance(position, int) else position
    return Part(found, Cursor(word, last) if more else None)
