"""Hooks of a worker's life, of deaths and of errors: when they are called, and with what."""

import asyncio
import os
import re
import signal
import threading

import pytest

from cogworker import (
    Cogworker,
    Discard,
    InvalidPayload,
    JobAbandoned,
    JobOrphaned,
    Retry,
    RetryPolicy,
    StartupFailed,
    current_job,
)
from cogworker._worker import launcher
from cogworker.inspector import Inspector

from support.inline import InlineWorker
from support.processes import eventually
from support.times import all_workers_are_dead, everything_is_due

QUICK = {"heartbeat_interval": 0.1, "poll_interval": 0.05}


@pytest.fixture
def app(settings):
    app = Cogworker(**settings, **QUICK, concurrency=2)
    yield app
    app.close()


@pytest.fixture
def seen():
    return []


# A worker's life.


def test_they_come_in_the_order_of_a_worker_s_life(app, look, seen):
    app.on_startup(lambda: seen.append(f"startup {look.stats().processed}"))
    app.on_quiet(lambda: seen.append("quiet"))
    app.on_shutdown(lambda: seen.append(f"shutdown {look.stats().processed}"))

    @app.on_startup
    async def later():
        await asyncio.sleep(0.01)
        seen.append("startup, too")

    running, go = threading.Event(), threading.Event()

    @app.job
    def job():
        seen.append("begins")
        running.set()
        go.wait()
        seen.append("ends")

    job.enqueue()
    with app.worker() as worker:
        assert running.wait(10)
        worker.stop()
        eventually(lambda: "quiet" in seen)
        go.set()

    assert seen == ["startup 0", "startup, too", "begins", "quiet", "ends", "shutdown 1"]
    assert look.workers() == []


def test_quiet_is_told_once_for_each_time(app, look, seen):
    app.on_quiet(lambda: seen.append("quiet"))

    with app.worker() as worker:
        assert worker.wait_until_ready(10)
        for times in (1, 2):
            look.quiet_worker(worker.identity)
            eventually(lambda times=times: seen == ["quiet"] * times)
            look.resume_worker(worker.identity)
            eventually(lambda: worker._launcher.dispatcher.taking)
        look.quiet_worker(worker.identity)
        eventually(lambda: len(seen) == 3)

    assert len(seen) == 3


def test_async_hooks_run_on_the_event_loop_of_async_jobs(app, look, seen):
    @app.on_startup
    async def startup():
        seen.append(asyncio.get_running_loop())

    @app.job
    async def job():
        seen.append(asyncio.get_running_loop())

    @app.on_shutdown
    async def shutdown():
        seen.append(asyncio.get_running_loop())

    job.enqueue()
    with app.worker():
        eventually(lambda: look.stats().processed == 1)

    assert len(seen) == 3
    assert len({id(loop) for loop in seen}) == 1


@pytest.mark.parametrize("error", [OSError("no database"), SystemExit("no database")])
def test_a_worker_whose_startup_hook_fails_takes_nothing_and_leaves_no_trace(
    error, app, look, seen, dump
):
    @app.on_startup
    def connect():
        raise error

    app.on_startup(lambda: seen.append("startup"))
    app.on_quiet(lambda: seen.append("quiet"))
    app.on_shutdown(lambda: seen.append("shutdown"))

    @app.job
    def job():
        seen.append("runs")

    job.enqueue()
    worker = app.worker()
    with pytest.raises(StartupFailed, match=r"connect failed, .*no database") as caught:
        worker.run()

    assert caught.value.hook.endswith("connect")
    assert caught.value.__cause__ is error
    assert seen == []
    assert look.stats().enqueued == 1
    assert not [key for key in dump() if key.startswith("worker")]


