"""A swarm whose workers, parent and code come to grief, and what its signals do meanwhile."""

import itertools
import os
import re
import signal
import sys
import threading
import time

import pytest
import redis as redis_client

from support.processes import eventually, freeze
from support.swarms import QUICK, children, is_alive, restart, started

JOB = """
import os, pathlib, time
@cog.job
def job(number=0):
    with open("ran", "a") as file:
        file.write(f"{number}\\n")
    while os.path.exists("hold"):
        time.sleep(0.01)
"""


def ran(workers):
    path = workers.folder / "ran"
    return path.read_text().splitlines() if path.exists() else []


def hold(workers):
    (workers.folder / "hold").touch()


def let_go(workers):
    (workers.folder / "hold").unlink()


def test_a_killed_worker_is_replaced_at_once(workers, push, look):
    workers.write(JOB)
    swarm = workers.swarm("-n", "2", **QUICK)
    [victim, other] = started(swarm)
    os.kill(victim, signal.SIGKILL)
    swarm.wait_for("ready: worker=", times=3)

    assert f"WARNING worker ended: pid={victim} seat=0 signal=SIGKILL" in swarm.log
    assert "restarting a worker: seat=0 in_s=0\n" in swarm.log
    assert sorted(children(swarm.pid)) == sorted([other, started(swarm)[-1]])
    push("job")
    eventually(lambda: look.stats().processed == 1)
    assert swarm.stop() == 0


def test_a_worker_that_dies_of_a_signal_without_a_name_is_replaced_as_well(workers, look):
    workers.write("")
    swarm = workers.swarm("-n", "1", **QUICK)
    [victim] = started(swarm)
    os.kill(victim, signal.SIGRTMIN + 3)
    swarm.wait_for("ready: worker=", times=2)

    assert f"WARNING worker ended: pid={victim} seat=0 signal={signal.SIGRTMIN + 3}" in swarm.log
    assert swarm.stop() == 0


def test_it_runs_without_standard_output(workers, look):
    workers.write("")
    log = workers.folder / "swarm.log"
    command = f'exec {sys.executable} -m cogworker.cli "$@" >&- 2>&- <&-'
    arguments = ["sh", "swarm", "-r", "tasks:cog", "-n", "2", "-L", str(log)]
    program = (f"import os; os.execvp('sh', ['sh', '-c', {command!r}, *{arguments!r}])",)
    swarm = workers.run(program=("-c", *program), **QUICK)
    eventually(lambda: log.exists() and "swarm ready" in log.read_text())
    swarm.signal(signal.SIGUSR2)
    eventually(lambda: "restart ends" in log.read_text())

    assert len(children(swarm.pid)) == 2
    assert swarm.stop() == 0
    assert log.read_text().count("status=0 ") == 4
    assert look.workers() == []


def test_a_crash_loop_slows_down_while_the_others_work(workers, push, look):
    workers.write(
        f"""
import os
try:
    open("first", "x").close()
except FileExistsError:
    print("one is enough", flush=True)
    os._exit(3)
{JOB}
"""
    )
    swarm = workers.swarm("-n", "2", ready=False, **QUICK)
    for number, pause_s in enumerate((0, 1, 2, 4)):
        swarm.wait_for(" in_s=", times=number + 1)
        push("job")
        eventually(lambda number=number: look.stats().processed == number + 1)
        assert re.findall(r"in_s=(\d+)", swarm.log)[number] == str(pause_s)
    assert swarm.log.count("one is enough") >= 4
    assert swarm.log.count("WARNING worker ended: ") == swarm.log.count(" status=3 ") >= 4
    assert "swarm ready" not in swarm.log

    # A restart waits no longer.
    (workers.folder / "first").unlink()
    workers.write(JOB)
    swarm.signal(signal.SIGUSR2)
    swarm.wait_for("restart begins")
    swarm.signal(signal.SIGTTIN)
    swarm.wait_for("seat: seat=1")
    assert not re.search(r"seat: seat=\d state=vacant starts_in_s=[^0]", swarm.log)
    swarm.wait_for("restart ends")
    assert len(look.workers()) == 2
    assert swarm.stop() == 0


