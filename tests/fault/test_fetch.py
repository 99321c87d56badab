"""Fetch modes: what becomes of a job whose worker is gone, and when a worker changes over."""

import asyncio
import logging
import signal
import threading

import pytest

from cogworker import Cogworker
from cogworker.inspector import Inspector

from support.inline import InlineWorker
from support.processes import eventually, lines
from support.server import server
from support.swarms import QUICK
from support.times import all_workers_are_dead

DEAD = "cogworker.errors.JobAbandoned"


def test_a_job_that_may_run_once_is_dead_when_its_worker_died_and_others_run_again(
    app, look, redis
):
    ran = []

    @app.job(at_most_once=True)
    def once():
        ran.append("once")

    @app.job
    def job():
        ran.append("job")

    once.enqueue()
    job.enqueue()
    doomed = InlineWorker(app, run_jobs=False)
    doomed.beat()
    doomed.turn()
    all_workers_are_dead(redis, app.client.keys)
    other = InlineWorker(app)
    other.beat()
    other.rescue()
    other.work_off()

    assert ran == ["job"]
    [dead] = look.dead()
    assert dead.payload["error_class"] == DEAD
    assert dead.payload["error_message"].startswith("its worker died while it held it")
    assert look.stats()[:4] == (1, 1, 0, 0)
    assert look.stats().in_flight == 0


def test_all_jobs_of_a_basic_worker_are_dead_when_it_died(settings, redis):
    app = Cogworker(**settings, fetch="basic")

    @app.job
    def job(number):
        raise AssertionError("it must not run again")

    for number in range(3):
        job.enqueue(number)
    doomed = InlineWorker(app, run_jobs=False)
    doomed.beat()
    doomed.turn()
    all_workers_are_dead(redis, app.client.keys)
    # Rescuers do not need to fetch in the same way.
    other = InlineWorker(Cogworker(**settings))
    other.beat()
    other.rescue()

    look = Inspector(app)
    assert [dead.payload["error_class"] for dead in look.dead()] == [DEAD] * 3
    assert look.stats() == (0, 3, 0, 0, 0, 0, 0, 0, 3)
    app.close()


def test_a_job_that_fails_is_retried_as_it_says_in_basic_too(settings):
    app = Cogworker(**settings, fetch="basic")

    @app.job
    def fails():
        raise ValueError

    fails.enqueue()
    worker = InlineWorker(app)
    worker.beat()
    worker.work_off()
    assert Inspector(app).stats().retrying == 1
    app.close()


def test_a_basic_worker_takes_nothing_before_it_can_begin_it(settings):
    app = Cogworker(**settings, fetch="basic")

    @app.job
    def job():
        pass

    job.enqueue_many([()] * 100)
    worker = InlineWorker(app, concurrency=4)
    worker.beat()
    worker.dispatcher._readiness.limit = 64  # as after many short jobs
    worker.run_jobs = False
    worker.turn()
    assert len(worker.started) == 4
    assert worker.dispatcher.held == 4
    app.close()


@pytest.mark.parametrize("fetch", ["basic", "reliable"])
def test_a_killed_worker_s_jobs_never_run_twice_in_basic_nor_are_lost(
    fetch, workers, tmp_path, app, look
):
    workers.write(
        f"""
import os, time
@cog.job(at_most_once={fetch == "reliable"})
def job(number):
    with open({str(tmp_path / "ran")!r}, "a") as file:
        file.write(f"{{number}}\\n")
    while os.path.exists({str(tmp_path / "hold")!r}):
        time.sleep(0.01)
"""
    )
    (tmp_path / "hold").touch()
    settings = {**QUICK, "fetch": fetch}
    doomed = workers.start("-c", "5", **settings)
    for number in range(5):
        fields = {} if fetch == "basic" else {"at_most_once": True}
        app.push({"class": "tasks.job", "args": [number], **fields})
    eventually(lambda: len(lines(tmp_path / "ran")) == 5)
    doomed.kill()
    (tmp_path / "hold").unlink()
    other = workers.start(**settings)
    eventually(lambda: look.stats().dead == 5)

    app.push({"class": "tasks.job", "args": [5]})
    eventually(lambda: look.stats().processed == 1)
    assert other.stop() == 0
    assert sorted(lines(tmp_path / "ran")) == list("012345")
    assert {dead.payload["error_class"] for dead in look.dead()} == {DEAD}
    assert look.stats() == (1, 5, 0, 0, 0, 0, 0, 0, 5)


def test_a_stop_puts_a_job_that_began_in_dead_and_gives_back_what_did_not(
    workers, tmp_path, app, look
):
    workers.write(
        f"""
import pathlib, time
@cog.job
def job():
    pathlib.Path({str(tmp_path / "began")!r}).touch()
    while True:
        time.sleep(0.01)
@cog.job
async def coroutine():
    import asyncio
    pathlib.Path({str(tmp_path / "coroutine")!r}).touch()
    await asyncio.Event().wait()
@cog.job
def stuck():
    import ctypes
    pathlib.Path({str(tmp_path / "stuck")!r}).touch()
    ctypes.CDLL(None).sleep(600)
"""
    )
    worker = workers.start("-c", "3", "-t", "0", **{**QUICK, "fetch": "basic"})
    for name in ("job", "coroutine", "stuck"):
        app.push({"class": f"tasks.{name}"})
    for file in ("began", "coroutine", "stuck"):
        eventually((tmp_path / file).exists)
    app.push({"class": "tasks.job"})
    assert worker.stop() == 0

    assert [dead.payload["error_class"] for dead in look.dead()] == [DEAD] * 3
    assert "had to stop" in look.dead()[0].payload["error_message"]
    assert look.stats() == (0, 3, 0, 0, 1, 0, 0, 0, 3)