def test_a_stop_does_not_wait_for_a_startup_hook(app, seen, monkeypatch):
    monkeypatch.setattr(launcher, "LEAST_FOR_HOOKS_S", 0.05)
    hanging, go = threading.Event(), threading.Event()

    @app.on_startup
    def hang():
        hanging.set()
        go.wait()

    app.on_shutdown(lambda: seen.append("shutdown"))

    with app.worker(shutdown_timeout=0) as worker:
        assert hanging.wait(10)
        worker.stop()
        assert worker.join(10)
    go.set()

    assert seen == []


def test_hooks_that_fail_or_hang_do_not_keep_a_worker_from_ending(app, look, caplog, monkeypatch):
    monkeypatch.setattr(launcher, "LEAST_FOR_HOOKS_S", 0.05)
    go = threading.Event()

    @app.on_quiet
    def fails():
        raise KeyboardInterrupt

    app.on_shutdown(go.wait)

    with app.worker(shutdown_timeout=0) as worker:
        assert worker.wait_until_ready(10)
    go.set()

    assert "a hook failed: hook=" in caplog.text
    assert "event=quiet" in caplog.text
    assert "hooks take too long for a stop" in caplog.text
    assert look.workers() == []


def test_a_command_line_worker_tells_what_failed_and_ends_with_an_error(workers):
    workers.write(
        "@cog.on_startup\ndef connect():\n    raise OSError('no database')\n"
        "@cog.on_shutdown\ndef bye():\n    print('bye', flush=True)\n"
    )

    worker = workers.start(ready=False)

    assert worker.process.wait(30) != 0
    assert "the startup hook tasks.connect failed" in worker.log
    assert "no database" in worker.log
    assert "bye" not in worker.log


def test_a_command_line_worker_calls_them(workers):
    workers.write(
        "for event in ('startup', 'quiet', 'shutdown'):\n"
        "    getattr(cog, 'on_' + event)(lambda event=event: print(event, 'told', flush=True))\n"
    )
    worker = workers.start()

    worker.signal(signal.SIGTSTP)
    worker.wait_for("quiet told")
    assert worker.stop() == 0

    order = [line for line in worker.log.splitlines() if line.endswith(" told")]
    assert order == ["startup told", "quiet told", "shutdown told"]


# Deaths.


@pytest.fixture
def dies(app):
    """A job that dies at once, with a hook of its own."""

    @app.job(name="dies", retry=False, on_death=lambda job, error: app.told("own", job, error))
    def dies(value):
        raise KeyError(value)

    return dies


@pytest.fixture
def told(app):
    """What death hooks were told, and whether the job was in dead by then."""
    told = []

    def tell(who, job, error):
        [entry] = [each for each in Inspector(app).dead() if each.payload["jid"] == job["jid"]]
        assert entry.payload == job
        told.append((who, job["args"], type(error)))
        job["args"].append("a copy")

    app.told = tell
    return told


def test_the_job_s_own_hook_comes_first_and_each_gets_a_copy(app, dies, told, look):
    @app.on_death
    def first(job, error):
        app.told("first", job, error)
        raise SystemExit

    @app.on_death
    async def second(job, error):
        app.told("second", job, error)

    dies.enqueue("x")
    with app.worker():
        eventually(lambda: len(told) == 3)

    copy = ["x", "a copy"]
    assert told == [("own", copy, KeyError), ("first", copy, KeyError), ("second", copy, KeyError)]


def test_a_death_after_retries_is_told_once(app, told, redis, look):
    app.on_death(lambda job, error: app.told("app", job, error))

    @app.job(retry=RetryPolicy(2, delay=(0,)))
    def job():
        raise ValueError(current_job().attempt)

    job.enqueue()
    with app.worker():
        eventually(lambda: told)
    assert told == [("app", ["a copy"], ValueError)]
    assert look.stats().failed == 3


