"""What the inspector says of queues, workers and running jobs, whatever lies in Redis."""

import json
import os
import threading
import time

import pytest

from cogworker import Cogworker, __version__
from cogworker._engine import look as engine_look
from cogworker._worker.facts import hostname
from cogworker.inspector import Inspector

from support.inline import InlineWorker
from support.processes import eventually
from support.times import all_workers_are_dead


@pytest.fixture
def app(settings):
    app = Cogworker(
        **settings, concurrency=3, queues=["default", "mail,2"], labels=["blue"],
        heartbeat_interval=0.1,
    )  # fmt: skip
    yield app
    app.close()


@pytest.fixture
def look(app):
    return Inspector(app)


@pytest.fixture
def keys(app):
    return app.client.keys


@pytest.fixture
def job(app):
    @app.job(name="job")
    def job(label): ...

    return job


def queue(look, name):
    [found] = [each for each in look.queues() if each.name == name]
    return found


# Queues.


def test_a_queue_has_a_size_a_latency_and_workers(app, look, redis, keys, job):
    worker = InlineWorker(app)
    worker.beat()
    redis.lpush(
        keys.queue("mail"),
        json.dumps({"class": "x", "jid": "old", "enqueued_at": time.time() - 50}),
        json.dumps({"class": "x", "jid": "new", "enqueued_at": time.time()}),
    )
    job.using(queue="rare").enqueue(1)

    assert [each.name for each in look.queues()] == ["default", "mail", "rare"]
    mail = queue(look, "mail")
    assert (mail.size, mail.workers, mail.paused) == (2, 1, None)
    assert mail.latency_s == pytest.approx(50, abs=5)
    assert queue(look, "default")[:3] == ("default", 0, 0.0)
    assert queue(look, "rare").workers == 0
    assert 0 <= queue(look, "rare").latency_s < 5


def test_a_paused_queue_is_there_though_nobody_has_used_it(look):
    look.pause_queue("never", by="ada")

    assert queue(look, "never").paused.by == "ada"
    assert queue(look, "never").size == 0


def test_who_is_quiet_or_gone_reads_no_queue(app, look, redis, keys):
    quiet, gone = InlineWorker(app), InlineWorker(app)
    quiet.dispatcher.quiet()
    quiet.beat()
    gone.beat()
    redis.delete(keys.presence(gone.worker.worker))

    assert [each.workers for each in look.queues()] == []
    look.pause_queue("default")
    assert queue(look, "default").workers == 0


@pytest.mark.parametrize(
    ("oldest", "since"),
    [
        ('{"created_at": 5}', 5),
        ('{"enqueued_at": 9, "created_at": 5}', 9),
        ('{"enqueued_at": null, "created_at": 5}', 5),
        ('{"enqueued_at": "9"}', None),
        ("{}", None),
        ("[1]", None),
        ("<b>", None),
        (b"\xff\x00", None),
    ],
)
def test_a_queue_s_oldest_entry_may_be_anything(oldest, since, look, redis, keys):
    redis.sadd(keys.queues, "q")
    redis.lpush(keys.queue("q"), oldest, '{"enqueued_at": 1}')

    latency_s = queue(look, "q").latency_s

    assert latency_s == (None if since is None else pytest.approx(time.time() - since, abs=60))
    assert queue(look, "q").size == 2


def test_a_job_from_a_clock_that_is_ahead_waits_for_no_time(look, redis, keys):
    redis.sadd(keys.queues, "q")
    redis.lpush(keys.queue("q"), json.dumps({"enqueued_at": time.time() + 1000}))

    assert queue(look, "q").latency_s == 0.0


def test_payloads_that_are_too_much_are_left_out(look, redis, keys, monkeypatch):
    monkeypatch.setattr(engine_look, "MOST_BYTES", 1000)
    for name in "abc":
        redis.sadd(keys.queues, name)
        redis.lpush(keys.queue(name), json.dumps({"enqueued_at": 1, "args": ["x" * 600]}))

    latencies = [each.latency_s is None for each in look.queues()]

    assert latencies == [False, True, True]
    assert [each.size for each in look.queues()] == [1, 1, 1]


def test_a_queue_s_key_of_another_type_is_shown_empty(look, redis, keys):
    redis.sadd(keys.queues, "q", b"\xff")
    redis.set(keys.queue("q"), "text")

    assert [(each.name, each.size) for each in look.queues()] == [("\\xff", 0), ("q", 0)]


def test_many_queues_are_read_in_portions(look, redis, keys):
    names = [f"q{number:04}" for number in range(1200)]
    redis.sadd(keys.queues, *names)

    assert [each.name for each in look.queues()] == names


# Workers.


def test_a_worker_tells_what_it_is(app, look, job):
    job.enqueue("one")
    worker = InlineWorker(app, run_jobs=False, concurrency=3)
    worker.turn()
    worker.beat()

    [told] = look.workers()

    assert told.identity == worker.worker.worker
    assert (told.host, told.pid, told.version) == (hostname(), os.getpid(), __version__)
    assert (told.present, told.quiet, told.busy, told.held) == (True, False, 1, 1)
    assert (told.concurrency, told.queues) == (3, {"default": 1, "mail": 2})
    assert told.labels == ("blue",)
    assert 0 <= told.beat_age_s < 5
    assert told.started_at == pytest.approx(time.time(), abs=60)
    assert told.rss_kb > 1000
    assert told.told is None


