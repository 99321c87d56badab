"""Enqueueing on a real server: what is accepted, what is refused, what is sent again."""

import asyncio
import ctypes
import functools
import json
import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

from cogworker import (
    BulkRefused,
    Cogworker,
    ConfigError,
    DeclarationError,
    EnqueueError,
    InvalidArguments,
    JobInterrupted,
    PayloadTooLarge,
    RedisRefused,
    RedisUnavailable,
)
from cogworker.inspector import Inspector

from support.flaky import Fault, FlakyConnector
from support.processes import eventually
from support.server import server


@pytest.fixture
def greet(app):
    @app.job(name="greet", queue="mail", retry=3)
    def greet(name: str, *, loud: bool = False):
        return name.upper() if loud else name

    return greet


def only(look, queue="mail"):
    [payload] = look.waiting(queue)
    return json.loads(payload)


def test_a_call_of_a_job_is_an_ordinary_call(greet, look):
    assert greet("ada", loud=True) == "ADA"
    assert look.stats().enqueued == 0


def test_a_payload_has_the_shared_form(greet, look):
    jid = greet.enqueue("ada", loud=True)

    payload = only(look)
    created = payload.pop("created_at")
    assert payload.pop("enqueued_at") == created
    assert payload == {
        "class": "greet",
        "args": ["ada"],
        "kwargs": {"loud": True},
        "jid": jid,
        "queue": "mail",
        "retry": 3,
    }
    assert len(jid) == 24
    assert int(jid, 16) >= 0


def test_without_keywords_there_is_no_kwargs(greet, look):
    greet.enqueue("ada")

    assert "kwargs" not in only(look)


def test_a_scheduled_payload_has_at_and_no_enqueued_at(greet, redis, app):
    when = datetime.now(UTC) + timedelta(hours=1)
    greet.enqueue_at(when, "ada")

    [(raw, score)] = redis.zrange(app.client.keys.schedule, 0, -1, withscores=True)
    payload = json.loads(raw)
    assert payload["at"] == pytest.approx(when.timestamp(), abs=1e-5)
    assert score == pytest.approx(when.timestamp(), abs=1e-5)
    assert "enqueued_at" not in payload


def test_the_server_s_clock_counts_delays(greet, redis, app, monkeypatch):
    scores = []
    for skew_s in (-600, 600):
        monkeypatch.setattr("cogworker.clock.wall", lambda skew_s=skew_s: 1.8e9 + skew_s)
        greet.enqueue_in(300, "ada")
        [(_raw, score)] = redis.zrange(app.client.keys.schedule, 0, -1, withscores=True)
        redis.delete(app.client.keys.schedule)
        scores.append(score)
        now = redis.time()
        assert score == pytest.approx(now[0] + now[1] / 1e6 + 300, abs=5)
    assert scores[1] - scores[0] < 5


