"""What a worker says of itself, and how an idle one is woken."""

from collections.abc import Mapping, Sequence

from cogworker._redis import scripts
from cogworker._redis.command import Command, Word
from cogworker._redis.keys import Keys


def beat(keys: Keys, worker: str, facts: Mapping[str, str], lasts_s: float) -> Command[float]:
    """Say that a worker lives, and what it does; answers with the server's time."""
    fields = [word for pair in facts.items() for word in pair]
    args: list[Word] = [worker, max(1, round(lasts_s)), *fields]
    return Command("beat", scripts.BEAT, (keys.workers, keys.presence(worker)), args, float)


def listen(keys: Keys, queues: Sequence[str], timeout_s: float) -> Command[bytes | None]:
    """Wait for a token in the wake-up list of one of the queues; answers with the list's key."""
    lists = [keys.wake(name) for name in queues]
    return Command(
        "listen", None, ("BLPOP", *lists), (f"{timeout_s:.3f}",), lambda reply: reply and reply[0]
    )


def pass_on(wake_list: bytes) -> Command[int]:
    """Put back a token that this worker has no use for, so that another one gets it."""
    return Command("pass_on", None, ("LPUSH", wake_list.decode()), ("1",), int)
