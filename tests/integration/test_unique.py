"""Unique jobs from enqueue to end, step by step on a real server."""

import asyncio
import json

import pytest

from cogworker import BulkRefused, Cogworker, DuplicateJob
from cogworker.inspector import Inspector
from cogworker.retry import RetryPolicy

from support.inline import InlineWorker
from support.times import all_workers_are_dead, everything_is_due

TTL_S = 86_400


@pytest.fixture
def look(app):
    return Inspector(app)


@pytest.fixture
def locks(look):
    """Who holds which lock now."""
    return lambda: {lock.name: lock.holder for lock in look.locks()}


@pytest.fixture
def worker(app):
    worker = InlineWorker(app)
    worker.beat()
    return worker


def declare(app, mode, function=lambda label="x": None, **options):
    return app.job(name="job", unique=mode, **options)(function)


def holder(locks):
    """The job that holds the only lock, None when there is none."""
    held = locks()
    assert len(held) <= 1
    return next(iter(held.values()), None)


def ttl(redis, app, locks):
    [name] = locks()
    return redis.ttl(app.client.keys.lock(name))


class TestEnqueue:
    def test_a_second_one_answers_none_until_the_first_is_done(self, app, worker, locks):
        job = declare(app, "until_executed")
        first = job.enqueue("a")

        assert job.enqueue("a") is None
        assert job.enqueue_in(60, "a") is None
        assert job.using(unique="until_executing").enqueue("a") is None
        assert job.enqueue(label="a") is None
        assert job.enqueue("b")
        assert first in locks().values()
        worker.work_off()
        assert locks() == {}
        assert job.enqueue("a")

    def test_or_raises_with_the_job_that_is_there(self, app):
        job = declare(app, "until_executed", on_duplicate="raise")
        first = job.enqueue()

        with pytest.raises(DuplicateJob) as caught:
            job.enqueue()
        assert (caught.value.job, caught.value.holder) == ("job", first)
        with pytest.raises(DuplicateJob):
            asyncio.run(self.twice(app, job))
        assert job.using(on_duplicate="skip").enqueue() is None

    @staticmethod
    async def twice(app, job):
        try:
            await job.aenqueue()
        finally:
            await app.aclose()

    def test_many_with_duplicates_among_them(self, app, locks):
        job = declare(app, "until_executed")
        before = job.enqueue("c")

        jids = job.enqueue_many([("a",), ("b",), ("a",), ("c",), ("b",)])

        assert [jid is None for jid in jids] == [False, False, True, True, True]
        assert sorted(locks().values()) == sorted([before, *filter(None, jids)])
        with pytest.raises(BulkRefused) as caught:
            job.using(on_duplicate="raise").enqueue_many([("d",), ("a",)])
        assert caught.value.refused[1].holder == jids[0]
        assert caught.value.jids[1] is None

    def test_a_lock_lasts_from_when_the_job_is_due(self, app, redis, locks):
        declare(app, "until_executed").enqueue_in(1000)

        assert ttl(redis, app, locks) == pytest.approx(TTL_S + 1000, abs=5)

    def test_a_lock_s_name_depends_on_the_queue(self, app):
        job = declare(app, "until_executed")

        assert job.enqueue()
        assert job.using(queue="other").enqueue()
        assert job.using(queue="other").enqueue() is None

    def test_while_executing_keeps_nobody_from_the_queue(self, app, locks):
        job = declare(app, "while_executing")

        assert job.enqueue()
        assert job.enqueue()
        assert locks() == {}

    def test_the_ruby_system_s_jobs_and_ours_are_duplicates(self, app, worker, locks):
        sweep = app.job(name="InvoiceSweep", unique="until_executed")(lambda options: None)
        payload = {"class": "InvoiceSweep", "args": [{"limit": 50}], "unique": "until_executed"}

        jid = app.push(payload)
        assert locks() == {"fb4a4324ce10fd6b14e3d6dc3303d098f23bb9ff": jid}
        assert app.push(payload) is None
        assert sweep.enqueue({"limit": 50}) is None
        worker.work_off()
        assert locks() == {}

    def test_a_lock_that_the_ruby_system_took_is_freed_by_our_worker(
        self, app, redis, worker, locks
    ):
        app.job(name="InvoiceSweep")(lambda options: None)
        name = "fb4a4324ce10fd6b14e3d6dc3303d098f23bb9ff"
        redis.set(app.client.keys.lock(name), "c0ffee", ex=86400)
        redis.lpush(
            app.client.keys.queue("default"),
            '{"class":"InvoiceSweep","args":[{"limit":50}],"jid":"c0ffee","queue":"default",'
            '"retry":true,"unique":"until_executed","created_at":1.0,"enqueued_at":1.0}',
        )

        worker.work_off()

        assert locks() == {}


