"""Locks last as long as their jobs, wherever those are, and no longer."""

import json
from itertools import pairwise

import pytest

from cogworker import Cogworker
from cogworker.inspector import Inspector

from support.inline import InlineWorker
from support.times import all_workers_are_dead, everything_is_due

TTL_S = 800
SOON_S = 5


@pytest.fixture
def app(settings):
    app = Cogworker(**settings, unique_lock_ttl=TTL_S, orphan_threshold=60)
    yield app
    app.close()


@pytest.fixture
def left(app, redis):
    """The seconds that the lock of a job lasts, and who holds it."""

    def left(job, *args):
        key = app.client.keys.lock(job._draft(args, {}).fields["lock"])
        holder = redis.get(key)
        return redis.ttl(key), holder and holder.decode()

    return left


@pytest.fixture
def fade(app, redis):
    """All locks run out soon, or have."""

    def fade(seconds=SOON_S):
        for lock in Inspector(app).locks():
            key = app.client.keys.lock(lock.name)
            redis.expire(key, seconds) if seconds else redis.delete(key)

    return fade


def declare(app, mode="until_executed"):
    return app.job(name=mode, unique=mode)(lambda label="x": None)


def busy_worker(app):
    worker = InlineWorker(app, run_jobs=False, concurrency=100)
    worker.beat()
    worker.turn()
    worker.turn()
    return worker


def idle_worker(app):
    worker = InlineWorker(app)
    worker.beat()
    return worker


LASTS = pytest.approx(TTL_S, abs=3)


class TestHeld:
    @pytest.mark.parametrize("seconds", [SOON_S, 0])
    @pytest.mark.parametrize("mode", ["until_executed", "while_executing"])
    def test_what_runs_keeps_its_lock_or_takes_it_again(self, app, left, fade, mode, seconds):
        job = declare(app, mode)
        jid = job.enqueue()
        worker = busy_worker(app)
        fade(seconds)

        worker.keep()

        assert left(job) == (LASTS, jid)

    def test_what_runs_after_it_has_freed_its_lock_does_not_take_it(self, app, left):
        job = declare(app, "until_executing")
        job.enqueue()
        worker = busy_worker(app)

        worker.keep()

        assert left(job) == (-2, None)

    def test_another_job_s_lock_is_left_alone(self, app, left, fade):
        job = declare(app)
        job.enqueue()
        worker = busy_worker(app)
        fade(0)
        other = job.enqueue()
        fade()

        worker.keep()

        assert left(job) == (pytest.approx(SOON_S, abs=1), other)

    def test_what_waits_for_its_turn_does_not_take_the_lock(self, app, left, fade):
        job = declare(app, "while_executing")
        job.enqueue()
        busy_worker(app)
        job.enqueue()
        worker = InlineWorker(app)
        worker.beat()
        worker.turn()
        worker.turn()  # refused, and to be put off with the next turn
        fade(0)

        worker.keep()

        assert worker.dispatcher.held == 1
        assert left(job) == (-2, None)

    def test_a_frozen_worker_that_wakes_brings_no_lock_back(self, app, redis, left):
        job = declare(app)
        job.enqueue()
        frozen = busy_worker(app)
        all_workers_are_dead(redis, app.client.keys)
        other = idle_worker(app)
        other.rescue()
        other.work_off()

        frozen.keep()

        assert frozen.dispatcher.held == 1
        assert left(job) == (-2, None)

    def test_what_has_ended_and_is_not_settled_yet_keeps_its_lock(self, app, left, fade):
        job = declare(app)
        jid = job.enqueue()
        worker = busy_worker(app)
        worker.perform(worker.started[0])
        fade()

        worker.keep()

        assert left(job) == (LASTS, jid)

    def test_nothing_is_sent_for_jobs_without_locks(self, app, monkeypatch):
        app.job(name="plain")(lambda: None)
        app.push({"class": "plain"})
        worker = busy_worker(app)
        worker.keeper._round_at = float("inf")
        monkeypatch.setattr(worker.keeper._runner, "run", lambda command: pytest.fail("sent"))

        assert worker.keeper.tick() == app.config.heartbeat_interval


def grow_old(app, redis, queue="default"):
    """All that waits in a queue was put there long ago."""
    key = app.client.keys.queue(queue)
    for index, raw in enumerate(redis.lrange(key, 0, -1)):
        job = json.loads(raw)
        job["enqueued_at"] -= TTL_S * 0.6
        redis.lset(key, index, json.dumps(job))