def test_workers_stop_by_themselves_when_their_parent_is_killed(workers, push, look):
    workers.write(JOB)
    hold(workers)
    swarm = workers.swarm("-n", "2", "-c", "2", **QUICK)
    pids = started(swarm)
    for number in range(4):
        push("job", number)
    eventually(lambda: len(ran(workers)) == 4)
    swarm.kill()
    eventually(lambda: swarm.log.count("stopping: worker=") == 2)
    assert all(is_alive(pid) for pid in pids), "their jobs still run"
    let_go(workers)
    eventually(lambda: not any(is_alive(pid) for pid in pids))

    assert look.stats() == (4, 0, 0, 0, 0, 0, 0, 0, 0)
    assert look.workers() == []


def test_a_parent_that_is_hung_up_leaves_nobody_behind(workers, push, look):
    workers.write(JOB)
    hold(workers)
    swarm = workers.swarm("-n", "2", **QUICK)
    push("job")
    eventually(lambda: ran(workers))
    swarm.signal(signal.SIGHUP)
    swarm.wait_for("stopping: worker=", times=2)
    let_go(workers)

    assert swarm.process.wait(30) == 0
    assert not any(is_alive(pid) for pid in started(swarm))
    assert look.stats().processed == 1
    assert look.workers() == []


@pytest.mark.parametrize("to_all", [False, True], ids=["to the parent", "to the whole group"])
def test_term_waits_for_running_jobs(to_all, workers, push, look):
    """Service managers, and Ctrl-C, signal the workers as well: that is no second TERM."""
    workers.write(JOB)
    hold(workers)
    swarm = workers.swarm("-n", "2", "-c", "1", **QUICK)
    for number in range(3):
        push("job", number)
    eventually(lambda: len(ran(workers)) == 2)
    if to_all:
        os.killpg(swarm.pid, signal.SIGTERM)
        os.killpg(swarm.pid, signal.SIGCONT)
    else:
        swarm.signal(signal.SIGTERM)
    swarm.wait_for("stopping: worker=", times=2)
    swarm.signal(signal.SIGTTIN)  # obeyed after what came before
    swarm.wait_for("stacks:", times=2)
    let_go(workers)

    assert swarm.process.wait(30) == 0
    assert look.stats() == (2, 0, 0, 0, 1, 0, 0, 0, 0)
    assert "asked to stop again" not in swarm.log
    assert look.workers() == []


def test_the_parent_waits_as_long_as_the_application_lets_its_workers(workers, tmp_path):
    settings = {name: value for name, value in QUICK.items() if name != "shutdown_timeout"}
    (tmp_path / "tasks.py").write_text(
        "from cogworker import Cogworker\ncog = Cogworker(shutdown_timeout=60)\n"
    )
    patient = workers.swarm("-n", "1", **settings)
    assert patient.stop() == 0
    assert "swarm stopping: timeout_s=70\n" in patient.log

    workers.write("")
    usual = workers.swarm("-n", "1", **settings)
    assert usual.stop() == 0
    assert "swarm stopping: timeout_s=35\n" in usual.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_term_does_not_wait(number, workers, push, look):
    workers.write(JOB)
    hold(workers)
    swarm = workers.swarm("-n", "2", "-c", "1", "-t", "300", **QUICK)
    push("job")
    push("job")
    eventually(lambda: len(ran(workers)) == 2)
    swarm.signal(number)
    swarm.wait_for("stopping: worker=", times=2)
    # Half a second it counts as the same.
    eventually(lambda: swarm.signal(number) or "asked to stop again" in swarm.log)

    assert swarm.process.wait(30) == 0
    assert swarm.log.count("interrupting: jobs=1") == 2
    assert look.stats() == (0, 0, 0, 0, 2, 0, 0, 0, 0)


def test_a_term_at_any_moment_is_obeyed(workers, look):
    """Also by a worker that was forked just now, or is importing, or is about to take signals."""
    workers.write("")
    swarms = []
    for delay_ms in range(0, 300, 30):
        swarm = workers.swarm("-n", "1", ready=False, **QUICK)
        swarm.wait_for("swarm started")
        time.sleep(delay_ms / 1000)  # not to wait for anything: to hit another moment each time
        swarm.signal(signal.SIGTERM)
        swarms.append(swarm)
    for swarm in swarms:
        assert swarm.process.wait(20) == 0
        assert "killing" not in swarm.log
        assert not any(is_alive(pid) for pid in started(swarm))