def everything_else(app):
    """Jobs that end in any other way than by death."""

    @app.job(retry_in=lambda retry, error: "discard")
    def discarded():
        raise ValueError

    @app.job(retry=RetryPolicy(0, discard_on=ValueError))
    def discarded_by_policy():
        raise ValueError

    @app.job
    def discards():
        raise Discard("no")

    @app.job
    def retries():
        raise Retry(in_=1000)

    @app.job
    def fine():
        pass

    return discarded, discarded_by_policy, discards, retries, fine


def test_nothing_else_is_a_death(app, told, redis, look):
    app.on_death(lambda job, error: app.told("app", job, error))
    jobs = everything_else(app)
    for job in jobs:
        job.enqueue()
    redis.lpush(app.client.keys.queue("default"), b"junk")
    app.push({"class": "tasks.unknown", "retry": False})

    worker = InlineWorker(app)
    worker.work_off()
    worker.work_off()
    worker.tell_hooks()

    assert [error.__name__ for _, _, error in told] == ["UnknownJob"]
    assert look.stats().dead == 2


def test_retry_in_that_says_dead_and_a_retry_without_retries_are_deaths(app, told, look):
    app.on_death(lambda job, error: app.told("app", job, error))

    @app.job(retry_in=lambda retry, error: "dead")
    def hopeless():
        raise ValueError

    @app.job(retry=False)
    def asks():
        raise Retry(in_=5)

    @app.job(retry=False)
    def asks_because():
        raise Retry(in_=5) from ValueError()

    for job in (hopeless, asks, asks_because):
        job.enqueue()
    worker = InlineWorker(app)
    worker.work_off()
    assert worker.dispatcher.settlements._deaths.expected == {}
    worker.tell_hooks()

    assert [error for _, _, error in told] == [ValueError, Retry, ValueError]


def test_who_buries_orphans_tells_of_them(app, told, redis, look):
    """Once, by the rescuer; of those that go back to their queue nobody is told."""
    app.on_death(lambda job, error: app.told("app", job, error))

    @app.job(at_most_once=True, on_death=lambda job, error: app.told("own", job, error))
    def once(value):
        pass

    @app.job
    def again(value):
        pass

    once.enqueue(1)
    again.enqueue(2)
    app.push({"class": again.name, "args": [3], "orphaned": 3})
    redis.lpush(app.client.keys.queue("default"), b"[]")  # given back until somebody reads it
    doomed = InlineWorker(app, run_jobs=False)
    doomed.beat()
    doomed.turn()
    all_workers_are_dead(redis, app.client.keys)

    rescuers = [InlineWorker(app, run_jobs=False) for _ in range(2)]
    for rescuer in rescuers:
        rescuer.beat()
        rescuer.rescue()
        rescuer.tell_hooks()

    assert told == [
        ("own", [1, "a copy"], JobAbandoned),
        ("app", [1, "a copy"], JobAbandoned),
        ("app", [3, "a copy"], JobOrphaned),
    ]


def test_of_two_rescuers_the_one_that_comes_too_late_tells_nobody(app, seen, redis):
    app.on_death(lambda job, error: seen.append(job["jid"]))

    @app.job(at_most_once=True)
    def once():
        pass

    jid = once.enqueue()
    doomed = InlineWorker(app, run_jobs=False)
    doomed.beat()
    doomed.turn()
    all_workers_are_dead(redis, app.client.keys)
    late, early = (InlineWorker(app, run_jobs=False) for _ in range(2))
    orphans = late.rescuer._orphans
    decide = orphans.of_dead

    def decide_slowly(*arguments):
        moves = decide(*arguments)
        early.rescue()
        return moves

    orphans.of_dead = decide_slowly
    late.beat()
    early.beat()
    late.rescue()
    early.tell_hooks()
    assert seen == [jid]
    late.tell_hooks()

    assert seen == [jid]


def test_an_unfinished_job_that_must_not_run_twice_is_a_death(app, told):
    running = threading.Event()

    @app.job(at_most_once=True, on_death=lambda job, error: app.told("own", job, error))
    def once():
        running.set()
        while True:
            pass

    once.enqueue()
    with app.worker(shutdown_timeout=0):
        assert running.wait(10)

    assert told == [("own", ["a copy"], JobAbandoned)]