class TestWaiting:
    @pytest.mark.parametrize("mode", ["until_executed", "until_executing"])
    def test_what_has_waited_for_half_of_the_expiry_keeps_its_lock(
        self, app, redis, left, fade, mode
    ):
        job = declare(app, mode)
        old = job.enqueue("old")
        job.using(queue="other").enqueue("old")
        grow_old(app, redis)
        young = job.enqueue("young")
        fade()

        idle_worker(app).keep()

        assert left(job, "old") == (LASTS, old)
        assert left(job.using(queue="other"), "old")[0] <= SOON_S
        assert left(job, "young") == (LASTS, young), "it was read with the old ones"

    def test_a_lock_that_ran_out_is_not_taken_again_before_its_job_is(self, app, redis, left, fade):
        job = declare(app)
        jid = job.enqueue()
        grow_old(app, redis)
        fade(0)
        worker = InlineWorker(app, run_jobs=False)
        worker.beat()
        worker.keep()
        assert left(job) == (-2, None)
        worker.turn()

        worker.keep()

        assert left(job) == (LASTS, jid)

    @pytest.mark.parametrize("failed", [False, True])
    def test_what_is_overdue_because_all_are_quiet_keeps_its_lock(
        self, app, redis, left, fade, failed
    ):
        job = app.job(name="fails", unique="until_executed")(lambda: 1 / 0)
        worker = idle_worker(app)
        if failed:
            jid = job.enqueue()
            worker.work_off()
        else:
            jid = job.enqueue_in(3600)
        fade()
        worker.keep()
        assert left(job)[0] <= SOON_S, "it is not due"
        everything_is_due(redis, app.client.keys)

        worker.keep()

        assert left(job) == (LASTS, jid)

    def test_long_queues_and_sets_are_read_to_the_first_page_of_young_jobs(
        self, app, redis, left, fade, monkeypatch
    ):
        job = declare(app)
        job.enqueue_many([(number,) for number in range(700)])
        grow_old(app, redis)
        job.enqueue_many([(f"young {number}",) for number in range(900)])
        for number in range(50):
            job.enqueue_in(1, f"late {number}")
        everything_is_due(redis, app.client.keys)
        fade()
        worker = idle_worker(app)
        pages = []
        run = worker.keeper._runner.run

        def counted(command):
            reply = run(command)
            if command.name == "stretch":
                pages.append(len(reply))
            return reply

        monkeypatch.setattr(worker.keeper._runner, "run", counted)

        worker.keep()

        assert all(left(job, number)[0] > SOON_S for number in (0, 19, 20, 21, 500, 699))
        assert all(left(job, f"late {number}")[0] > SOON_S for number in (0, 19, 20, 30, 49))
        assert left(job, "young 899")[0] <= SOON_S
        assert max(pages) <= 500
        assert sum(pages) < 1600

    def test_jobs_that_are_taken_meanwhile_make_it_pass_over_none(
        self, app, redis, left, fade, monkeypatch
    ):
        job = declare(app)
        job.enqueue_many([(number,) for number in range(300)])
        grow_old(app, redis)
        fade()
        worker = idle_worker(app)
        run = worker.keeper._runner.run
        taken = []

        def taking(command):
            if command.name == "stretch" and not taken:
                taken.extend(redis.rpop(app.client.keys.queue("default"), 50))
            return run(command)

        monkeypatch.setattr(worker.keeper._runner, "run", taking)

        worker.keep()

        gone = {json.loads(raw)["args"][0] for raw in taken}
        assert len(gone) == 50
        assert all(left(job, number)[0] > SOON_S for number in set(range(300)) - gone)

    def test_large_payloads_are_read_a_few_at_a_time(self, app, redis, monkeypatch):
        job = app.job(name="job", unique="until_executed")(lambda text, number: None)
        job.enqueue_many([("x" * 200_000, number) for number in range(50)])
        grow_old(app, redis)
        worker = idle_worker(app)
        sizes = []
        run = worker.keeper._runner.run

        def counted(command):
            reply = run(command)
            if command.name == "stretch":
                sizes.append(sum(map(len, reply)))
            return reply

        monkeypatch.setattr(worker.keeper._runner, "run", counted)

        worker.keep()

        assert max(sizes[1:]) < 600_000

    def test_one_worker_goes_round_for_all(self, app, redis, left, fade):
        job = declare(app)
        job.enqueue()
        grow_old(app, redis)
        fade()
        workers = [idle_worker(app) for _ in range(3)]
        first, *others = sorted(workers, key=lambda each: each.worker.worker)
        for each in others:
            each.keep()
        assert left(job)[0] <= SOON_S

        first.keep()

        assert left(job)[0] > SOON_S

    def test_it_goes_round_at_its_start_and_then_eight_times_an_expiry(self, app, monkeypatch):
        now = 1000.0
        monkeypatch.setattr("cogworker.clock.monotonic", lambda: now)
        worker = idle_worker(app)
        rounds = []
        monkeypatch.setattr(worker.keeper, "_keep_waiting", lambda: rounds.append(now))

        while now < 1000 + TTL_S:
            pause_s = worker.keeper.tick()
            assert pause_s == app.config.heartbeat_interval
            now += pause_s

        assert rounds[0] == 1000
        gaps = [later - sooner for sooner, later in pairwise(rounds)]
        assert all(0.75 * TTL_S / 8 <= gap <= TTL_S / 8 + pause_s for gap in gaps)

    def test_damage_holds_up_nothing_else(self, app, redis, left, fade, caplog):
        job = declare(app)
        for queue in ("a", "b", "c"):
            job.using(queue=queue).enqueue()
            grow_old(app, redis, queue)
        keys = app.client.keys
        redis.delete(keys.queue("a"))
        redis.set(keys.queue("a"), "not a list")
        redis.rpush(keys.queue("b"), "not a job", '{"class":"x","jid":"y","enqueued_at":null}')
        redis.set(keys.schedule, "not a set")
        name = job.using(queue="b")._draft((), {}).fields["lock"]
        redis.delete(keys.lock(name))
        redis.rpush(keys.lock(name), "not a string")
        fade()
        worker = idle_worker(app)

        worker.keep()
        worker.keep()

        assert left(job.using(queue="c"))[0] > SOON_S
        assert caplog.text.count("can't read waiting jobs") == 4
        assert caplog.text.count("a key is damaged") == 1, "it is told once a minute"


def test_a_lock_goes_when_other_software_takes_its_job_away(app, redis, left):
    job = declare(app)
    job.enqueue()
    redis.delete(app.client.keys.queue("default"))

    idle_worker(app).keep()

    assert 0 < left(job)[0] <= TTL_S
