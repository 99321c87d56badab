"""A job decides what becomes of it: by raising, by its policy, by retry_in. Books are exact."""

import asyncio
import json
import time
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from cogworker import Discard, Reschedule, Retry, RetryPolicy, current_job

from support.inline import InlineWorker
from support.processes import eventually
from support.times import everything_is_due


@pytest.fixture
def work(app, redis):
    def work(times=1):
        worker = InlineWorker(app)
        worker.beat()
        for _ in range(times):
            worker.promote()
            worker.work_off()
            everything_is_due(redis, app.client.keys)
        worker.leave()

    return work


def books(app, redis, look):
    """Processed, failed, discarded; how many wait for a retry, are scheduled, dead."""
    stats = look.stats()
    discarded = int(redis.get(app.client.keys.discarded) or 0)
    return (
        *(stats.processed, stats.failed, discarded),
        *(stats.retrying, stats.scheduled, stats.dead),
    )


def attempts(app, redis, jid):
    return [json.loads(each) for each in redis.lrange(app.client.keys.attempts(jid), 0, -1)]


def waiting(redis, key):
    [(entry, score)] = redis.zrange(key, 0, -1, withscores=True)
    return json.loads(entry), score


def test_retry_is_a_failure_with_a_delay_of_its_own(app, redis, look, work):
    @app.job(retry=RetryPolicy(3, delay=(5000,), give_up_on=BaseException))
    def job():
        raise Retry(in_=100, reason="the tap is closed")

    jid = job.enqueue()
    work()

    assert books(app, redis, look) == (0, 1, 0, 1, 0, 0)
    payload = json.loads(redis.zrange(app.client.keys.retry, 0, 0)[0])
    assert payload["retry_count"] == 1
    assert payload["error_class"] == "cogworker.errors.Retry"
    assert payload["error_message"] == "the tap is closed"
    [entry] = attempts(app, redis, jid)
    assert (entry["attempt"], entry["outcome"]) == (1, "retrying")


@pytest.mark.parametrize(("delay", "least", "most"), [(100, 90, 101), (None, 4990, 5001)])
def test_retry_waits_as_long_as_it_says_or_as_the_policy_says(delay, least, most, app, redis, look):
    @app.job(retry=RetryPolicy(delay=(5000,)))
    def job():
        raise Retry(in_=delay)

    job.enqueue()
    worker = InlineWorker(app)
    worker.work_off()

    _, due_at = waiting(redis, app.client.keys.retry)
    assert least <= due_at - time.time() <= most


def test_retry_from_an_error_keeps_that_error(app, redis, look, work):
    @app.job
    def job():
        try:
            raise ConnectionError("refused")
        except ConnectionError as error:
            raise Retry(in_=5) from error

    job.enqueue()
    work()

    payload = json.loads(redis.zrange(app.client.keys.retry, 0, 0)[0])
    assert (payload["error_class"], payload["error_message"]) == ("ConnectionError", "refused")


def test_retry_is_dead_when_none_is_left(app, redis, look, work):
    @app.job(retry=1)
    def job():
        raise Retry(in_=5)

    jid = job.enqueue()
    work(3)

    assert books(app, redis, look) == (0, 2, 0, 0, 0, 1)
    assert [entry["outcome"] for entry in attempts(app, redis, jid)] == ["retrying", "dead"]


def test_discard_is_neither_a_success_nor_a_failure(app, redis, look, work, dump):
    @app.job
    def job():
        raise Discard("nobody needs it")

    jid = job.enqueue()
    work()

    assert books(app, redis, look) == (0, 0, 1, 0, 0, 0)
    assert attempts(app, redis, jid) == []
    assert not [key for key in dump() if key.startswith(("throughput", "runs"))]


@pytest.mark.parametrize("at", [None, datetime(2100, 1, 1, tzinfo=UTC)])
def test_reschedule_is_no_failure_and_uses_no_retry(at, app, redis, look, work):
    seen = []

    @app.job(retry=False)
    def job(value):
        seen.append((value, current_job().attempt))
        if len(seen) < 3:
            raise Reschedule(at=at) if at else Reschedule(in_=1000)

    job.enqueue("x")
    worker = InlineWorker(app)
    worker.work_off()

    assert books(app, redis, look) == (0, 0, 0, 0, 1, 0)
    payload, due_at = waiting(redis, app.client.keys.schedule)
    assert payload["at"] == pytest.approx(due_at, abs=5)
    assert due_at == (4102444800 if at else pytest.approx(time.time() + 1000, abs=10))
    assert "retry_count" not in payload
    assert "enqueued_at" not in payload
    everything_is_due(redis, app.client.keys)
    work(3)
    assert seen == [("x", 1)] * 3
    assert books(app, redis, look) == (1, 0, 0, 0, 0, 0)


def test_reschedule_after_a_failure_keeps_count(app, redis, look, work):
    seen = []

    @app.job(retry=RetryPolicy(1, delay=(1,)))
    def job():
        seen.append(current_job().attempt)
        if len(seen) == 2:
            raise Reschedule(in_=1)
        raise ValueError

    job.enqueue()
    work(4)

    assert seen == [1, 2, 2]
    assert books(app, redis, look) == (0, 2, 0, 0, 0, 1)


