"""One action on many jobs: what it is for, what it leaves alone, what it answers."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from cogworker import Cogworker, CogworkerError
from cogworker import bulk as bulks
from cogworker.async_inspector import AsyncInspector
from cogworker.bulk import Bulk
from cogworker.inspector import Inspector

from support.inline import InlineWorker

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(settings):
    app = Cogworker(**settings)
    yield app
    app.close()


@pytest.fixture
def look(app):
    return Inspector(app)


@pytest.fixture
def keys(app):
    return app.client.keys


@pytest.fixture
def fails(app):
    @app.job(name="fails", retry=False)
    def fails(number):
        raise {0: ValueError, 1: KeyError}[number % 2](str(number))

    return fails


def work_off(app):
    worker = InlineWorker(app)
    worker.beat()
    worker.work_off()


def last(operation):
    return list(operation.run())[-1]


@pytest.fixture
def dead(app, look, fails):
    """Ten dead jobs, half of them of a ValueError."""
    for number in range(10):
        fails.enqueue(number)
    work_off(app)
    return look.jobs("dead")


def args(entries):
    return sorted(entry.payload["args"][0] for entry in entries)


def test_entries_are_filtered_by_error_and_queue(app, look, dead, fails):
    fails.using(queue="other").enqueue(20)
    stranger = Cogworker(
        redis_url=app.config.redis_url, namespace=app.config.namespace, queues=["other"]
    )
    work_off(stranger)  # it has no job of that name
    stranger.close()

    assert args(dead.each(error="ValueError")) == [0, 2, 4, 6, 8]
    assert args(dead.each(error="KeyError", job="fails")) == [1, 3, 5, 7, 9]
    assert args(dead.each(queue="other")) == [20]
    assert args(dead.each(error="valueerror")) == []
    with pytest.raises(CogworkerError, match="can't be filtered by colour, only by job, queue"):
        dead.page(colour="red")


def test_all_that_match_are_moved_and_counted(look, dead):
    operation = Bulk(dead, "revive", error="ValueError")

    assert operation.count() == (5, True)
    assert last(operation) == {"requeued": 5}
    assert args(dead) == [1, 3, 5, 7, 9]
    assert args(look.jobs_in("default")) == [0, 2, 4, 6, 8]


def test_who_fails_again_is_left_alone(app, dead):
    operation = Bulk(dead, "revive")
    came = []

    for tally in operation.run():
        came.append(tally)
        work_off(app)  # all of them die again

    assert came[-1] == {"requeued": 10}
    assert len(dead) == 10


def test_a_retry_that_fails_again_meanwhile_is_left_alone(app, look, keys, redis):
    @app.job(name="again")
    def again(number):
        raise ValueError

    for number in range(4):
        again.enqueue(number)
    work_off(app)
    retrying = look.jobs("retrying")
    for payload, score in redis.zrange(keys.retry, 0, -1, withscores=True):
        redis.zadd(keys.retry, {payload: score - 3600})  # those that fail again are due later
    operation = Bulk(retrying, "retry_now")

    for tally in operation.run():
        came = tally
        work_off(app)

    assert came == {"requeued": 4}
    assert [entry.payload["retry_count"] for entry in retrying] == [2] * 4


def test_what_comes_after_the_beginning_is_left_alone(app, look, fails):
    early = [fails.enqueue_at(LATER, number) for number in range(3)]
    scheduled, queued = look.jobs("scheduled"), look.jobs_in("default")
    waits = fails.enqueue(5)
    put_off, dropped = Bulk(scheduled, "reschedule", when=LATER), Bulk(queued, "discard")
    late, waits_late = fails.enqueue_at(LATER, 3), fails.enqueue(6)

    assert last(dropped) == {"discarded": 1}
    assert last(Bulk(scheduled, "kill", jid=late)) == {"killed": 1}
    assert [entry.jid for entry in queued] == [waits_late]
    assert waits != waits_late
    assert put_off.count() == (0, True)  # they are due then already
    assert last(Bulk(scheduled, "reschedule", when=LATER + timedelta(1))) == {"rescheduled": 3}
    assert [entry.at for entry in scheduled] == [(LATER + timedelta(1)).timestamp()] * 3
    assert {entry.jid for entry in scheduled} == set(early)


def test_what_can_t_be_moved_is_counted_as_such(app, look, keys, redis, dead):
    @app.job(name="one", unique="until_executed", retry=False)
    def one():
        raise ValueError

    jid = one.enqueue()
    work_off(app)
    one.enqueue()  # it has the lock of the one that is dead
    now = redis.time()[0] - 1
    redis.zadd(keys.dead, {"<b>": now, "[1]": now, '{"class": "x", "jid": "no queue"}': now})
    operation = Bulk(dead, "revive")
    [entry] = [entry for entry in dead if entry.jid == jid]
    pages = operation._pages()
    operation._pages = lambda: [next(pages)]
    redis.zrem(keys.dead, next(entry.raw for entry in dead if entry.payload.get("args") == [3]))

    assert last(operation) == {"requeued": 9, "invalid": 3, "duplicate": 1}
    assert entry.raw in redis.zrange(keys.dead, 0, -1)


def test_who_stops_iterating_stops_it(look, fails, monkeypatch):
    monkeypatch.setattr(bulks, "MOST_FOUND", 2)
    for number in range(6):
        fails.enqueue_at(LATER, number)
    operation = Bulk(look.jobs("scheduled"), "delete")

    for came in operation.run():
        assert came == {"deleted": 2}
        break

    assert len(look.jobs("scheduled")) == 4


def test_counting_ends_when_the_time_is_up(look, fails, monkeypatch):
    monkeypatch.setattr(bulks, "MOST_FOUND", 2)
    for number in range(6):
        fails.enqueue_at(LATER, number)

    assert Bulk(look.jobs("scheduled"), "delete").count(most_s=0.0) == (2, False)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"action": "explode"}, "there is no action 'explode', only delete, discard"),
        ({"action": "revive"}, "revive is not for jobs in schedule"),
        ({"action": "reschedule"}, "a time is a datetime with a time zone, not None"),
        ({"action": "delete", "limit": 5}, "jobs can't be filtered by limit"),
    ],
)
def test_what_can_t_be_is_told_at_once(given, complaint, look):
    with pytest.raises(CogworkerError, match=complaint):
        Bulk(look.jobs("scheduled"), **given)


def test_it_is_logged(look, dead, caplog):
    caplog.set_level("INFO")

    last(Bulk(dead, "delete", error="KeyError"))

    assert "bulk: action=delete place=dead deleted=5" in caplog.text


def test_from_async_code(app, dead):
    import asyncio

    async def program():
        operation = await AsyncInspector(app).jobs("dead").bulk("delete", error="KeyError")
        assert await operation.count() == (5, True)
        return [came async for came in operation.run()]

    assert asyncio.run(program())[-1] == {"deleted": 5}
    assert len(dead) == 5


def test_some_entries_are_moved_in_few_calls(look, dead, app):
    calls = []
    run = app.client.runner.run
    jobs = look.jobs("dead")
    jobs._run = lambda command: calls.append(command.name) or run(command)
    entries = list(dead)

    assert jobs.act("revive", entries) == {"requeued": 10}
    assert jobs.act("revive", entries) == {"gone": 10}
    assert calls == ["move", "move"]
    with pytest.raises(CogworkerError, match="is not one of retry"):
        look.jobs("retrying").act("delete", entries)


def test_entries_deep_in_a_queue_are_moved_a_few_at_a_time(look, redis, keys, app):
    redis.sadd(keys.queues, "deep")
    jobs = [
        json.dumps({"class": "x", "jid": f"{n}", "args": [], "created_at": 1}) for n in range(9)
    ]
    redis.lpush(keys.queue("deep"), *jobs)
    deep = look.jobs_in("deep")
    calls = []
    run = app.client.runner.run
    entries = [entry._replace(where=entry.where and -150_000.0) for entry in deep]
    deep._run = lambda command: calls.append(command.name) or run(command)

    assert deep.act("delete", entries) == {"deleted": 9}
    assert len(calls) == 5
