"""Mixed load and random faults for some minutes, and a balance at the end.

    python -m support.soak 10 [seed]

Two swarms of two workers, one of them behind a proxy, and a server with an append-only file. Jobs
of all kinds are pushed all the time; every second or so something happens to a worker, a parent,
the server, or the network. At the end everything is well again, and each job must be done or dead,
each counter exact, and each second run explained by something that was killed, frozen, cut off or
stopped.
"""

import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import redis as redis_client

from cogworker import Cogworker
from cogworker.errors import RedisError
from cogworker.inspector import Inspector

from support.processes import WorkerProcess, Workers, eventually, freeze
from support.proxy import Proxy, proxy
from support.server import Server, server
from support.swarms import children

SETTINGS = {
    "heartbeat_interval": 0.5,
    "orphan_threshold": 6,
    "orphan_check_interval": 0.5,
    "poll_interval": 0.2,
    "redis_timeout": 2,
    "shutdown_timeout": 5,
    "max_orphanings": 100_000,  # the innocent die with the guilty
    "dead_max_jobs": 10_000_000,
    "log_level": "error",
}
KINDS = ("plain", "coroutine", "fails_once", "fails", "slow", "once", "later")
TASKS = """
import asyncio, os, threading, time
from cogworker import RetryPolicy
local = threading.local()
def note(number):
    if not hasattr(local, "file"):
        path = {folder!r} + f"/ran-{{os.getpid()}}-{{threading.get_ident()}}"
        local.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(local.file, f"{{number}} {{current_job().attempt}}\\n".encode())
@cog.job
def plain(number):
    note(number)
later = cog.job(name="tasks.later")(plain.function)
@cog.job
async def coroutine(number):
    note(number)
    await asyncio.sleep(0.005)
@cog.job(retry=RetryPolicy(1, delay=(0.5,)))
def fails_once(number):
    note(number)
    if current_job().attempt == 1:
        raise ValueError(number)
@cog.job(retry=False)
def fails(number):
    note(number)
    raise ValueError(number)
@cog.job
def slow(number):
    note(number)
    time.sleep(0.2)
@cog.job(at_most_once=True)
def once(number):
    note(number)
    time.sleep(0.01)
"""