class TestUntilExecuted:
    def test_the_lock_stays_through_retries_until_the_end(self, app, redis, worker, locks):
        def fail(label):
            raise ValueError

        job = declare(app, "until_executed", fail, retry=RetryPolicy(1, delay=(1000,)))
        jid = job.enqueue("a")
        worker.work_off()

        assert holder(locks) == jid
        assert ttl(redis, app, locks) == pytest.approx(TTL_S + 1000, abs=110)
        assert job.enqueue("a") is None
        everything_is_due(redis, app.client.keys)
        worker.promote()
        assert holder(locks) == jid
        assert ttl(redis, app, locks) == pytest.approx(TTL_S, abs=5)
        worker.work_off()
        assert locks() == {}, "it is dead"

    def test_a_rescued_job_keeps_its_lock(self, app, redis, worker, locks):
        job = declare(app, "until_executed")
        doomed = InlineWorker(app, run_jobs=False)
        doomed.beat()
        jid = job.enqueue()
        doomed.turn()
        all_workers_are_dead(redis, app.client.keys)
        worker.beat()
        worker.rescue()

        assert holder(locks) == jid
        worker.work_off()
        assert locks() == {}

    @pytest.mark.parametrize("end", ["kill", "delete", "discard"])
    def test_a_job_that_is_taken_out_of_its_queue_frees_it(self, app, look, locks, end):
        job = declare(app, "until_executed")
        jid = job.enqueue()

        assert getattr(look.jobs_in("default"), end)(jid).word == f"{end.removesuffix('e')}ed"

        assert locks() == {}
        assert look.stats().enqueued == 0
        assert job.enqueue() != jid

    def test_a_payload_that_is_pushed_twice_is_one_job(self, app, look, worker, locks):
        declare(app, "until_executed")
        payload = {"class": "job", "jid": "own", "unique": "until_executed", "lock": "l"}

        assert app.push(payload) == "own"
        assert app.push(payload) is None
        assert look.stats().enqueued == 1
        worker.work_off()
        assert locks() == {}
        assert app.push(payload) == "own"

    def test_a_payload_that_names_no_queue_at_its_retry_has_its_lock_freed(
        self, app, redis, look, worker, locks
    ):
        raw = (
            b'{"class":"job","jid":"odd","args":[],"queue":7,"unique":"until_executed","lock":"l"'
            b',"status":60}'
        )
        redis.zadd(app.client.keys.retry, {raw: 1})
        redis.set(app.client.keys.lock("l"), "odd")
        worker.promote()

        assert locks() == {}
        assert look.stats().dead == 1
        assert app.status("odd").state == "failed"

    def test_a_dead_job_is_revived_only_without_another(self, app, look, worker, locks):
        job = declare(app, "until_executed", lambda: 1 / 0, retry=False)
        first = job.enqueue()
        worker.work_off()
        second = job.enqueue()

        assert look.jobs("dead").revive(first) == ("duplicate", second)
        assert (look.stats().dead, look.stats().enqueued) == (1, 1)
        worker.work_off()
        assert look.jobs("dead").revive(first).word == "requeued"
        assert holder(locks) in (first, second)


class TestUntilExecuting:
    def test_the_lock_is_free_when_the_function_starts(self, app, worker, locks):
        seen = []

        def function():
            seen.append(locks())
            if len(seen) < 3:
                seen[-1] = job.enqueue()

        job = declare(app, "until_executing", function)
        job.enqueue()
        worker.work_off()

        assert None not in seen
        assert seen[-1] == {}

    def test_a_retry_takes_the_lock_again_if_it_is_free(self, app, redis, worker, locks):
        outcomes = iter([ValueError, ValueError, None])

        def function():
            if error := next(outcomes):
                raise error

        job = declare(app, "until_executing", function, retry=RetryPolicy(3, delay=(1000,)))
        first = job.enqueue()
        worker.work_off()
        assert holder(locks) == first
        assert job.enqueue() is None

        everything_is_due(redis, app.client.keys)
        worker.promote()
        worker.turn()  # it takes the job, and asks with the next turn
        worker.turn()
        assert locks() == {}
        second = job.enqueue()
        worker.turn()  # the retry, which finds the lock taken
        assert holder(locks) == second

    def test_a_job_that_is_given_back_before_it_begins_has_its_lock_again(self, app, locks):
        job = declare(app, "until_executing")
        jid = job.enqueue()
        worker = InlineWorker(app, run_jobs=False)
        worker.beat()
        worker.turn()
        worker.turn()
        assert locks() == {}
        worker.dispatcher.abandon(5.0)
        worker.dispatcher.step()
        worker.leave()

        assert holder(locks) == jid


