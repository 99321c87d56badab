"""A swarm with real processes: what it starts, what crosses the fork, what its signals do."""

import contextlib
import itertools
import json
import os
import re
import secrets
import signal
import socket
import threading
from pathlib import Path

import pytest

from cogworker._worker.host import Host
from cogworker.worker import Worker

from support.processes import eventually
from support.swarms import QUICK, children, is_alive, restart, started


@pytest.fixture
def push(app):
    def push(name, *args, **fields):
        return app.push({"class": f"tasks.{name}", "args": list(args), **fields})

    return push


def files(pid):
    """What a process has open: each file, and whether it is for writing."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            flags = re.search(
                r"flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{file.name}").read_text()
            )
            found.append((os.readlink(file), bool(int(flags[1], 8) & os.O_ACCMODE)))
    return found


def pipes(pid, *, writing):
    return {name for name, writes in files(pid) if name.startswith("pipe:") and writes == writing}


def sockets(pid):
    return {name for name, _ in files(pid) if name.startswith("socket:")}


def test_it_starts_as_many_workers_as_told_and_stops_them_all(workers, push, look):
    workers.write("@cog.job\ndef job(): pass\n")
    swarm = workers.swarm("-n", "3", count=7, **QUICK)

    pids = started(swarm)
    assert sorted(children(swarm.pid)) == sorted(pids)
    assert sorted(int(name.split(":")[1]) for name in look.identities()) == sorted(pids)
    for _ in range(20):
        push("job")
    eventually(lambda: look.stats().processed == 20)
    assert swarm.stop() == 0
    assert not any(is_alive(pid) for pid in pids)
    assert look.workers() == []
    assert swarm.log.count("INFO worker ended: ") == swarm.log.count("status=0 ") == 3
    assert swarm.log.count("asked to stop again") == 0


def test_by_default_there_is_one_worker_for_each_processor(workers):
    workers.write("")
    swarm = workers.swarm(**QUICK)

    assert len(started(swarm)) == os.cpu_count()
    assert swarm.stop() == 0


def test_each_worker_imports_the_application_by_itself_and_a_restart_runs_new_code(workers):
    workers.write("import os\nprint(f'old code in {os.getpid()}\\n', end='', flush=True)\n")
    swarm = workers.swarm("-n", "2", **QUICK)
    old = started(swarm)
    workers.write("import os\nprint(f'brand new code in {os.getpid()}\\n', end='', flush=True)\n")
    restart(swarm)
    new = started(swarm)[2:]

    assert sorted(re.findall(r"old code in (\d+)", swarm.log)) == sorted(map(str, old))
    assert sorted(re.findall(r"new code in (\d+)", swarm.log)) == sorted(map(str, new))
    assert swarm.stop() == 0


def test_preloaded_it_is_imported_once_before_the_fork(workers, push, look):
    workers.write(
        """
import os
print(f"imported in {os.getpid()}\\n", end='', flush=True)
cog.push({"class": "tasks.job"})  # by a connection that must not cross the fork
@cog.job
def job():
    for _ in range(20):
        cog.push({"class": "tasks.small"})
@cog.job
def small():
    print(f"ran in {os.getpid()}\\n", end='', flush=True)
"""
    )
    swarm = workers.swarm("-n", "2", "--preload", **QUICK)
    for _ in range(50):
        push("job", retry=0)
    eventually(lambda: sum(look.stats()[:2]) == 51 * 21)
    assert look.stats().failed == 0
    for one, two in itertools.combinations([swarm.pid, *children(swarm.pid)], 2):
        assert not sockets(one) & sockets(two)
    restart(swarm)

    assert "WARNING the application was preloaded: new workers run the same" in swarm.log
    assert re.findall(r"imported in (\d+)", swarm.log) == [str(swarm.pid)]
    assert set(re.findall(r"ran in (\d+)", swarm.log)) <= set(map(str, started(swarm)))
    assert "threads=" not in swarm.log
    assert len(set(look.identities())) == 2
    assert swarm.stop() == 0


def test_threads_that_a_preloaded_application_has_started_are_named(workers):
    workers.write(
        """
