"""Steering from afar: orders to workers, paused queues, the paused intake, locks.

All of it is stored state. A bell only tells a worker to look at once, so nothing is lost while a
worker is cut off, and one that starts later obeys, too.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from cogworker._engine.look import Lock, left_s
from cogworker._engine.replies import text
from cogworker._redis import scripts
from cogworker._redis.command import Command
from cogworker._redis.keys import Keys

ORDER_KEPT_S = 86400
MOST_BELLS = 500

Order = Literal["quiet", "resume", "stop"]
Answer = Literal["ordered", "gone", "stopping"]
"""``gone``: there is no such worker; ``stopping``: it was told to stop before."""


_ANSWERS: dict[bytes, Answer] = {
    b"ordered": "ordered",
    b"gone": "gone",
    b"stopping": "stopping",
}


class Standing(NamedTuple):
    """What a worker has been told: its last order, and whether the intake is paused.

    An order's ``id`` is random: a server that has lost its data must not give one out again.
    """

    id: str
    order: str
    by: str
    intake_paused: bool
    intake_by: str


class Pause(NamedTuple):
    """Who paused something, and when, epoch seconds; None when it is not known."""

    by: str
    at: float | None


def order(keys: Keys, worker: str, order: Order, by: str) -> Command[Answer]:
    """Give an order to a worker."""
    order_id = secrets.token_hex(8)
    names = (keys.workers, keys.orders(worker), keys.order_bell(worker), keys.call(order_id))
    args = (worker, order, by, ORDER_KEPT_S, order_id)
    return Command("order", scripts.ORDER, names, args, lambda reply: _ANSWERS[reply])


def standing(keys: Keys, worker: str) -> Command[Standing]:
    """What a worker has been told."""
    return Command(
        "standing",
        scripts.STANDING,
        (keys.orders(worker), keys.intake),
        (),
        lambda reply: Standing(
            text(reply[0]), text(reply[1]), text(reply[2]), bool(reply[4]), text(reply[3])
        ),
    )


def listen(keys: Keys, worker: str, timeout_s: float) -> Command[bytes | None]:
    """Wait at a worker's bell."""
    words = ("BLPOP", keys.order_bell(worker))
    return Command("bell", None, words, (f"{timeout_s:.3f}",), lambda reply: reply and reply[0])


def release_lock(keys: Keys, name: str, holder: str) -> Command[Lock | None]:
    """Free a lock, whoever holds it, or only when that is a job; answers with what it was."""

    def read(reply: bytes) -> Lock | None:
        left_ms, _, had = reply.partition(b" ")
        return Lock(name, text(had), left_s(int(left_ms))) if reply else None

    names = (keys.lock(name), keys.call(secrets.token_hex(8)))
    return Command("unlock", scripts.UNLOCK, names, (holder,), read)


def pause_queue(keys: Keys, queue: str, paused: bool, by: str) -> Command[bool]:
    """Pause a queue or let it go on; answers whether that changed it."""
    names = (keys.paused_queues, keys.pauses, keys.call(secrets.token_hex(8)))
    return Command("pause", scripts.PAUSE, names, (queue, _word(paused), by), _changed)


def pause_intake(keys: Keys, paused: bool, by: str) -> Command[bool]:
    """Pause the intake of all workers, or let them take again; answers whether that changed it."""
    names = (keys.intake, keys.call(secrets.token_hex(8)))
    return Command("intake", scripts.INTAKE, names, (_word(paused), by), _changed)


def disable_entry(keys: Keys, pjid: str, disabled: bool, by: str) -> Command[bool]:
    """Disable a periodic entry or enable it; answers whether that changed it."""
    names = (keys.periodic_disabled, keys.periodic_disablings, keys.call(secrets.token_hex(8)))
    return Command("disable", scripts.PAUSE, names, (pjid, _word(disabled), by), _changed)


def ring(keys: Keys, workers: Sequence[str]) -> Iterable[Command[int]]:
    """Have workers look for news at once, five hundred in a call."""
    for start in range(0, len(workers), MOST_BELLS):
        bells = [keys.order_bell(worker) for worker in workers[start : start + MOST_BELLS]]
        yield Command("ring", scripts.RING, bells, (), int)


def paused_queues(keys: Keys) -> Command[list[str]]:
    """Names of the paused queues."""
    words = ("SMEMBERS", keys.paused_queues)
    return Command("paused", None, words, (), lambda reply: sorted(map(text, reply)))


def pauses(keys: Keys) -> Command[dict[str, Pause]]:
    """Who paused the queues, for those that were not paused by other software."""
    return Command("pauses", None, ("HGETALL", keys.pauses), (), _read_pauses)


def disabled_entries(keys: Keys) -> Command[set[str]]:
    """Ids of the periodic entries that are disabled."""
    words = ("SMEMBERS", keys.periodic_disabled)
    return Command("disabled", None, words, (), lambda reply: set(map(text, reply)))


def disablings(keys: Keys) -> Command[dict[str, Pause]]:
    """Who disabled periodic entries."""
    return Command("disablings", None, ("HGETALL", keys.periodic_disablings), (), _read_pauses)


def intake(keys: Keys) -> Command[Pause | None]:
    """Who paused the intake; None while it is open."""
    return Command("intake", None, ("HMGET", keys.intake), ("by", "at"), _read_intake)


def _read_pauses(reply: list[bytes]) -> dict[str, Pause]:
    pauses: dict[str, Pause] = {}
    for queue, note in zip(reply[::2], reply[1::2], strict=True):
        at, _, by = text(note).partition(" ")
        pauses[text(queue)] = Pause(by, _moment(at))
    return pauses


def _read_intake(reply: list[bytes | None]) -> Pause | None:
    by, at = reply
    return None if by is None else Pause(text(by), _moment(text(at or b"")))


def _moment(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _word(paused: bool) -> str:
    return "pause" if paused else "resume"


def _changed(reply: bytes) -> bool:
    return reply == b"1"
