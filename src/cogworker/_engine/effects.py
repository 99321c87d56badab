"""What changes together with a move: a closed set of small verbs.

A feature returns effects and never writes to Redis during a job's life; the script that moves the
job applies them in the same step, or not at all. What each verb does stands in
``books.lua``, ``locks.lua`` and ``conditions.lua`` of ``_redis/lua/include``. Times are in seconds.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

from cogworker._redis.command import Word

LONGEST_EXPIRY_S = 10**11
"""Of a lock: three thousand years. The server refuses what it can't count in milliseconds."""


class Verb(NamedTuple):
    """What the effects of several jobs have in common: its name, a key, and other operands.

    ``own`` is the number of words that each job adds; ``keyed``: the first of them is a key.
    ``listed``: they are JSON, and told together, as a list behind the verb's other operands.
    """

    name: str
    key: str | None = None
    words: tuple[Word, ...] = ()
    own: int = 0
    keyed: bool = False
    listed: bool = False


class Effect(NamedTuple):
    """A verb, and one job's own words for it."""

    verb: Verb
    own: tuple[Word, ...] = ()


Effects = Sequence[Effect]

_RELEASE = Verb("release", own=2, keyed=True)
_FORGET = Verb("forget", own=1, keyed=True)


# Books.


def count(key: str, amount: int = 1) -> Effect:
    """Add to a counter."""
    return Effect(Verb("count", key, (amount,)))


def tally(key: str, fields: Mapping[str, int], ttl_s: float) -> Effect:
    """Add to fields of a hash."""
    words = [word for pair in fields.items() for word in pair]
    return Effect(Verb("tally", key, (ceil(ttl_s), len(words), *words)))


def record(
    key: str, fields: Mapping[str, Word], ttl_s: float, *, drop: Sequence[str] = ()
) -> Effect:
    """Write fields of a hash, and drop others; ``ttl_s`` 0: it stays until it is forgotten."""
    words: tuple[Word, ...] = (_expiry(ttl_s), len(drop), *drop, len(fields), *fields)
    return Effect(Verb("record", None, words, 1 + len(fields), True), (key, *fields.values()))


def append(key: str, entry: bytes, most: int, ttl_s: float) -> Effect:
    """Add an entry to the end of a list, of which the last ``most`` are kept."""
    return Effect(Verb("append", None, (most, ceil(ttl_s)), 2, True), (key, entry))


def log(key: str, entry: bytes, most: int, age_s: float) -> Effect:
    """Add JSON to a stream, kept to about ``most`` of them no older than about ``age_s``."""
    return Effect(Verb("log", key, (most, ceil(age_s)), 1, listed=True), (entry,))


def forget(key: str) -> Effect:
    """Delete a key."""
    return Effect(_FORGET, (key,))


# Locks. A lock's owner is a job id.


def claim(key: str, owner: str, ttl_s: float, *, anew: bool = False) -> Effect:
    """A condition: the job is not moved while somebody else has the lock, else it is taken.

    ``anew``: nor while the owner has it, since then there is a job of that id already.
    """
    return Effect(Verb("claim", None, (_expiry(ttl_s), int(anew)), 2, True), (key, owner))


def hold(key: str, owner: str, ttl_s: float, *, take: bool = True) -> Effect:
    """Have the owner's lock last for ``ttl_s`` from now; one that nobody has is taken.

    ``take`` False: it is left alone then. That is right whatever has become of the owner.
    """
    return Effect(Verb("hold", None, (_expiry(ttl_s), int(take)), 2, True), (key, owner))


def release(key: str, owner: str) -> Effect:
    """Free a lock, if it is the owner's."""
    return Effect(_RELEASE, (key, owner))


def _expiry(ttl_s: float) -> int:
    return min(ceil(ttl_s), LONGEST_EXPIRY_S)


# Other conditions. One that is met has been carried out, even when a later one refuses the job;
# only a lock is given back then, since nobody would free it.


def unless(key: str, member: str) -> Effect:
    """A condition: the job is not moved when the set has a member."""
    return Effect(Verb("unless", key, own=1), (member,))


def same(key: str, field: str, value: bytes) -> Effect:
    """A condition: the job is not moved unless a field of a hash has a value."""
    return Effect(Verb("same", key, own=2), (field, value))


def advance(key: str, field: str, to: int, *, seed: bool = False) -> Effect:
    """A condition: a field of a hash rises to a number; the job is not moved when it was there.

    ``seed``: nor is it when there was no such field.
    """
    return Effect(Verb("advance", key, (int(seed),), 2), (field, to))
