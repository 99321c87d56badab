"""``cogworker worker --reload``: it runs what was saved last, and survives what can't run."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

from cogworker.inspector import Inspector

from support.processes import eventually
from support.swarms import QUICK, children, is_alive, started

MARK = "import sys\nprint({!r}, file=sys.stderr, flush=True)\n"


def save_until(workers, source, log_has):
    """Save a file, each time a little different: its watcher may have begun only now."""
    number = itertools.count()

    def noticed():
        workers.write(f"{source}# {next(number) // 50}\n")
        return log_has()

    eventually(noticed)


def test_it_picks_up_changes_and_survives_a_syntax_error(workers, app):
    workers.write(MARK.format("version one"))
    worker = workers.run("worker", "-r", "tasks:cog", "--reload", **QUICK)
    worker.wait_for("ready: worker=")
    [first] = started(worker)

    two = MARK.format("version two") + "@cog.job\ndef job(): pass\n"
    save_until(workers, two, lambda: "version two" in worker.log)
    eventually(lambda: not is_alive(first))
    app.push({"class": "tasks.job"})
    eventually(lambda: Inspector(app).stats().processed == 1)

    save_until(workers, "def broken(:\n", lambda: "SyntaxError" in worker.log)
    save_until(workers, MARK.format("mended"), lambda: "mended" in worker.log)
    eventually(lambda: len(Inspector(app).workers()) == 1)
    assert "changed: files=" in worker.log
    assert "reloader started: " in worker.log
    assert "swarm " not in worker.log
    assert worker.stop() == 0
    assert Inspector(app).workers() == []


def test_an_application_that_can_t_be_imported_waits_for_a_change(workers):
    workers.write("def broken(:\n")
    worker = workers.run("worker", "-r", "tasks:cog", "--reload", **QUICK)
    worker.wait_for("waiting for a change: seat=0")
    worker.signal(signal.SIGTTIN)
    worker.wait_for("seat: seat=0 state=vacant starts_in_s=inf\n")

    assert len(started(worker)) == 1
    assert worker.log.count("can't import tasks: SyntaxError: invalid syntax (tasks.py, line") == 1
    save_until(workers, MARK.format("mended"), lambda: "ready: worker=" in worker.log)
    assert worker.stop() == 0


def test_files_that_are_no_python_and_folders_elsewhere(workers, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    here = tmp_path / "here"
    here.mkdir()
    workers.folder = here
    workers.write("")
    (here / "tasks.py").rename(elsewhere / "tasks.py")
    worker = workers.run("worker", "-r", str(elsewhere / "tasks.py"), "--reload", **QUICK)
    worker.wait_for("ready: worker=")
    numbers = itertools.count()

    def noticed(path):
        """Save a file, and another one that is no Python, until it is noticed."""
        (here / "data.txt").write_text("no code")
        path.write_text(f"{next(numbers) // 50}\n")
        return f"first={str(path)!r}" in worker.log

    eventually(lambda: noticed(elsewhere / "other.py"))
    eventually(lambda: noticed(here / "more.py"))
    assert "data.txt" not in worker.log
    assert worker.stop() == 0


def test_its_watcher_ends_with_it_even_by_sigkill(workers):
    workers.write("")
    worker = workers.run("worker", "-r", "tasks:cog", "--reload", **QUICK)
    worker.wait_for("ready: worker=")
    processes = children(worker.pid)
    assert len(processes) == 2
    worker.kill()

    eventually(lambda: not any(is_alive(pid) for pid in processes))


def test_without_watchfiles_it_says_what_to_install(tmp_path):
    (tmp_path / "a.py").write_text("")
    program = (
        "import importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'watchfiles' else find(name, *a);"
        "from cogworker.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "worker", "-r", "a", "--reload"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ended.returncode == 2
    assert ended.stderr == 'cogworker: --reload needs watchfiles: pip install "cogworker[reload]"\n'