def test_a_host_whose_clock_is_ahead_does_not_enqueue_early(greet, look, redis, monkeypatch):
    server_now = redis.time()[0]
    monkeypatch.setattr("cogworker.clock.wall", lambda: server_now + 600.0)

    greet.enqueue_at(datetime.fromtimestamp(server_now + 300, UTC), "ada")
    greet.enqueue_at(datetime.fromtimestamp(server_now - 300, UTC), "bob")

    assert (look.stats().scheduled, look.stats().enqueued) == (1, 1)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda job: job.enqueue(), InvalidArguments, "name"),
        (lambda job: job.enqueue("a", "b"), InvalidArguments, "positional"),
        (lambda job: job.enqueue("a", noisy=True), InvalidArguments, "noisy"),
        (lambda job: job.enqueue(5), InvalidArguments, "str"),
        (lambda job: job.enqueue("a", loud="yes"), InvalidArguments, "loud"),
        (lambda job: job.enqueue("x" * 2_000_000), PayloadTooLarge, "max_payload_bytes"),
        (lambda job: job.enqueue_in("soon", "a"), EnqueueError, "seconds or a timedelta"),
        (lambda job: job.enqueue_in(float("nan"), "a"), EnqueueError, "seconds or a timedelta"),
        (lambda job: job.enqueue_in(True, "a"), EnqueueError, "seconds or a timedelta"),
        (lambda job: job.enqueue_at(datetime.now(), "a"), EnqueueError, "no time zone"),
        (lambda job: job.enqueue_at(5, "a"), EnqueueError, "aware datetime"),
        (lambda job: job.enqueue_many(["a"]), BulkRefused, "tuple of arguments"),
        (lambda job: job.enqueue_many([5]), BulkRefused, "tuple of arguments"),
        (lambda job: job.using(queue=""), DeclarationError, "name of a queue must have"),
        (lambda job: job.using(queue="a,b"), DeclarationError, "without comma"),
        (lambda job: job.enqueue_in(10**400, "a"), EnqueueError, "seconds or a timedelta"),
        (lambda job: job.enqueue_many(5), EnqueueError, "takes many calls"),
        (lambda job: job.using(retry=-1), DeclarationError, "retry must be"),
    ],
)
def test_what_can_t_be_enqueued_is_refused_and_nothing_is_written(greet, dump, call, error, says):
    with pytest.raises(error, match=says):
        call(greet)
    assert dump() == {}


def test_in_bulk_the_good_ones_are_queued_and_the_others_named(greet, look):
    calls = [("a",), (1,), ("b",), (), ("c",)]

    with pytest.raises(BulkRefused, match="2 of 5 jobs were refused") as caught:
        greet.enqueue_many(calls)

    assert set(caught.value.refused) == {1, 3}
    assert [jid is None for jid in caught.value.jids] == [False, True, False, True, False]
    assert [json.loads(raw)["args"] for raw in look.waiting("mail")] == [["a"], ["b"], ["c"]]


def test_bulk_takes_any_number_in_order(greet, look):
    jids = greet.enqueue_many((str(number),) for number in range(2500))

    assert len(set(jids)) == 2500
    payloads = [json.loads(raw) for raw in look.waiting("mail", 3000)]
    assert [payload["jid"] for payload in payloads] == jids
    assert greet.enqueue_many([]) == []


def test_bulk_refused_by_the_server(greet, app, redis):
    redis.set(app.client.keys.queue("mail"), "not a list")

    with pytest.raises(BulkRefused) as caught:
        greet.enqueue_many([("a",), ("b",)])

    assert set(caught.value.refused) == {0, 1}
    assert "WRONGTYPE" in str(caught.value)


def test_a_server_that_refuses_is_quoted(greet, app, redis):
    redis.set(app.client.keys.queue("mail"), "not a list")

    with pytest.raises(RedisRefused, match="greet: the job was not enqueued: WRONGTYPE"):
        greet.enqueue("ada")


@pytest.mark.parametrize("mode", ["loses request", "loses reply"])
def test_a_push_whose_answer_is_lost_makes_one_job(greet, app, look, mode):
    app.client.runner.connector = FlakyConnector(app.config, Fault(1, mode))

    greet.enqueue("ada")
    greet.enqueue_many([("b",), ("c",)])

    assert look.stats().enqueued == 3


def test_an_async_push_whose_answer_is_lost_makes_one_job(greet, app, look):
    connect = app.client.async_runner.connector.connect_async
    lost = []

    def flaky():
        connection = connect()
        read = connection.read_response

        async def read_and_lose(*args, **kwargs):
            reply = await read(*args, **kwargs)
            if not lost and isinstance(reply, list):  # a script's answer, not the handshake's
                lost.append(reply)
                raise ConnectionError("cut")
            return reply

        connection.read_response = read_and_lose
        return connection

    app.client.async_runner.connector.connect_async = flaky

    async def main():
        await asyncio.gather(*[greet.aenqueue(str(number)) for number in range(50)])
        await app.aclose()

    asyncio.run(main())
    assert lost
    assert look.stats().enqueued == 50


