"""A worker, its threads, its event loop and its server, together in this process."""

import asyncio
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from cogworker import Cogworker, NoCurrentJob, RetryPolicy, current_job
from cogworker.inspector import Inspector

from support.dump import ANSWERS
from support.processes import eventually
from support.throughput import pop_throughput
from support.times import everything_is_due

QUICK = {"poll_interval": 0.05, "heartbeat_interval": 0.1, "shutdown_timeout": 5}


@pytest.fixture
def app(settings):
    app = Cogworker(**settings, **QUICK, concurrency=4, queues=["default", "mail,3"])
    yield app
    app.close()


@contextmanager
def working(app):
    worker = app.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(30)
        assert not thread.is_alive()


def settled(look, processed, failed=0):
    def condition():
        stats = look.stats()
        return stats.processed >= processed and stats.failed >= failed

    eventually(condition)
    stats = look.stats()
    assert (stats.processed, stats.failed) == (processed, failed)


def test_runs_plain_and_async_jobs_with_their_arguments(app, look):
    seen = []

    @app.job
    def plain(a, *, b=2):
        seen.append(("plain", a, b, threading.current_thread().name.rsplit("-", 1)[0]))

    @app.job(queue="mail")
    async def coroutine(when: datetime, items: list[int]):
        await asyncio.sleep(0)
        seen.append(("async", when, items, threading.current_thread().name))

    when = datetime(2026, 12, 1, tzinfo=UTC)
    plain.enqueue("x", b=3)
    coroutine.enqueue(when, [1, 2])
    with working(app):
        settled(look, 2)

    assert sorted(seen, key=repr) == [
        ("async", when, [1, 2], "cogworker-async"),
        ("plain", "x", 3, "cogworker-slot"),
    ]


def test_a_clean_stop_leaves_nothing_behind(app, look, dump):
    @app.job
    def job():
        pass

    job.enqueue()
    with working(app):
        settled(look, 1)

    rest = dump()
    assert pop_throughput(rest) == {"processed": 1}
    assert {key for key in rest if not key.startswith(ANSWERS)} == {"queues", "stats:processed"}


def test_an_idle_worker_wakes_at_once_and_again_and_again(settings):
    app = Cogworker(**settings, fetch_idle_max_interval=30)
    ran = threading.Semaphore(0)

    @app.job
    def job():
        ran.release()

    with working(app):
        for _ in range(20):
            job.enqueue()
            assert ran.acquire(timeout=5), "it slept on"


def test_a_payload_pushed_by_other_software_is_found_without_a_token(app, redis, look):
    ran = []

    @app.job(name="HardWorker")
    def hard_worker(a, b):
        ran.append((a, b))

    with working(app):
        eventually(lambda: look.workers())
        redis.lpush(
            app.client.keys.queue("default"),
            b'{"class":"HardWorker","args":[1,"two"],"jid":"b4a577edbccf1d805744efa9","retry":true}',
        )
        settled(look, 1)

    assert ran == [(1, "two")]


def test_current_job_tells_who_runs(app, look):
    seen = {}

    @app.job(retry=RetryPolicy(3, delay=(0,)))
    def plain():
        seen.setdefault("plain", []).append(current_job())
        if current_job().attempt < 3:
            raise ValueError("again")

    @app.job
    async def coroutine():
        seen["async"] = current_job()

    jid = plain.enqueue()
    other = coroutine.enqueue()
    with pytest.raises(NoCurrentJob):
        current_job()
    with working(app):
        settled(look, 2, failed=2)

    assert [(job.jid, job.attempt, job.queue) for job in seen["plain"]] == [
        (jid, 1, "default"), (jid, 2, "default"), (jid, 3, "default"),
    ]  # fmt: skip
    assert seen["async"].jid == other
    assert seen["async"].name.endswith("coroutine")


