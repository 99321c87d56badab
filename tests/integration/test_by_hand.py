"""Jobs that wait or are dead, looked at and moved by hand."""

import json
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from cogworker import CogworkerError, RedisRefused
from cogworker._engine.places import Queue
from cogworker.by_hand import Outcome
from cogworker.jobs_at import JobsAt

from support.dump import ANSWERS
from support.inline import InlineWorker

WHEN = datetime(2100, 1, 1, tzinfo=UTC)
CORRUPT = [
    b"",
    b"not JSON",
    b"\xff\xfe\x00 binary",
    b"[1, 2]",
    b"{}",
    b'{"class": 1, "jid": 2}',
    b'{"class": "x", "jid": null, "queue": "default"}',
    b'{"class": "x", "jid": "", "queue": ""}',
    b"[" * 100_000,
    b"x" * 1_000_000,
]
NO_QUEUE = [
    b'{"class": "x", "jid": "j1"}',
    b'{"class": "x", "jid": "j2", "queue": ""}',
    b'{"class": "x", "jid": "j3", "queue": 7}',
]


@pytest.fixture
def keys(app):
    return app.client.keys


@pytest.fixture
def job(app):
    @app.job(name="greet")
    def greet(number=0): ...

    return greet


@pytest.fixture
def kept(dump):
    """All that is kept of jobs."""
    noise = (*ANSWERS, "queues", "wake:")
    return lambda: {key: value for key, value in dump().items() if not key.startswith(noise)}


def fields_of(entries):
    return [json.loads(entry) for entry in entries]


def put(redis, keys, place, payload, at=5.0):
    if place == "queue":
        redis.lpush(keys.queue("default"), payload)
    else:
        redis.zadd({"scheduled": keys.schedule, "retrying": keys.retry, "dead": keys.dead}[place],
                   {payload: at})  # fmt: skip


def at(look, place):
    return look.jobs_in("default") if place == "queue" else look.jobs(place)


PLACES = ("queue", "scheduled", "retrying", "dead")


# Looking.


def test_jobs_are_found_by_what_they_are(look, job, app):
    jids = [job.enqueue(number) for number in range(3)]
    tagged = job.using(tags=["nightly", "ü"]).enqueue(3)
    app.push({"class": "Ruby::Job", "args": ["größe", "a/b"], "tags": ["night"]})
    jobs = look.jobs_in("default")

    assert len(jobs) == 5
    assert [entry.jid for entry in jobs.each(job="greet")] == [tagged, *reversed(jids)]
    assert [entry.jid for entry in jobs.each(job=job)] == [tagged, *reversed(jids)]
    assert [entry.jid for entry in jobs.each(tag="nightly")] == [tagged]
    assert [entry.jid for entry in jobs.each(tag="ü")] == [tagged]
    assert [entry.name for entry in jobs.each(text="größe")] == ["Ruby::Job"]
    assert [entry.name for entry in jobs.each(job="Ruby::Job", tag="night")] == ["Ruby::Job"]
    assert list(jobs.each(job="greet", tag="night")) == []
    found = jobs.find(jids[1])
    assert found.payload["args"] == [1]
    assert (found.name, found.tags, found.queue, found.at) == ("greet", (), "default", None)
    assert jobs.find("0" * 24) is None
    assert jobs.find(jids[1][:-1]) is None


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"limit": 0}, "limit must be a whole number from 1 to 500, not 0"),
        ({"limit": 501}, "limit must be a whole number from 1 to 500, not 501"),
        ({"limit": "3"}, "limit must be a whole number from 1 to 500, not '3'"),
        ({"start": 100}, "start must be the end of the page before, not 100"),
        ({"job": 5}, "a job is given by its name, or itself, not by 5"),
        ({"tag": b"t"}, "tag must be a text, not b't'"),
        ({"jid": 7}, "jid must be a text, not 7"),
        ({"text": ["a"]}, "text must be a text, not"),
    ],
)
def test_what_can_t_be_looked_for_is_told(given, complaint, look):
    with pytest.raises(CogworkerError, match=complaint):
        look.jobs("dead").page(**given)