import threading
threading.Thread(target=threading.Event().wait, name="my-metrics", daemon=True).start()
"""
    )
    swarm = workers.swarm("-n", "1", "--preload", **QUICK)

    assert "threads=my-metrics\n" in swarm.log
    assert swarm.stop() == 0


@pytest.mark.parametrize("preload", [[], ["--preload"]])
def test_nothing_of_the_parent_is_open_in_its_workers(preload, workers):
    workers.write("")
    log = workers.folder / "swarm.log"
    swarm = workers.run("swarm", "-r", "tasks:cog", "-n", "2", "-L", str(log), *preload, **QUICK)
    eventually(lambda: log.exists() and "swarm ready" in log.read_text())
    swarm.signal(signal.SIGUSR2)
    eventually(lambda: "restart ends" in log.read_text())

    heard, held = pipes(swarm.pid, writing=False), pipes(swarm.pid, writing=True)
    # Its own for signals; from each worker one for messages, to each a lifeline.
    assert len(heard) == len(held) == 3
    one, two = children(swarm.pid)
    for pid, other in ((one, two), (two, one)):
        reads, writes = pipes(pid, writing=False), pipes(pid, writing=True)
        assert len(writes & heard) == len(reads & held) == 1
        assert not reads & heard
        assert not writes & held
        assert not (reads | writes) & (pipes(other, writing=False) | pipes(other, writing=True))
        assert [name for name, _ in files(pid)].count(str(log)) == 1
    assert not sockets(swarm.pid)
    assert swarm.stop() == 0


def test_what_can_t_be_used_ends_it_with_exit_code_2(workers):
    workers.write("")
    wrong_setting = workers.swarm("-n", "none", ready=False)
    assert wrong_setting.process.wait(30) == 2
    assert wrong_setting.log.startswith("cogworker: count: must be a whole number from 1")
    assert wrong_setting.log.count("\n") == 1

    wrong_module = workers.run("swarm", "-r", "nowhere", "-n", "2")
    assert wrong_module.process.wait(30) == 2
    assert "there is no module nowhere; modules are looked for" in wrong_module.log
    assert "Traceback" not in wrong_module.log

    (workers.folder / "bad.py").write_text("from cogworker import Cogworker\nCogworker(count=0)\n")
    wrong_application = workers.run("swarm", "-r", "bad", "-n", "1", "--preload")
    assert wrong_application.process.wait(30) == 2
    assert wrong_application.log.count("\n") == 1


def test_the_embedded_server_outlives_its_workers(workers):
    workers.write("import time\ntime.sleep(0.5)  # a restart is a long time without any worker\n")
    swarm = workers.swarm("-n", "1", "--no-phased", "--embedded", "data", **QUICK)
    restart(swarm)
    restart(swarm)
    assert swarm.stop() == 0

    assert (workers.folder / "data" / "server.log").read_text().count("Ready to accept") == 1


def test_the_log_in_a_file_as_json_from_parent_and_workers(workers, push, look):
    workers.write(
        """