def test_jobs_of_all_ways_to_enqueue_run(app, look):
    ran = []

    @app.job
    def job(label):
        ran.append(label)

    async def from_async_code():
        await job.aenqueue("aenqueue")
        await job.aenqueue_in(0, "aenqueue_in")
        await job.aenqueue_at(datetime.now(UTC) - timedelta(hours=1), "aenqueue_at")
        await job.aenqueue_many([("amany",), ("amany",)])
        await app.apush({"class": job.name, "args": ["apush"]})
        await app.aclose()

    asyncio.run(from_async_code())
    job.enqueue("enqueue")
    job.enqueue_in(timedelta(0), "enqueue_in")
    job.enqueue_at(datetime.now(UTC) - timedelta(seconds=1), "enqueue_at")
    job.enqueue_many([("many",), ("many",)])
    job.using(queue="mail").enqueue("using")
    app.push({"class": job.name, "args": ["push"], "custom": {"kept": [1]}})
    with working(app):
        settled(look, 13)

    assert sorted(ran) == [
        "aenqueue", "aenqueue_at", "aenqueue_in", "amany", "amany", "apush", "enqueue",
        "enqueue_at", "enqueue_in", "many", "many", "push", "using",
    ]  # fmt: skip


def test_scheduled_jobs_run_when_they_are_due(app, look, redis):
    ran = []

    @app.job
    def job(label):
        ran.append(label)

    job.enqueue_in(3600, "in an hour")
    job.enqueue_at(datetime.now(UTC) + timedelta(days=1), "tomorrow")
    assert look.stats().scheduled == 2
    with working(app):
        job.enqueue("now")
        settled(look, 1)
        everything_is_due(redis, app.client.keys)
        settled(look, 3)

    assert ran[0] == "now"
    assert sorted(ran) == ["in an hour", "now", "tomorrow"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        RecursionError("deep"),
        MemoryError(),
        StopIteration(),
        StopAsyncIteration(),
        BaseException("base"),
        ValueError("x" * 10_000_000),
        ValueError("\ud800"),
    ],
    ids=lambda error: f"{type(error).__name__}-{len(str(error))}",
)
def test_every_exception_is_a_failure_of_its_job_and_of_nothing_else(
    app, look, error, is_async, caplog
):
    if is_async:

        @app.job(retry=0)
        async def bad():
            raise error
    else:

        @app.job(retry=0)
        def bad():
            raise error

    @app.job
    def good():
        pass

    bad.enqueue()
    with working(app):
        settled(look, 0, failed=1)
        good.enqueue_many([()] * 20)
        settled(look, 20, failed=1)

    [dead] = look.dead()
    assert dead.payload["retry_count"] == 1
    expected = RuntimeError if is_async and isinstance(error, StopIteration) else type(error)
    assert dead.payload["error_class"].endswith(expected.__name__)
    assert len(dead.payload["error_message"]) <= 10_000
    assert max(len(record.getMessage()) for record in caplog.records) < 2000


def test_an_error_whose_text_raises_is_a_failure_like_any_other(app, look):
    class Unreadable(Exception):
        def __str__(self):
            raise KeyboardInterrupt

    @app.job(retry=0)
    def bad():
        raise Unreadable

    bad.enqueue()
    with working(app):
        settled(look, 0, failed=1)

    [dead] = look.dead()
    assert "can't be read" in dead.payload["error_message"]


def test_a_failed_job_is_retried_with_its_error_and_then_dies(app, look):
    @app.job(retry=RetryPolicy(2, delay=(0,)))
    def bad():
        raise LookupError(f"attempt {current_job().attempt}")

    jid = bad.enqueue()
    with working(app):
        settled(look, 0, failed=3)

    [dead] = look.dead()
    assert dead.payload["jid"] == jid
    assert dead.payload["retry_count"] == 3
    assert dead.payload["error_class"] == "LookupError"
    assert dead.payload["error_message"] == "attempt 3"
    assert dead.payload["failed_at"] <= dead.died_at
    assert any("raise LookupError" in line for line in dead.payload["error_backtrace"])


