"""The run log, throughput and attempts as a person reads them, on a real server."""

import threading
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from cogworker import Cogworker, CogworkerError, RetryPolicy
from cogworker._engine.places import InFlight, Place
from cogworker._engine.plan import move
from cogworker.features.event import Event, Kind, Run
from cogworker.payload import encode, parse
from cogworker.records import MOST_DECODED

from support.inline import InlineWorker
from support.times import everything_is_due

ERROR = {"error_class": "E", "error_message": "m", "error_backtrace": ["line"]}


@pytest.fixture
def app(settings):
    app = Cogworker(**settings, history=True)
    yield app
    app.close()


@pytest.fixture
def worker(app):
    return InlineWorker(app)


@pytest.fixture
def log(app, redis):
    """Log runs, each call a settlement of its own, in a millisecond of its own."""
    keys, run, moves = app.client.keys, app.client.runner.run, app.client.moves
    worker = InFlight("w1")

    def log(*jids, failed=False, name="mail", **fields):
        effects = []
        last = _milliseconds(redis)
        while _milliseconds(redis) == last:
            pass
        for jid in jids:
            job = parse(encode({"class": name, "jid": jid, **fields}))
            kind, error = (Kind.RETRYING, ERROR) if failed else (Kind.DONE, None)
            event = Event(kind, job, "q", run=Run(1, 1.0, 2.0, error))
            effects.append(app.client.transitions.features.history.effects(event))
            redis.hset(keys.in_flight("w1"), jid, b"x")
        run(
            moves.move(
                [
                    move(worker, Place.NOWHERE, (jid.encode(),), effect)
                    for jid, effect in zip(jids, effects, strict=True)
                ]
            )
        )

    return log


def _milliseconds(redis):
    seconds, micros = redis.time()
    return seconds, micros // 1000


def pages(look, **wanted):
    """All runs, page by page."""
    before, runs = None, []
    while True:
        page = look.history(before=before, **wanted)
        assert len(page.runs) <= wanted.get("limit", 50)
        runs += page.runs
        before = page.before
        if before is None:
            return runs


def jids(runs):
    return [run.jid for run in runs]


class TestALife:
    def test_every_run_is_logged_with_what_came_of_it(self, app, look, worker, redis):
        @app.job(retry=RetryPolicy(max_retries=1, delay=(1000,)))
        def fails(text, *, loud):
            raise ValueError(text)

        @app.job
        def fine():
            pass

        ok, bad = fine.enqueue(), fails.enqueue("oh", loud=True)
        worker.work_off()
        everything_is_due(redis, app.client.keys)
        worker.promote()
        worker.work_off()

        [last, first] = look.history(jid=bad).runs
        assert (first.status, first.outcome, first.attempt) == ("failed", "retrying", 1)
        assert (last.status, last.outcome, last.attempt) == ("failed", "dead", 2)
        assert last == look.history(limit=1).runs[0] == look.history("failed", limit=1).runs[0]
        assert (last.name, last.queue, last.args, last.kwargs) == (
            *(fails.name, "default"),
            *(["oh"], {"loud": True}),
        )
        assert (last.error_class, last.error_message) == ("ValueError", "oh")
        assert any("raise ValueError(text)" in line for line in last.backtrace)
        now = datetime.now(UTC).timestamp()
        assert now - 60 < last.started_at <= last.finished_at <= now
        [success] = look.history("success").runs
        assert (success.jid, success.outcome, success.error_class) == (ok, "done", "")
        assert look.history_size() == (1, 2)
        assert look.stats()[:2] == (1, 2)

    def test_a_batch_of_successes_is_one_entry(self, app, look, worker, redis):
        @app.job
        def fine(number):
            pass

        pushed = fine.enqueue_many([(number,) for number in range(3)])
        worker.work_off()

        assert redis.xlen(app.client.keys.logged_successes) == 1
        assert jids(look.history().runs) == pushed[::-1]
        assert [run.args for run in look.history().runs] == [[2], [1], [0]]

    def test_a_job_can_opt_out_and_in(self, settings, app, look, worker, dump):
        @app.job(history=False)
        def secret():
            pass

        secret.enqueue()
        secret.using(history=None).enqueue()
        app.push({"class": secret.name, "history": False})
        worker.work_off()
        assert look.history_size() == (1, 0)

        quiet = Cogworker(**settings)
        quiet.job(name=secret.name, history=True)(secret.function).enqueue()
        InlineWorker(quiet).work_off()
        assert look.history_size() == (2, 0)
        quiet.close()

    def test_a_lost_claim_leaves_no_entry(self, app, look, redis):
        @app.job
        def fine():
            pass

        kept = [fine.enqueue() for _ in range(4)][::2]
        worker = InlineWorker(app)
        worker.turn()
        flight = app.client.keys.in_flight(worker.worker.worker)
        for tag in (b"1.2.default", b"1.4.default"):  # as a rescuer does
            redis.hdel(flight, tag)
        worker.turn()

        assert sorted(jids(look.history().runs)) == sorted(kept)
        assert look.history_size() == (2, 0)
        assert look.stats().processed == look.stats().lost_claims == 2