@pytest.mark.parametrize("raises", [Reschedule(in_=1), Retry(in_=1), ValueError("no")])
def test_a_job_that_was_pushed_without_a_queue_comes_back_to_the_one_it_was_in(raises, app, redis):
    @app.job(name="job")
    def job():
        raise raises

    raw = b'{"class": "job", "jid": "1", "args": [], "queue": null}'
    for payload in (raw, raw.replace(b', "queue": null', b"")):
        redis.lpush(app.client.keys.queue("default"), payload)
        InlineWorker(app).work_off()

    keys = app.client.keys
    kept = [*redis.zrange(keys.schedule, 0, -1), *redis.zrange(keys.retry, 0, -1)]
    assert [json.loads(each)["queue"] for each in kept] == ["default"] * 2


def test_a_job_that_was_pushed_without_a_queue_can_be_rescheduled(app, redis, look, work):
    seen = []

    @app.job(name="job")
    def job():
        seen.append(1)
        if len(seen) == 1:
            raise Reschedule(in_=1)

    redis.lpush(app.client.keys.queue("default"), b'{"class": "job", "jid": "1", "args": []}')
    work(2)

    assert seen == [1, 1]
    assert books(app, redis, look) == (1, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        (Retry(in_=5), (0, 1, 0, 1, 0, 0)),
        (Discard("no"), (0, 0, 1, 0, 0, 0)),
        (Reschedule(in_=1000), (0, 0, 0, 0, 1, 0)),
    ],
)
def test_a_middleware_may_decide_and_except_exception_does_not_stop_it(
    control, expected, app, redis, look
):
    seen = []

    @app.middleware.server.add
    @contextmanager
    def decide(run):
        if run.name == "plain":
            raise control
        yield

    @app.job(name="plain")
    def plain():
        seen.append("plain ran")

    @app.job(name="careless")
    def careless():
        try:
            raise control
        except Exception:
            seen.append("swallowed")

    @app.job(name="coroutine")
    async def coroutine():
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async def child():
        raise control

    for job in (plain, careless, coroutine):
        job.enqueue()
    with app.worker():
        eventually(lambda: books(app, redis, look) == tuple(3 * each for each in expected))
    assert seen == []


@pytest.mark.parametrize(
    ("answer", "expected", "outcome"),
    [
        (1000, (0, 1, 0, 1, 0, 0), "retrying"),
        ("dead", (0, 1, 0, 0, 0, 1), "killed"),
        ("discard", (0, 1, 1, 0, 0, 0), "discarded"),
        ("default", (0, 1, 0, 1, 0, 0), "retrying"),
    ],
)
def test_what_retry_in_answers_is_done(answer, expected, outcome, app, redis, look, work):
    asked = []

    def decide(retry, error, run):
        asked.append((retry, type(error), run.attempt, list(run.args), run.payload["jid"]))
        return answer

    @app.job(retry_in=decide)
    def job(value):
        raise KeyError(value)

    jid = job.enqueue("x")
    work()

    assert asked == [(1, KeyError, 1, ["x"], jid)]
    assert books(app, redis, look) == expected
    assert [entry["outcome"] for entry in attempts(app, redis, jid)] == [outcome]


def test_retry_in_is_not_asked_about_the_last_failure(app, redis, look, work):
    asked = []

    @app.job(retry=2, retry_in=lambda retry, error: asked.append(retry))
    def job():
        raise ValueError

    job.enqueue()
    work(4)

    assert asked == [1, 2]
    assert books(app, redis, look) == (0, 3, 0, 0, 0, 1)


@pytest.mark.parametrize(
    ("error", "expected", "outcome"),
    [
        (OSError, (0, 1, 0, 1, 0, 0), "retrying"),
        (PermissionError, (0, 1, 0, 0, 0, 1), "killed"),
        (LookupError, (0, 1, 1, 0, 0, 0), "discarded"),
        (ValueError, (0, 1, 0, 0, 0, 1), "killed"),
    ],
)
def test_a_policy_goes_by_the_error(error, expected, outcome, app, redis, look, work):
    policy = RetryPolicy(retry_on=OSError, give_up_on=PermissionError, discard_on=LookupError)

    @app.job(retry=policy)
    def job():
        raise error

    jid = job.enqueue()
    work()

    assert books(app, redis, look) == expected
    assert [entry["outcome"] for entry in attempts(app, redis, jid)] == [outcome]


@pytest.mark.parametrize("raises", [Retry(in_=5), Reschedule(in_=5), Discard("no")])
def test_a_lock_goes_with_what_the_job_decides(raises, app, redis, work):
    @app.job(unique="until_executed")
    def once():
        raise raises

    once.enqueue()
    worker = InlineWorker(app)
    worker.work_off()

    [lock] = [*redis.scan_iter(app.config.namespace.replace("{", "\\{") + ":unique:*")] or [None]
    assert (lock is None) == isinstance(raises, Discard)
    assert (once.enqueue() is None) == (lock is not None)


def test_a_failure_that_can_t_be_decided_is_dead_with_all_that_goes_with_it(
    app, look, monkeypatch, caplog
):
    @app.job(name="fails", status=True, history=True, unique="until_executed")
    def fails():
        raise ValueError("its own")

    jid = fails.enqueue()
    worker = InlineWorker(app)
    worker.beat()

    def raises(delivery, error):
        raise MemoryError

    monkeypatch.setattr(worker.performer._endings, "of_exception", raises)
    worker.work_off()

    [dead] = look.dead()
    assert dead.payload["jid"] == jid
    status = app.status(jid)
    assert (status.state, status.error_class, status.error_message) == (
        "failed", "ValueError", "its own",
    )  # fmt: skip
    assert [run.error_class for run in look.history(jid=jid).runs] == ["ValueError"]
    assert list(look.locks()) == []
    assert fails.enqueue() is not None
    assert "can't record a failure, moved to dead" in caplog.text