def test_a_frozen_basic_worker_that_wakes_changes_nothing(workers, tmp_path, app, look):
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
    frozen = workers.start(**{**QUICK, "fetch": "basic"})
    app.push({"class": "tasks.job"})
    eventually(lambda: lines(tmp_path / "ran"))
    frozen.freeze()
    (tmp_path / "hold").unlink()
    other = workers.start(**QUICK)
    eventually(lambda: look.stats().dead == 1)
    frozen.signal(signal.SIGCONT)
    frozen.wait_for("lost claim")

    assert look.stats() == (0, 1, 0, 1, 0, 0, 0, 0, 1)
    assert other.stop() == 0
    assert frozen.stop() == 0
    assert lines(tmp_path / "ran") == ["x"]


def without_time(admin):
    admin.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all", "-time")


def user_url(own):
    return f"redis://worker:secret@127.0.0.1:{own.port}/0"


def test_a_user_without_time_sees_periodic_entries_and_switches_them(tmp_path):
    with server(tmp_path) as own:
        own.start()
        without_time(own.client)
        app = Cogworker(redis_url=user_url(own), heartbeat_interval=0.1)

        @app.periodic("0 3 * * *", name="nightly")
        @app.job
        def job(): ...

        look = Inspector(app)
        with app.worker():
            eventually(lambda: len(look.periodic()) == 1)
            assert look.disable_periodic("nightly")
            assert look.periodic()[0].disabled
            assert look.enable_periodic("nightly")
        app.close()


def test_a_user_without_time_changes_workers_over_to_basic_at_boot_and_all_works(tmp_path, caplog):
    with server(tmp_path) as own:
        own.start()
        without_time(own.client)
        app = Cogworker(redis_url=user_url(own), poll_interval=0.05, heartbeat_interval=0.1)

        @app.job
        def job():
            pass

        @app.job(retry=1)
        def fails():
            raise ValueError

        job.enqueue()
        job.enqueue_in(0.2)
        fails.enqueue()
        look = Inspector(app)
        with app.worker() as worker:
            assert worker.wait_until_ready(30)
            eventually(lambda: look.stats()[:2] == (2, 1))
            [retrying] = own.client.zrange(app.client.keys.retry, 0, -1, withscores=True)
            assert 0 < retrying[1] - own.client.time()[0] < 120
            flight = app.client.keys.in_flight(worker.identity)
            assert own.client.hget(flight, "@turn").endswith(b" basic")
        assert look.workers() == []
        assert caplog.text.count("workers change over to fetch=basic") == 1
        app.close()


def test_a_worker_changes_over_when_time_is_taken_away_in_mid_work(tmp_path, caplog):
    with server(tmp_path) as own:
        own.start()
        own.client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all")
        app = Cogworker(redis_url=user_url(own), poll_interval=0.05, heartbeat_interval=0.1)

        @app.job
        def job():
            pass

        look = Inspector(app)
        with app.worker() as worker:
            assert worker.wait_until_ready(30)
            job.enqueue()
            eventually(lambda: look.stats().processed == 1)
            flight = app.client.keys.in_flight(worker.identity)
            assert own.client.hget(flight, "@turn").endswith(b" reliable")
            without_time(own.client)
            job.enqueue()
            eventually(lambda: look.stats().processed == 2)
            eventually(lambda: own.client.hget(flight, "@turn").endswith(b" basic"))
        assert caplog.text.count("workers change over to fetch=basic") == 1
        assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
        app.close()


def test_a_busy_worker_that_changes_over_says_so_for_what_it_holds(tmp_path):
    with server(tmp_path) as own:
        own.start()
        own.client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all")
        app = Cogworker(redis_url=user_url(own), heartbeat_interval=0.1)
        begun, release = threading.Event(), threading.Event()

        @app.job
        def job():
            begun.set()
            release.wait(60)

        with app.worker(concurrency=1) as worker:
            job.enqueue()
            assert begun.wait(30)
            without_time(own.client)
            flight = app.client.keys.in_flight(worker.identity)
            eventually(lambda: own.client.hget(flight, "@turn").endswith(b" basic"))
            release.set()
        app.close()


def test_what_a_rescuer_without_a_clock_takes_from_a_reliable_worker_does_not_run_again(tmp_path):
    with server(tmp_path) as own:
        own.start()
        without_time(own.client)
        reliable, clockless = Cogworker(redis_url=own.url), Cogworker(redis_url=user_url(own))

        @reliable.job(name="job")
        def job():
            raise AssertionError("it must not run again")

        job.enqueue()
        doomed = InlineWorker(reliable, run_jobs=False)
        doomed.beat()
        doomed.turn()
        all_workers_are_dead(own.client, reliable.client.keys)
        rescuer = InlineWorker(clockless)
        rescuer.beat()
        rescuer.rescue()

        [dead] = Inspector(reliable).dead()
        assert dead.payload["error_class"] == DEAD
        reliable.close()
        clockless.close()


def test_async_producers_do_without_time_too(tmp_path):

    async def program(app, job):
        # All of them find out at the same time.
        await asyncio.gather(*(job.aenqueue() for _ in range(4)))
        await job.aenqueue_in(60)
        await app.aclose()

    with server(tmp_path) as own:
        own.start()
        without_time(own.client)
        app = Cogworker(redis_url=user_url(own))

        @app.job
        def job():
            pass

        asyncio.run(program(app, job))
        assert Inspector(app).stats()[4:7] == (4, 0, 1)
        own.client.zadd(app.client.keys.workers, {"host:1:a": own.client.time()[0] - 5})
        [worker] = Inspector(app).workers()
        assert 4 < worker.beat_age_s < 60
        app.close()
