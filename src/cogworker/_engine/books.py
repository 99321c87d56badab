"""What a look at the books asks: logs, hashes of counts, lists. Only ``forget`` changes any."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cogworker._redis import scripts
from cogworker._redis.command import Command

_ID = re.compile(rb"(\d+)-(\d+)")


class LogEntry(NamedTuple):
    """An entry of a log, see ``include/log.lua``.

    ``ms`` is when it was written, ``number`` how many jobs had been logged then; both stand in its
    id. ``groups`` are JSON lists, each with the places in it, from 1, that do not count.
    """

    ms: int
    number: int
    groups: Sequence[tuple[bytes, frozenset[int]]]

    @property
    def size(self) -> int:
        """How many bytes its groups have."""
        return sum(len(group) for group, _ in self.groups)


def newest(log: str, until: str, since_ms: int, limit: int) -> Command[list[LogEntry]]:
    """Entries of a log, the newest first, up to an id, or the milliseconds of it, or ``+``."""
    words = ("XREVRANGE", log)
    return Command("newest", None, words, (until, since_ms, "COUNT", limit), _read_entries)


def oldest(log: str) -> Command[list[LogEntry]]:
    """The oldest entry of a log."""
    return Command("oldest", None, ("XRANGE", log), ("-", "+", "COUNT", 1), _read_entries)


Row = Sequence[bytes | None]
"""The values of a hash's fields, None for one that is not there; or names and values."""


def hashes(names: Sequence[str], fields: Sequence[str] = ()) -> Command[Sequence[Row]]:
    """Fields of hashes; without ``fields`` all of them.

    A key that is no hash answers with nothing.
    """
    return Command("hashes", scripts.HASHES, names, (len(fields), *fields), list)


def entries(name: str) -> Command[list[bytes]]:
    """A list from its beginning to its end."""
    return Command("entries", None, ("LRANGE", name), (0, -1), list)


def forget(names: Sequence[str]) -> Command[int]:
    """Delete keys; answers with how many there were."""
    return Command("forget", None, ("UNLINK", *names), (), int)


def _read_entries(reply: Any) -> list[LogEntry]:
    found = []
    for name, fields in reply:
        matched = _ID.fullmatch(name)
        assert matched is not None  # noqa: S101 - the server makes no other ids
        found.append(LogEntry(int(matched[1]), int(matched[2]), list(_groups(fields))))
    return found


def _groups(fields: Sequence[bytes]) -> Iterator[tuple[bytes, frozenset[int]]]:
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    for field, value in values.items():
        if not field.endswith(b" but"):
            others = values.get(field + b" but", b"").split()
            yield value, frozenset(int(place) for place in others if place.isdigit())
