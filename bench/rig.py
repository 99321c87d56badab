"""A server and workers of the benchmarks' own, and the questions they are asked."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from redis import exceptions as redis_errors
from redis.connection import Connection

from bench.jobs import cog, noop
from cogworker.embedded import find_server

ROOT = Path(__file__).resolve().parent.parent
COMPLAINT = re.compile(r" (WARNING|ERROR|CRITICAL) |^Traceback|^[\w.]*(Error|Exception)\b")

T = TypeVar("T")


class TooSlow(Exception):
    """Something did not happen within the time that it was given."""


class Rig:
    """One server, emptied before each run, and whatever was noticed meanwhile."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.notes: list[str] = []
        self.workers: list[Worker] = []
        self._connection = self.connect()
        self.settings = {"redis_url": f"redis://127.0.0.1:{port}/0", "namespace": "bench"}
        cog.configure(flags=self.settings)
        self.keys = cog.client.keys

    def connect(self) -> Connection:
        return Connection(host="127.0.0.1", port=self.port, socket_timeout=30, protocol=2)

    def ask(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()

    def info(self, section: str) -> dict[str, str]:
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def script_calls(self) -> int:
        said = self.info("commandstats").get("cmdstat_evalsha", "calls=0,")
        return int(said.split(",")[0].removeprefix("calls="))

    def processed(self) -> int:
        # Not through the Inspector: its script would count among the workers' round trips.
        return int(self.ask("GET", self.keys.processed) or 0)

    def hold(self) -> None:
        """Let no worker take from the queue ``default``."""
        self.ask("SADD", self.keys.paused_queues, "default")

    def release(self) -> int:
        """Let all workers, at once: they listen at the queue ``kick``. Answers with its jobs."""
        self.ask("SREM", self.keys.paused_queues, "default")
        return len(noop.using(queue="kick").enqueue_many([()] * len(self.workers)))

    def wait(self, question: Callable[[], T], what: str, timeout_s: float = 120) -> T:
        """Ask until the answer is true."""
        deadline = time.monotonic() + timeout_s
        while not (answer := question()):
            if ended := [worker for worker in self.workers if worker.process.poll() is not None]:
                raise RuntimeError(f"a worker ended while waiting for {what}: {ended[0].log()}")
            if time.monotonic() > deadline:
                raise TooSlow(f"{what}: not within {timeout_s:.0f} s")
            time.sleep(0.003)
        return answer


class Worker:
    """A worker process, from its ``ready`` to its clean end."""

    def __init__(
        self,
        rig: Rig,
        *queues: str,
        concurrency: int = 10,
        waits: bool = False,
        middleware: bool = False,
    ) -> None:
        stem = rig.directory / f"worker-{time.monotonic_ns()}"
        self._log, self.out, self.waits = map(stem.with_suffix, (".log", ".out", ".waits"))
        self._rig = rig
        self._command = [sys.executable, "-m", "cogworker.cli", "worker", "-r", "bench.jobs:cog"]
        self._command += ["-c", str(concurrency), *(word for q in queues for word in ("-q", q))]
        settings = {f"COGWORKER_{name.upper()}": value for name, value in rig.settings.items()}
        self._environment = {**os.environ, **settings, "BENCH_OUT": str(self.out)}
        if middleware:
            self._environment["BENCH_MIDDLEWARE"] = "1"
        if waits:
            self._environment["BENCH_WAITS"] = str(self.waits)

    def __enter__(self) -> Self:
        with open(self._log, "wb") as log:
            self.process = _spawn(self._command, log, self._environment)
        self._rig.workers.append(self)
        try:
            self._rig.wait(lambda: "INFO ready:" in self.log(), "a worker's start", 30)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._rig.workers.remove(self)
        if _end(self.process, 15) != 0:
            self._rig.notes.append(f"a worker ended with status {self.process.returncode}")
        complaints = [line for line in self.log().splitlines() if COMPLAINT.search(line)]
        if complaints:
            self._rig.notes.append(f"a worker's log, {len(complaints)} lines: {complaints[0]}")
        for file in (self._log, self.out, self.waits):
            file.unlink(missing_ok=True)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def told(self) -> list[float]:
        """The numbers that its jobs told."""
        return [float(line) for line in self.out.read_text().splitlines()]

    def resident_kb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return float(status.split("VmRSS:")[1].split()[0])


def _spawn(command: list[str], log: Any, env: dict[str, str] | None = None) -> subprocess.Popen:
    # In a session of its own, so that Ctrl-C reaches us alone, and we end it.
    return subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip


def _end(process: subprocess.Popen, timeout_s: float) -> int:
    process.terminate()
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@contextlib.contextmanager
def server(directory: Path) -> Iterator[Rig]:
    """A server on a free port of the loopback interface that keeps nothing on disk."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": directory}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    with open(directory / "server.log", "wb") as log:
        process = _spawn([find_server(), *words], log)
    try:
        rig = Rig(directory, port)
        rig.wait(lambda: _answers(rig), "the server's first answer", 15)
        yield rig
    finally:
        cog.close()
        _end(process, 10)


def _answers(rig: Rig) -> bool:
    with contextlib.suppress(redis_errors.ConnectionError):
        return rig.ask("PING") == b"PONG"
    return False