@pytest.mark.long
def test_a_worker_that_does_not_stop_is_killed_once(workers, look):
    workers.write(
        """
import atexit, os, time
@atexit.register
def hang():
    while os.path.exists("hold"):
        time.sleep(0.01)
"""
    )
    swarm = workers.swarm("-n", "2", "-t", "0", **{**QUICK, "shutdown_timeout": 0})
    frozen, _ = started(swarm)
    freeze(frozen)
    restart(swarm)
    assert f"killing, it did not stop in time: pid={frozen} seat=0" in swarm.log
    assert f"worker ended: pid={frozen} seat=0 signal=SIGKILL" in swarm.log

    hold(workers)
    leaving, _ = started(swarm)[2:]
    look.stop_worker(next(each.identity for each in look.workers() if each.pid == leaving))
    swarm.wait_for("killing", times=2)
    swarm.wait_for("ready: worker=", times=5)
    assert f"killing, it did not stop in time: pid={leaving} seat=0" in swarm.log
    let_go(workers)

    frozen = started(swarm)[-1]
    freeze(frozen)
    assert swarm.stop() == 0
    assert swarm.log.count("killing") == 3


# Restarts.


class Watch:
    """Looks, all the time, at how many workers have a presence."""

    def __init__(self, app):
        keys = app.client.keys
        script = """
            local there = 0
            for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
                there = there + redis.call('EXISTS', ARGV[1] .. name)
            end
            return there"""
        self.counts = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._redis = redis_client.Redis.from_url(app.config.redis_url)
        self._ask = lambda: self._redis.eval(script, 1, keys.workers, keys.presence(""))

    def _look(self):
        while not self._over.is_set():
            self.counts.append(self._ask())

    def __enter__(self):
        self._thread.start()
        return self.counts

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self._redis.close()


def test_a_phased_restart_costs_one_worker_at_a_time_and_no_job(workers, app, push, look):
    workers.write(
        """
import os, time
@cog.job
def job(number):
    time.sleep(0.01)
    fd = os.open("ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{number}\\n".encode())
    os.close(fd)
"""
    )
    swarm = workers.swarm("-n", "4", "-c", "2", **QUICK)
    over = threading.Event()
    pushed = itertools.count()

    def produce():
        while not over.is_set():
            if look.stats().enqueued < 50:
                for _ in range(50):
                    push("job", next(pushed))
            time.sleep(0.01)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        with Watch(app) as counts:
            for _ in range(3):
                restart(swarm)
    finally:
        over.set()
        producer.join()
    total = next(pushed)
    eventually(lambda: look.stats().processed == total)

    assert len(counts) > 100
    assert min(counts) >= 3
    assert max(counts) == 4
    assert len(started(swarm)) == 16
    assert sorted(map(int, ran(workers))) == list(range(total)), "each job ran once"
    assert look.stats() == (total, 0, 0, 0, 0, 0, 0, 0, 0)
    assert swarm.stop() == 0


def test_a_restart_that_is_not_phased_replaces_all_at_once(workers, look):
    workers.write(JOB)
    swarm = workers.swarm("-n", "3", phased_restart="no", **QUICK)
    old = started(swarm)
    freeze(old[0])  # the others do not wait for it
    swarm.signal(signal.SIGUSR2)
    swarm.wait_for("worker started: ", times=5)
    os.kill(old[0], signal.SIGCONT)
    swarm.wait_for("restart ends: ")

    assert not any(is_alive(pid) for pid in old)
    assert len(look.workers()) == 3
    assert swarm.stop() == 0


SLOW = """
import os, time
while os.path.exists("slow"):
    time.sleep(0.01)
"""


def test_signals_are_obeyed_during_a_phased_restart(workers, look):
    workers.write(SLOW)
    swarm = workers.swarm("-n", "3", **QUICK)
    (workers.folder / "slow").touch()
    swarm.signal(signal.SIGUSR2)
    swarm.wait_for("worker started: ", times=4)

    swarm.signal(signal.SIGTTIN)
    swarm.wait_for("seat: seat=0 state=starting")
    swarm.signal(signal.SIGTSTP)
    swarm.wait_for("quiet: takes no more jobs", times=2)
    assert len(started(swarm)) == 4, "the next one waits for the one that starts"
    began = time.monotonic()
    assert swarm.stop() == 0
    assert "restart ends: stopped " in swarm.log
    assert time.monotonic() - began < 15
    assert look.workers() == []