def test_jobs_come_in_pages(look, job):
    for number in range(5):
        job.enqueue_at(WHEN + timedelta(days=number), number)
    jobs = look.jobs("scheduled")

    first = jobs.page(limit=3)
    rest = jobs.page(first.end, limit=3)

    numbers = [entry.payload["args"][0] for entry in (*first.entries, *rest.entries)]
    assert numbers == [0, 1, 2, 3, 4]
    assert rest.end is None
    assert first.entries[1].at == (WHEN + timedelta(days=1)).timestamp()


@pytest.mark.parametrize("place", PLACES)
def test_corrupt_entries_are_shown_and_can_be_deleted(place, look, redis, keys, kept):
    for number, payload in enumerate((*CORRUPT, *NO_QUEUE)):
        put(redis, keys, place, payload, number)
    good = b'{"class": "x", "jid": "good", "queue": "default"}'
    put(redis, keys, place, good, 99)
    jobs = at(look, place)

    entries = list(jobs)
    assert {entry.raw for entry in entries} == {*CORRUPT, *NO_QUEUE, good}
    assert len({entry.jid for entry in entries}) == len(entries)
    for entry in entries:
        _ = entry.payload, entry.name, entry.tags, entry.queue
        assert jobs.find(entry.jid).raw == entry.raw
    for entry in entries:
        if entry.raw != good:
            assert jobs.delete(entry.jid) == Outcome("deleted")
            assert jobs.delete(entry.jid) == Outcome("gone")

    assert [entry.raw for entry in jobs] == [good]


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_job_stays_where_it_is(place, look, redis, keys, kept):
    wrapped = b'{"class": "(unparseable)", "jid": "u", "queue": "default"}'
    entries = [b"not JSON", *([] if place == "queue" else [*NO_QUEUE, wrapped])]
    for payload in entries:
        put(redis, keys, place, payload)
    before = kept()
    jobs = at(look, place)

    for entry in list(jobs):
        actions = [jobs.discard]
        actions += [jobs.kill] if place != "dead" else [jobs.revive]
        if place in ("scheduled", "retrying"):
            actions += [jobs.retry_now, lambda jid: jobs.reschedule(jid, WHEN)]
        for act in actions:
            outcome = act(entry.jid)
            assert outcome.word == "invalid"
            assert outcome.detail

    assert kept() == before


# Moving.


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("action", ["delete", "discard"])
def test_a_job_is_dropped(action, place, look, redis, keys, kept):
    for jid in ("one", "two", "three"):
        put(redis, keys, place, json.dumps({"class": "x", "jid": jid, "queue": "default"}))
    redis.rpush(keys.attempts("two"), "an attempt")
    jobs = at(look, place)

    assert (
        getattr(jobs, action)("two").word == {"delete": "deleted", "discard": "discarded"}[action]
    )
    assert getattr(jobs, action)("two") == Outcome("gone")

    after = kept()
    assert {entry.jid for entry in jobs} == {"one", "three"}
    assert after.get("stats:discarded") == {"delete": None, "discard": b"1"}[action]
    assert ("attempts:two" in after) == (action == "discard")


@pytest.mark.parametrize("place", ["queue", "scheduled", "retrying"])
def test_a_waiting_job_is_killed(place, look, redis, keys, kept):
    payload = {"class": "x", "jid": "one", "args": [2**70, []], "error_message": "it had one"}
    if place != "queue":
        payload["queue"] = "default"
    put(redis, keys, place, json.dumps(payload))

    assert at(look, place).kill("one") == Outcome("killed")

    after = kept()
    [(raw, died_at)] = after.pop("dead").items()
    fields = json.loads(raw)
    assert fields.pop("killed_at") == pytest.approx(died_at, abs=5)
    assert fields == {**payload, "queue": "default"}
    [attempt] = fields_of(after.pop("attempts:one"))
    assert (attempt["outcome"], attempt["error_class"]) == ("killed", "")
    assert after == {}


@pytest.mark.parametrize("place", ["scheduled", "retrying"])
def test_a_job_is_retried_now_as_if_it_were_due(place, look, redis, keys, kept):
    payload = {"class": "x", "jid": "one", "queue": "mail", "retry_count": 3, "error_class": "E"}
    put(redis, keys, place, json.dumps(payload), 4e9)

    assert at(look, place).retry_now("one") == Outcome("requeued")
    assert at(look, place).retry_now("one") == Outcome("gone")

    after = kept()
    [fields] = fields_of(after.pop("queue:mail"))
    assert fields.pop("enqueued_at") == pytest.approx(time.time(), abs=5)
    assert fields == payload
    assert after == {}
    assert redis.smembers(keys.queues) == {b"mail"}
    assert redis.llen(keys.wake("mail")) == 1


