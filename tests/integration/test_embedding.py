"""A worker inside another program: beside its main thread, and without its signals."""

import asyncio
import signal
import threading

import pytest

from cogworker import CogworkerError, ConfigError
from cogworker.inspector import Inspector

from support.processes import eventually
from support.server import server

QUICK = {"poll_interval": 0.05, "heartbeat_interval": 0.1, "shutdown_timeout": 5}


@pytest.fixture
def look(app):
    return Inspector(app)


def test_a_worker_runs_in_a_block_and_leaves_no_trace(app, look, dump):
    ran = threading.Event()

    @app.job
    def job():
        ran.set()

    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with app.worker(**QUICK) as worker:
        assert worker.wait_until_ready(30)
        assert look.workers() == [worker.identity]
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
        job.enqueue()
        assert ran.wait(30)

    assert {key for key in dump() if not key.startswith("producer:")} == {
        "queues",
        "stats:processed",
    }
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
    @app.job
    async def job():
        await asyncio.sleep(0)

    async def program():
        async with app.worker(**QUICK):
            await job.aenqueue()
            while look.stats().processed == 0:
                await asyncio.sleep(0.01)
        await app.aclose()

    asyncio.run(asyncio.wait_for(program(), 30))
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

    for _ in range(5):
        job.enqueue()
    worker = app.worker(**QUICK, max_jobs=3, concurrency=1)
    worker.start()
    assert worker.join(30)
    assert look.stats().processed >= 3
    assert look.stats().in_flight == 0
    assert look.workers() == []