class TestWhileExecuting:
    @pytest.fixture
    def ran(self):
        return []

    @pytest.fixture
    def job(self, app, ran):
        return declare(app, "while_executing", ran.append, unique_by=())

    @pytest.fixture
    def busy(self, app, job, locks):
        """A worker that runs one of the jobs, and does not come to its end."""
        job.enqueue("runs")
        busy = InlineWorker(app, run_jobs=False)
        busy.beat()
        busy.turn()
        busy.turn()
        [delivery] = busy.started
        assert holder(locks) == delivery.envelope.jid
        return busy

    def end(self, busy):
        busy.dispatcher.quiet()  # it takes no other
        busy.perform(busy.started[0])
        busy.turn()

    def test_another_one_is_put_off_for_longer_each_time(
        self, app, redis, worker, job, busy, ran, locks, caplog
    ):
        job.enqueue("waits")
        delays = []
        caplog.set_level("INFO")
        for _ in range(6):
            now = float(redis.time()[0])
            worker.work_off()
            [(_, due)] = redis.zrange(app.client.keys.schedule, 0, -1, withscores=True)
            delays.append(due - now)
            everything_is_due(redis, app.client.keys)
            worker.promote()

        for delay, longest in zip(delays, [1, 2, 4, 8, 10, 10], strict=True):
            assert 0.7 * longest < delay < longest + 3
        assert caplog.text.count("not begun, its like is running: jid=") == 6
        assert ran == []
        assert holder(locks) == busy.started[0].envelope.jid
        self.end(busy)
        worker.work_off()
        assert ran == ["runs", "waits"]
        assert locks() == {}

    def test_the_next_wait_after_a_failure_is_short_again(self, app, redis, worker, look):
        declare(app, "while_executing", lambda: 1 / 0, retry=RetryPolicy(1, delay=(1000,)))
        app.push({"class": "job", "unique": "while_executing", "lock_waits": 5})
        worker.work_off()

        [raw] = redis.zrange(app.client.keys.retry, 0, -1)
        assert "lock_waits" not in json.loads(raw)

    def test_all_of_many_get_their_turn_and_never_two_at_once(self, app, redis, job, look, locks):
        job.enqueue_many([(number,) for number in range(12)])
        workers = [InlineWorker(app, run_jobs=False) for _ in range(2)]
        done = tries = 0
        while done < 12:
            tries += 1
            assert tries < 100, "somebody starves"
            for worker in workers:
                worker.beat()
                worker.turn()
                worker.turn()
            running = [
                (worker, each) for worker in workers for each in worker.started if not each.returned
            ]
            assert len(running) == 1
            worker, delivery = running[0]
            worker.perform(delivery)
            worker.turn()
            done += 1
            everything_is_due(redis, app.client.keys)
            worker.promote()

        assert look.stats().processed == 12
        assert locks() == {}

    def test_costs_one_turn_and_nothing_for_other_jobs(self, app, worker, job):
        app.job(name="plain")(lambda: None)
        numbers = []
        for push in (lambda: app.push({"class": "plain"}), lambda: job.enqueue("x")):
            before = worker.dispatcher._number
            push()
            worker.work_off()
            numbers.append(worker.dispatcher._number - before)

        assert numbers == [2, 3]

    def test_quiet_between_question_and_answer_gives_back_and_frees(self, app, job, look, locks):
        job.enqueue("x")
        worker = InlineWorker(app, run_jobs=False)
        worker.beat()
        worker.turn()
        worker.dispatcher.quiet()
        worker.turn()
        worker.turn()

        assert worker.started == []
        assert worker.dispatcher.held == 0
        assert look.stats().enqueued == 1
        assert locks() == {}

    def test_a_payload_that_has_waited_absurdly_often_waits_as_others_do(
        self, app, job, redis, look
    ):
        job.enqueue("x")
        first = InlineWorker(app, run_jobs=False)
        first.beat()
        first.turn()
        first.turn()
        for waits in ("1" + "0" * 15, "-5", '"x"', "1.5"):
            lock = next(iter(look.locks())).name
            raw = '{"class":"%s","jid":"odd%s","args":["x"],"unique":"while_executing","lock":"%s"'
            raw = raw % (job.name, waits[:2].strip('"'), lock) + f',"lock_waits":{waits}}}'
            redis.lpush(app.client.keys.queue("default"), raw)
        worker = InlineWorker(app, run_jobs=False)
        worker.beat()
        for _ in range(4):
            worker.turn()

        assert (look.stats().scheduled, look.stats().in_flight) == (4, 1)

    @pytest.mark.parametrize("turns", [1, 2])
    def test_a_stop_gives_back_and_frees(self, app, job, look, locks, turns):
        job.enqueue("x")
        worker = InlineWorker(app, run_jobs=False)
        worker.beat()
        for _ in range(turns):  # it is to be asked about, or runs
            worker.turn()
        worker.dispatcher.abandon(5.0)
        worker.dispatcher.step()
        worker.dispatcher.step()
        worker.leave()

        assert look.stats()[4:] == (1, 0, 0, 0, 0)
        assert locks() == {}

    def test_an_interrupted_run_frees_the_lock(self, app, busy, look, locks):
        [delivery] = busy.started
        delivery.interrupted = True
        self.end(busy)

        assert look.stats().enqueued == 1
        assert locks() == {}

    def test_a_rescue_frees_the_lock(self, app, redis, busy, worker, ran, locks):
        all_workers_are_dead(redis, app.client.keys)
        worker.beat()
        worker.rescue()
        assert locks() == {}
        worker.work_off()

        assert ran == ["runs"]
        self.end(busy)  # too late
        assert locks() == {}

    def test_what_must_not_run_twice_is_dead_and_its_lock_free(
        self, app, redis, worker, look, locks
    ):
        once = declare(app, "while_executing", at_most_once=True)
        once.enqueue()
        doomed = InlineWorker(app, run_jobs=False)
        doomed.beat()
        doomed.turn()
        doomed.turn()
        assert len(locks()) == 1
        all_workers_are_dead(redis, app.client.keys)
        worker.beat()
        worker.rescue()

        assert look.stats().dead == 1
        assert locks() == {}

    def test_a_basic_worker_asks_too_and_may_put_off(self, settings, redis, look):
        app = Cogworker(**settings, fetch="basic")
        ran = []
        job = declare(app, "while_executing", ran.append, unique_by=())
        redis.set(app.client.keys.lock(job._draft(("x",), {}).fields["lock"]), "somebody")
        job.enqueue("x")
        worker = InlineWorker(app)
        worker.beat()
        worker.work_off()

        assert ran == []
        assert look.stats().scheduled == 1
        app.close()

    def test_a_claim_that_is_lost_before_the_answer_does_not_begin(
        self, app, redis, job, worker, ran, look, locks, caplog
    ):
        job.enqueue("x")
        frozen = InlineWorker(app)
        frozen.beat()
        frozen.turn()
        all_workers_are_dead(redis, app.client.keys)
        worker.beat()
        worker.rescue()
        worker.work_off()
        frozen.turn()

        assert ran == ["x"]
        assert frozen.dispatcher.held == 0
        assert caplog.text.count("lost claim") == 1
        assert look.stats().processed == 1
        assert locks() == {}

    def test_an_async_job_asks_as_well(self, app, ran, locks):
        async def function(label):
            ran.append(label)

        job = declare(app, "while_executing", function)
        job.enqueue("x")
        worker = InlineWorker(app, run_jobs=False)
        worker.beat()
        worker.turn()
        assert worker.started == []
        worker.turn()
        [delivery] = worker.started
        assert len(locks()) == 1
        move = asyncio.run(worker.performer.perform_async(delivery))
        worker.dispatcher.slots.finish(delivery, move)
        worker.turn()

        assert ran == ["x"]
        assert locks() == {}


