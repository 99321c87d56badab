"""A worker inside another program: beside its main thread, and without its signals."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from cogworker import CogworkerError, ConfigError

from support.dump import ANSWERS
from support.processes import eventually
from support.server import server
from support.throughput import pop_throughput

QUICK = {"poll_interval": 0.05, "heartbeat_interval": 0.1, "shutdown_timeout": 5}


def test_a_worker_runs_in_a_block_and_leaves_no_trace(app, look, dump):
    ran = threading.Event()

    @app.job
    def job():
        ran.set()

    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with app.worker(**QUICK) as worker:
        assert worker.wait_until_ready(30)
        assert look.identities() == [worker.identity]
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
        job.enqueue()
        assert ran.wait(30)

    rest = dump()
    assert pop_throughput(rest) == {"processed": 1}
    assert {key for key in rest if not key.startswith(ANSWERS)} == {"queues", "stats:processed"}
    assert not [each.name for each in threading.enumerate() if each.name.startswith("cogworker-")]


def test_in_a_thread_that_is_not_the_main_one(app, look):
    @app.job
    def job():
        pass

    def program():
        with app.worker(**QUICK):
            job.enqueue()
            eventually(lambda: look.stats().processed == 1)

    thread = threading.Thread(target=program)
    thread.start()
    thread.join(30)
    assert look.stats().processed == 1
    assert look.workers() == []


def test_in_async_code_it_does_not_block_the_event_loop(app, look):
    begun, release = threading.Event(), threading.Event()

    @app.job
    def job():
        begun.set()
        release.wait(60)

    async def program():
        async def let_go():
            await asyncio.to_thread(begun.wait, 30)
            while worker._launcher.is_ready and not worker._launcher._stopping:
                await asyncio.sleep(0.01)
            release.set()  # the block's end waits for this, and so must not keep it from running

        async with app.worker(**{**QUICK, "shutdown_timeout": 60}) as worker:
            await job.aenqueue()
            letting_go = asyncio.create_task(let_go())
            await asyncio.to_thread(begun.wait, 30)
        await letting_go
        await app.aclose()

    asyncio.run(asyncio.wait_for(program(), 30))
    assert look.stats().processed == 1
    assert look.workers() == []


def test_it_has_settings_of_its_own(app, look):
    @app.job(queue="mail")
    def job():
        pass

    with app.worker(**QUICK, queues=["mail"], concurrency=2):
        job.enqueue()
        job.using(queue="default").enqueue()
        eventually(lambda: look.stats().processed == 1)
    assert look.stats().enqueued == 1
    assert app.config.queues == (("default", 1),)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"queue": ["a"]}, "queue: is not a setting; did you mean queues?"),
        ({"redis_url": "redis://other/0"}, "redis_url: belongs to the whole application"),
        ({"namespace": "other"}, "namespace: belongs to the whole application"),
        ({"dead_max_jobs": 3}, "dead_max_jobs: belongs to the whole application"),
        ({"max_payload_bytes": 3}, "max_payload_bytes: belongs to the whole application"),
        ({"count": 3}, "count: belongs to the whole application"),
        ({"concurrency": 0}, "concurrency: must be a whole number from 1 to 1000, not 0"),
    ],
)
def test_what_a_worker_can_t_have_of_its_own_is_refused(app, given, text):
    with pytest.raises(ConfigError) as caught:
        app.worker(**given)
    assert str(caught.value).startswith(text)
    assert str(caught.value).endswith("(from the arguments of worker())")


def test_a_worker_runs_once_and_is_joined_only_when_it_was_started(app):
    worker = app.worker(**QUICK)
    with pytest.raises(CogworkerError, match="call start"):
        worker.join()
    with worker:
        pass
    with pytest.raises(CogworkerError, match="make another one"):
        worker.start()


def test_without_redis_it_starts_all_the_same_and_ends_when_asked(app, tmp_path):
    with server(tmp_path) as own:
        away = type(app)(redis_url=own.url)
        with away.worker(**QUICK) as worker:
            assert not worker.wait_until_ready(0.1)
        assert not worker.wait_until_ready()


def test_an_error_that_ends_it_is_raised_at_the_end_of_the_block(app, monkeypatch):
    worker = app.worker(**QUICK)
    monkeypatch.setattr(worker._launcher, "run", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError), worker:
        assert not worker.wait_until_ready(30)


def test_a_worker_that_is_worn_out_ends_by_itself(app, look):
    @app.job
    def job():
        pass

    for _ in range(50):
        job.enqueue()
    worker = app.worker(**QUICK, max_jobs=3, concurrency=2)
    worker.start()
    assert worker.join(30)
    assert look.stats() == (3, 0, 0, 0, 47, 0, 0, 0, 0)
    assert look.workers() == []


def test_wearing_out_during_a_stop_hurries_nothing(app, look, tmp_path):
    begun, release = [], [threading.Event(), threading.Event()]

    @app.job
    def job(number):
        begun.append(number)
        release[number].wait(60)

    for number in range(2):
        job.enqueue(number)
    worker = app.worker(**{**QUICK, "shutdown_timeout": 60}, max_jobs=2, concurrency=2)
    with worker:
        eventually(lambda: len(begun) == 2)
        worker.stop()
        worker._launcher.requests.put("stop", "an order, or a limit that was reached")
        release[0].set()
        eventually(lambda: look.stats().processed == 1)
        release[1].set()
        assert worker.join(30)
    assert look.stats() == (2, 0, 0, 0, 0, 0, 0, 0, 0)


def test_what_was_given_back_at_a_stop_does_not_begin_afterwards(app, look):
    """The event loop is blocked by one job while the other one waits for its first step."""
    begun, release, ran = threading.Event(), threading.Event(), []

    @app.job
    async def blocks():
        begun.set()
        release.wait(60)

    @app.job(at_most_once=True)
    async def once():
        ran.append(threading.current_thread().ident)

    first = app.worker(**{**QUICK, "shutdown_timeout": 0.1})
    first.start()
    blocks.enqueue()
    assert begun.wait(30)
    once.enqueue()
    eventually(lambda: look.stats().in_flight == 2)
    loop = next(each for each in threading.enumerate() if each.name == "cogworker-async")
    first.stop()
    assert first.join(30)
    assert look.stats().enqueued == 2
    release.set()
    loop.join(30)
    assert not loop.is_alive()
    assert ran == []

    with app.worker(**QUICK):
        eventually(lambda: look.stats().processed == 2)
    assert len(ran) == 1


def test_made_before_a_fork_it_is_the_child_s_own(tmp_path, settings):
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import os, time
from cogworker import Cogworker
from cogworker.inspector import Inspector
cog = Cogworker(**{settings!r})
@cog.job
def job(): pass
worker = cog.worker(heartbeat_interval=0.1)
children = []
for number in range(2):
    pid = os.fork()
    if pid == 0:
        with worker:
            job.enqueue()
            while Inspector(cog).stats().processed == 0:
                time.sleep(0.01)
        os._exit(7)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
assert codes == [7, 7], codes
assert Inspector(cog).workers() == []
assert Inspector(cog).stats().in_flight == 0
"""
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_one_that_is_never_run_opens_nothing(app):
    before = len(os.listdir("/proc/self/fd"))
    workers = [app.worker(**QUICK) for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) <= before
    del workers


def test_one_that_can_t_go_on_stops_all_that_it_has_started(app, look, monkeypatch):
    @app.job
    def job():
        raise AssertionError("nobody may take it")

    def start(self, first_in_s=0.0):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("cogworker._worker.loops.rescuer.Rescuer.start", start, raising=False)
    worker = app.worker(**QUICK)
    worker.start()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        worker.join(30)
    assert [each.name for each in threading.enumerate() if each.name.startswith("cogworker-")] == []
    job.enqueue()
    assert look.workers() == []
    assert look.stats().enqueued == 1