def test_another_restart_during_one_starts_over(workers, look):
    workers.write(SLOW + "print(f'version 1 in {os.getpid()}\\n', end='', flush=True)\n")
    swarm = workers.swarm("-n", "3", **QUICK)
    (workers.folder / "slow").touch()
    workers.write(SLOW + "print(f'second version in {os.getpid()}\\n', end='', flush=True)\n")
    swarm.signal(signal.SIGUSR2)
    swarm.wait_for("worker started: ", times=4)
    workers.write(SLOW + "print(f'the third version in {os.getpid()}\\n', end='', flush=True)\n")
    swarm.signal(signal.SIGUSR2)
    swarm.wait_for("worker started: ", times=5)
    assert swarm.log.count("restart begins: ") == swarm.log.count("restart ends: ") + 1 == 2
    (workers.folder / "slow").unlink()
    swarm.wait_for("restart ends: done ")
    assert swarm.log.count("restart ends: superseded ") == 1

    third = {int(pid) for pid in re.findall(r"third version in (\d+)", swarm.log)}
    assert set(children(swarm.pid)) == third
    assert "second version" not in swarm.log
    assert swarm.stop() == 0


def test_a_broken_deploy_costs_one_worker_and_a_good_one_mends_it(workers, app, push, look):
    workers.write(JOB)
    swarm = workers.swarm("-n", "3", **QUICK)
    old = started(swarm)
    workers.write("raise RuntimeError('broken')\n")
    with Watch(app) as counts:
        swarm.signal(signal.SIGUSR2)
        swarm.wait_for("the restart waits, a new worker ended before it was ready: seat=0", times=3)
        assert sorted(set(children(swarm.pid)) & set(old)) == old[1:]
        push("job")
        eventually(lambda: look.stats().processed == 1)
    assert min(counts) == 2
    error = "can't start a worker: seat=0 error=can't import tasks: RuntimeError: broken\n"
    assert swarm.log.count(error) >= 3
    assert swarm.log.count("tasks.py") == 1, "where it lies is told once"

    workers.write(JOB + "\n# mended\n")
    swarm.wait_for("restart ends: ")
    assert not any(is_alive(pid) for pid in old)
    assert len(look.workers()) == 3
    push("job")
    eventually(lambda: look.stats().processed == 2)
    assert swarm.stop() == 0


# Wear.


def test_workers_are_replaced_after_max_jobs_one_at_a_time(workers, app, push, look):
    workers.write("@cog.job\ndef job(): pass\n")
    swarm = workers.swarm("-n", "2", "-c", "1", max_jobs=20, **QUICK)
    with Watch(app) as counts:
        for _ in range(200):
            push("job")
        eventually(lambda: look.stats().processed == 200)
        replaced = swarm.log.count("worn out: pid=")
        swarm.wait_for("replacing a worker: ", times=replaced)
        swarm.wait_for("ready: worker=", times=2 + replaced)

    assert replaced >= 2
    assert "reason=max_jobs" in swarm.log
    assert min(counts) >= 1
    assert look.stats().failed == 0
    assert swarm.stop() == 0


def test_a_worker_over_max_rss_is_replaced(workers, push, look):
    workers.write(
        """
held = []
@cog.job
def take(mib):
    held.append(bytearray(b"x" * (mib << 20)))
"""
    )
    swarm = workers.swarm("-n", "2", max_rss="200M", **QUICK)
    push("take", 300)
    swarm.wait_for("ready: worker=", times=3)

    [(pid, seat)] = re.findall(r"worn out: pid=(\d+) seat=(\d) reason=max_rss rss=\d+", swarm.log)
    assert f"worker ended: pid={pid} seat={seat} status=0" in swarm.log
    assert not is_alive(int(pid))
    assert look.stats().processed == 1
    assert swarm.stop() == 0


# Process 1.

ADOPTS = """
import ctypes, sys
from cogworker.cli import main
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
main()
"""


def test_orphans_that_it_adopts_are_reaped(workers, push, look):
    workers.write(
        """
import subprocess
@cog.job
def leave_an_orphan():
    orphan = "(while [ -e hold ]; do sleep 0.05; done; exit 7) & echo $! > orphan"
    subprocess.run(orphan, shell=True)
"""
    )
    hold(workers)
    options = ["-r", "tasks:cog", "-n", "1", "--log-level", "debug"]
    swarm = workers.run("swarm", *options, program=("-c", ADOPTS), **QUICK)
    swarm.wait_for("swarm ready")
    push("leave_an_orphan")
    eventually(lambda: look.stats().processed == 1)
    orphan = int((workers.folder / "orphan").read_text())
    eventually(lambda: orphan in children(swarm.pid))
    let_go(workers)
    swarm.wait_for(f"reaped a process that was no worker: pid={orphan} status=7")

    assert children(swarm.pid) == started(swarm)
    assert swarm.stop() == 0
