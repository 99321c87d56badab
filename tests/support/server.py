"""A server of a test's own, which can be stopped, killed and started again on the same port."""

import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from cogworker.embedded import find_server

from support.processes import eventually


def free_port(host: str = "127.0.0.1") -> int:
    """A port of the loopback address that nobody uses.

    It is none of those that the system gives to outgoing connections: one of them could get it
    while the server that it belongs to is down.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with suppress(OSError), socket.socket(family) as probe:
            probe.bind((host, port))
            return port


class Server:
    """A real server with an append-only file that is written at every change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis(port=self.port)
        self._process: subprocess.Popen[bytes] | None = None
        self.extra: dict[str, str] = {}  # further options, by name

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.launch()
        eventually(self._serves)

    def launch(self) -> None:
        """Start it; it may take its time to load its data."""
        command = [find_server(), *(word for pair in self.options().items() for word in pair)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def options(self) -> dict[str, str]:
        """What it is started with."""
        return {
            "--port": str(self.port), "--bind": "127.0.0.1", "--dir": str(self.folder),
            "--appendonly": "yes", "--appendfsync": "always", "--save": "",
            "--logfile": str(self.folder / "server.log"), **self.extra,
        }  # fmt: skip

    def stop(self) -> None:
        """Shut it down."""
        if self._process is not None:
            self.client.close()
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self.client.close()
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def forget(self) -> None:
        """Remove its data while it is stopped."""
        shutil.rmtree(self.folder / "appendonlydir")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _serves(self) -> bool:
        try:
            return self.client.ping()
        except redis.RedisError:
            return False


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """A server that ends with the block; it is not started yet."""
    own = Server(folder)
    try:
        yield own
    finally:
        own.kill()
        own.client.close()