import sys
sys.stdout = open(1, "w", closefd=False)  # with a buffer
@cog.job
def job(): print("printed")
"""
    )
    log = workers.folder / "swarm.log"
    swarm = workers.swarm("-n", "2", "-L", str(log), "--log-format", "json", ready=False, **QUICK)
    eventually(lambda: log.exists() and "swarm ready" in log.read_text())
    push("job")
    eventually(lambda: look.stats().processed == 1)
    assert swarm.stop() == 0

    records = [json.loads(line) for line in log.read_text().splitlines()]
    ready = [record for record in records if record["message"].startswith("ready: worker=")]
    assert sorted(record["pid"] for record in ready) == sorted(
        int(re.search(r"pid=(\d+)", record["message"])[1])
        for record in records
        if record["message"].startswith("worker started: ")
    )
    assert {record["pid"] for record in records if record["logger"] == "cogworker.swarm"} == {
        swarm.pid
    }
    assert swarm.log == "printed\n"  # once: what was in a buffer did not cross a fork


def test_a_log_file_that_is_moved_away_is_made_anew(workers):
    workers.write("")
    log = workers.folder / "swarm.log"
    swarm = workers.swarm("-n", "1", "-L", str(log), ready=False, **QUICK)
    eventually(lambda: log.exists() and "swarm ready" in log.read_text())
    log.rename(workers.folder / "swarm.log.1")
    swarm.signal(signal.SIGTTIN)
    eventually(lambda: log.exists() and "stacks:" in log.read_text())

    assert "WARNING seat: seat=0 state=ready" in log.read_text()
    assert swarm.stop() == 0


def test_quiet_is_for_successors_too(workers, push, look):
    workers.write("@cog.job\ndef job(): pass\n")
    swarm = workers.swarm("-n", "2", **QUICK)
    swarm.signal(signal.SIGTSTP)
    swarm.wait_for("quiet: takes no more jobs", times=2)
    push("job")
    os.kill(started(swarm)[0], signal.SIGKILL)
    swarm.wait_for("ready: worker=", times=3)
    restart(swarm)
    swarm.wait_for("ready: worker=", times=5)

    assert look.stats().enqueued == 1
    for pid in started(swarm)[2:]:  # before it could take a job
        [first, _] = re.findall(rf" pid={pid} .* (quiet|ready): ", swarm.log)
        assert first == "quiet"
    swarm.signal(signal.SIGCONT)
    eventually(lambda: look.stats().processed == 1)
    assert swarm.stop() == 0


def test_ttin_tells_of_all_seats_and_all_stacks(workers):
    workers.write("")
    swarm = workers.swarm("-n", "2", **QUICK)
    swarm.signal(signal.SIGTTIN)
    swarm.wait_for("stacks:", times=2)

    for number, pid in enumerate(started(swarm)):
        assert re.search(rf"seat: seat={number} state=ready pid={pid} for_s=\d+\n", swarm.log)
    assert swarm.stop() == 0


def test_signals_that_mean_nothing_do_nothing(workers):
    workers.write("")
    swarm = workers.swarm("-n", "1", **QUICK)
    [worker] = started(swarm)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        os.kill(worker, number)
    swarm.signal(signal.SIGUSR1)
    swarm.wait_for("SIGUSR1 means nothing, and is ignored")
    swarm.signal(signal.SIGTTIN)
    swarm.wait_for("stacks:")

    assert started(swarm) == [worker]
    assert swarm.stop() == 0


def test_under_nohup_it_is_not_hung_up(workers):
    workers.write("")
    nohup = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    program = ("-c", nohup + "from cogworker.cli import main; main()")
    swarm = workers.run("swarm", "-r", "tasks:cog", "-n", "1", program=program, **QUICK)
    swarm.wait_for("swarm ready")
    swarm.signal(signal.SIGHUP)
    swarm.signal(signal.SIGTTIN)
    swarm.wait_for("stacks:")

    assert "swarm stopping" not in swarm.log
    assert swarm.stop() == 0


def test_a_worker_that_is_told_from_afar_to_go_is_not_replaced_until_a_restart(workers, look):
    workers.write("")
    swarm = workers.swarm("-n", "2", **QUICK)
    look.stop_worker(look.identities()[0])
    swarm.wait_for("a worker retired")
    [remaining] = children(swarm.pid)
    assert len(look.workers()) == 1

    restart(swarm)
    assert len(children(swarm.pid)) == len(look.workers()) == 2
    assert remaining not in children(swarm.pid)
    look.stop_workers()

    assert swarm.process.wait(30) == 0
    assert swarm.log.count("a worker retired") == 3
    assert swarm.log.count(" status=86 (retired) ") == 3
    assert "WARNING" not in swarm.log
    assert look.workers() == []
    assert len(started(swarm)) == 4


def test_a_restart_waits_for_a_worker_that_leaves_by_itself_and_replaces_it(workers, push, look):
    workers.write(
        """
import os, pathlib, time
@cog.job
def job():
    pathlib.Path("began").touch()
    while os.path.exists("hold"):
        time.sleep(0.01)