def test_what_a_worker_was_told_is_shown(app, look):
    worker = InlineWorker(app)
    worker.beat()

    look.quiet_worker(worker.worker.worker, by="ada")
    worker.beat()

    [told] = look.workers()
    assert (told.told.order, told.told.by) == ("quiet", "ada")
    assert told.told.at == pytest.approx(time.time(), abs=60)


def test_a_dead_worker_is_not_present_and_has_its_jobs(app, look, redis, keys, job):
    job.enqueue("one")
    worker = InlineWorker(app, run_jobs=False)
    worker.beat()
    worker.turn()
    all_workers_are_dead(redis, keys)

    [told] = look.workers()

    assert (told.present, told.held, told.busy) == (False, 1, 0)
    assert told.beat_age_s > 100
    assert told.host == hostname()


@pytest.mark.parametrize(
    "info", ["", "{", "[]", "null", '{"queues": ["a"]}', '{"pid": "x"}', b"\xff"]
)
def test_a_damaged_presence_is_shown_as_far_as_it_can_be_read(info, look, redis, keys):
    redis.zadd(keys.workers, {"h:1:a": redis.time()[0], "h": 5, b"\xff": 6})
    redis.hset(keys.presence("h:1:a"), mapping={"info": info, "busy": "many", "quiet": "true"})
    redis.set(keys.presence("h"), "no hash")
    redis.set(keys.in_flight("h"), "no hash")

    odd, short, told = look.workers()

    assert (odd.identity, short.identity) == ("\\xff", "h")
    assert (short.host, short.present, short.held) == ("h", False, 0)
    assert (told.quiet, told.busy, told.queues, told.pid) == (True, 0, {}, None)


def test_many_workers_are_read_in_portions(look, redis, keys):
    redis.zadd(keys.workers, {f"h:{number:03}:a": 1000 + number for number in range(250)})

    assert [each.identity for each in look.workers()] == [f"h:{n:03}:a" for n in range(250)]


# Running jobs.


def test_running_jobs_are_shown_with_when_they_began(app, look, job):
    running, go = threading.Event(), threading.Event()

    @app.job(name="long", tags=["t"])
    def long():
        running.set()
        go.wait(30)

    jid = long.enqueue()
    with app.worker() as worker:
        try:
            assert running.wait(10)
            eventually(lambda: [each.began_at for each in look.running()] != [None])
            [shown] = look.running()
            assert shown.began_at == pytest.approx(time.time(), abs=60)
            assert (shown.worker, shown.queue) == (worker.identity, "default")
            assert (shown.job.jid, shown.job.class_) == (jid, "long")
            assert shown.payload["tags"] == ["t"]
            [told] = look.workers()
            assert (told.busy, told.held) == (1, 1)
        finally:
            go.set()
    assert list(look.running()) == []


def test_jobs_that_are_held_and_not_begun_come_last(app, look, job):
    for label in "abc":
        job.enqueue(label)
    worker = InlineWorker(app, run_jobs=False)
    worker.turn()
    worker.beat()
    job.enqueue("d")
    worker.dispatcher._hungry = True
    worker.turn()

    shown = list(look.running())

    assert [each.payload["args"] for each in shown] == [["a"], ["b"], ["c"], ["d"]]
    assert [each.began_at is None for each in shown] == [False, False, False, True]
    assert list(look.running(worker.worker.worker)) == shown
    assert list(look.running("nobody")) == []


def test_whatever_is_in_flight_is_shown(look, redis, keys, monkeypatch):
    monkeypatch.setattr(engine_look, "MOST_BYTES", 100)
    redis.zadd(keys.workers, {"h:1:a": 1, "h:1:b": 1, "h:1:c": 1})
    redis.hset(
        keys.in_flight("h:1:a"),
        mapping={"@turn": "7", "1.1.q": "<b>", "junk": b"\xff", "1.3.a.b": "x" * 200},
    )
    redis.hset(keys.presence("h:1:a"), "began", '{"1.3.a.b": 5.5}')
    redis.hset(keys.presence("h:1:c"), "began", "[]")
    redis.set(keys.in_flight("h:1:b"), "no hash")
    redis.hset(keys.in_flight("h:1:c"), "2.1.q", "{}")

    shown = {each.tag: each for each in look.running()}

    assert {tag: (each.queue, each.raw) for tag, each in shown.items()} == {
        "1.1.q": ("q", b"<b>"), "junk": ("", b"\xff"), "1.3.a.b": ("a.b", b""),
        "2.1.q": ("q", b"{}"),
    }  # fmt: skip
    assert next((tag, each.began_at) for tag, each in shown.items()) == ("1.3.a.b", 5.5)
    assert all(each.job is None for each in shown.values())
    assert shown["junk"].payload is shown["1.3.a.b"].payload is None
