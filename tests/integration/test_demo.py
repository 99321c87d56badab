"""The demo with real processes: it counts right, says what it does, and leaves nothing behind."""

import ast
import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cogworker import Cogworker
from cogworker.cli import demo
from cogworker.inspector import Inspector

pytest.importorskip("rich", reason="the demo draws with rich")

Run = Callable[..., subprocess.Popen[str]]
FEW = 150
WITHIN_S = 100.0


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.01)


def processes(directory: Path) -> dict[int, str]:
    """Processes whose command names the directory: workers, guardian, server."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        if str(directory) in command:
            found[int(file.parent.name)] = command
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """Where the demo works: a short path, so that the server's socket, its name for ps, is there.

    What the demo leaves running is a failure of the test, and ends here.
    """
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory).resolve()
        for pid in processes(Path(directory).resolve()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(place: Path) -> Iterator[Run]:
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "cogworker.cli", "demo", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=place,
            env={**os.environ, "TMPDIR": str(place), "COGWORKER_CONCURRENCY": "nonsense"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def leaves_nothing(place: Path) -> None:
    wait_until(lambda: not processes(place), f"no process is left: {processes(place)}")
    assert list(place.iterdir()) == []


def parse(path: Path) -> ast.AST | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return None


def number_with_a_dead_file() -> int:
    bad = {path for path in demo.sources(None) if "bad" in path.name and parse(path) is None}
    numbers = (n for n in range(FEW, 4 * FEW) if bad.intersection(demo.sources(n)))
    number = next(numbers, None)
    if number is None:
        pytest.skip("this interpreter's standard library comes without files that do not parse")
    return number


def table(output: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\w[\w ]*?) {2,}([\d,.]+)$", output, re.M))


def test_a_run_counts_right_through_a_kill_and_leaves_nothing_behind(
    place: Path, start: Run
) -> None:
    number = number_with_a_dead_file()
    trees = [(path, parse(path)) for path in demo.sources(number)]
    dead = [path for path, tree in trees if tree is None]
    nodes = [node for _, tree in trees if tree is not None for node in ast.walk(tree)]

    process = start("--files", str(number))
    output, _ = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 0, output
    rows = table(output)
    assert rows["files"] == str(number)
    assert rows["parsed"] == str(number - len(dead))
    assert rows["dead"] == str(len(dead))
    assert rows["retries"] == str(2 * len(dead))
    functions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)
    assert rows["functions"] == f"{functions:,}"
    assert rows["classes"] == f"{sum(isinstance(node, ast.ClassDef) for node in nodes):,}"
    assert "equal to a plain count" in output
    for path in dead:
        assert re.search(
            rf"^dead: {re.escape(str(path.relative_to(demo.STDLIB)))}: \w+: .", output, re.M
        )
    killed = re.search(r"worker (\d+) is killed \(SIGKILL\) while it holds (\d+) jobs", output)
    assert killed, output
    rescued = f"rescued {killed[2]} jobs of worker {killed[1]} after"
    assert rescued in output
    assert rows["jobs rescued"] == killed[2] != "0"
    assert f"\n100 %: {number} of {number} files\n" in output
    leaves_nothing(place)


def test_a_result_that_was_tampered_with_is_shown_and_exits_1(place: Path, start: Run) -> None:
    process = start("--files", str(FEW))

    def tampered() -> bool:
        assert process.poll() is None, process.communicate()[0]
        for file in place.glob("*/*/results.sqlite"):
            with closing(sqlite3.connect(file, timeout=30)) as database:
                try:
                    with database:
                        database.execute("INSERT INTO counts VALUES ('none.py', 0, 1, 0)")
                except sqlite3.OperationalError:  # the table is not there yet
                    return False
            return True
        return False

    wait_until(tampered, "a row that no worker has written is in the results")
    output, _ = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1, output
    assert re.search(r"^parsed: [\d,]+, but it should be [\d,]+$", output, re.M)
    assert re.search(r"^classes: [\d,]+, but it should be [\d,]+$", output, re.M)
    assert "functions: " not in output
    assert "equal" not in output
    leaves_nothing(place)


def test_the_verdict_names_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    right = {"files": 3, "lines": 1000, "lost claims": 0}

    assert demo.is_right(demo.Screen(), {**right, "dead": 1}, right)
    assert not demo.is_right(demo.Screen(), {**right, "lines": 1001}, right)
    assert capsys.readouterr().out.splitlines() == [
        "equal to a plain count",
        "lines: 1,001, but it should be 1,000",
    ]


def test_keep_leaves_server_and_workers_running(place: Path, start: Run) -> None:
    process = start("--files", str(FEW), "--keep")
    output, _ = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 0, output
    [(url, namespace)] = re.findall(r"REDIS_URL=(\S+) COGWORKER_NAMESPACE=(\S+)$", output, re.M)
    [pids] = re.findall(r"^  kill ([\d ]+)$", output, re.M)
    [logs] = re.findall(r"^  tail (\S+)/worker-\*\.log$", output, re.M)
    app = Cogworker(redis_url=url, namespace=namespace)
    inspector = Inspector(app)
    assert sorted(name.split(":")[-2] for name in inspector.identities()) == sorted(pids.split())
    assert inspector.stats().processed + inspector.stats().dead == FEW
    app.close()
    assert {path.name for path in Path(logs).glob("*.log")} == {
        f"worker-{number}.log" for number in (1, 2, 3)
    }

    for pid in pids.split():
        os.kill(int(pid), signal.SIGTERM)
    wait_until(lambda: not processes(place), "workers and server have ended")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_nothing_behind(
    place: Path, start: Run, number: signal.Signals
) -> None:
    process = start()
    assert process.stdout is not None
    assert process.stdout.readline().startswith("workers ")
    assert len(processes(place)) >= 4  # two workers, the guardian, the server

    process.send_signal(number)
    output, _ = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1
    assert "Aborted!" in output
    leaves_nothing(place)


@pytest.mark.parametrize("seconds", ["0.05", "1.5"])
def test_a_run_that_takes_too_long_says_so_and_leaves_nothing_behind(
    place: Path, start: Run, seconds: str
) -> None:
    process = start("--timeout", seconds)
    output, _ = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1
    assert output.endswith("Error: time is up, see --timeout\n")
    leaves_nothing(place)


def test_a_worker_that_ends_by_itself_ends_the_demo(place: Path, start: Run) -> None:
    process = start()
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    os.kill(pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1
    assert f"Error: worker {pid} ended by itself:\n" in output
    leaves_nothing(place)