def test_async_calls_work_in_one_loop_after_another(greet, app, look):
    async def main():
        await greet.aenqueue("ada")
        await greet.aenqueue_many([("bob",)])
        await app.aclose()

    for _ in range(3):
        asyncio.run(main())
    assert look.stats().enqueued == 6


def test_a_cancelled_async_call_does_not_spoil_the_next(greet, app, look):
    async def main():
        for number in range(20):
            task = asyncio.create_task(greet.aenqueue(str(number)))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        jids = [await greet.aenqueue(f"after {number}") for number in range(10)]
        await app.aclose()
        return jids

    jids = asyncio.run(main())
    waiting = [json.loads(raw)["jid"] for raw in look.waiting("mail")]
    assert set(jids) <= set(waiting)
    assert len(waiting) == len(set(waiting))


def test_many_threads_at_once(greet, look):
    threads = [
        threading.Thread(target=lambda: [greet.enqueue("x") for _ in range(100)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert look.stats().enqueued == 800
    assert len({json.loads(raw)["jid"] for raw in look.waiting("mail", 1000)}) == 800


def test_a_forked_child_and_its_parent_both_enqueue(greet, look):
    greet.enqueue("before")
    child = os.fork()
    if child == 0:
        try:
            for _ in range(20):
                greet.enqueue("child")
        finally:
            os._exit(0)
    for _ in range(20):
        greet.enqueue("parent")
    assert os.waitpid(child, 0)[1] == 0

    names = [json.loads(raw)["args"][0] for raw in look.waiting("mail")]
    assert {name: names.count(name) for name in set(names)} == {
        "before": 1, "child": 20, "parent": 20,
    }  # fmt: skip


def test_a_copy_of_a_process_that_shares_its_lane_loses_nothing(greet, app, look):
    """As after a snapshot of a virtual machine: both copies go on with the same numbers."""
    greet.enqueue("before")
    [lane] = app.client._lanes
    twin = Cogworker(redis_url=app.config.redis_url, namespace=app.config.namespace)
    copied = type(lane)()
    copied.name, copied.number = lane.name, lane.number
    twin.client._lanes.append(copied)

    greet.enqueue("one")
    twin.push({"class": "greet", "args": ["two"], "queue": "mail"})
    twin.push({"class": "greet", "args": ["three"], "queue": "mail"})
    greet.enqueue("four")

    assert look.stats().enqueued == 5
    twin.close()


def test_an_interrupted_call_does_not_spoil_the_next(greet, look):
    """An answer that was not read must not be taken for that of the next call."""
    interrupted = []

    def enqueue_for_ever():
        try:
            while True:
                greet.enqueue("interrupted")
        except JobInterrupted:
            interrupted.append(True)

    for _ in range(50):
        thread = threading.Thread(target=enqueue_for_ever)
        thread.start()
        before = look.stats().enqueued
        eventually(lambda before=before: look.stats().enqueued > before + 3)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(JobInterrupted)
        )
        thread.join()
        before = look.stats().enqueued
        jid = greet.enqueue("after")
        assert look.stats().enqueued == before + 1
        assert json.loads(look.waiting("mail", 1_000_000)[-1])["jid"] == jid
    assert len(interrupted) == 50


def test_without_a_server_it_says_so(greet, tmp_path):
    with server(tmp_path) as own:
        app = Cogworker(redis_url=own.url)
        with pytest.raises(RedisUnavailable, match="is the server running"):
            app.push({"class": "x"})
        own.start()
        app.push({"class": "x"})
        own.stop()
        own.start()
        app.push({"class": "x"})
        assert Inspector(app).stats().enqueued == 2
        app.close()


def test_a_wrong_password_is_said_at_once(tmp_path):
    with server(tmp_path) as own:
        own.start()
        own.client.config_set("requirepass", "secret")
        app = Cogworker(redis_url=own.url.replace("://", "://:wrong@"))
        with pytest.raises(RedisRefused, match="check the user name and the password"):
            app.push({"class": "x"})
        app.close()
        good = Cogworker(redis_url=own.url.replace("://", "://:secret@"))
        good.push({"class": "x"})
        good.close()


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({}, "needs the name of its job"),
        ({"class": ""}, "needs the name of its job"),
        ({"class": 5}, "needs the name of its job"),
        ([1], "a payload is a mapping"),
        (None, "a payload is a mapping"),
        ({"class": "x", "args": "a"}, "'args' must be list"),
        ({"class": "x", "kwargs": [1]}, "'kwargs' must be dict"),
        ({"class": "x", "retry": "abc"}, "'retry' must be a number of retries"),
        ({"class": "x", "at": 10**400}, "'at' must be a time"),
        ({"class": "x", "jid": 5}, "'jid' must be str"),
        ({"class": "x", "jid": ""}, "'jid' must not be empty"),
        ({"class": "x", "at": "soon"}, "'at' must be a time"),
        ({"class": "x", "at": float("inf")}, "'at' must be a time"),
        ({"class": "x", "queue": ""}, "name of a queue must have"),
        ({"class": "x", "queue": "a,b"}, "without comma"),
        ({"class": "x", "custom": object()}, "custom"),
        ({"class": "x", "custom": {"when": datetime.now(UTC)}}, "custom"),
        ({"class": "x", 5: 1}, "5"),
    ],
)
def test_a_payload_that_is_none_is_refused(app, dump, payload, says):
    with pytest.raises(EnqueueError, match=says):
        app.push(payload)
    assert dump() == {}