def test_a_dead_job_is_revived_as_if_it_had_never_failed(app, look, dump):
    runs = Counter()

    @app.job(retry=1, name="fails")
    def fails():
        runs["fails"] += 1
        if runs["fails"] < 4:
            raise ValueError("no")

    jid = fails.enqueue()
    worker = InlineWorker(app)
    dead = look.jobs("dead")
    for _ in range(2):
        worker.work_off()
        for entry in look.jobs("retrying"):
            look.jobs("retrying").retry_now(entry)
    worker.work_off()
    assert dead.find(jid).payload["retry_count"] == 2

    assert dead.revive(jid) == Outcome("requeued")

    [entry] = look.jobs_in("default")
    assert set(entry.payload) == {"class", "args", "jid", "queue", "retry", "created_at", "enqueued_at"}  # fmt: skip  # noqa: E501
    worker.work_off()
    assert [entry.jid for entry in look.jobs("retrying")] == [jid], "it has its retries again"
    look.jobs("retrying").retry_now(jid)
    worker.work_off()
    assert runs["fails"] == 4
    assert len(dump()[f"attempts:{jid}"]) == 3
    worker.leave()


def test_a_revived_job_is_a_duplicate_while_another_one_has_its_lock(look, job, app, kept):
    unique = job.using(unique="until_executed")
    first = unique.enqueue(1)
    assert look.jobs_in("default").kill(first) == Outcome("killed")
    second = unique.enqueue(1)
    assert second is not None
    before = kept()

    assert look.jobs("dead").revive(first) == Outcome("duplicate", second)
    assert kept() == before

    look.jobs_in("default").delete(second)
    assert look.jobs("dead").revive(first) == Outcome("requeued")
    assert unique.enqueue(1) is None


def test_a_scheduled_job_is_rescheduled_with_its_lock_and_its_expiry(look, job, kept, redis, keys):
    jid = job.using(unique="until_executed", expires_in=60).enqueue_in(100)
    [lock] = [key for key in kept() if key.startswith("unique:")]
    name = lock.removeprefix("unique:")

    assert look.jobs("scheduled").reschedule(jid, WHEN) == Outcome("rescheduled")

    due = WHEN.timestamp()
    [(raw, score)] = kept()["schedule"].items()
    fields = json.loads(raw)
    assert (score, fields["at"]) == (due, due)
    assert fields["expires_at"] == pytest.approx(due + 60)
    assert redis.ttl(keys.lock(name)) == pytest.approx(due - time.time() + 86400, abs=10)
    assert [entry.at for entry in look.jobs("scheduled")] == [due]


def test_a_retrying_job_is_rescheduled_and_keeps_its_bytes(look, redis, keys, kept):
    raw = b'{"class": "x", "jid": "one", "queue": "mail", "retry_count": 1}'
    put(redis, keys, "retrying", raw)

    assert look.jobs("retrying").reschedule("one", WHEN) == Outcome("rescheduled")
    assert look.jobs("retrying").reschedule("two", WHEN) == Outcome("gone")

    assert kept() == {"retry": {raw: WHEN.timestamp()}}


@pytest.mark.parametrize(
    ("place", "act", "before", "after"),
    [
        ("dead", "revive", 10.0, None),
        ("dead", "revive", 5e9, 5e9),
        ("retrying", "retry_now", 10.0, None),
        ("retrying", "reschedule", 4e9, None),
        ("retrying", "reschedule", 5e9, 5e9),
        ("scheduled", "reschedule", 10.0, None),
        ("scheduled", "retry_now", "soon", "soon"),
    ],
)
def test_who_moves_a_job_by_hand_wants_it_to_run(place, act, before, after, look, redis, keys):
    """An expiry that would be over by then is taken off."""
    fields = {"class": "x", "jid": "one", "queue": "default", "expires_at": before}
    put(redis, keys, place, json.dumps(fields))
    jobs = look.jobs(place)

    outcome = jobs.reschedule("one", WHEN) if act == "reschedule" else getattr(jobs, act)("one")
    assert outcome.word in ("requeued", "rescheduled")

    [entry] = jobs if act == "reschedule" else look.jobs_in("default")
    assert entry.payload.get("expires_at") == after