def test_the_first_failure_s_time_and_unknown_keys_are_kept_and_numbers_survive(app, look):
    @app.job(retry=RetryPolicy(1, delay=(0,)))
    def bad(number):
        raise ValueError

    app.push(
        {
            "class": bad.name,
            "args": [2**200],
            "retry": 1,
            "custom": [9007199254740993, {}, [], 0.1],
        }
    )
    with working(app):
        settled(look, 0, failed=2)

    [dead] = look.dead()
    assert dead.payload["args"] == [2**200]
    assert b'"custom":[9007199254740993,{},[],0.1]' in dead.raw
    assert dead.payload["failed_at"] < dead.died_at


def test_what_is_no_job_goes_to_dead_with_the_reason_and_stops_nothing(app, look, redis):
    junk = [
        b"not json", b"[1,2]", b'"text"', b"", b"\xff\xfe", b"{}", b'{"class":1,"jid":"x"}',
        b'{"class":"x"}', b"[" * 100_000, b"null", b'{"class":"x","jid":"y"',
    ]  # fmt: skip

    @app.job
    def good():
        pass

    redis.lpush(app.client.keys.queue("default"), *junk)
    redis.zadd(app.client.keys.schedule, {payload + b"s": 1 for payload in junk})
    redis.zadd(app.client.keys.retry, {b'{"class":"x","jid":"y","args":[]}': 1})
    good.enqueue()
    with working(app):
        settled(look, 1, failed=2 * len(junk) + 1)

    dead = look.dead()
    assert {entry.payload["class"] for entry in dead} == {"(unparseable)"}
    assert {entry.payload["error_class"] for entry in dead} == {"InvalidPayload"}
    assert "not json" in {entry.payload["raw_payload"] for entry in dead}


def test_a_job_nobody_declared_fails_with_a_hint(app, look):
    app.push({"class": "Nobody", "retry": 0})
    with working(app):
        settled(look, 0, failed=1)

    [dead] = look.dead()
    assert dead.payload["error_class"] == "cogworker.errors.UnknownJob"
    assert "'Nobody'" in dead.payload["error_message"]


def test_arguments_that_do_not_fit_fail_with_their_path(app, look):
    @app.job(retry=0)
    def job(number: int):
        raise AssertionError("never called")

    app.push({"class": job.name, "args": ["five"], "retry": 0})
    app.push({"class": job.name, "args": [1, 2], "retry": 0})
    with working(app):
        settled(look, 0, failed=2)

    messages = {entry.payload["error_message"] for entry in look.dead()}
    assert any("args[0]" in message for message in messages)
    assert all("never called" not in message for message in messages)


def test_a_plain_function_that_returns_a_coroutine_fails(app, look):
    async def inner():
        pass

    @app.job(retry=0)
    def job():
        return inner()

    job.enqueue()
    with working(app):
        settled(look, 0, failed=1)

    assert "async def" in look.dead()[0].payload["error_message"]


def test_at_most_concurrency_jobs_run_at_once_threads_and_tasks_together(app, look):
    lock = threading.Lock()
    now, most = 0, 0
    gate = threading.Barrier(2)

    def enter(step):
        nonlocal now, most
        with lock:
            now += step
            most = max(most, now)

    @app.job
    def plain():
        enter(1)
        gate.wait(10)
        enter(-1)

    @app.job
    async def coroutine():
        enter(1)
        await asyncio.to_thread(gate.wait, 10)
        enter(-1)

    for _ in range(20):
        plain.enqueue()
        coroutine.enqueue()
    with working(app):
        settled(look, 40)

    assert 2 <= most <= 4


