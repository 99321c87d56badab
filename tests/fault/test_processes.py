"""Real worker processes that are killed, frozen, stopped, stuck and cut off."""

import os
import signal
import time

import pytest

from cogworker import Cogworker
from cogworker.inspector import Inspector

from support.processes import eventually
from support.server import server

QUICK = {
    "heartbeat_interval": 0.4,  # presence then lasts five seconds: a busy machine may be slow
    "orphan_threshold": 2,
    "orphan_check_interval": 0.2,
    "poll_interval": 0.1,
    "shutdown_timeout": 20,
}


@pytest.fixture
def look(app):
    return Inspector(app)


@pytest.fixture
def push(app):
    """Push a job of the workers' module ``tasks``."""

    def push(name, *args, **fields):
        return app.push({"class": f"tasks.{name}", "args": list(args), **fields})

    return push


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def test_a_killed_worker_s_jobs_are_rescued_and_run_elsewhere(workers, tmp_path, push, look):
    workers.write(
        f"""
import os, time
@cog.job
def job(number):
    with open({str(tmp_path / "ran")!r}, "a") as file:
        file.write(f"{{number}} {{os.getpid()}}\\n")
    while os.path.exists({str(tmp_path / "hold")!r}):
        time.sleep(0.01)
"""
    )
    (tmp_path / "hold").touch()
    doomed = workers.start(**QUICK)
    for number in range(5):
        push("job", number)
    eventually(lambda: len(lines(tmp_path / "ran")) == 5)
    doomed.kill()
    (tmp_path / "hold").unlink()

    other = workers.start(**QUICK)
    other.wait_for("rescued: jobs=5 worker=")
    eventually(lambda: look.stats().processed == 5)

    assert sorted(line.split()[0] for line in lines(tmp_path / "ran")) == sorted("0123401234")
    assert look.stats() == (5, 0, 0, 0, 0, 0, 0, 0)
    assert [name for name in look.workers() if f":{doomed.pid}:" in name] == []


