"""Status, progress and results, with a real worker."""

import asyncio
import json
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from cogworker import (
    Cogworker,
    CogworkerError,
    Discard,
    JobCancelled,
    JobFailed,
    NoStatus,
    RedisUnavailable,
    Reschedule,
    ResultNotKept,
    ResultTimeout,
    RetryPolicy,
    current_job,
)
from cogworker._worker import notes
from cogworker._worker.results import MOST_RESULT_BYTES
from cogworker.inspector import Inspector
from cogworker.status import MOST_LOOKS

from support.inline import InlineWorker
from support.processes import eventually
from support.times import all_workers_are_dead, everything_is_due

QUICK = {"poll_interval": 0.05, "heartbeat_interval": 0.1, "shutdown_timeout": 5}


@pytest.fixture
def app(settings):
    app = Cogworker(**settings, **QUICK, concurrency=10)
    yield app
    app.close()


@pytest.fixture
def gate():
    """What a job waits for; opened at the end."""
    gate = threading.Event()
    yield gate
    gate.set()


@dataclass
class Point:
    x: int
    at: datetime


class TestResults:
    def test_come_back_as_the_annotation_says(self, app):
        @app.job(status=True)
        def point(x: int) -> Point:
            return Point(x, datetime(2026, 1, 1, tzinfo=UTC))

        @app.job(status=True)
        async def plain(value):
            return value

        @app.job(status=True)
        def nothing() -> None: ...

        with app.worker():
            assert app.result(point.enqueue(3), 10) == Point(3, datetime(2026, 1, 1, tzinfo=UTC))
            assert app.result(plain.enqueue([1, {"a": None}, "é", 2**70]), 10) == [
                1, {"a": None}, "é", 2**70,
            ]  # fmt: skip
            assert app.result(nothing.enqueue(), 10) is None

    def test_that_can_t_be_kept_leave_the_run_a_success(self, app, caplog):
        @app.job(status=True)
        def foreign():
            return {"a": object()}

        @app.job(status=True)
        async def large():
            return "x" * MOST_RESULT_BYTES

        @app.job(status=True)
        def unlike() -> int:
            return "text"

        with app.worker():
            for job, why in (
                (foreign, r"the result\['a'\] is an? .*object"),
                (large, r"65,538 bytes, over the limit of 65,536; store the data elsewhere"),
                (unlike, r"the result .*int"),
            ):
                with pytest.raises(ResultNotKept, match=why):
                    app.result(job.enqueue(), 10)
            assert Inspector(app).stats()[:2] == (3, 0)
        lines = [line for line in caplog.messages if "the result is not kept" in line]
        assert [line.count("jid=") for line in lines] == [1, 1, 1]

    def test_whatever_writing_one_down_raises_the_run_has_succeeded(self, app, monkeypatch):
        def raises(value):
            raise RecursionError("its own code")

        @app.job(status=True)
        def job():
            return 1

        monkeypatch.setattr(type(job.codec), "encode_result", lambda codec, value: raises(value))
        with app.worker():
            with pytest.raises(ResultNotKept, match="can't be written down: its own code"):
                app.result(job.enqueue(), 10)
            eventually(lambda: Inspector(app).stats()[:2] == (1, 0))

    def test_of_a_job_inside_middlewares_are_kept_too(self, app):
        seen = []

        @app.middleware.server.add
        def note(run):
            current_job().at(10, "around")
            seen.append(run.jid)

        @app.job(status=True)
        def job(value):
            current_job().store(inner=1)
            return value

        @app.job(status=True)
        async def coroutine(value):
            return value

        with app.worker():
            jid = job.enqueue(1)
            assert app.result(jid, 10) == 1
            assert app.result(coroutine.enqueue(2), 10) == 2
        status = app.status(jid)
        assert (status.pct, status.message, status.fields) == (10, "around", {"inner": 1})
        assert len(seen) == 2

    def test_of_failures_and_of_discarded_jobs_are_errors(self, app):
        @app.job(status=True, retry=False)
        def fails():
            raise ValueError("no")

        @app.job(status=True)
        def drops():
            raise Discard("not needed")

        @app.job(status=True, retry=RetryPolicy(discard_on=(ValueError,)))
        def worthless():
            raise ValueError("no")

        @app.job(status=True, expires_in=1e-6)
        def late(): ...

        @app.job(status=True, retry=False)
        def unknown(): ...

        jid = unknown.enqueue()
        del app.jobs[unknown.name]
        with app.worker():
            with pytest.raises(JobFailed, match="ValueError: no") as caught:
                app.result(fails.enqueue(), 10)
            assert (caught.value.error_class, caught.value.error_message) == ("ValueError", "no")
            with pytest.raises(JobCancelled, match=r"was cancelled: not needed$"):
                app.result(drops.enqueue(), 10)
            with pytest.raises(JobCancelled, match=r"was cancelled: ValueError: no$") as dropped:
                app.result(worthless.enqueue(), 10)
            assert (dropped.value.error_class, dropped.value.reason) == ("ValueError", "no")
            with pytest.raises(JobCancelled, match="too late"):
                app.result(late.enqueue(), 10)
            with pytest.raises(JobFailed, match="no job is named"):
                app.result(jid, 10)