def test_paused_queues_are_left_alone_and_taken_from_when_resumed(app, look, redis):
    ran = threading.Semaphore(0)
    keys = app.client.keys

    @app.job
    def job():
        ran.release()

    redis.sadd(keys.paused_queues, "mail")
    with working(app):
        job.using(queue="mail").enqueue()
        for _ in range(50):
            job.enqueue()
        settled(look, 50)
        assert redis.llen(keys.queue("mail")) == 1
        redis.srem(keys.paused_queues, "mail")
        settled(look, 51)


def test_every_weighted_queue_is_reached(settings):
    app = Cogworker(**settings, queues=["a,10", "b", "c"], concurrency=1)
    order = []

    @app.job
    def job(label):
        order.append(label)

    for name in "abc":
        job.using(queue=name).enqueue_many([(name,)] * 200)
    with working(app):
        settled(Inspector(app), 600)

    # Which queue comes first is a matter of chance: see QueueOrder's own tests.
    assert {name: order.count(name) for name in "abc"} == {"a": 200, "b": 200, "c": 200}


def test_strict_order_empties_the_first_queue_first(settings):
    app = Cogworker(**settings, queues=["a", "b"], queue_order="strict", concurrency=1)
    order = []

    @app.job
    def job(label):
        order.append(label)

    for name in "ba":
        job.using(queue=name).enqueue_many([(name,)] * 100)
    with working(app):
        settled(Inspector(app), 200)

    assert order == ["a"] * 100 + ["b"] * 100


def test_jobs_of_one_queue_run_in_their_order(settings):
    app = Cogworker(**settings, concurrency=1)
    order = []

    @app.job
    def job(number):
        order.append(number)

    job.enqueue_many([(number,) for number in range(500)])
    with working(app):
        settled(Inspector(app), 500)

    assert order == list(range(500))


def test_each_job_has_a_context_of_its_own(app, look):
    from contextvars import ContextVar

    variable = ContextVar("variable", default="fresh")
    seen = []

    @app.job
    def plain():
        seen.append(variable.get())
        variable.set("used")

    @app.job
    async def coroutine():
        seen.append(variable.get())
        variable.set("used")

    plain.enqueue_many([()] * 20)
    coroutine.enqueue_many([()] * 20)
    with working(app):
        settled(look, 40)

    assert seen == ["fresh"] * 40


def test_an_entry_that_can_t_be_promoted_does_not_stand_before_the_others(app, look, redis, caplog):
    keys = app.client.keys
    redis.set(keys.queue("broken"), "not a list")
    bad = {f'{{"class":"x","jid":"{n}","queue":"broken"}}'.encode(): n for n in range(1, 500)}
    redis.zadd(keys.retry, bad)

    @app.job
    def job():
        pass

    with working(app):
        job.enqueue_in(3600)
        redis.zadd(keys.schedule, {redis.zrange(keys.schedule, 0, 0)[0]: 1})
        settled(look, 1)
        eventually(lambda: redis.zcount(keys.retry, "-inf", 1000) == 0)

    assert redis.zcard(keys.retry) == len(bad)
    assert "the server refused to promote a job, trying again in 60 s" in caplog.text


def test_a_turn_that_can_t_be_digested_strands_no_job(app, look, monkeypatch, caplog):
    """Whatever the fault: the worker lives, so nobody would rescue them."""
    ran = []

    @app.job(name="asked", unique="while_executing")
    def asked():
        ran.append("asked")

    @app.job(name="plain")
    def plain(number):
        ran.append(number)

    begin, faults = app.client.transitions.begin, [OverflowError("first"), OverflowError("second")]

    def failing(*args, **kwargs):
        if faults:
            raise faults.pop()
        return begin(*args, **kwargs)

    monkeypatch.setattr(app.client.transitions, "begin", failing)
    for number in range(5):
        plain.enqueue(number)
    asked.enqueue()
    plain.enqueue(5)
    with working(app):
        settled(look, 7)

    assert sorted(ran, key=str) == [0, 1, 2, 3, 4, 5, "asked"]
    assert caplog.text.count("the dispatcher failed, and goes on") == 2