class Soak:
    """One soak."""

    def __init__(self, folder: Path, own: Server, between: Proxy, seed: int) -> None:
        self.chance = random.Random(seed)
        self.own = own
        self.between = between
        self.app = Cogworker(redis_url=own.url, redis_timeout=2)
        self.look = Inspector(self.app)
        self.workers = Workers(folder, {})
        self.workers.write(TASKS.format(folder=str(folder)))
        self.jobs = {
            kind: self.app.job(
                name=f"tasks.{kind}", retry=kind == "fails_once", at_most_once=kind == "once"
            )(_stand_in)
            for kind in KINDS
        }
        self.folder = folder
        self.kinds: dict[int, str] = {}
        self.in_doubt: set[int] = set()
        self.happened: Counter[str] = Counter()
        self.swarms: list[WorkerProcess] = [self.swarm(own.url), self.swarm(between.url)]
        self.faults: dict[str, Callable[[], None]] = {
            "worker killed": self.kill_worker,
            "worker frozen": self.freeze_worker,
            "worker stopped": self.stop_worker,
            "parent killed": self.kill_parent,
            "restart": lambda: self.chance.choice(self.swarms).signal(signal.SIGUSR2),
            "server killed": self.kill_server,
            "server frozen": self.freeze_server,
            "connections cut": self.cut,
            "network stalled": self.stall,
            "scripts flushed": lambda: self.ask("SCRIPT", "FLUSH"),
            "clients killed": lambda: self.ask("CLIENT", "KILL", "TYPE", "normal"),
            "queue paused": self.pause,
            "memory full": self.fill,
        }

    # The load.

    def push(self) -> None:
        """Some jobs of each kind; a push without an answer may have made them."""
        for kind, job in self.jobs.items():
            first = len(self.kinds)
            numbers = range(first, first + self.chance.randrange(1, 60))
            self.kinds.update(dict.fromkeys(numbers, kind))
            try:
                if kind == "later":
                    for number in numbers:
                        job.enqueue_in(self.chance.random() * 5, number)
                else:
                    job.enqueue_many([(number,) for number in numbers])
            except RedisError:
                self.in_doubt.update(numbers)

    # What happens.

    def swarm(self, url: str) -> WorkerProcess:
        return self.workers.swarm("-n", "2", ready=False, redis_url=url, **SETTINGS)

    def a_worker(self) -> int | None:
        alive = [pid for swarm in self.swarms for pid in children(swarm.pid)]
        return self.chance.choice(alive) if alive else None

    def kill_worker(self) -> None:
        if (pid := self.a_worker()) is not None:
            os.kill(pid, signal.SIGKILL)

    def stop_worker(self) -> None:
        names = self.look.identities()
        if names:
            self.look.quiet_worker(self.chance.choice(names), by="soak")
        if (pid := self.a_worker()) is not None:
            os.kill(pid, signal.SIGTERM)

    def freeze_worker(self) -> None:
        """For less than the threshold, or for more."""
        pid = self.a_worker()
        if pid is not None:
            freeze(pid)
            time.sleep(self.chance.choice((1, 3, 14)))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill_parent(self) -> None:
        index = self.chance.randrange(2)
        self.swarms[index].kill()
        self.swarms[index] = self.swarm(self.own.url if index == 0 else self.between.url)

    def kill_server(self) -> None:
        self.own.kill()
        time.sleep(self.chance.random() * 3)
        self.own.start()

    def freeze_server(self) -> None:
        freeze(self.own.pid)
        time.sleep(self.chance.random() * 5)
        os.kill(self.own.pid, signal.SIGCONT)

    def cut(self) -> None:
        self.between.cut()
        time.sleep(self.chance.choice((0.1, 1, 12)))
        self.between.heal()

    def stall(self) -> None:
        self.between.stall()
        time.sleep(self.chance.choice((1, 4, 12)))
        self.between.heal()

    def pause(self) -> None:
        self.look.pause_queue("default", by="soak")
        time.sleep(self.chance.random())
        self.look.resume_queue("default", by="soak")

    def fill(self) -> None:
        self.ask("CONFIG", "SET", "maxmemory", 1)
        time.sleep(self.chance.random() * 2)
        self.ask("CONFIG", "SET", "maxmemory", 0)

    def ask(self, *words: object) -> None:
        with (
            redis_client.Redis(port=self.own.port) as client,
            contextlib.suppress(redis_client.RedisError),
        ):
            client.execute_command(*words)

    # The whole.

    def run(self, minutes: float) -> None:
        ends = time.monotonic() + 60 * minutes
        while time.monotonic() < ends:
            self.push()
            name = self.chance.choice(list(self.faults))
            with contextlib.suppress(RedisError):
                self.faults[name]()
            self.happened[name] += 1
            self.push()
            time.sleep(self.chance.random())
            print(
                f"\r{len(self.kinds):,} jobs, {self.happened.total()} faults ", end="", flush=True
            )

    def balance(self) -> None:
        """All is well again: everything must come to its end, and the books must balance."""
        self.between.heal()
        self.look.resume_queue("default")
        for worker in self.look.identities():
            self.look.resume_worker(worker)
        eventually(lambda: sum(self.look.stats()[4:8]) == 0, 240)
        for swarm in self.swarms:
            assert swarm.stop(60) == 0
        runs = self.runs()
        ran = {number for number, _ in runs}
        lost = self.kinds.keys() - ran - self.in_doubt
        stats = self.look.stats()
        by_kind = Counter(self.kinds[number] for number in ran)
        again = Counter(self.kinds[number] for number, _ in runs.elements())
        print(f"\n{dict(self.happened)}")
        print(f"jobs by kind: {dict(by_kind)}; runs: {dict(again)}; {stats}")
        abandoned = sum(
            dead.payload is not None
            and dead.payload["error_class"] == "cogworker.errors.JobAbandoned"
            for dead in self.look.dead(10_000_000)
        )
        # One that was never begun may be among the abandoned.
        never_begun = {number for number in lost if self.kinds[number] == "once"}
        assert lost <= never_begun, f"lost: {sorted(lost - never_begun)[:20]}"
        assert len(never_begun) <= abandoned
        twice = [
            number
            for (number, _), times in runs.items()
            if times > 1 and self.kinds[number] == "once"
        ]
        assert twice == [], "a job that may run once has run twice"
        assert stats.dead == by_kind["fails"] + abandoned
        done = len(ran) + len(never_begun) - stats.dead
        assert stats.processed == done, f"processed {stats.processed}, should be {done}"
        assert stats.failed == by_kind["fails"] + by_kind["fails_once"] + abandoned
        assert self.look.workers() == []
        print(
            f"balanced: {stats.processed:,} done, {stats.dead:,} dead, {stats.lost_claims} lost "
            f"claims, {again.total() - len(runs)} second runs, {abandoned} abandoned"
        )

    def runs(self) -> Counter[tuple[int, int]]:
        """How often each attempt of each job ran."""
        runs: Counter[tuple[int, int]] = Counter()
        for path in self.folder.glob("ran-*"):
            for line in path.read_text().splitlines():
                number, attempt = map(int, line.split())
                runs[number, attempt] += 1
        return runs


def _stand_in(number: int) -> None:
    """What the jobs do is in the workers' module."""


def main() -> None:
    """Soak for as many minutes as the first argument says."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as own:
        own.start()
        with proxy(own.url) as between:
            soak = Soak(Path(name), own, between, seed)
            try:
                soak.run(minutes)
                soak.balance()
            finally:
                soak.workers.end()


if __name__ == "__main__":
    main()