class TestWaiting:
    def test_without_a_status_is_an_error_at_once(self, app):
        @app.job
        def plain(): ...

        jid = plain.enqueue()
        assert app.status(jid) is None
        with pytest.raises(NoStatus, match=f"job {jid} has no status"):
            app.result(jid)

    def test_is_over_when_the_time_is(self, app):
        @app.job(status=True)
        def never(): ...

        jid = never.enqueue()
        with pytest.raises(
            ResultTimeout, match=r"not ended within 0\.05 s, it is queued"
        ) as caught:
            app.result(jid, 0.05)
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(ResultTimeout):
            app.result(jid, 0)
        with pytest.raises(CogworkerError, match="a number of seconds"):
            app.result(jid, "soon")
        with pytest.raises(ResultTimeout):
            asyncio.run(closing(app, app.aresult(jid, 0.05)))

    def test_for_the_end_answers_with_the_status_whatever_came(self, app):
        @app.job(status=True, retry=False)
        def job(divisor):
            return 10 // divisor

        jids = [job.enqueue(divisor) for divisor in (5, 0)]

        async def wait_for_both():
            return [await app.await_for(jid, 10) for jid in jids]

        with app.worker():
            fine, failed = [app.wait_for(jid, 10) for jid in jids]
            again = asyncio.run(closing(app, wait_for_both()))
        assert (fine.state, fine.result) == ("complete", 2)
        assert (failed.state, failed.error_class) == ("failed", "ZeroDivisionError")
        assert again == [fine, failed]
        with pytest.raises(NoStatus):
            app.wait_for("nobody")

    def test_for_what_was_not_enqueued_says_so(self, app):
        @app.job(status=True, unique="until_executed")
        def job(): ...

        job.enqueue()
        duplicate = job.enqueue()
        assert app.status(duplicate) is None
        with pytest.raises(NoStatus, match="it was not enqueued"):
            app.result(duplicate)

    def test_on_an_event_loop_is_refused_since_it_would_stop_it(self, app):
        @app.job(status=True)
        def job(): ...

        jid = job.enqueue()

        async def waits():
            with pytest.raises(CogworkerError, match="await aresult or await_for instead"):
                app.result(jid, 1)

        asyncio.run(waits())

    def test_goes_on_through_an_outage_as_long_as_there_is_time(self, app, monkeypatch):
        @app.job(status=True)
        def job():
            return 1

        jid = job.enqueue()
        answers = [app.status(jid), RedisUnavailable("away"), RedisUnavailable("away")]

        def get(jid, plain=app._statuses.get):
            answer = answers.pop(0) if answers else plain(jid)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(app._statuses, "get", get)
        monkeypatch.setattr("cogworker.status.LOOK_AGAIN_S", 0.02)
        with app.worker():
            assert app.result(jid, 10) == 1
        assert answers == []
        answers[:] = [RedisUnavailable("away")]
        with pytest.raises(RedisUnavailable):  # the first look tells whether there is a server
            app.result(jid, 10)

    def test_ends_within_milliseconds_of_the_job(self, app):
        @app.job(status=True)
        def job() -> float:
            time.sleep(0.02)
            return time.monotonic()

        with app.worker():
            late_s = []
            for _ in range(20):
                ended_at = app.result(job.enqueue(), 10)
                late_s.append(time.monotonic() - ended_at)
        assert statistics.median(late_s) < 0.05, "5 ms here; a poll would take longer"

    def test_of_many_threads_and_tasks_costs_few_commands_and_connections(self, app, redis, gate):
        @app.job(status=True)
        def job(number) -> int:
            gate.wait(30)
            return number

        jids = [job.enqueue(number) for number in range(300)]

        async def wait_for_all():
            tasks = [asyncio.create_task(app.aresult(jid, 60)) for jid in jids]
            await asyncio.sleep(0)
            return await asyncio.gather(*tasks)

        def clients():
            return len(redis.client_list())

        before, looks = clients(), calls(redis, "hgetall")
        with ThreadPoolExecutor(21) as pool, app.worker():
            futures = [pool.submit(app.result, jid, 60) for jid in jids[:20]]
            together = pool.submit(lambda: asyncio.run(closing(app, wait_for_all())))
            # Each has looked before and after it began to listen, and once when listening began.
            eventually(lambda: calls(redis, "hgetall") >= looks + 2 * 320)
            assert clients() - before < 20 + MOST_LOOKS + 12
            gate.set()
            assert [future.result(60) for future in futures] == list(range(20))
            assert together.result(60) == list(range(300))
        assert calls(redis, "hgetall") - looks < 6 * 320

    def test_of_a_job_that_ended_before_it_was_heard_of_is_over_at_once(self, app, redis):
        @app.job(status=True)
        def job():
            return 1

        jid = job.enqueue()
        with app.worker():
            eventually(lambda: app.status(jid).ended)
            reads = calls(redis, "xread")
            assert app.result(jid) == 1
            assert calls(redis, "xread") == reads

    def test_goes_on_when_the_stream_of_ends_is_damaged(self, app, redis, monkeypatch):
        monkeypatch.setattr("cogworker.status.LOOK_AGAIN_S", 0.05)
        monkeypatch.setattr("cogworker.waiters.FAILED_PAUSE_S", 0.05)
        redis.set(app.client.keys.status_ends, "text")

        @app.job(status=True)
        def job():
            return 1

        jid = job.enqueue()
        with app.worker(), ThreadPoolExecutor(1) as pool:
            assert pool.submit(app.result, jid, 10).result(20) == 1

    def test_garbage_in_the_stream_of_ends_is_passed_over(self, app, redis, gate, caplog):
        @app.job(status=True)
        def job():
            gate.wait(30)

        jid = job.enqueue()
        with app.worker(), ThreadPoolExecutor(1) as pool:
            future = pool.submit(app.result, jid, 10)
            eventually(lambda: calls(redis, "xread") > 0)
            for words in (b"[1]", b"[", b"\xff", b"0 but", b'["\xff"]'):
                redis.xadd(app.client.keys.status_ends, {"1": words})
            gate.set()
            assert future.result(20) is None
        assert "can't hear of the ends" not in caplog.text

    def test_notices_that_the_status_has_gone(self, app, redis, monkeypatch):
        monkeypatch.setattr("cogworker.status.LOOK_AGAIN_S", 0.02)

        @app.job(status=True)
        def job(): ...

        jid = job.enqueue()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(app.result, jid)
            eventually(lambda: calls(redis, "xread") > 0)
            redis.delete(app.client.keys.status(jid))
            with pytest.raises(NoStatus):
                future.result(20)

    def test_is_rung_again_once_the_system_has_threads_again(self, app, gate, monkeypatch):
        @app.job(status=True)
        def job():
            gate.wait(30)

        start = threading.Thread.start

        def refuse_once(thread):
            if thread.name == "cogworker-waiters":
                monkeypatch.setattr(threading.Thread, "start", start)
                raise RuntimeError("can't start new thread")
            start(thread)

        jid = job.enqueue()
        monkeypatch.setattr(threading.Thread, "start", refuse_once)
        with pytest.raises(ResultTimeout):
            app.result(jid, 0.01)
        monkeypatch.setattr("cogworker.status.LOOK_AGAIN_S", 60)
        with app.worker(), ThreadPoolExecutor(1) as pool:
            future = pool.submit(app.result, jid, 10)
            eventually(lambda: "cogworker-waiters" in [t.name for t in threading.enumerate()])
            gate.set()
            assert future.result(20) is None

    def test_leaves_no_thread_behind(self, app, monkeypatch):
        monkeypatch.setattr("cogworker.waiters.LONGEST_READ_S", 0.05)

        @app.job(status=True)
        def job(): ...

        with pytest.raises(ResultTimeout):
            app.result(job.enqueue(), 0.01)
        eventually(lambda: "cogworker-waiters" not in [t.name for t in threading.enumerate()])


