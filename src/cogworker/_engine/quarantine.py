"""Keys of the wrong type, made by hand or by other software, are moved aside.

A command on such a key fails for ever. Aside, as ``<namespace>:quarantine:<key>:<n>``, it can be
looked at for 30 days, and work goes on with an empty one.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cogworker._engine.replies import text
from cogworker._redis import scripts
from cogworker._redis.command import Command
from cogworker._redis.keys import Keys

KEPT_S = 30 * 86400
COPIES = 5
MOST_A_CALL = 1000


class Aside(NamedTuple):
    """A key that was moved aside: the type it had, and the name it has now."""

    found: str
    name: str


def is_wrong_type(error: object) -> bool:
    """Whether an error, or its text, speaks of a key of the wrong type."""
    return "WRONGTYPE" in str(error)


def fixed(keys: Keys) -> dict[str, str]:
    """The keys that every installation has, with their types."""
    return {
        **dict.fromkeys((keys.queues, keys.paused_queues, keys.periodic_disabled), "set"),
        **dict.fromkeys((keys.schedule, keys.retry, keys.dead, keys.workers), "zset"),
        **dict.fromkeys((keys.processed, keys.failed, keys.discarded, keys.lost_claims), "string"),
        **dict.fromkeys((keys.logged_successes, keys.logged_failures), "stream"),
        **dict.fromkeys((keys.pauses, keys.intake, keys.periodic_disablings), "hash"),
        **dict.fromkeys((keys.periodic_entries, keys.periodic_seen, keys.periodic_slots), "hash"),
        **dict.fromkeys((keys.periodic_runs, keys.periodic_skips), "hash"),
        keys.status_ends: "stream",
    }


def growing(keys: Keys, queues: Iterable[str], workers: Iterable[str]) -> dict[str, str]:
    """The keys of queues and workers, with their types."""
    expected: dict[str, str] = {}
    for queue in queues:
        expected |= dict.fromkeys((keys.queue(queue), keys.wake(queue)), "list")
    for worker in workers:
        names = (keys.presence(worker), keys.in_flight(worker), keys.orders(worker))
        expected |= dict.fromkeys(names, "hash")
        expected[keys.order_bell(worker)] = "list"
    return expected


def wrong(expected: Mapping[str, str]) -> Iterable[Command[list[str]]]:
    """Ask which keys are there with another type than expected, a thousand in a call."""
    names = list(expected)
    for start in range(0, len(names), MOST_A_CALL):
        asked = names[start : start + MOST_A_CALL]
        yield Command(
            "types",
            scripts.TYPES,
            asked,
            (),
            lambda types, asked=asked: [  # type: ignore[misc]
                name
                for name, found in zip(asked, types, strict=True)
                if text(found) not in ("none", expected[name])
            ],
        )


def put_aside(keys: Keys, name: str, expected: str) -> Command[Aside | None]:
    """Move a key aside, unless it has the expected type after all."""
    asides = [keys.quarantine(name, number) for number in range(1, COPIES + 1)]
    return Command(
        "quarantine",
        scripts.QUARANTINE,
        (name, *asides),
        (expected, KEPT_S),
        lambda reply: Aside(*map(text, reply)) if reply else None,
    )