def test_of_a_lost_claim_nobody_is_told(app, seen, redis, look):
    app.on_death(lambda job, error: seen.append(job))

    @app.job(retry=False)
    def dies():
        raise ValueError

    dies.enqueue()
    frozen = InlineWorker(app, run_jobs=False)
    frozen.beat()
    frozen.turn()
    all_workers_are_dead(redis, app.client.keys)
    rescuer = InlineWorker(app, run_jobs=False)
    rescuer.beat()
    rescuer.rescue()
    frozen.perform(frozen.started[0])
    frozen.turn()
    assert frozen.dispatcher.settlements._deaths.expected == {}
    frozen.tell_hooks()

    assert seen == []
    stats = look.stats()
    assert (stats.lost_claims, stats.dead, stats.in_flight) == (1, 0, 1)


def test_a_slow_hook_holds_up_no_job(app, dies, look):
    go = threading.Event()
    app.told = lambda *_: go.wait()

    @app.job
    def fine():
        pass

    dies.enqueue(1)
    with app.worker():
        eventually(lambda: look.stats().dead == 1)
        for _ in range(20):
            fine.enqueue()
        eventually(lambda: look.stats().processed == 20)
        go.set()


# Errors.


def test_each_failed_run_is_told_with_its_arguments(app, seen, redis):
    @app.on_error
    def report(error, run, will_retry):
        seen.append((type(error), run.name, run.attempt, run.args, will_retry))

    @app.job(name="job", retry=1)
    def job(value):
        raise KeyError(value)

    @app.job(name="asks")
    def asks():
        raise Retry(in_=1000)

    job.enqueue("x")
    asks.enqueue()
    app.push({"class": "job", "args": [], "retry": False})
    app.push({"class": "unknown", "retry": False})
    for make in everything_else(app)[2:3]:
        make.enqueue()
    worker = InlineWorker(app)
    worker.work_off()
    everything_is_due(redis, app.client.keys)
    worker.promote()
    worker.work_off()
    worker.tell_hooks()

    assert [(error.__name__, *rest) for error, *rest in seen] == [
        ("KeyError", "job", 1, ["x"], True),
        ("Retry", "asks", 1, [], True),
        ("InvalidArguments", "job", 1, None, False),
        ("UnknownJob", "unknown", 1, None, False),
        ("KeyError", "job", 2, ["x"], False),
        ("Retry", "asks", 2, [], True),
    ]


def test_a_forked_worker_has_its_own_thread_for_hooks(workers):
    workers.write(
        "import os\n"
        "cog.on_startup(lambda: os.write(1, b'startup in %d\\n' % os.getpid()))\n"
        "cog.on_shutdown(lambda: os.write(1, b'shutdown in %d\\n' % os.getpid()))\n"
    )
    swarm = workers.swarm("-n", "2", "--preload")
    assert swarm.stop() == 0

    startups, shutdowns = (
        sorted(re.findall(rf"^{each} in (\d+)$", swarm.log, re.MULTILINE))
        for each in ("startup", "shutdown")
    )
    assert startups == shutdowns
    assert len(startups) == 2
    assert str(os.getpid()) not in startups


def test_the_death_of_what_has_a_job_s_shape_but_can_t_be_read_is_told(app, seen, redis, look):
    app.on_death(lambda job, error: seen.append(type(error)))

    @app.job(name="job")
    def job():
        raise ValueError

    raw = b'{"class":"job","jid":"odd","args":[],"retry":false,"\xff":1}'
    redis.lpush(app.client.keys.queue("default"), raw)
    worker = InlineWorker(app)
    worker.work_off()
    worker.tell_hooks()

    [dead] = look.dead()
    assert dead.payload["error_class"].endswith("InvalidPayload")
    assert seen == [InvalidPayload]
