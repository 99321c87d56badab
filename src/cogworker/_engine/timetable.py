"""What is kept of periodic entries, to be read. Nothing here changes anything."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from cogworker._engine.replies import text
from cogworker._redis import scripts
from cogworker._redis.command import Command
from cogworker._redis.keys import Keys


class Noted(NamedTuple):
    """A moment, epoch seconds, and what was noted with it: a worker, say, or a job's id.

    ``raw`` is how it is written.
    """

    at: float
    what: str
    raw: bytes = b""


def server_time() -> Command[float]:
    """The server's clock, epoch seconds; this host's when the server gives none."""
    return Command("now", scripts.NOW, (), (), float)


def entries(keys: Keys) -> Command[dict[str, bytes]]:
    """The entries that workers have published, JSON, by their ids."""
    return Command("periodic", None, ("HGETALL", keys.periodic_entries), (), _pairs)


def seen(keys: Keys) -> Command[dict[str, Noted]]:
    """When each of them was last published, and by which worker."""
    return _notes(keys.periodic_seen)


def runs(keys: Keys) -> Command[dict[str, Noted]]:
    """The last time slots that have fired, and the ids of their jobs."""
    return _notes(keys.periodic_runs)


def skips(keys: Keys) -> Command[dict[str, Noted]]:
    """The last time slots that were skipped, and the ids of the jobs in the way."""
    return _notes(keys.periodic_skips)


def _notes(key: str) -> Command[dict[str, Noted]]:
    return Command("periodic", None, ("HGETALL", key), (), lambda reply: dict(_noted(reply)))


def _noted(reply: list[bytes]) -> Iterator[tuple[str, Noted]]:
    for pjid, note in _pairs(reply).items():
        at, _, what = text(note).partition(" ")
        try:
            yield pjid, Noted(float(at), what, note)
        except ValueError:  # what other software has written there tells nothing
            continue


def _pairs(reply: list[bytes] | dict[bytes, bytes]) -> dict[str, Any]:
    assert isinstance(reply, list)  # noqa: S101 - protocol 2 knows no maps
    return {text(field): value for field, value in zip(reply[::2], reply[1::2], strict=True)}
