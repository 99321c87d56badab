"""How the scripts' replies read."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Raw = Any
"""A reply as the Redis client hands it over: bytes, ints and lists of them."""


class Taken(NamedTuple):
    """One delivery: a job that a worker has just taken."""

    tag: bytes
    payload: bytes

    @property
    def queue(self) -> str:
        """The queue that it was taken from."""
        return queue_of(self.tag)


class Refused(NamedTuple):
    """A job that a condition did not let go; ``why`` is what its verb tells: say, the holder."""

    job: bytes
    verb: str
    why: str


class Moved(NamedTuple):
    """What became of the jobs of a move; those not named here were moved.

    A job is called by its ref; a new one by its number in the call, from 1.

    ``lost`` were no longer at their source, and nothing was done for them. ``failed`` could not
    be put down and are where they were, with the server's reason; ``refused`` are there because an
    effect did not let them go. ``problems`` are damaged keys whose book-keeping had to be left out.
    """

    lost: Sequence[bytes] = ()
    failed: Sequence[tuple[bytes, str]] = ()
    problems: Sequence[tuple[str, str]] = ()
    refused: Sequence[Refused] = ()


class Turned(NamedTuple):
    """The answer to a worker's turn."""

    moved: Moved
    taken: Sequence[Taken]
    paused: Sequence[str]


class Stale(NamedTuple):
    """The answer to a turn that comes after the one numbered ``last``: nothing was done."""

    last: int


class Held(NamedTuple):
    """What a dead worker held, oldest first; ``at_most_once`` as it fetched."""

    at_most_once: bool
    jobs: Sequence[Taken]


NOTHING_HELD = Held(False, ())


class Due(NamedTuple):
    """Entries that are due; ``next_in_s`` is the time until the next one, None when there is none.

    ``workers`` is the number of workers that share the promoting; ``more`` says that this is
    not all; ``problems`` are sets that could not be read.
    """

    time: float
    next_in_s: float | None
    workers: int
    more: bool
    problems: Sequence[tuple[str, str]]
    schedule: Sequence[bytes]
    retry: Sequence[bytes]


def queue_of(tag: bytes) -> str:
    """The queue in a delivery's tag, ``<turn>.<index>.<queue>``."""
    return tag.split(b".", 2)[2].decode()


def order_of(tag: bytes) -> tuple[int, int]:
    """A delivery's place in the order of taking."""
    turn, index, _ = tag.split(b".", 2)
    return int(turn), int(index)


def _is_tag(field: bytes) -> bool:
    """Whether a field is one of ours: somebody may have put another one there."""
    try:
        return bool(queue_of(field)) and order_of(field) >= (0, 0)
    except (ValueError, IndexError):  # UnicodeDecodeError is a ValueError
        return False


def read_moved(reply: Raw) -> Moved:
    """Read ``{lost, failed, problems, refused}``."""
    lost, failed, problems, refused = reply
    if not (lost or failed or problems or refused):
        return NOTHING_AMISS
    return Moved(
        lost,
        [(ref, text(error)) for ref, error in pairs(failed)],
        [(text(key), text(error)) for key, error in pairs(problems)],
        [
            Refused(job, text(verb), text(why))
            for job, verb, why in zip(refused[::3], refused[1::3], refused[2::3], strict=True)
        ],
    )


NOTHING_AMISS = Moved()


def read_turned(reply: Raw) -> Turned | Stale:
    """Read a turn's answer."""
    if reply[0] == b"stale":
        return Stale(int(reply[1]))
    deliveries = [Taken(tag, payload) for tag, payload in pairs(reply[4])]
    if len(reply) > 6:  # repeated: a hash has no order
        deliveries.sort(key=lambda job: order_of(job.tag))
    return Turned(read_moved(reply[:4]), deliveries, [text(name) for name in reply[5]])


def read_due(reply: Raw) -> Due:
    """Read what is due."""
    time, next_in, workers, more, problems, schedule, retry = reply
    return Due(
        float(time),
        float(next_in) if next_in else None,
        workers,
        bool(more),
        [(text(key), text(error)) for key, error in pairs(problems)],
        schedule,
        retry,
    )


def read_pushed(reply: Raw) -> Moved | None:
    """Read a push's answer; None when another producer uses the same lane."""
    word = reply[0]
    if word == b"collision":
        return None
    problems = [] if word == b"repeated" else reply[3]
    return read_moved(([], reply[1], problems, reply[2]))


def read_examined(reply: Raw) -> Held | None:
    """Read what a dead worker held; None when it lives."""
    if reply[0] == b"alive":
        return None
    jobs = [Taken(tag, payload) for tag, payload in pairs(reply[2:]) if _is_tag(tag)]
    return Held(reply[1] == b"basic", sorted(jobs, key=lambda job: order_of(job.tag)))


def read_stale(reply: Raw) -> dict[str, float]:
    """Read the last beats of silent workers."""
    return {text(name): float(beat) for name, beat in pairs(reply)}


def read_rescued(reply: Raw) -> Moved | None:
    """Read a rescue's answer; None when the worker lives."""
    return None if reply[0] == b"alive" else read_moved(reply[1:])


def text(word: bytes) -> str:
    """A word of a reply as text; bytes that are not UTF-8 are escaped."""
    return word.decode("utf-8", "backslashreplace")


def pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The words of a flat list by two."""
    return zip(flat[::2], flat[1::2], strict=True)
