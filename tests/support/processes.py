"""Real worker processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

T = TypeVar("T")

DEADLINE_S = 30.0


def eventually(condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
    """Wait until a condition holds; answers with what it said."""
    until = time.monotonic() + deadline_s
    while not (answer := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {deadline_s} s: {condition}")
        time.sleep(0.01)
    return answer


def lines(path: Path) -> list[str]:
    """The lines of a file that jobs write; none while it is not there."""
    return path.read_text().splitlines() if path.exists() else []


def freeze(pid: int) -> None:
    """Stop a process by a signal, and wait until it has stopped.

    Its threads go on until one of them has had the processor to take the signal.
    """
    os.kill(pid, signal.SIGSTOP)

    def has_stopped() -> bool:
        states = [
            stat.read_text().rpartition(")")[2].split()[0]
            for stat in Path(f"/proc/{pid}/task").glob("*/stat")
        ]
        return set(states) <= {"T", "t", "Z"}

    eventually(has_stopped)


class WorkerProcess:
    """``cogworker worker``, or ``swarm``, with its log in a file and in a group of its own."""

    def __init__(
        self,
        command: Sequence[str],
        settings: Mapping[str, Any],
        log: Path,
        cwd: Path,
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        environment = {
            **os.environ,
            **{f"COGWORKER_{name.upper()}": str(value) for name, value in settings.items()},
            "PYTHONPATH": str(cwd),
            "PYTHONUNBUFFERED": "1",
            **environ,
        }
        self.log_file = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text("utf-8", "replace")

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the log has a text that many times."""

        def said() -> bool:
            if self.process.poll() is not None and self.log.count(text) < times:
                raise AssertionError(f"ended without {text!r}:\n{self.log}")
            return self.log.count(text) >= times

        eventually(said)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def freeze(self) -> None:
        freeze(self.pid)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill it with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, deadline_s: float = DEADLINE_S) -> int:
        """TERM, and the exit code."""
        self.process.terminate()
        return self.process.wait(deadline_s)


class Workers:
    """Starts worker processes for one application, and ends those that still live."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.settings = settings
        self.started: list[WorkerProcess] = []

    def write(self, source: str) -> None:
        """Make the module ``tasks``, with ``cog`` to declare jobs on."""
        head = "from cogworker import Cogworker, current_job\n\ncog = Cogworker()\n\n"
        (self.folder / "tasks.py").write_text(head + source, "utf-8")

    def start(self, *options: str, ready: bool = True, **settings: Any) -> WorkerProcess:
        """Start a worker; by default wait until it is ready."""
        worker = self.run("worker", "-r", "tasks:cog", *options, **settings)
        if ready:
            worker.wait_for("ready: worker=")
        return worker

    def swarm(self, *options: str, ready: bool = True, **settings: Any) -> WorkerProcess:
        """Start a swarm; by default wait until all its workers are ready."""
        swarm = self.run("swarm", "-r", "tasks:cog", *options, **settings)
        if ready:
            swarm.wait_for("swarm ready: workers=")
            # The parent may know it before the workers have logged it.
            swarm.wait_for("ready: worker=", times=swarm.log.count("worker started: "))
        return swarm

    def run(
        self,
        *arguments: str,
        program: Sequence[str] = ("-m", "cogworker.cli"),
        environ: Mapping[str, str] = MappingProxyType({}),
        **settings: Any,
    ) -> WorkerProcess:
        """Start a command of ``cogworker``."""
        worker = WorkerProcess(
            [sys.executable, *program, *arguments],
            {**self.settings, **settings},
            self.folder / f"worker{len(self.started)}.log",
            self.folder,
            environ,
        )
        self.started.append(worker)
        return worker

    def end(self) -> None:
        for worker in self.started:
            worker.end()


@contextmanager
def workers(folder: Path, settings: Mapping[str, Any]) -> Iterator[Workers]:
    """Workers that end with the block."""
    started = Workers(folder, settings)
    try:
        yield started
    finally:
        started.end()