"""
    )
    (workers.folder / "hold").touch()
    swarm = workers.swarm("-n", "2", **QUICK)
    push("job")
    eventually((workers.folder / "began").exists)
    [busy] = [name for name in look.identities() if look.held(name)]
    look.stop_worker(busy)
    swarm.wait_for("stopping: worker=")
    # The parent may hear of it later than the log.
    eventually(lambda: swarm.signal(signal.SIGTTIN) or " state=leaving " in swarm.log)
    swarm.signal(signal.SIGUSR2)
    swarm.wait_for("replacing a worker: ")
    (workers.folder / "hold").unlink()
    swarm.wait_for("restart ends")

    first, second = re.findall(r"replacing a worker: pid=(\d+)", swarm.log)
    assert f":{first}:" in busy
    assert second in map(str, started(swarm)[:2])
    assert "asked to stop again" not in swarm.log
    assert "a worker retired" not in swarm.log
    assert len(look.workers()) == 2
    assert swarm.stop() == 0


@contextlib.contextmanager
def manager(monkeypatch):
    """A service manager that listens; answers with what it has heard."""
    address = f"cogworker-{secrets.token_hex(6)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("\0" + address)
        ear.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + address)
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        heard = []

        def listen():
            with contextlib.suppress(BlockingIOError):
                while True:
                    heard.append(ear.recv(1000).decode())
            return heard

        yield listen


@pytest.mark.parametrize("command", ["worker", "swarm"])
def test_a_service_manager_hears_that_it_is_ready_well_and_stops(command, workers, monkeypatch):
    workers.write("")
    with manager(monkeypatch) as heard:
        options = ["-n", "2"] if command == "swarm" else []
        program = workers.run(command, "-r", "tasks:cog", *options, **QUICK)
        eventually(lambda: "READY=1" in heard())
        count = len(heard())
        eventually(lambda: len(heard()) > count + 5)
        assert program.stop() == 0

        words = heard()
    assert words.count("READY=1") == words.count("STOPPING=1") == 1
    told = [word for word in words if word.startswith(("STATUS=", "EXTEND_TIMEOUT_USEC="))]
    assert set(words) - set(told) == {"READY=1", "WATCHDOG=1", "STOPPING=1"}
    if command == "swarm":
        assert told[:2] == [
            "STATUS=starting, 0 of 2 workers are ready",
            "EXTEND_TIMEOUT_USEC=30000000",
        ]
        assert told[-2:] == ["STATUS=running 2 of 2 workers", "STATUS=stopping"]
    assert "WATCHDOG=1" in words[words.index("READY=1") : words.index("STOPPING=1")]


def test_a_swarm_is_ready_when_all_its_workers_are(workers, monkeypatch):
    workers.write(
        """
import os, time
try:
    open("first", "x").close()
except FileExistsError:
    while os.path.exists("hold"):
        time.sleep(0.01)
"""
    )
    (workers.folder / "hold").touch()
    with manager(monkeypatch) as heard:
        swarm = workers.swarm("-n", "2", ready=False, **QUICK)
        swarm.wait_for("ready: worker=")
        count = len(heard())
        eventually(lambda: len(heard()) > count + 3)
        assert "STATUS=starting, 1 of 2 workers are ready" in heard()
        assert not any(word.startswith(("READY", "STOPPING")) for word in heard())
        (workers.folder / "hold").unlink()
        eventually(lambda: "READY=1" in heard())
        assert swarm.stop() == 0


def test_a_worker_whose_duties_stand_still_is_silent(workers, push, monkeypatch):
    workers.write(
        """
import ctypes, pathlib
@cog.job
def hold_the_interpreter():
    pathlib.Path("began").touch()
    ctypes.PyDLL(None).sleep(3)
    pathlib.Path("ended").touch()
"""
    )
    with manager(monkeypatch) as heard:
        worker = workers.start(**QUICK)
        push("hold_the_interpreter")
        eventually((workers.folder / "began").exists)
        before = len(heard())
        eventually((workers.folder / "ended").exists)
        during = len(heard()) - before
        assert during < 10, "in three seconds, at ten pulses a second"
        assert worker.stop() == 0


def test_a_pulse_tells_that_all_duties_go_on(app):
    class Listener(Host):
        pulse_s = 0.01
        heard = 0

        def well(self):
            self.heard += 1

    host = Listener()
    worker = Worker(app.client, app.jobs, app.timetable, app.config, host)
    launcher = worker._launcher
    worker.start()
    assert worker.wait_until_ready(30)
    eventually(lambda: host.heard > 3)

    launcher._parts.heartbeat.stop(10)  # as if its thread had died
    before = host.heard
    worker.stop()
    worker.join(30)
    assert host.heard <= before + 1

    launcher.dispatcher._stepped_at -= 3600  # as if a step had not come back for an hour
    launcher._parts.heartbeat._thread = threading.current_thread()
    launcher._pulse_at = 0.0
    before = host.heard
    launcher._pulse()
    assert host.heard == before
    launcher.dispatcher._stepped_at += 3600
    launcher._pulse()
    assert host.heard == before + 1


def test_workers_do_not_know_the_service_manager(workers, push, monkeypatch):
    workers.write(
        """
import os
@cog.job
def job(): print("manager", os.environ.get("NOTIFY_SOCKET"), flush=True)
"""
    )
    with manager(monkeypatch):
        swarm = workers.swarm("-n", "1", **QUICK)
        push("job")
        swarm.wait_for("manager None")
        assert swarm.stop() == 0