class TestProgress:
    def test_is_seen_while_the_job_runs(self, app, gate):
        @app.job(status=True)
        def plain():
            job = current_job()
            for pct in range(51):
                job.at(pct, f"line {pct}")
            job.store(rows=12)
            gate.wait(30)
            job.at(60)

        @app.job(status=True)
        async def coroutine():
            current_job().at(50, "line 50")
            current_job().store(rows=12)
            while not gate.is_set():
                await asyncio.sleep(0.01)
            current_job().at(60)

        jids = [plain.enqueue(), coroutine.enqueue()]
        with app.worker():
            for jid in jids:
                eventually(lambda jid=jid: app.status(jid).pct == 50)
                status = app.status(jid)
                assert (status.state, status.message, status.fields, status.attempt) == (
                    "working", "line 50", {"rows": 12}, 1,
                )  # fmt: skip
            gate.set()
            for jid in jids:
                app.result(jid, 10)
                status = app.status(jid)
                assert (status.state, status.pct, status.message) == ("complete", 60, "line 50")

    def test_a_job_that_says_nothing_is_working_all_the_same(self, app, gate):
        @app.job(status=True)
        def job():
            gate.wait(30)

        jid = job.enqueue()
        with app.worker():
            eventually(lambda: app.status(jid).state == "working")
            gate.set()

    def test_comes_from_all_threads_that_a_job_starts(self, app):
        @app.job(status=True)
        def job():
            running = current_job()
            threads = [
                threading.Thread(target=running.store, kwargs={f"part{n}": n}) for n in range(5)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        @app.job(status=True)
        async def coroutine():
            await asyncio.to_thread(lambda: current_job().store(part=1))

        with app.worker():
            jid, other = job.enqueue(), coroutine.enqueue()
            app.result(jid, 10)
            app.result(other, 10)
        assert app.status(jid).fields == {f"part{n}": n for n in range(5)}
        assert app.status(other).fields == {"part": 1}

    def test_of_a_thread_that_outlives_the_run_changes_nothing(self, app):
        left = []

        @app.job(status=True)
        def job():
            left.append(current_job())
            return 1

        jid = job.enqueue()
        with app.worker():
            app.result(jid, 10)
            before = app.status(jid)
            left[0].at(50)
            left[0].store(late=1)
            app.result(job.enqueue(), 10)
        assert app.status(jid) == before

    def test_a_run_whose_job_was_rescued_is_held_until_its_end(
        self, app, redis, caplog, monkeypatch
    ):
        monkeypatch.setattr(notes, "SOON_S", 0.0)

        @app.job(status=True)
        def job():
            return 1

        worker = InlineWorker(app, run_jobs=False)
        worker.beat()
        jid = job.enqueue()
        worker.turn()
        [delivery] = worker.started
        worker.performer._notes.open(delivery)
        redis.delete(app.client.keys.in_flight(worker.worker.worker))

        worker.turn()

        assert worker.dispatcher.held == 1, "its end is still to come"
        assert "lost claim" not in caplog.text
        delivery.progress.at(50)
        worker.perform(delivery)
        worker.work_off()
        assert worker.dispatcher.held == 0
        assert caplog.text.count("lost claim") == 1
        assert app.status(jid).pct is None

    def test_that_can_t_be_kept_fails_the_job(self, app):
        @app.job(status=True, retry=False)
        def job():
            current_job().at(101)

        @app.job(retry=False)
        def without():
            current_job().at(101)

        with app.worker():
            without.enqueue()
            with pytest.raises(JobFailed, match=r"InvalidProgress: .* from 0 to 100, not to 101"):
                app.result(job.enqueue(), 10)
            eventually(lambda: Inspector(app).stats().processed == 1)


class TestLife:
    def test_what_failed_is_told_until_a_run_succeeds(self, app, redis):
        @app.job(status=True, retry=3)
        def job():
            current = current_job()
            current.at(current.attempt * 10)
            current.store(**{f"attempt{current.attempt}": True})
            if current.attempt == 1:
                raise ValueError("the first time")
            return "done"

        worker = InlineWorker(app)
        jid = job.enqueue()
        worker.work_off()
        status = app.status(jid)
        assert (status.state, status.attempt, status.pct) == ("retrying", 1, 10)
        assert (status.error_class, status.error_message) == ("ValueError", "the first time")

        everything_is_due(redis, app.client.keys)
        worker.promote()
        status = app.status(jid)
        assert (status.state, status.pct, status.error_class) == ("queued", None, "ValueError")

        worker.work_off()
        status = app.status(jid)
        assert (status.state, status.attempt, status.result) == ("complete", 2, "done")
        assert (status.error_class, status.error_message) == (None, None)
        assert status.fields == {"attempt1": True, "attempt2": True}

    def test_a_run_that_is_cut_off_keeps_what_it_has_stored(self, app, gate):
        interrupted = []

        @app.job(status=True)
        async def job():
            try:
                current_job().at(50)
                gate.set()
                await asyncio.sleep(30)
            finally:
                current_job().store(checkpoint=7)
                interrupted.append(True)

        jid = job.enqueue()
        with app.worker(shutdown_timeout=0):
            assert gate.wait(10)
        assert interrupted
        status = app.status(jid)
        assert (status.state, status.pct, status.fields) == ("queued", None, {"checkpoint": 7})

    def test_a_worker_that_is_lost_too_often_is_told_as_the_error(self, app, redis):
        jid = app.push({"class": "x", "status": 100, "orphaned": 3})
        worker = InlineWorker(app, run_jobs=False)
        worker.turn()
        all_workers_are_dead(redis, app.client.keys)
        healthy = InlineWorker(app)
        healthy.beat()
        healthy.rescue()

        status = app.status(jid)
        assert (status.state, status.error_class) == ("failed", "cogworker.errors.JobOrphaned")

    def test_a_payload_that_proves_unreadable_is_told_as_the_error(self, app, redis):
        @app.job(name="job")
        def job():
            raise Reschedule(in_=1)

        raw = b'{"class":"job","jid":"odd","args":[],"status":60,"\xff":1}'
        redis.lpush(app.client.keys.queue("default"), raw)
        worker = InlineWorker(app)
        worker.work_off()
        with pytest.raises(JobFailed) as failed:
            app.status("odd").outcome()
        assert failed.value.error_class == "InvalidPayload"

    def test_a_status_lives_as_long_as_it_says(self, app, redis):
        @app.job(status=100)
        def job(): ...

        def ttl(jid):
            return redis.ttl(app.client.keys.status(jid))

        assert 95 < ttl(job.enqueue()) <= 100
        assert 1095 < ttl(job.enqueue_in(1000)) <= 1100
        assert 1790 < ttl(job.using(status=True).enqueue()) <= 1800
        assert app.status(job.enqueue_in(1000)).state == "scheduled"
        assert [app.status(jid).state for jid in job.enqueue_many([(), ()])] == ["queued"] * 2
        assert ttl(job.using(status=False).enqueue()) == -2

    def test_a_status_does_not_run_out_while_a_worker_holds_its_job(self, app, redis):
        @app.job(status=100)
        def job(): ...

        jid = job.enqueue()
        key = app.client.keys.status(jid)
        worker = InlineWorker(app, run_jobs=False)
        worker.beat()
        worker.turn()
        redis.expire(key, 5)
        worker.keep()
        assert 95 < redis.ttl(key) <= 100
        assert app.status(jid).state == "queued"

    def test_garbage_from_other_software_is_no_status(self, app, redis):
        worker = InlineWorker(app)
        for number, garbage in enumerate(("yes", -1, [], {"a": 1}, 1e300)):
            payload = {"class": "x", "jid": str(number), "args": [], "status": garbage}
            redis.lpush(app.client.keys.queue("default"), json.dumps(payload))
            worker.work_off()
            assert app.status(str(number)) is None
        assert app.status(app.push({"class": "x", "status": True})).state == "queued"


def calls(redis, command):
    return redis.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]


async def closing(app, waits):
    try:
        return await waits
    finally:
        await app.aclose()
