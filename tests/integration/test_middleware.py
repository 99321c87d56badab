"""Client middlewares before a push, server middlewares around a run, on a real server."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cogworker import (
    BulkRefused,
    Cogworker,
    DeclarationError,
    EnqueueError,
    InvalidArguments,
    InvalidPayload,
    UnknownJob,
    current_job,
)
from cogworker._worker import around
from cogworker.inspector import Inspector

from support.inline import InlineWorker
from support.processes import eventually


@pytest.fixture
def seen():
    return []


@pytest.fixture
def note(app, seen):
    @app.job(name="note", queue="q", retry=4)
    def note(*args, **kwargs):
        seen.append((args, kwargs))

    return note


def queued(redis, app, queue="q"):
    return [json.loads(each) for each in redis.lrange(app.client.keys.queue(queue), 0, -1)][::-1]


def scheduled(redis, app):
    return [json.loads(each) for each in redis.zrange(app.client.keys.schedule, 0, -1)]


# Client.


def alone(app, awaitable):
    """Await something on an event loop of its own."""

    async def main():
        try:
            return await awaitable
        finally:
            await app.aclose()

    return asyncio.run(main())


def every_way(app, note):
    """A call for each way to enqueue."""
    when = datetime(2100, 1, 1, tzinfo=UTC)
    yield lambda: note.enqueue(1)
    yield lambda: note.enqueue_in(1000, 1)
    yield lambda: note.enqueue_at(when, 1)
    yield lambda: note.enqueue_many([(1,)])[0]
    yield lambda: app.push({"class": "note", "args": [1], "queue": "q"})
    yield lambda: app.push({"class": "note", "args": [1], "queue": "q", "at": 4e9})
    yield lambda: alone(app, note.aenqueue(1))
    yield lambda: alone(app, note.aenqueue_in(1000, 1))
    yield lambda: alone(app, note.aenqueue_at(when, 1))
    yield lambda: alone(app, note.aenqueue_many([(1,)]))[0]
    yield lambda: alone(app, app.apush({"class": "note", "args": [1], "queue": "q"}))


def test_every_way_to_enqueue_goes_through_and_is_changed(app, note, redis):
    asked = []

    @app.middleware.client.add
    def change(job):
        asked.append(job)
        return replace(job, args=(*job.args, 2), kwargs={"by": "me"}).with_fields(trace=["x", None])

    jids = [way() for way in every_way(app, note)]

    pushed = {job["jid"]: job for job in (*queued(redis, app), *scheduled(redis, app))}
    assert [job.jid for job in asked] == jids == [*dict.fromkeys(jids)]
    assert set(pushed) == set(jids)
    for job in pushed.values():
        assert (job["args"], job["kwargs"], job["trace"]) == ([1, 2], {"by": "me"}, ["x", None])
        assert ("at" in job) != ("enqueued_at" in job)
        assert job["created_at"]
    assert [job.name for job in asked] == ["note"] * len(jids)
    assert {job.queue for job in asked} == {"q"}
    assert [job.retry for job in asked][:4] == [4] * 4


def test_what_the_options_say_is_in_the_payload_as_without_middlewares(app, redis):
    @app.job(name="job", status=True, unique="until_executed", tags=["a"], history=True)
    def job(number):
        pass

    job.enqueue(1)
    app.middleware.client.add(lambda job: job)
    job.enqueue(2)

    plain, passed = queued(redis, app, "default")
    varies = ("jid", "args", "lock", "created_at", "enqueued_at")
    assert plain.keys() == passed.keys()
    assert all(plain[key] == passed[key] for key in plain.keys() - set(varies))
    assert plain["status"] == app.client.config.status_ttl


def test_what_a_middleware_does_to_the_fields_of_one_call_is_not_in_the_next(app, note, redis):
    @app.middleware.client.add
    def change(job):
        assert "odd" not in job.fields
        job.fields["odd"] = 1
        return job

    note.enqueue(1)
    note.enqueue(2)

    assert [job["odd"] for job in queued(redis, app)] == [1, 1]


def test_every_way_to_enqueue_answers_none_when_it_is_stopped(app, note, dump):
    app.middleware.client.add(lambda job: None)

    assert [way() for way in every_way(app, note)] == [None] * 11
    assert dump() == {}


def test_of_many_only_some_are_stopped_or_refused(app, note, redis):
    @app.middleware.client.add
    def choose(job):
        if job.args == (2,):
            raise PermissionError("not this one")
        return None if job.args == (1,) else job

    with pytest.raises(BulkRefused) as caught:
        note.enqueue_many([(0,), (1,), (2,), (3,)])

    jids = caught.value.jids
    assert [jid is None for jid in jids] == [False, True, True, False]
    assert list(caught.value.refused) == [2]
    assert [job["args"] for job in queued(redis, app)] == [[0], [3]]


def test_it_may_route_schedule_and_limit_retries(app, note, redis):
    app.middleware.client.add(lambda job: replace(job, queue="other", retry=0))
    note.enqueue(1)
    [job] = queued(redis, app, "other")
    assert (job["queue"], job["retry"]) == ("other", 0)

    app.middleware.client.add(lambda job: replace(job, at=None, delay_s=1000.0))
    note.enqueue(2)
    app.push({"class": "note", "args": [3]})
    jobs = scheduled(redis, app)
    assert sorted(job["args"] for job in jobs) == [[2], [3]]
    assert all(900 < job["at"] - job["created_at"] < 1100 for job in jobs)


def test_arguments_that_it_spoils_are_refused(app, redis, dump):
    @app.job
    def typed(number: int):
        pass

    app.middleware.client.add(lambda job: replace(job, args=(object(),)))
    with pytest.raises(InvalidArguments):
        typed.enqueue(1)

    app.middleware.client.add(lambda job: replace(job, args=(1, 2, 3)))
    with pytest.raises(InvalidArguments):
        typed.enqueue(1)

    app.middleware.client.add(lambda job: replace(job, args=(1,), fields={"odd": object()}))
    with pytest.raises(EnqueueError, match="odd"):
        typed.enqueue(1)
    assert dump() == {}


def test_a_lock_is_that_of_the_changed_job(app, redis):
    @app.job(unique="until_executed")
    def once(who):
        pass

    @app.middleware.client.add
    def anonymous(job):
        return replace(job, args=("somebody",))

    first = once.enqueue("ada")
    assert once.enqueue("bob") is None
    assert once.using(on_duplicate="skip").enqueue("cleo") is None

    app.middleware.client.add(lambda job: replace(job, queue="other"))
    assert once.enqueue("ada") not in (None, first)
    assert once.enqueue("bob") is None

    app.middleware.client.add(
        lambda job: replace(job, fields={k: v for k, v in job.fields.items() if k != "unique"})
    )
    assert once.enqueue("ada") is not None


def test_a_job_s_locks_are_not_taken_when_it_is_stopped(app, dump):
    @app.job(unique="until_executed")
    def once():
        pass

    app.middleware.client.add(lambda job: None)

    assert once.enqueue() is None
    assert dump() == {}


def test_a_job_may_skip_a_middleware(app, redis):
    stops = app.middleware.client.add(lambda job: None)

    @app.job(name="special", skip_middleware=[stops])
    def special():
        pass

    assert special.enqueue() is not None
    assert app.push({"class": "special"}) is not None
    assert app.push({"class": "other"}) is None


# Server.


@pytest.fixture
def work(app, redis):
    """Work off all that is queued, in this thread."""

    def work():
        worker = InlineWorker(app)
        worker.beat()
        worker.work_off()
        worker.leave()

    return work


def recorder(seen, label):
    @contextmanager
    def middleware(run):
        seen.append(f"{label} enters")
        try:
            yield
        except BaseException as error:
            seen.append(f"{label} sees {type(error).__name__}")
            raise
        seen.append(f"{label} leaves")

    return middleware


def test_they_are_around_the_run_in_their_order(app, seen, work):
    app.middleware.server.add(recorder(seen, "outer"))
    app.middleware.server.add(recorder(seen, "inner"))

    @app.job
    def job():
        seen.append("runs")

    job.enqueue()
    work()

    assert seen == ["outer enters", "inner enters", "runs", "inner leaves", "outer leaves"]


def test_they_are_told_of_the_run(app, seen, work):
    @app.middleware.server.add
    @contextmanager
    def tell(run):
        assert current_job().jid == run.jid
        seen.append(run)
        yield

    @app.job(name="told", retry=2)
    def told(when: datetime, *, deep=1):
        if current_job().attempt == 1:
            raise ValueError

    when = datetime(2030, 1, 1, tzinfo=UTC)
    jid = told.enqueue(when, deep=2)
    app.push({"class": "told", "args": ["never"], "tags": ["a", "b"], "mine": {"x": [1]}})
    work()

    first, second = seen
    assert (first.jid, first.name, first.queue, first.attempt) == (jid, "told", "default", 1)
    assert (list(first.args), first.kwargs, first.job) == ([when], {"deep": 2}, told)
    assert (first.tags, first.payload["jid"]) == ((), jid)
    assert (second.args, second.kwargs, second.tags) == (None, None, ("a", "b"))
    assert second.payload["mine"] == {"x": [1]}


def test_an_unknown_job_and_arguments_that_don_t_fit_fail_inside(app, seen, work, look):
    @app.middleware.server.add
    @contextmanager
    def watch(run):
        try:
            yield
        except BaseException as error:
            seen.append((run.name, run.job is None, type(error)))
            raise

    @app.job(name="typed", retry=False)
    def typed(number: int):
        pass

    app.push({"class": "unknown", "retry": False})
    app.push({"class": "typed", "args": ["one"], "retry": False})
    work()

    assert seen == [("unknown", True, UnknownJob), ("typed", False, InvalidArguments)]
    assert look.stats().dead == 2


def test_one_that_swallows_makes_a_success_one_that_raises_a_failure(app, seen, work, look):
    @app.middleware.server.add
    @contextmanager
    def judge(run):
        try:
            yield
        except ValueError:
            pass
        else:
            raise SystemExit("so good that it fails")

    @app.job(retry=False)
    def fails():
        raise ValueError

    @app.job(retry=False)
    def fine():
        seen.append(1)

    fails.enqueue()
    fine.enqueue()
    work()

    stats = look.stats()
    assert (stats.processed, stats.failed, stats.dead, seen) == (1, 1, 1, [1])
    assert look.dead()[0].payload["error_class"] == "SystemExit"


@pytest.mark.parametrize("where", ["factory", "enter", "exit", "no manager"])
def test_whatever_fails_in_a_middleware_is_a_failure_of_the_run(where, app, seen, work, look):
    app.middleware.server.add(recorder(seen, "outer"))

    class Breaks:
        def __init__(self, run):
            if where == "factory":
                raise KeyboardInterrupt

        def __enter__(self):
            if where == "enter":
                raise KeyboardInterrupt

        def __exit__(self, *_):
            if where == "exit":
                raise KeyboardInterrupt

    app.middleware.server.add((lambda run: 5) if where == "no manager" else Breaks)

    @app.job(retry=False)
    def job():
        seen.append("runs")

    @app.job(retry=False)
    async def coroutine():
        seen.append("runs")

    job.enqueue()
    coroutine.enqueue()
    with app.worker(concurrency=1):
        eventually(lambda: look.stats().failed == 2)

    error = "TypeError" if where == "no manager" else "KeyboardInterrupt"
    ran = ["runs"] if where == "exit" else []
    assert seen == ["outer enters", *ran, f"outer sees {error}"] * 2
    assert look.stats().dead == 2


current_user = ContextVar("current_user", default="nobody")


@contextmanager
def as_ada(run):
    token = current_user.set("ada")
    try:
        yield
    finally:
        current_user.reset(token)


def test_context_variables_reach_plain_and_async_jobs_and_no_further(app, seen, look):
    app.middleware.server.add(as_ada)

    @app.job
    def plain():
        seen.append(("plain", current_user.get(), current_job().name == plain.name))

    @app.job
    async def coroutine():
        await asyncio.sleep(0)
        seen.append(("async", current_user.get(), current_job().name == coroutine.name))

    @app.job(skip_middleware=[as_ada])
    def without():
        seen.append(("without", current_user.get(), True))

    for job in (plain, coroutine, without):
        job.enqueue()
    with app.worker(concurrency=1):
        eventually(lambda: look.stats().processed == 3)

    assert sorted(seen) == [
        ("async", "ada", True),
        ("plain", "ada", True),
        ("without", "nobody", True),
    ]


def test_an_async_middleware_is_only_around_async_jobs_which_is_said_once(
    app, seen, look, caplog, monkeypatch
):
    monkeypatch.setattr(around, "_told", set())

    @app.middleware.server.add
    @asynccontextmanager
    async def slow(run):
        await asyncio.sleep(0)
        seen.append(f"around {run.name}")
        yield

    class Both:
        def __init__(self, run):
            pass

        def __enter__(self):
            seen.append("plainly")

        def __exit__(self, *_):
            pass

        async def __aenter__(self):
            seen.append("asynchronously")

        async def __aexit__(self, *_):
            pass

    app.middleware.server.add(Both)

    @app.job(name="plain")
    def plain():
        seen.append("plain")

    @app.job(name="coroutine")
    async def coroutine():
        seen.append("coroutine")

    plain.enqueue()
    plain.enqueue()
    coroutine.enqueue()
    with app.worker(concurrency=1):
        eventually(lambda: look.stats().processed == 3)

    assert seen == [
        *["plainly", "plain"] * 2,
        *["around coroutine", "asynchronously", "coroutine"],
    ]
    assert caplog.text.count("for async jobs only is left out around plain ones") == 1


def test_constructor_arguments_and_no_manager_at_all(app, seen, work):
    class Labelled:
        def __init__(self, run, label, *, times):
            seen.append(label * times)

        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

    app.middleware.server.add(Labelled, "x", times=3)
    app.middleware.server.add(lambda run: None)

    @app.job
    def job():
        seen.append("runs")

    job.enqueue()
    work()

    assert seen == ["xxx", "runs"]


def test_a_coroutine_that_nobody_awaits_fails_inside(app, seen, work, look):
    app.middleware.server.add(recorder(seen, "outer"))

    async def coroutine():
        pass

    @app.job(retry=False)
    def job():
        return coroutine()

    job.enqueue()
    work()

    assert seen == ["outer enters", "outer sees TypeError"]


def test_a_middleware_is_interrupted_with_its_job_and_the_job_given_back(settings, seen):
    app = Cogworker(**settings, shutdown_timeout=0)
    running = threading.Event()
    app.middleware.server.add(recorder(seen, "outer"))

    @app.job
    def job():
        running.set()
        while True:
            pass

    job.enqueue()
    with app.worker():
        assert running.wait(10)

    assert seen == ["outer enters", "outer sees JobInterrupted"]
    stats = Inspector(app).stats()
    assert (stats.enqueued, stats.failed, stats.processed) == (1, 0, 0)


def test_junk_is_no_run(app, seen, redis, look):
    app.middleware.server.add(recorder(seen, "outer"))
    redis.lpush(app.client.keys.queue("default"), b"junk")

    with app.worker():
        eventually(lambda: look.stats().dead == 1)

    assert seen == []
    assert InvalidPayload.__name__ in look.dead()[0].payload["error_class"]


def test_a_generator_function_is_refused_with_what_to_do(app):
    def forgot(run):
        yield

    with pytest.raises(DeclarationError, match="put @contextmanager above it"):
        app.middleware.server.add(forgot)


def test_a_delay_below_zero_is_refused_and_takes_no_lock(app, dump):
    @app.job(name="once", unique="until_executed")
    def once():
        pass

    app.middleware.client.add(lambda job: replace(job, delay_s=-5))
    with pytest.raises(EnqueueError, match="it is 0 or more"):
        once.enqueue()
    assert dump() == {}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tags": "text"}, "tags must be a list"),
        ({"expires_at": "soon"}, "'expires_at' must be a time in epoch seconds"),
        ({"unique": "bogus"}, "unique must be one of"),
        ({"status": "yes"}, "status must be True, False, or a number"),
        ({"history": "x"}, "history must be one of"),
    ],
)
def test_what_options_say_must_be_right_whoever_says_it(app, note, dump, fields, problem):
    payload = {"class": "note", "args": [], "queue": "q"}
    with pytest.raises(EnqueueError, match=problem):
        app.push({**payload, **fields})

    app.middleware.client.add(lambda job: job.with_fields(**fields))
    for enqueue in (lambda: note.enqueue(), lambda: app.push(payload)):
        with pytest.raises(EnqueueError, match=problem):
            enqueue()
    assert dump() == {}