def test_a_job_that_kills_its_worker_ends_in_dead(workers, push, look):
    workers.write(
        """
import os, signal
@cog.job
def deadly():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    push("deadly")
    for _ in range(3):
        eventually(lambda: look.stats().enqueued == 1)
        worker = workers.start(**QUICK, max_orphanings=2, ready=False)
        worker.process.wait(30)
        survivor = workers.start("-q", "none", **QUICK, max_orphanings=2)
        eventually(lambda: look.stats().enqueued + look.stats().dead == 1)
        survivor.stop()

    [dead] = look.dead()
    assert dead.payload["error_class"] == "cogworker.errors.JobOrphaned"
    assert "max_orphanings=2" in dead.payload["error_message"]
    assert look.stats().failed == 1


def test_a_frozen_worker_changes_no_counter_when_it_wakes(workers, tmp_path, push, look):
    workers.write(
        f"""
import os, time
@cog.job
def job(number):
    with open({str(tmp_path / "ran")!r}, "a") as file:
        file.write(f"{{number}}\\n")
    while os.path.exists({str(tmp_path / "hold")!r}):
        time.sleep(0.01)
    if number % 2:
        raise ValueError("odd")
"""
    )
    (tmp_path / "hold").touch()
    frozen = workers.start(**QUICK)
    for number in range(4):
        push("job", number, retry=0)
    eventually(lambda: len(lines(tmp_path / "ran")) == 4)
    frozen.signal(signal.SIGSTOP)
    (tmp_path / "hold").unlink()

    other = workers.start(**QUICK)
    other.wait_for("rescued: jobs=4 worker=")
    eventually(lambda: look.stats()[:2] == (2, 2))
    frozen.signal(signal.SIGCONT)
    frozen.wait_for("lost claim", times=4)

    stats = look.stats()
    assert (stats.processed, stats.failed, stats.dead, stats.lost_claims) == (2, 2, 2, 4)
    push("job", 0)
    eventually(lambda: look.stats().processed == 3)
    assert frozen.stop() == 0
    assert other.stop() == 0
    assert look.stats().processed == 3


def test_a_worker_frozen_for_less_than_the_threshold_keeps_its_jobs(workers, tmp_path, push, look):
    workers.write(
        f"""
import os, time
@cog.job
def job():
    open({str(tmp_path / "ran")!r}, "a").write("x\\n")
    while os.path.exists({str(tmp_path / "hold")!r}):
        time.sleep(0.01)
"""
    )
    (tmp_path / "hold").touch()
    settings = {**QUICK, "orphan_threshold": 600}
    frozen = workers.start(**settings)
    push("job")
    eventually(lambda: lines(tmp_path / "ran"))
    frozen.signal(signal.SIGSTOP)
    other = workers.start(**settings)
    [identity] = [name for name in look.workers() if f":{frozen.pid}:" in name]
    # Its presence expires; other workers look for the dead many times meanwhile.
    eventually(lambda: not look.is_present(identity))
    other.wait_for("ready: worker=")
    assert look.held(identity) == 1
    (tmp_path / "hold").unlink()
    frozen.signal(signal.SIGCONT)
    eventually(lambda: look.stats().processed == 1)

    assert look.stats().lost_claims == 0
    assert len(lines(tmp_path / "ran")) == 1


@pytest.mark.parametrize("how", ["loop", "interpreter"])
def test_a_job_that_blocks_for_20_s_stops_neither_heartbeats_nor_shutdown(
    how, workers, tmp_path, push, look
):
    workers.write(
        f"""
import ctypes, pathlib, time
@cog.job
async def loop():
    pathlib.Path({str(tmp_path / "began")!r}).touch()
    time.sleep(20)
@cog.job
def interpreter():
    pathlib.Path({str(tmp_path / "began")!r}).touch()
    ctypes.PyDLL(None).sleep(20)  # PyDLL keeps the interpreter's lock
"""
    )
    # The default intervals: that is what must suffice.
    worker = workers.start()
    push(how)
    eventually((tmp_path / "began").exists)
    [identity] = look.workers()
    began = time.monotonic()
    worker.process.terminate()
    while worker.process.poll() is None:
        assert look.is_present(identity) or worker.process.poll() is not None or not look.workers()
        assert time.monotonic() - began < 45
        time.sleep(0.2)

    assert worker.process.returncode == 0
    stats = look.stats()
    assert stats.processed == 1
    assert stats.enqueued == stats.in_flight == 0
    assert look.workers() == []


def test_term_waits_for_running_jobs_and_gives_the_rest_back(workers, tmp_path, push, look):
    workers.write(
        f"""
import os, time
@cog.job
def job(number):
    open({str(tmp_path / "ran")!r}, "a").write(f"{{number}}\\n")
    while os.path.exists({str(tmp_path / "hold")!r}):
        time.sleep(0.01)
"""
    )
    (tmp_path / "hold").touch()
    worker = workers.start("-c", "2", **QUICK)
    for number in range(6):
        push("job", number)
    eventually(lambda: len(lines(tmp_path / "ran")) == 2)
    worker.signal(signal.SIGTERM)
    worker.wait_for("stopping: worker=")
    (tmp_path / "hold").unlink()

    assert worker.process.wait(30) == 0
    assert look.stats() == (2, 0, 0, 4, 0, 0, 0, 0)
    assert look.workers() == []


@pytest.mark.parametrize("kind", ["sync", "async", "ignores"])
def test_jobs_that_outlast_the_time_out_are_interrupted_and_given_back(
    kind, workers, tmp_path, push, look
):
    workers.write(
        f"""
import asyncio, pathlib, time
from cogworker import JobInterrupted
began = pathlib.Path({str(tmp_path / "began")!r})
cleaned = pathlib.Path({str(tmp_path / "cleaned")!r})
@cog.job
def sync():
    began.touch()
    try:
        while True:
            time.sleep(0.01)
    finally:
        cleaned.touch()
@cog.job(name="tasks.async")
async def coroutine():
    began.touch()
    try:
        await asyncio.Event().wait()
    finally:
        cleaned.touch()
@cog.job
def ignores():
    began.touch()
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass
"""
    )
    worker = workers.start("-t", "0.2", **{**QUICK, "shutdown_timeout": 20})
    jid = push(kind)
    eventually((tmp_path / "began").exists)

    assert worker.stop() == 0
    assert look.stats() == (0, 0, 0, 1, 0, 0, 0, 0)
    assert look.workers() == []
    assert (tmp_path / "cleaned").exists() == (kind != "ignores")
    assert jid in str(look.waiting("default")[0])


def test_a_second_term_does_not_wait(workers, tmp_path, push, look):
    workers.write(
        f"""
import pathlib, time
@cog.job
def job():
    pathlib.Path({str(tmp_path / "began")!r}).touch()
    time.sleep(600)
"""
    )
    worker = workers.start("-t", "300", **QUICK)
    push("job")
    eventually((tmp_path / "began").exists)
    worker.signal(signal.SIGTERM)
    worker.wait_for("stopping: worker=")
    worker.signal(signal.SIGTERM)

    assert worker.process.wait(30) == 0
    assert "asked to stop again" in worker.log
    assert look.stats().enqueued == 1


def test_quiet_and_resume(workers, push, look):
    workers.write("@cog.job\ndef job(): pass\n")
    worker = workers.start(**QUICK)
    worker.signal(signal.SIGTSTP)
    worker.wait_for("quiet: takes no more jobs")
    push("job")
    # A worker that takes jobs would have taken this one at once: here only the other one does.
    other = workers.start("-q", "other", **QUICK)
    push("job", queue="other")
    eventually(lambda: look.stats().processed == 1)
    assert look.stats().enqueued == 1

    worker.signal(signal.SIGCONT)
    eventually(lambda: look.stats().processed == 2)
    assert worker.stop() == 0
    assert other.stop() == 0


def test_ttin_logs_what_every_thread_and_task_does(workers, tmp_path, push):
    workers.write(
        f"""
import asyncio, pathlib, time
@cog.job
def thread_job():
    (pathlib.Path({str(tmp_path)!r}) / "thread").touch()
    time.sleep(600)
@cog.job
async def task_job():
    (pathlib.Path({str(tmp_path)!r}) / "task").touch()
    await asyncio.sleep(600)
"""
    )
    worker = workers.start("-t", "0", **QUICK)
    push("thread_job")
    push("task_job")
    eventually(lambda: (tmp_path / "thread").exists() and (tmp_path / "task").exists())
    worker.signal(signal.SIGTTIN)
    worker.wait_for("stacks:")
    eventually(lambda: "in thread_job" in worker.log and "in task_job" in worker.log)
    assert worker.stop() == 0


def test_starting_without_redis_waits_and_still_stops(workers, tmp_path):
    workers.write("")
    with server(tmp_path) as own:
        waiting = workers.start(**{**QUICK, "redis_url": own.url}, ready=False)
        waiting.wait_for("redis is away")
        assert waiting.stop(10) == 0

        worker = workers.start(**{**QUICK, "redis_url": own.url}, ready=False)
        worker.wait_for("redis is away")
        own.start()
        worker.wait_for("ready: worker=")
        assert worker.stop() == 0


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_goes_away_in_mid_work_costs_nothing(how, workers, tmp_path, namespace):
    workers.write(
        f"""
import os
@cog.job
def job(number):
    fd = os.open({str(tmp_path / "ran")!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{{number}}\\n".encode())
    os.close(fd)
"""
    )
    total = 3000
    with server(tmp_path) as own:
        own.start()
        app = Cogworker(redis_url=own.url, namespace=namespace)
        look = Inspector(app)
        worker = workers.start(**{**QUICK, "redis_url": own.url, "orphan_threshold": 600})
        for part in range(3):
            for number in range(total // 3):
                app.push({"class": "tasks.job", "args": [part * total // 3 + number]})
            # Somewhere in the middle of the work:
            eventually(lambda part=part: len(lines(tmp_path / "ran")) > part * total // 3)
            getattr(own, how)()
            worker.wait_for("redis is away", times=part + 1)
            own.start()
        eventually(lambda: look.stats().processed == total)
        assert worker.stop() == 0

        assert look.stats() == (total, 0, 0, 0, 0, 0, 0, 0)
        ran = lines(tmp_path / "ran")
        assert len(ran) == len(set(ran)) == total, "a job ran twice though nobody died"
        app.close()


def test_stopping_while_redis_is_away_ends_in_time_and_loses_nothing(workers, tmp_path, namespace):
    workers.write(
        f"""
import os, time
@cog.job
def job():
    open({str(tmp_path / "ran")!r}, "a").write("x\\n")
    while os.path.exists({str(tmp_path / "hold")!r}):
        time.sleep(0.01)
"""
    )
    (tmp_path / "hold").touch()
    with server(tmp_path) as own:
        own.start()
        app = Cogworker(redis_url=own.url, namespace=namespace)
        settings = {**QUICK, "redis_url": own.url}
        worker = workers.start("-t", "0.5", **settings)
        app.push({"class": "tasks.job"})
        eventually(lambda: lines(tmp_path / "ran"))
        own.stop()
        assert worker.stop(30) == 0
        assert "will be rescued" in worker.log

        own.start()
        (tmp_path / "hold").unlink()
        other = workers.start(**settings)
        other.wait_for("rescued: jobs=1 worker=")
        eventually(lambda: Inspector(app).stats().processed == 1)
        assert other.stop() == 0
        app.close()


def test_the_worker_ends_when_a_job_never_does(workers, tmp_path, push, look):
    workers.write(
        f"""
import ctypes, pathlib
@cog.job
def stuck():
    pathlib.Path({str(tmp_path / "began")!r}).touch()
    ctypes.CDLL(None).sleep(600)  # in C, without the interpreter's lock: no exception reaches it
"""
    )
    worker = workers.start("-t", "0.2", **QUICK)
    push("stuck")
    eventually((tmp_path / "began").exists)

    assert worker.stop(20) == 0
    assert look.stats().enqueued == 1
    assert os.path.exists(tmp_path / "began")


def test_a_term_at_any_moment_after_the_start_is_obeyed(workers, push):
    """One that came while the main thread was about to wait used to be lost."""
    workers.write("@cog.job\ndef job():\n    sum(range(1000))\n")
    for _ in range(300):
        push("job")
    started = []
    for delay_ms in range(12):
        worker = workers.start(**QUICK, ready=False)
        worker.wait_for("ready: worker=")
        time.sleep(delay_ms / 1000)  # not to wait for anything: to hit another moment each time
        worker.signal(signal.SIGTERM)
        started.append(worker)
    for worker in started:
        assert worker.process.wait(20) == 0
