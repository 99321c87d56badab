"""``cogworker demo``: real work, a killed worker, and books that balance.

1. An embedded server and two workers start, and one job is enqueued for each file of Python's own
   standard library. Files that do not parse fail, are tried again twice, and are dead.
2. Half-way a worker that holds jobs is killed; another starts, and the jobs are rescued.
3. Once everything is settled, the results are compared with a plain count in this process.
4. However the demo ends, it stops workers and server and removes their files, but for ``--keep``.
"""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from cogworker.embedded import EmbeddedServer
from cogworker.inspector import DeadJob, Inspector, Stats

SETTINGS = {
    "COGWORKER_CONCURRENCY": "5",  # parsing holds the interpreter: more only delays the heartbeat
    "COGWORKER_HEARTBEAT_INTERVAL": "0.25",
    "COGWORKER_ORPHAN_THRESHOLD": "1",
    "COGWORKER_ORPHAN_CHECK_INTERVAL": "0.5",
    "COGWORKER_POLL_INTERVAL": "0.25",
}
STDLIB = Path(sysconfig.get_path("stdlib"))


class Screen:
    """A progress bar in a terminal, a line for every 10 % elsewhere."""

    def __init__(self) -> None:
        from rich import progress  # here: few commands need it, and it is large

        columns = progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn()
        self.bar = progress.Progress(*columns, disable=not sys.stdout.isatty())
        self._task = self.bar.add_task("", total=None)
        self._tenths = 0

    def say(self, text: str, style: str = "") -> None:
        """Print text, above the bar."""
        text = text.encode(code := self.bar.console.encoding, "backslashreplace").decode(code)
        self.bar.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def advance(self, done: int, total: int) -> None:
        """Move the bar."""
        self.bar.update(self._task, completed=done, total=total)
        if self.bar.disable and done * 10 // total > self._tenths:
            self._tenths = done * 10 // total
            self.say(f"{self._tenths * 10:3} %: {done:,} of {total:,} files")