class TestPages:
    def test_newest_first_over_both_logs(self, look, log):
        for number in range(30):
            log(f"j{number}", failed=number % 3 == 0)

        everything = [f"j{number}" for number in reversed(range(30))]
        assert jids(look.history().runs) == everything
        assert jids(look.history("failed").runs) == everything[2::3]
        assert jids(look.history("success").runs) == [
            jid for number, jid in enumerate(everything) if number % 3 != 2
        ]

    @pytest.mark.parametrize("limit", [1, 2, 7, 1000])
    @pytest.mark.parametrize("status", [None, "success", "failed"])
    def test_pages_join_without_a_gap_or_a_repetition(self, look, log, limit, status):
        for number in range(12):
            log(*(f"{number}.{index}" for index in range(5)), failed=number % 3 == 0)
        whole = look.history(status, limit=1000).runs

        assert pages(look, status=status, limit=limit) == whole
        assert len(whole) == {None: 60, "success": 40, "failed": 20}[status]
        assert [run.id for run in whole] == list(dict.fromkeys(run.id for run in whole))

    def test_many_in_one_millisecond(self, app, look, log, redis):
        keys = app.client.keys
        log("a", "b", "c")
        log("d", "e", failed=True)
        for name in (keys.logged_successes, keys.logged_failures):
            [(_, fields)] = redis.xrange(name)
            redis.delete(name)
            for number in (3, 6):
                redis.xadd(name, fields, id=f"1764763200000-{number}")
        look._kept_s = 1e10

        whole = look.history(limit=1000).runs
        assert len(whole) == 10
        for limit in (1, 3):
            assert pages(look, limit=limit) == whole

    def test_pages_do_not_shift_while_runs_are_logged(self, look, log):
        for number in range(10):
            log(f"old{number}", failed=number % 2 == 0)
        page = look.history(limit=4)
        seen = jids(page.runs)
        while page.before is not None:
            log("new", "new")
            log("new", failed=True)
            page = look.history(limit=4, before=page.before)
            seen += jids(page.runs)

        assert seen == [f"old{number}" for number in reversed(range(10))]

    def test_pages_go_on_when_what_they_point_at_was_trimmed(self, app, look, log, redis):
        for number in range(10):
            log(f"j{number}")
        page = look.history(limit=3)
        redis.xtrim(app.client.keys.logged_successes, maxlen=2, approximate=False)

        assert look.history(before=page.before) == ([], None)

    def test_filters(self, app, look, log):
        log("j1", "j2", name="mail", tags=["red", "x"])
        log("j2", name="mail", failed=True)
        log("j3", name="b", tags=["red"], args=["mail", "j2"])

        def found(**wanted):
            return [(run.jid, run.status) for run in pages(look, **wanted)]

        assert found(job="mail") == [("j2", "failed"), ("j2", "success"), ("j1", "success")]
        assert found(job=app.job(name="mail")(print)) == found(job="mail")
        assert found(jid="j2") == [("j2", "failed"), ("j2", "success")]
        assert found(tag="red") == [("j3", "success"), ("j2", "success"), ("j1", "success")]
        assert found(tag="red", job="mail", jid="j1") == [("j1", "success")]
        assert found(status="failed", tag="red") == found(job="nobody") == found(tag="re") == []

    def test_a_search_is_cut_short_and_goes_on(self, app, look, log, redis):
        log("wanted", name="rare")
        needle = redis.xrange(app.client.keys.logged_successes)[0][1][b"1"]
        crowd = b"[" + b",".join([needle[1:-1].replace(b"rare", b"crowd")] * 1000) + b"]"
        for _ in range(12):  # all of it must be decoded to see that it is not wanted
            redis.xadd(app.client.keys.logged_successes, {"1": crowd.replace(b'"queue"', b'"q"')})
        calls = 0
        found, before = [], None
        while True:
            page = look.history(jid="wanted", job="rare", tag=None, before=before)
            calls += 1
            found += page.runs
            if (before := page.before) is None:
                break

        assert jids(found) == ["wanted"]
        assert calls >= 1
        cut = look.history(jid="wanted", limit=1000)
        assert cut.before is not None
        assert len(pages(look, jid="wanted", limit=1000)) == 1
        assert MOST_DECODED < 12_000

    def test_what_is_damaged_is_a_row_and_no_broken_page(self, app, look, log, redis):
        log("before")
        keys = app.client.keys
        for fields in ({"1": "no JSON"}, {"1": '[{"jid":5},"x"]'}, {"x but": "1 y"}, {"1": ""}):
            redis.xadd(keys.logged_successes, fields)
        log("after")

        runs = look.history().runs
        assert [run.jid or run.raw for run in runs] == [
            *("after", b'"x"', b'{"jid":5}', b"no JSON", "before"),
        ]
        assert [run.outcome for run in runs[1:4]] == ["unreadable"] * 3
        assert jids(pages(look, job="mail")) == ["after", "before"]

    def test_what_is_too_old_is_not_shown(self, app, look, log, redis, settings):
        log("new")
        [(_, fields)] = redis.xrange(app.client.keys.logged_successes)
        redis.delete(app.client.keys.logged_successes)
        redis.xadd(app.client.keys.logged_successes, fields, id="1000-1")
        log("newer")

        assert jids(look.history().runs) == ["newer"]

    def test_an_empty_log(self, look):
        assert look.history() == ([], None)
        assert look.history_size() == (0, 0)

    def test_clearing_it(self, look, log, dump):
        log("a")
        log("b", failed=True)

        look.clear_history()
        look.clear_history()

        assert look.history_size() == (0, 0)
        log("c")
        assert look.history_size() == (1, 0)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"status": "done"}, {"limit": 0}, {"limit": 1001}, {"limit": True}, {"limit": "5"},
            {"before": "yesterday"}, {"before": 5},
        ],
    )  # fmt: skip
    def test_nonsense_is_refused(self, look, wrong):
        with pytest.raises(CogworkerError, match=next(iter(wrong))):
            look.history(**wrong)

    def test_reading_while_workers_write(self, app, look, log):
        """Every page is in order and without repetitions, at any moment."""
        stop = threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                log(*(f"{number}.{index}" for index in range(20)), failed=number % 5 == 0)
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(30):
                ids = [run.id for run in pages(look, limit=100)]
                assert len(set(ids)) == len(ids)
        finally:
            stop.set()
            writer.join()


