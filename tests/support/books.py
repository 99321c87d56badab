"""Numbered jobs, and the account of them: each ran once, and nothing is left over."""

from collections import Counter
from pathlib import Path
from typing import Any

import redis as redis_client

from cogworker import Cogworker
from cogworker.errors import RedisError
from cogworker.inspector import Inspector

from support.dump import ANSWERS, dump_of
from support.processes import Workers, eventually
from support.throughput import pop_throughput

SOURCE = """
import asyncio, os, time
def note(number):
    fd = os.open({ran!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{{number}}\\n".encode())
    os.close(fd)
@cog.job
def job(number):
    note(number)
    time.sleep(0.002)
@cog.job
async def coroutine(number):
    note(number)
    await asyncio.sleep(0.002)
@cog.job
def held(number):
    note(number)
    while os.path.exists({hold!r}):
        time.sleep(0.01)
"""


class Books:
    """What was pushed, and what ran: one line a run in the file ``ran``.

    ``app`` reaches the server directly, whatever happens to the workers' connections.
    """

    def __init__(self, app: Cogworker, workers: Workers, folder: Path) -> None:
        self.app = app
        self.look = Inspector(app)
        self.pushed: list[int] = []
        self.in_doubt: list[int] = []
        self._next = 0
        self._before = 0
        self._ran = folder / "ran"
        self._hold = folder / "hold"
        workers.write(SOURCE.format(ran=str(self._ran), hold=str(self._hold)))

    def push(self, count: int = 1, name: str = "job", app: Cogworker | None = None) -> None:
        """Push jobs, by default past all faults; one that gets no answer is in doubt."""
        self._before = len(self.ran())
        for _ in range(count):
            number, payload = self._number(name)
            try:
                (app or self.app).push(payload)
            except RedisError:
                self.in_doubt.append(number)
                raise
            self.pushed.append(number)

    async def apush(self, app: Cogworker, count: int = 1, name: str = "job") -> None:
        """The same from an event loop."""
        for _ in range(count):
            number, payload = self._number(name)
            try:
                await app.apush(payload)
            except RedisError:
                self.in_doubt.append(number)
                raise
            self.pushed.append(number)

    def _number(self, name: str) -> tuple[int, dict[str, Any]]:
        self._next += 1
        return self._next, {"class": f"tasks.{name}", "args": [self._next]}

    def hold(self, count: int) -> None:
        """Push jobs that run until ``release``, and wait until all of them do."""
        self._hold.touch()
        before = len(self.ran())
        self.push(count, "held")
        eventually(lambda: len(self.ran()) >= before + count)

    def release(self) -> None:
        """Let the held jobs end."""
        self._hold.unlink()

    def ran(self) -> list[int]:
        """The number of each run, in order."""
        return [int(line) for line in self._ran.read_text().split()] if self._ran.exists() else []

    def wait_until_begun(self, more: int = 1) -> None:
        """Wait until that many more have begun to run than before the last push: in mid-work."""
        eventually(lambda: len(self.ran()) >= self._before + more)

    def wait_until_done(self, *, lost: int = 0) -> None:
        """Wait until all that was pushed is settled, but for what the server has lost."""
        eventually(lambda: self.look.stats().processed >= len(self.pushed) - lost, 60)

    def check(self, *, lost: int = 0, lost_claims: int = 0) -> None:
        """After a clean stop: each job ran once, nothing lies anywhere, nobody is registered.

        ``lost`` jobs are missing in the counters since the server has lost its data;
        ``lost_claims`` of them ran meanwhile.
        """
        ran = Counter(self.ran())
        doubtful = {number for number in self.in_doubt if ran[number]}
        expected = dict.fromkeys((*self.pushed, *doubtful), 1)
        assert dict(ran) == expected, "a job was lost, or ran twice though nobody died"
        stats = self.look.stats()
        assert stats == (len(expected) - lost, 0, 0, lost_claims, 0, 0, 0, 0, 0)
        assert self.look.workers() == []
        with redis_client.Redis.from_url(self.app.config.redis_url) as client:
            rest = dump_of(client, self.app.config.namespace)
        assert pop_throughput(rest)["processed"] == stats.processed
        # Beside the counters, only what belongs to queues and producers may stay.
        known = ("queues", "stats:processed", "stats:lost_claims", "wake:default", *ANSWERS)
        left = [key for key in rest if not key.startswith(known)]
        assert left == [], "a worker has left something behind"
