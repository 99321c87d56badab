"""Jobs that come too late, and tags: what travels with a job, and what a worker makes of it."""

import json
import logging
from datetime import UTC, datetime, timedelta

import pytest

from cogworker import DeclarationError, EnqueueError, current_job
from cogworker.retry import RetryPolicy

from support.dump import ANSWERS
from support.inline import InlineWorker
from support.times import everything_is_due

GARBAGE = [None, True, "soon", [], {}, -5, 0, "1e9", 10**400]


@pytest.fixture
def ran():
    return []


@pytest.fixture
def job(app, ran):
    @app.job(tags=["mail", "nightly", "mail"])
    def job():
        ran.append(current_job())

    return job


@pytest.fixture
def work(app):
    def work():
        worker = InlineWorker(app)
        worker.promote()
        worker.work_off()
        worker.leave()

    return work


@pytest.fixture
def waiting(redis, app):
    def waiting(key=None):
        keys = app.client.keys
        raw = redis.lindex(keys.queue("default"), 0) or redis.zrange(keys.schedule, 0, 0)[0]
        return json.loads(raw)

    return waiting


NOISE = (*ANSWERS, "queues", "runs:", "throughput:", "wake:")


@pytest.fixture
def rest(dump):
    """What is kept of jobs, and the counts."""
    return lambda: {key: value for key, value in dump().items() if not key.startswith(NOISE)}


def test_expiry_counts_from_when_a_job_is_due(job, waiting, redis, app):
    soon = job.using(expires_in=60)
    soon.enqueue()
    fields = waiting()
    assert fields["expires_at"] == pytest.approx(fields["enqueued_at"] + 60)

    redis.delete(app.client.keys.queue("default"))
    soon.using(expires_in=timedelta(minutes=2)).enqueue_in(1000)
    fields = waiting()
    assert fields["expires_at"] == pytest.approx(fields["created_at"] + 1000 + 120)

    redis.delete(app.client.keys.schedule)
    soon.enqueue_at(datetime(2001, 1, 1, tzinfo=UTC))
    fields = waiting()
    assert fields["expires_at"] == pytest.approx(fields["created_at"] + 60)


def test_a_job_that_is_taken_too_late_is_discarded(job, work, ran, rest, caplog):
    caplog.set_level(logging.INFO, "cogworker.worker")
    jid = job.using(expires_in=1e-6, unique="until_executed").enqueue()
    job.enqueue()

    work()

    assert len(ran) == 1
    assert rest() == {"stats:discarded": b"1", "stats:processed": b"1"}
    [line] = [line for line in caplog.messages if "too late" in line]
    assert f"jid={jid}" in line


def test_a_job_in_time_is_run(job, work, ran, rest):
    job.using(expires_in=3600).enqueue()
    job.using(expires_in=3600).enqueue_in(0)

    work()

    assert len(ran) == 2
    assert rest() == {"stats:processed": b"2"}


def test_a_scheduled_job_is_discarded_when_it_is_promoted_too_late(
    app, job, work, ran, rest, redis
):
    job.using(expires_in=60).enqueue_in(1000)
    keys = app.client.keys
    [raw] = redis.zrange(keys.schedule, 0, -1)
    redis.delete(keys.schedule)
    fields = json.loads(raw) | {"expires_at": 1.5e9}
    redis.zadd(keys.schedule, {json.dumps(fields): 1})

    work()

    assert ran == []
    assert rest() == {"stats:discarded": b"1"}


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_an_expiry_that_says_nothing_sensible_is_ignored(garbage, app, job, work, ran, redis):
    fields = {"class": job.name, "args": [], "jid": "a" * 24, "expires_at": garbage}
    redis.lpush(app.client.keys.queue("default"), json.dumps(fields))

    work()

    assert len(ran) == 1


def test_a_retry_that_would_be_too_late_is_discarded_at_once(app, work, rest, redis, caplog):
    @app.job(expires_in=60, retry=RetryPolicy(delay=[30, 90]), unique="until_executed")
    def fails():
        raise ValueError("no")

    jid = fails.enqueue()
    work()
    assert list(rest()["retry"].values()) != []
    everything_is_due(redis, app.client.keys)
    work()

    left = rest()
    entries = [json.loads(entry) for entry in left.pop(f"attempts:{jid}")]
    assert [(entry["attempt"], entry["outcome"]) for entry in entries] == [
        (1, "retrying"),
        (2, "discarded"),
    ]
    assert left == {"stats:discarded": b"1", "stats:failed": b"2"}
    assert "failed, again would be too late, discarded: " in caplog.text


def test_a_last_failure_leads_to_dead_even_if_it_is_late(app, work, rest):
    @app.job(expires_in=60, retry=False)
    def fails():
        raise ValueError("no")

    fails.enqueue()
    work()

    assert len(rest()["dead"]) == 1


def test_tags_travel_and_are_on_the_current_job(job, work, ran, waiting):
    job.enqueue()
    assert waiting()["tags"] == ["mail", "nightly"]
    job.using(tags=("other",)).enqueue()
    job.using(tags=[]).enqueue()
    assert "tags" not in waiting()

    work()

    assert [each.tags for each in ran] == [("mail", "nightly"), ("other",), ()]


@pytest.mark.parametrize("garbage", [None, "mail", {"a": 1}, [1, "mail", None]], ids=repr)
def test_tags_of_other_software_are_read_as_far_as_they_are_tags(
    garbage, app, job, work, ran, redis
):
    fields = {"class": job.name, "args": [], "jid": "a" * 24, "tags": garbage}
    redis.lpush(app.client.keys.queue("default"), json.dumps(fields))

    work()

    assert [each.tags for each in ran] == [("mail",) if isinstance(garbage, list) else ()]


@pytest.mark.parametrize(
    "options",
    [
        {"expires_in": 0},
        {"expires_in": -1.0},
        {"expires_in": float("nan")},
        {"expires_in": True},
        {"expires_in": "60"},
        {"expires_in": timedelta(0)},
        {"tags": "mail"},
        {"tags": [""]},
        {"tags": ["a\nb"]},
        {"tags": ["x" * 101]},
        {"tags": [1]},
        {"tags": ["x"] * 21},
        {"tags": {"a"}},
    ],
    ids=str,
)
def test_options_that_can_t_be_are_refused(options, app, job):
    [name] = options
    wanted = {"expires_in": "expires_in", "tags": "tag"}[name]
    with pytest.raises(DeclarationError, match=wanted):
        job.using(**options)


@pytest.mark.parametrize("fields", [{"expires_at": "soon"}, {"tags": "mail"}, {"tags": [1]}])
def test_push_refuses_them_too(fields, app):
    with pytest.raises(EnqueueError, match=r"expires_at|tag"):
        app.push({"class": "x", **fields})