class Crew:
    """The workers and their server: directory, settings, processes and logs."""

    def __init__(self, directory: Path, deadline: float, *, durable: bool) -> None:
        # Noted, not raised: an exception that arrives in a destructor is lost.
        self._signals: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._signals.append(number))
        self._deadline = deadline
        self._logs: dict[int, Path] = {}
        self.workers: list[subprocess.Popen[bytes]] = []
        self.server = EmbeddedServer(directory, durable=durable).start()
        self.home = Path(tempfile.mkdtemp(prefix="demo-", dir=self.server.directory))
        for name in set(os.environ) - {"COGWORKER_EMBEDDED_SERVER"}:
            if name.startswith("COGWORKER_"):
                del os.environ[name]  # a setting of the user's own application
        # For the workers, and for this process.
        os.environ.update(SETTINGS, DEMO_RESULTS=str(self.home / "results.sqlite"))
        os.environ.update(REDIS_URL=self.server.url, COGWORKER_NAMESPACE=self.home.name)

    def start_worker(self) -> int:
        """Start a worker, in a session of its own: Ctrl-C is for the demo. Answers with its pid."""
        # It uses the server itself, which therefore lives on when the demo ends before it.
        command = [sys.executable, "-P", "-m", "cogworker.cli", "worker"]
        command += ["-r", "cogworker.cli.demo_jobs:cog", "--embedded", str(self.server.directory)]
        path = self.home / f"worker-{len(self._logs) + 1}.log"
        with open(path, "wb") as log:
            worker = subprocess.Popen(  # noqa: S603  (the command is ours)
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.workers.append(worker)
        self._logs[worker.pid] = path
        return worker.pid

    def pause(self, seconds: float = 0.02) -> None:
        """Wait; raises when a signal has come, time is up, or a worker has ended by itself."""
        if self._signals:
            raise click.Abort
        if time.monotonic() > self._deadline:
            raise click.ClickException("time is up, see --timeout")
        for worker in self.workers:
            if worker.poll() is not None:
                end = self._logs[worker.pid].read_text("utf-8", "replace")[-2000:]
                raise click.ClickException(f"worker {worker.pid} ended by itself:\n{end}")
        time.sleep(seconds)

    def kill_one(self, inspector: Inspector) -> tuple[str, str, int]:
        """Kill a worker that holds jobs, if one does now; its identity, pid and their number."""
        for worker in self.workers:
            worker.send_signal(signal.SIGSTOP)  # or it could settle them before it is killed
            try:
                name = next((n for n in inspector.identities() if f":{worker.pid}:" in n), "")
                if name and inspector.held(name):
                    worker.kill()
                    worker.wait()
                    self.workers.remove(worker)
                    return name, str(worker.pid), inspector.held(name)
            finally:
                worker.send_signal(signal.SIGCONT)
        return "", "", 0

    def logs(self) -> str:
        """What the workers have logged so far."""
        return "".join(log.read_text("utf-8", "replace") for log in self._logs.values())

    def stop(self) -> None:
        """End all workers, then the server."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(30.0)
            worker.kill()
            worker.wait()
        self.server.stop()
        with open(self.server.directory / "guardian.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the server's guardian holds it to the end


def sources(limit: int | None) -> list[Path]:
    """The files of the standard library, or ``limit`` of them from all over it."""
    foreign = {"site-packages", "dist-packages"}
    files = sorted(path for path in STDLIB.rglob("*.py") if not foreign.intersection(path.parts))
    number = min(limit or len(files), len(files))
    return [files[index * len(files) // number] for index in range(number)]


def work(screen: Screen, crew: Crew, inspector: Inspector, total: int) -> tuple[Stats, int, int]:
    """Kill half-way, wait until all is settled; answers with the jobs held and rescued, too."""
    victim, pid, held, killed_at, rescued = "", "", 0, 0.0, 0
    while True:
        stats = inspector.stats()
        settled = stats.processed + stats.dead
        screen.advance(settled, total)
        if not victim and 2 * stats.processed >= total:
            victim, pid, held = crew.kill_one(inspector)
            killed_at = time.monotonic()
            if victim:
                deed = f"worker {pid} is killed (SIGKILL) while it holds {held} jobs"
                screen.say(f"half-way, {deed}; worker {crew.start_worker()} replaces it", "red")
        elif victim and not rescued and victim not in inspector.identities():
            line = rf"rescued: jobs=(\d+) worker={re.escape(victim)}\n"
            if rescued := sum(int(jobs) for jobs in re.findall(line, crew.logs())):
                seconds = time.monotonic() - killed_at
                screen.say(f"rescued {rescued} jobs of worker {pid} after {seconds:.1f} s", "green")
        unsettled = stats.enqueued + stats.in_flight + stats.scheduled + stats.retrying
        if settled >= total and not unsettled and (rescued or not victim):
            return stats, held, rescued
        crew.pause()


def run(screen: Screen, crew: Crew, files: Sequence[Path]) -> bool:
    """Have the files counted; answers whether all is right."""
    from cogworker.cli import demo_jobs  # only now: it reads its environment

    inspector = Inspector(demo_jobs.cog)
    with screen.bar:
        pids = f"{crew.start_worker()} and {crew.start_worker()}"
        while len(inspector.identities()) < 2:
            crew.pause()
        screen.say(f"workers {pids} count what {len(files):,} files of {STDLIB} define")
        started = time.monotonic()
        demo_jobs.count_file.enqueue_many((str(path),) for path in files)
        stats, held, rescued = work(screen, crew, inspector, len(files))
        seconds = time.monotonic() - started
    for line in sorted(map(_obituary, inspector.dead(len(files)))):
        screen.say(line if screen.bar.disable else line[: screen.bar.console.width], "yellow")
    found = {"files": stats.processed + stats.dead, "parsed": 0, "dead": stats.dead}
    found |= {**demo_jobs.sums(), "retries": stats.failed - stats.dead, "jobs rescued": rescued}
    rows = {name: f"{number:,}" for name, number in found.items()}
    rows |= {"seconds": f"{seconds:.1f}", "files a second": f"{len(files) / seconds:,.0f}"}
    screen.say("\n" + "".join(f"  {name:<14}{value:>12}\n" for name, value in rows.items()))
    screen.say("the same files are counted again, in one process and without a queue ...")
    os.environ["DEMO_RESULTS"] = str(crew.home / "plain.sqlite")
    for path in files:
        crew.pause(0)
        with contextlib.suppress(Exception):  # whatever it is, the job fails with it, too
            demo_jobs.count_file(str(path))
    plain = demo_jobs.sums()
    right = {"files": len(files), **plain, "dead": len(files) - plain["parsed"]}
    right |= {"jobs rescued": held, "lost claims": crew.logs().count(" lost claim: ")}
    return is_right(screen, found | {"lost claims": stats.lost_claims}, right)


def is_right(screen: Screen, found: Mapping[str, int], right: Mapping[str, int]) -> bool:
    """Compare, and print the verdict."""
    wrong = [name for name in right if found[name] != right[name]]
    for name in wrong:
        screen.say(f"{name}: {found[name]:,}, but it should be {right[name]:,}", "bold red")
    if not wrong:
        screen.say("equal to a plain count", "bold green")
    return not wrong


def _obituary(job: DeadJob) -> str:
    payload = job.payload or {}
    path = Path(payload["args"][0]).relative_to(STDLIB)
    return f"dead: {path}: {payload['error_class']}: {payload['error_message']}".split("\n")[0]


@click.command()
@click.option("--files", "limit", type=click.IntRange(1), metavar="N", help="Only N of the files.")
@click.option("--timeout", default=300.0, metavar="SECONDS", help="Give up after that.  [300]")
@click.option("--keep", is_flag=True, help="Leave server and workers running, in .cogworker-demo.")
def demo(limit: int | None, timeout: float, keep: bool) -> None:
    """Count what Python's standard library defines, and kill a worker half-way."""
    screen, deadline = Screen(), time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        place = ".cogworker-demo"
        if not keep:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="cogworker-demo-"))
        crew = Crew(Path(place), deadline, durable=keep)
        stack.callback(crew.stop)
        right = run(screen, crew, sources(limit))
        if keep:
            stack.pop_all()
            screen.say(
                f"\nserver and workers go on; look at them, and end them:\n"
                f"  export REDIS_URL={crew.server.url} COGWORKER_NAMESPACE={crew.home.name}\n"
                f"  tail {crew.home}/worker-*.log\n"
                f"  kill {' '.join(str(worker.pid) for worker in crew.workers)}"
            )
    sys.exit(0 if right else 1)
