"""Real worker processes are killed, frozen and cut off."""

import signal

import pytest

from cogworker import Cogworker
from cogworker.inspector import Inspector

from support.processes import eventually, lines
from support.server import server
from support.swarms import QUICK


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
    assert look.stats() == (5, 0, 0, 0, 0, 0, 0, 0, 0)
    assert [name for name in look.identities() if f":{doomed.pid}:" in name] == []


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
    frozen.freeze()
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
    frozen.freeze()
    other = workers.start(**settings)
    [identity] = [name for name in look.identities() if f":{frozen.pid}:" in name]
    # Its presence expires; other workers look for the dead many times meanwhile.
    eventually(
        lambda: not next(each.present for each in look.workers() if each.identity == identity)
    )
    other.wait_for("ready: worker=")
    assert look.held(identity) == 1
    (tmp_path / "hold").unlink()
    frozen.signal(signal.SIGCONT)
    eventually(lambda: look.stats().processed == 1)

    assert look.stats().lost_claims == 0
    assert len(lines(tmp_path / "ran")) == 1


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

        assert look.stats() == (total, 0, 0, 0, 0, 0, 0, 0, 0)
        ran = lines(tmp_path / "ran")
        assert len(ran) == len(set(ran)) == total, "a job ran twice though nobody died"
        app.close()