class TestAdmin:
    def test_locks_are_told_while_they_come_and_go(self, app, look, redis):
        keys = app.client.keys
        for number in range(3000):
            redis.set(keys.lock(f"stays{number}"), f"j{number}", ex=100)
        told = {}
        for number, lock in enumerate(look.locks()):
            told[lock.name] = lock
            redis.set(keys.lock(f"comes{number}"), "x")
            redis.delete(keys.lock(f"comes{number - 5}"))

        assert {f"stays{number}" for number in range(3000)} <= set(told)
        assert told["stays7"].holder == "j7"
        assert 90 < told["stays7"].left_s <= 100

    def test_other_keys_and_installations_are_not_told(self, settings, redis):
        apps = [
            Cogworker(**{**settings, "namespace": name}) for name in ("n[a]?*", "na", "n[a]?*x")
        ]
        for app in apps:
            declare(app, "until_executed").enqueue()
        [lock] = Inspector(apps[0]).locks()

        assert Inspector(apps[0]).release_lock(lock.name) == lock._replace(
            left_s=pytest.approx(TTL_S, abs=5)
        )
        assert [len(list(Inspector(app).locks())) for app in apps] == [0, 1, 1]
        for app in apps:
            app.close()

    def test_a_released_lock_lets_the_next_one_in(self, app, look, locks, caplog):
        job = declare(app, "until_executed")
        first = job.enqueue()
        [name] = locks()
        caplog.set_level("INFO")

        assert look.release_lock(name, by="ada", holder="other") is None
        assert look.release_lock(name, by="ada", holder=first).holder == first
        assert look.release_lock(name, by="ada") is None
        assert caplog.text.count(f"lock released: name={name} holder={first} by='ada'") == 1
        assert job.enqueue() not in (None, first)