class TestThroughput:
    @pytest.fixture(autouse=True)
    def _runs(self, app, worker):
        """Three successes and a failure."""

        @app.job(name="fine")
        def fine():
            pass

        @app.job(name="fails", retry=False)
        def fails():
            raise ValueError

        fine.enqueue_many([()] * 3)
        fails.enqueue()
        worker.work_off()

    def test_by_hour(self, look):
        rows = look.throughput(3)

        assert [row.start % 3600 for row in rows] == [0, 0, 0]
        assert rows[1].start - rows[0].start == 3600
        assert sum(row.processed for row in rows) == 3
        assert sum(row.failed for row in rows) == 1
        assert len(look.throughput()) == 24

    def test_by_minute(self, look):
        rows = look.throughput_by_minute(90)

        assert len(rows) == 90
        assert {b.start - a.start for a, b in pairwise(rows)} == {60}
        assert sum(row.processed for row in rows) == 3
        assert sum(row.failed for row in rows) == 1
        assert len(look.throughput_by_minute(1440)) == 1440

    def test_by_day(self, look):
        rows = look.runs_by_day(400)

        assert len(rows) == 400
        assert (rows[-1].day - rows[0].day).days == 399
        assert sum(row.processed for row in rows) == 3
        assert sum(row.failed for row in rows) == 1

    def test_by_class(self, look):
        fine, fails = look.job_classes()

        assert fine[:4] == ("fine", 3, 0, 0.0)
        assert fails[:4] == ("fails", 1, 1, 1.0)
        assert sum(fine.histogram) == 3
        assert 0 < fine.p50_s <= fine.p95_s <= fine.p99_s

    @pytest.mark.parametrize(
        ("ask", "wrong"),
        [
            ("throughput", 0), ("throughput", 25), ("throughput_by_minute", 1441),
            ("runs_by_day", 401), ("job_classes", 1.5), ("job_classes", -1),
        ],
    )  # fmt: skip
    def test_more_than_is_kept_is_refused(self, look, ask, wrong):
        with pytest.raises(CogworkerError, match="a whole number from 1 to"):
            getattr(look, ask)(wrong)

    def test_what_is_damaged_counts_nothing(self, app, look, redis):
        for key in redis.scan_iter(app.config.namespace.replace("{", "\\{") + ":throughput:*"):
            redis.set(key, "text")
        for key in redis.scan_iter(app.config.namespace.replace("{", "\\{") + ":runs:*"):
            redis.hset(key, "processed", "many")

        assert sum(row.processed for row in look.throughput()) == 0
        assert sum(row.processed for row in look.throughput_by_minute()) == 0
        assert sum(row.processed for row in look.runs_by_day()) == 0
        assert look.job_classes() == []