def test_a_pushed_payload_keeps_what_it_has(app, look):
    jid = app.push(
        {"class": "Ruby::Job", "args": [2**200], "jid": "b" * 24, "custom": {"a": []}, "retry": 0}
    )

    payload = only(look, "default")
    assert jid == payload["jid"] == "b" * 24
    assert payload["args"] == [2**200]
    assert payload["custom"] == {"a": []}
    assert payload["retry"] == 0


def test_a_namespace_is_a_world_of_its_own(settings, app, look):
    other = Cogworker(**{**settings, "namespace": settings["namespace"] + "x"})
    other.push({"class": "x"})

    assert look.stats().enqueued == 0
    assert Inspector(other).stats().enqueued == 1
    other.client.runner.close()


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda app: app.job(queue="")(print_it), "name of a queue must have"),
        (lambda app: app.job(queue="a\nb")(print_it), "name of a queue must have"),
        (lambda app: app.job(name=5)(print_it), "name is printable text"),
        (lambda app: app.job(functools.partial(print_it)), "declares functions"),
        (lambda app: app.job(retry=-1)(print_it), "retry must be"),
        (lambda app: app.job(retry="3")(print_it), "retry must be"),
        (lambda app: app.job(5), "declares functions"),
        (lambda app: app.job(dict), "declares functions"),
        (lambda app: app.job(generator), "generator function"),
        (lambda app: [app.job(name="x")(print_it), app.job(name="x")(generator_free)], "twice"),
    ],
)
def test_a_declaration_that_can_t_work_is_refused(app, declare, says):
    with pytest.raises(DeclarationError, match=says):
        declare(app)


def test_a_function_may_be_declared_again_as_notebooks_do(app):
    app.job(name="x")(print_it)
    again = app.job(name="x")(print_it)

    assert app.jobs["x"] is again


def test_a_url_that_the_client_can_t_use_is_refused_at_once():
    with pytest.raises(ConfigError, match="nonsense"):
        Cogworker(redis_url="redis://localhost?nonsense=1")


def print_it():
    pass


def generator_free():
    pass


def generator():
    yield
