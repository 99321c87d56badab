"""A worker is told to stop, at any moment and whatever its jobs do."""

import os
import signal
import time

import pytest

from cogworker import Cogworker
from cogworker._engine.places import InFlight
from cogworker.inspector import Inspector

from support.processes import eventually, lines
from support.server import free_port, server
from support.swarms import QUICK


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
    began = time.monotonic()
    worker.process.terminate()
    while worker.process.poll() is None:
        assert all(each.present for each in look.workers()) or worker.process.poll() is not None
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
    assert look.stats() == (2, 0, 0, 0, 4, 0, 0, 0, 0)
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
    assert look.stats() == (0, 0, 0, 0, 1, 0, 0, 0, 0)
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

    def hurried():  # what comes within a moment is the first one again
        worker.signal(signal.SIGTERM)
        return "asked to stop again" in worker.log

    eventually(hurried)
    assert worker.process.wait(30) == 0
    assert look.stats().enqueued == 1


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


def test_what_ended_while_redis_was_away_is_settled_before_the_worker_stops(
    workers, tmp_path, namespace
):
    workers.write(
        f"""
import os, time
@cog.job
def job():
    open({str(tmp_path / "ran")!r}, "a").write("x\\n")
    while os.path.exists({str(tmp_path / "hold")!r}):
        time.sleep(0.01)
    open({str(tmp_path / "ended")!r}, "a").write("x\\n")
"""
    )
    (tmp_path / "hold").touch()
    with server(tmp_path) as own:
        own.start()
        app = Cogworker(redis_url=own.url, namespace=namespace)
        worker = workers.start(**{**QUICK, "redis_url": own.url, "shutdown_timeout": 60})
        app.push({"class": "tasks.job"})
        eventually(lambda: lines(tmp_path / "ran"))
        own.stop()
        worker.wait_for("redis is away")
        worker.signal(signal.SIGTERM)
        worker.wait_for("stopping: worker=")
        (tmp_path / "hold").unlink()
        eventually(lambda: lines(tmp_path / "ended"))
        own.start()
        assert worker.process.wait(30) == 0
        assert Inspector(app).stats() == (1, 0, 0, 0, 0, 0, 0, 0, 0)
        assert Inspector(app).workers() == []
        app.close()


@pytest.mark.parametrize("when", ["imports", "waits for redis"])
def test_a_term_during_the_start_ends_a_worker_that_has_begun_nothing(
    when, workers, tmp_path, push, look
):
    workers.write(
        f"""
import pathlib, time
pathlib.Path({str(tmp_path / "importing")!r}).touch()
if {when == "imports"}:
    time.sleep(600)
@cog.job
def job(): pass
"""
    )
    push("job")
    url = {"redis_url": f"redis://127.0.0.1:{free_port()}/0"} if when != "imports" else {}
    worker = workers.start(**{**QUICK, **url}, ready=False)
    eventually((tmp_path / "importing").exists)
    if when != "imports":
        worker.wait_for("redis is away")

    # Before its application is imported nothing catches the signal, nor needs to.
    assert worker.stop() in ((0,) if when != "imports" else (-signal.SIGTERM,))
    assert look.stats() == (0, 0, 0, 0, 1, 0, 0, 0, 0)
    assert look.workers() == []


def test_a_term_during_a_rescue_loses_no_job_and_repeats_none(workers, tmp_path, push, look, app):
    """The jobs are moved in portions; a rescuer that stops leaves the rest to the next one."""
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
    total = 4000
    dead = InFlight("dead:1:1")
    moves, run = app.client.moves, app.client.runner.run
    for number in range(total):
        push("job", number)
    for turn in range(1, 5):
        run(moves.turn(dead, turn, [], 1000, ["default"]))
    assert look.held("dead:1:1") == total
    stopped = 0
    while look.held("dead:1:1"):
        rescuer = workers.start("-q", "none", **{**QUICK, "heartbeat_interval": 0.1})
        held = look.held("dead:1:1")
        eventually(lambda held=held: look.held("dead:1:1") < held)
        assert rescuer.stop() == 0
        stopped += 1

    assert look.stats().enqueued == total
    worker = workers.start(**QUICK)
    eventually(lambda: look.stats().processed == total)
    assert worker.stop() == 0
    assert sorted(map(int, lines(tmp_path / "ran"))) == list(range(total))
    assert look.stats() == (total, 0, 0, 0, 0, 0, 0, 0, 0)
    assert look.workers() == []
    assert stopped >= 1