class TestAttempts:
    def test_each_failure_oldest_first_until_they_are_forgotten(self, app, look, worker, redis):
        @app.job(retry=RetryPolicy(max_retries=1, delay=(1000,)))
        def fails():
            raise ValueError("x" * 5000)

        jid = fails.enqueue()
        worker.work_off()
        everything_is_due(redis, app.client.keys)
        worker.promote()
        worker.work_off()
        redis.rpush(app.client.keys.attempts(jid), "no JSON")

        *failures, damaged = look.attempts(jid)
        assert [(each.attempt, each.outcome) for each in failures] == [(1, "retrying"), (2, "dead")]
        assert {each.error_class for each in failures} == {"ValueError"}
        assert {each.error_message for each in failures} == {"x" * 1000}
        assert abs(failures[1].failed_at - datetime.now(UTC).timestamp()) < 60
        assert damaged.outcome == "unreadable"
        assert look.attempts("nobody") == []
        look.clear_attempts(jid)
        look.clear_attempts(jid)
        assert look.attempts(jid) == []

    def test_the_last_25_are_kept(self, app, look, worker, redis):
        @app.job(retry=RetryPolicy(max_retries=30, delay=(1000,)))
        def fails():
            raise ValueError

        jid = fails.enqueue()
        for _ in range(28):
            worker.work_off()
            everything_is_due(redis, app.client.keys)
            worker.promote()

        assert [each.attempt for each in look.attempts(jid)] == list(range(4, 29))