def test_a_job_is_found_again_that_was_changed_since(look, redis, keys):
    put(redis, keys, "dead", b'{"class": "x", "jid": "one", "queue": "default", "a": 1}')
    [entry] = look.jobs("dead")
    redis.delete(keys.dead)
    put(redis, keys, "dead", b'{"class": "x", "jid": "one", "queue": "default", "a": 2}')

    assert look.jobs("dead").revive(entry) == Outcome("requeued")


def test_a_job_that_can_t_be_put_down_is_told(look, redis, keys, kept):
    put(redis, keys, "dead", b'{"class": "x", "jid": "one", "queue": "mail"}')
    redis.set(keys.queue("mail"), "not a list")

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        look.jobs("dead").revive("one")

    assert len(look.jobs("dead")) == 1


@pytest.mark.parametrize(
    ("place", "action"),
    [
        ("queue", "retry_now"), ("dead", "retry_now"), ("queue", "revive"), ("retrying", "revive"),
        ("dead", "kill"), ("queue", "reschedule"), ("dead", "reschedule"),
    ],
)  # fmt: skip
def test_an_action_that_is_not_for_a_place_is_refused(place, action, look):
    act = getattr(at(look, place), action)
    with pytest.raises(CogworkerError, match=f"{action} is not for"):
        act("one", WHEN) if action == "reschedule" else act("one")


def test_places_and_times_that_can_t_be_are_refused(look):
    with pytest.raises(CogworkerError, match="jobs_in"):
        look.jobs("queue")
    with pytest.raises(CogworkerError):
        look.jobs_in("")
    with pytest.raises(CogworkerError, match="time zone"):
        look.jobs("retrying").reschedule("one", datetime(2100, 1, 1))


# All of them.


@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_cleared_with_all_that_belongs_to_its_jobs(place, look, app, redis, keys, kept):
    pipe = redis.pipeline()
    for number in range(1201):
        jid = f"j{number}"
        fields = {"class": "x", "jid": jid, "queue": "default", "args": [number]}
        fields |= {"unique": "until_executed", "lock": jid}
        put(pipe, keys, place, json.dumps(fields), number)
        pipe.set(keys.lock(jid), jid)
        pipe.rpush(keys.attempts(jid), "an attempt")
    for payload in CORRUPT:
        put(pipe, keys, place, payload)
    pipe.execute()

    assert at(look, place).clear() == 1201 + len(CORRUPT)

    assert kept() == {}
    assert at(look, place).clear() == 0


def test_clearing_leaves_what_comes_later(look, app, redis, keys, monkeypatch):
    """It ends even when jobs come faster than it deletes them."""
    jobs = JobsAt(app, Queue("default"))
    redis.lpush(keys.queue("default"), *range(250))
    run = jobs._run

    def run_while_jobs_come(command):
        redis.lpush(keys.queue("default"), *(f"later {number}" for number in range(500)))
        return run(command)

    monkeypatch.setattr(jobs, "_run", run_while_jobs_come)
    jobs.clear()

    left = redis.lrange(keys.queue("default"), 0, -1)
    assert not [entry for entry in left if not entry.startswith(b"later")]
    assert len(left) > 1000


def test_deleting_while_going_through_a_set_misses_none(look, redis, keys):
    redis.zadd(
        keys.dead, {json.dumps({"class": "x", "jid": f"j{n}"}): n // 300 for n in range(900)}
    )
    jobs = look.jobs("dead")

    for entry in jobs:
        assert jobs.delete(entry).word == "deleted"

    assert len(jobs) == 0


def test_an_entry_of_another_place_is_refused(app, look, job):
    job.enqueue(1)
    [entry] = look.jobs_in("default").each()

    with pytest.raises(CogworkerError, match=rf"the entry {entry.jid} is not one of dead"):
        look.jobs("dead").revive(entry)
    with pytest.raises(CogworkerError, match=r"the entry .* is not one of the queue other"):
        look.jobs_in("other").delete(entry)
    with pytest.raises(CogworkerError, match="named by its id, or by its entry"):
        look.jobs("dead").delete(None)
    assert look.stats().enqueued == 1
