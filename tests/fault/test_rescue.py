"""Rescue, step by step: what dead workers hold comes back, whatever lies beside it."""

import json

import pytest

from support.flaky import Fault, FlakyConnector
from support.inline import InlineWorker
from support.times import all_workers_are_dead


@pytest.fixture
def ran(app):
    ran = []

    @app.job(name="job")
    def job(label):
        ran.append(label)

    return ran


def dead_worker(app, redis, *labels, **fields):
    for label in labels:
        app.push({"class": "job", "args": [label], **fields})
    worker = InlineWorker(app, run_jobs=False)
    worker.beat()
    worker.turn()
    all_workers_are_dead(redis, app.client.keys)
    return worker


@pytest.mark.parametrize("damage", ["field", "type", "payload", "queue"])
def test_one_damaged_worker_does_not_stand_before_the_others(app, look, redis, ran, damage):
    damaged = dead_worker(app, redis, "damaged")
    key = app.client.keys.in_flight(damaged.worker.worker)
    if damage == "field":
        redis.hset(key, "junk", "x")
    elif damage == "type":
        redis.delete(key)
        redis.set(key, "not a hash")
    elif damage == "payload":
        redis.hset(key, "1.1.default", b'{"class":"job","jid":"y","args":["x"],"\xff":1}')
    else:
        redis.hset(key, b"1.9.\xff", "x")
    dead_worker(app, redis, "good")
    rescuer = InlineWorker(app)
    rescuer.beat()

    rescuer.rescue()
    rescuer.work_off()

    assert "good" in ran
    assert ("damaged" in ran) == (damage in ("field", "queue"))


def test_who_was_rescued_and_takes_again_before_it_beats_is_rescued_again(app, redis, ran):
    frozen = dead_worker(app, redis, "one")
    rescuer = InlineWorker(app)
    rescuer.beat()
    rescuer.rescue()
    rescuer.work_off()
    app.push({"class": "job", "args": ["two"]})
    frozen.dispatcher._hungry = True
    frozen.turn()  # it thaws, takes a job, and is killed before its heart beats
    assert [delivery.envelope.class_ for delivery in frozen.started] == ["job", "job"]
    all_workers_are_dead(redis, app.client.keys)
    rescuer.beat()

    rescuer.rescue()
    rescuer.work_off()

    assert ran == ["one", "two"]


def test_a_turn_that_comes_after_a_clean_stop_loses_no_job(app, redis, ran):
    gone = InlineWorker(app, run_jobs=False)
    gone.beat()
    gone.turn()
    gone.leave()
    app.push({"class": "job", "args": ["one"]})
    gone.turn()
    all_workers_are_dead(redis, app.client.keys)
    rescuer = InlineWorker(app)
    rescuer.beat()

    rescuer.rescue()
    rescuer.work_off()

    assert ran == ["one"]


def test_a_run_that_ends_while_its_worker_closes_counts_and_does_not_run_again(app, look, ran):
    for label in ("ends", "runs on"):
        app.push({"class": "job", "args": [label]})
    worker = InlineWorker(app, run_jobs=False)
    worker.beat()
    worker.turn()
    ends, runs_on = worker.started
    worker.perform(ends)

    worker.dispatcher.abandon(5.0)
    worker.dispatcher.step()
    worker.perform(runs_on)  # too late: it has been given back
    worker.dispatcher.step()

    assert look.stats()[:6] == (1, 0, 0, 0, 1, 0)
    worker.leave()


def test_what_ended_while_redis_was_away_is_settled_before_its_worker_leaves(app, look, ran):
    for label in ("ended", "runs"):
        app.push({"class": "job", "args": [label]})
    worker = InlineWorker(app, run_jobs=False)
    worker.beat()
    worker.turn()
    worker.perform(worker.started[0])
    worker.dispatcher._command = worker.dispatcher._compose(0.0)  # what nobody has answered yet
    worker.dispatcher.abandon(0.0)

    worker.dispatcher.settle_rest()
    worker.leave()

    assert look.stats()[:6] == (1, 0, 0, 0, 1, 0)


def test_what_is_given_back_by_several_moves_keeps_its_order(app, look, ran):
    for number in range(5):
        app.push({"class": "job", "args": [number]})
    worker = InlineWorker(app, run_jobs=False, concurrency=5)
    worker.beat()
    worker.turn()
    for delivery in worker.started[::2]:
        worker.dispatcher.return_unstarted(delivery)
    worker.dispatcher.abandon(5.0)
    worker.dispatcher.step()
    worker.leave()

    assert [json.loads(raw)["args"] for raw in look.waiting("default")] == [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize("late", [1, 2])
def test_a_refused_settlement_is_tried_again_though_the_worker_is_busy(app, look, redis, late):
    @app.job(name="bad")
    def bad():
        raise ValueError

    app.push({"class": "bad"})
    keys = app.client.keys
    redis.set(keys.retry, "not a sorted set")
    worker = InlineWorker(app)
    worker.beat()
    worker.turn()
    worker.turn()
    assert worker.dispatcher.held == 1
    redis.delete(keys.retry)
    until = worker.dispatcher.settlements.stuck_until
    for _ in range(late):
        worker.turn()  # others' turns don't put it off
    assert worker.dispatcher.settlements.stuck_until == until

    worker.dispatcher.settlements.stuck_until = 0.0
    worker.turn()

    assert look.stats().retrying == 1
    assert worker.dispatcher.held == 0


def test_the_first_failure_s_time_survives_the_last_orphaning(app, redis, look):
    app.push({"class": "job", "orphaned": 3, "failed_at": 1.5})
    worker = InlineWorker(app, run_jobs=False)
    worker.beat()
    worker.turn()
    all_workers_are_dead(redis, app.client.keys)
    rescuer = InlineWorker(app)
    rescuer.beat()

    rescuer.rescue()

    [dead] = look.dead()
    assert dead.payload["failed_at"] == 1.5
    assert dead.payload["orphaned"] == 4
    assert dead.payload["error_class"] == "cogworker.errors.JobOrphaned"


@pytest.mark.parametrize("call", range(1, 4))
def test_a_death_is_told_once_whichever_answer_to_a_rescue_is_lost(app, redis, look, ran, call):
    fault, told = Fault(), []
    app.client.runner.connector = FlakyConnector(app.config, fault)
    app.on_death(lambda job, error: told.append((job["args"], type(error).__name__)))
    dead_worker(app, redis, "one", at_most_once=True)
    rescuer = InlineWorker(app)
    rescuer.beat()
    fault.arm(call, "loses reply")

    rescuer.rescue()
    rescuer.tell_hooks()

    assert fault.count > call, "there are fewer calls than that"
    assert told == [(["one"], "JobAbandoned")]
    assert look.stats().dead == 1
