"""Periodic entries on a real server: firing, skipping, catching up, publishing, steering.

Time passes when a test says so (``clock``), but for the workers that really run.
"""

import logging
from datetime import UTC, datetime

import msgspec
import pytest

from cogworker import Cogworker, CogworkerError
from cogworker._worker.loops import ticker
from cogworker.inspector import Inspector

from support.flaky import Fault, FlakyConnector
from support.inline import InlineWorker
from support.processes import eventually

NOON = int(datetime(2100, 7, 15, 12, tzinfo=UTC).timestamp())
"""So far ahead that what is published then is new, whenever the tests run."""
MINUTE = 60


class Clock:
    """The server's clock, as tickers are told of it."""

    def __init__(self):
        self.now = NOON + 5.5

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def start(clock):
    """A worker that has looked for dead ones; it does not take jobs by itself."""

    def start(app, **options):
        worker = InlineWorker(app, **options)
        worker.ticker._server_time = clock
        worker.beat()
        worker.rescue()
        return worker

    return start


@pytest.fixture
def look(app):
    return Inspector(app)


@pytest.fixture
def ran(app):
    ran = []

    @app.job(name="note")
    def note(what="ran"):
        ran.append(what)

    return ran


def waiting(look, queue="default"):
    return [msgspec.json.decode(raw) for raw in look.waiting(queue)]


def fired(look, queue="default"):
    return [job["periodic_slot"] for job in waiting(look, queue)]


def pjid(app):
    [planned] = app.timetable.declared()
    return planned.pjid


def test_a_time_slot_fires_once_whoever_ticks(app, clock, start, look, ran):
    app.periodic("* * * * *", app.jobs["note"])
    workers = [start(app) for _ in range(3)]

    for _ in range(2):
        for worker in workers:
            worker.tick()
        clock.now += MINUTE
    clock.now -= MINUTE
    for worker in workers:
        worker.tick()

    assert fired(look) == [NOON, NOON + MINUTE]
    job = waiting(look)[0]
    assert job["periodic_pjid"] == pjid(app)
    assert (job["class"], job["args"], job["retry"]) == ("note", [], 25)
    workers[0].work_off()
    assert ran == ["ran"] * 2


def test_a_tick_sleeps_until_the_next_time_slot_of_any_entry(app, clock, start, ran):
    app.periodic("*/2 * * * *", app.jobs["note"])
    app.periodic(None, app.jobs["note"], every=10)
    worker = start(app)

    assert 4.4 <= worker.ticker.tick() <= 4.5 + ticker.SPREAD_S
    clock.now = NOON + 10
    assert 9.9 <= worker.ticker.tick() <= 10 + ticker.SPREAD_S


def test_a_tick_is_never_far_away(app, clock, start, ran):
    app.periodic("@yearly", app.jobs["note"])

    assert start(app).ticker.tick() <= ticker.LONGEST_PAUSE_S + ticker.SPREAD_S


def test_who_has_no_entries_asks_nothing(app, start, monkeypatch):
    worker = start(app)
    monkeypatch.setattr(worker.ticker, "_server_time", None)

    assert worker.ticker.tick() == ticker.LONGEST_PAUSE_S


def test_only_the_latest_missed_time_slot_fires(app, clock, start, look, ran):
    app.periodic("* * * * *", app.jobs["note"])
    start(app).tick()

    clock.now += 60 * MINUTE
    start(app).tick()

    assert fired(look) == [NOON, NOON + 60 * MINUTE]


@pytest.mark.parametrize(
    ("setting", "own", "first"), [(False, None, []), (True, False, []), (False, True, [NOON])]
)
def test_the_first_time_slot_ever(settings, clock, start, setting, own, first):
    app = Cogworker(**settings, periodic_catch_up=setting)

    @app.periodic("* * * * *", catch_up=own)
    def job():
        pass

    look = Inspector(app)
    start(app).tick()
    assert fired(look) == first

    clock.now += 60 * MINUTE
    start(app).tick()  # what is missed later is caught up

    assert fired(look) == [*first, NOON + 60 * MINUTE]
    app.close()


def test_a_run_that_is_not_over_has_the_next_ones_skipped(app, clock, start, look, ran):
    app.periodic("* * * * *", app.jobs["note"], unique="until_executed")
    worker = start(app)
    worker.tick()
    [first] = waiting(look)

    for _ in range(3):
        clock.now += MINUTE
        worker.tick()
    assert fired(look) == [NOON]
    [entry] = look.periodic()
    assert (entry.last_slot, entry.last_jid) == (NOON, first["jid"])
    assert (entry.last_skipped, entry.skipped_for) == (NOON + 3 * MINUTE, first["jid"])

    worker.work_off()
    worker.tick()
    start(app).tick()
    assert fired(look) == [], "a time slot that was skipped stays so"
    clock.now += MINUTE
    worker.tick()
    assert fired(look) == [NOON + 4 * MINUTE]


def test_without_unique_runs_may_pile_up(app, clock, start, look, ran):
    app.periodic("* * * * *", app.jobs["note"])
    worker = start(app)

    for _ in range(3):
        worker.tick()
        clock.now += MINUTE

    assert len(fired(look)) == 3


def test_the_lock_is_the_entry_s_and_not_the_job_s(app, clock, start, look, ran):
    app.periodic("* * * * *", app.jobs["note"], unique="until_executed", args=["a"])
    app.periodic("* * * * *", app.jobs["note"], unique="until_executed", args=["b"])
    worker = start(app)

    worker.tick()
    app.jobs["note"].enqueue("a")

    assert [job["args"] for job in waiting(look)] == [["a"], ["b"], ["a"]]


def test_a_disabled_entry_fires_nothing_and_keeps_its_last_run(app, clock, start, look, ran):
    app.periodic("* * * * *", app.jobs["note"], name="minutely")
    worker = start(app)
    worker.tick()

    assert look.disable_periodic("minutely", by="ada")
    assert not look.disable_periodic(pjid(app), by="bob")
    for _ in range(3):
        clock.now += MINUTE
        worker.tick()
        start(app).tick()

    [entry] = look.periodic()
    assert fired(look) == [NOON]
    assert (entry.last_slot, entry.disabled.by) == (NOON, "ada")


def test_an_entry_that_is_enabled_fires_from_its_next_time_slot_on(app, look, redis, ran):
    app.periodic(None, app.jobs["note"], every=1_000_000_000)  # its next one is in 2033
    slots = app.client.keys.periodic_slots
    worker = InlineWorker(app)
    worker.beat()
    worker.rescue()
    worker.tick()
    assert fired(look) == [1_000_000_000]
    look.disable_periodic(pjid(app))
    redis.hset(slots, pjid(app), 5)  # as if others had come up meanwhile

    assert look.enable_periodic(pjid(app))
    assert not look.enable_periodic(pjid(app))
    fresh = InlineWorker(app)
    fresh.beat()
    fresh.rescue()
    fresh.tick()

    assert fired(look) == [1_000_000_000]
    assert redis.hget(slots, pjid(app)) == b"1000000000"


def test_an_entry_can_be_run_now_with_its_lock(app, clock, start, look, ran):
    app.periodic("@yearly", app.jobs["note"], unique="until_executed", args=["x"], name="yearly")
    worker = start(app)
    worker.tick()
    worker.work_off()
    look.disable_periodic("yearly")

    new = look.run_periodic_now("yearly", by="ada")
    assert new.held_by is None
    assert look.run_periodic_now(pjid(app)) == (None, new.jid)

    [job] = waiting(look)
    assert (job["jid"], job["periodic_by"], job["args"]) == (new.jid, "ada", ["x"])
    assert "periodic_slot" not in job
    worker.work_off()
    assert ran == ["x", "x"]
    assert look.run_periodic_now("yearly").jid


def test_a_run_now_expires_as_the_job_says(app, clock, start, look, ran):
    @app.periodic("@yearly", name="brief")
    @app.job(name="brief", expires_in=60)
    def brief():
        pass

    worker = start(app)
    worker.tick()
    look.run_periodic_now("brief")

    fired_by_time, by_hand = (job["expires_at"] - job["enqueued_at"] for job in waiting(look))
    assert fired_by_time == pytest.approx(60, abs=1)
    assert by_hand == pytest.approx(60, abs=1)


def test_an_inspector_needs_nothing_of_the_application(app, settings, clock, start, ran):
    app.periodic("0 3 * * *", app.jobs["note"], timezone="Europe/Berlin", args=[2**70], name="n")
    start(app).tick()
    other = Cogworker(**settings)
    look = Inspector(other)

    [entry] = look.periodic()
    assert entry[1:9] == ("n", "note", "0 3 * * *", "Europe/Berlin", [2**70], {}, "default", None)
    assert datetime.fromtimestamp(entry.next_slot, UTC).minute == 0
    assert look.run_periodic_now("n").jid
    assert waiting(look)[-1]["args"] == [2**70]
    other.close()


def test_names_that_are_no_entry_s_or_several_s_are_refused(app, settings, clock, start, look, ran):
    app.periodic("@yearly", app.jobs["note"], name="both")
    app.periodic("@daily", app.jobs["note"], name="both")
    app.periodic("@hourly", app.jobs["note"])
    start(app).tick()

    for call in (look.disable_periodic, look.enable_periodic, look.run_periodic_now):
        with pytest.raises(CogworkerError, match=r"no worker has published a periodic entry 'x'"):
            call("x")
        with pytest.raises(CogworkerError, match=r"no worker has published a periodic entry ''"):
            call("")
        with pytest.raises(CogworkerError, match=r"2 periodic entries are called 'both'"):
            call("both")


# Publishing.


def test_an_entry_that_no_worker_has_disappears_while_workers_live(app, redis, start, look, ran):
    app.periodic("@yearly", app.jobs["note"])
    worker = InlineWorker(app)
    worker.beat()
    worker.rescue()
    worker.tick()
    [entry] = look.periodic()
    assert entry.registered_by == worker.worker.worker
    keys = app.client.keys
    look.disable_periodic(entry.pjid)

    redis.hset(keys.periodic_seen, entry.pjid, f"{entry.registered_at - 1000:.3f} x")
    assert look.periodic() == []

    redis.zincrby(keys.workers, -1000, worker.worker.worker)  # all are down
    [entry] = look.periodic()
    assert entry.disabled

    redis.zincrby(keys.workers, 1000, worker.worker.worker)
    worker.ticker._board._publish_at = 0.0  # a minute later
    worker.tick()
    [entry] = look.periodic()
    assert entry.disabled, "that survives a deploy"


def test_what_was_kept_of_an_entry_goes_after_three_months(app, redis, clock, start, dump, ran):
    app.periodic("@yearly", app.jobs["note"])
    start(app).tick()
    keys = app.client.keys
    for name in ("entries", "seen", "slots", "runs", "skips"):
        for age_days, entry in ((89, "young"), (91, "old")):
            then = clock.now - age_days * 86400
            redis.hset(getattr(keys, f"periodic_{name}"), entry, f"{then:.3f} x")

    start(app).tick()

    for name in ("entries", "seen", "slots", "runs", "skips"):
        assert b"young" in dump()[f"periodic:{name}"]
        assert b"old" not in dump()[f"periodic:{name}"]


def test_what_can_t_be_read_is_left_out(app, redis, clock, start, look, ran):
    app.periodic("@yearly", app.jobs["note"])
    start(app).tick()
    keys, at = app.client.keys, f"{clock.now:.3f} x"
    for pjid_, raw in {
        "junk": b"\xff", "list": b"[]", "line": b'{"cron":"61 * * * *"}', "no line": b"{}",
        "every": b'{"cron":"@every x"}',
    }.items():  # fmt: skip
        redis.hset(keys.periodic_entries, pjid_, raw)
        redis.hset(keys.periodic_seen, pjid_, at)
        redis.hset(keys.periodic_runs, pjid_, "junk")

    found = {entry.pjid: entry.next_slot for entry in look.periodic()}

    assert set(found) == {pjid(app), "line", "no line", "every"}
    assert found["line"] is found["no line"] is found["every"] is None
    with pytest.raises(CogworkerError, match="can't be read"):
        look.run_periodic_now("junk")
    assert not look.enable_periodic("junk")


def test_a_failed_publish_stops_no_tick(app, redis, clock, start, look, ran, caplog):
    app.periodic("* * * * *", app.jobs["note"])
    redis.set(app.client.keys.periodic_entries, "not a hash")

    start(app).tick()

    assert fired(look) == [NOON]
    assert "can't publish the periodic entries" in caplog.text


# What goes wrong.


def test_an_entry_that_can_t_be_pushed_does_not_stand_before_others(
    settings, clock, start, redis, caplog
):
    app = Cogworker(**settings, max_payload_bytes=1000)
    look = Inspector(app)

    @app.periodic("* * * * *", args=["x" * 2000], name="large")
    @app.periodic("* * * * *", queue="damaged", args=["d"], name="damaged")
    @app.periodic("* * * * *", args=["good"])
    def job(what):
        pass

    redis.set(app.client.keys.queue("damaged"), "not a list")
    worker = start(app)
    for seconds in (0, 4, 2, 8, 3):  # tried at 0, 5, 15
        clock.now += seconds
        worker.tick()

    assert fired(look) == [NOON]
    assert caplog.text.count("can't fire, trying again in 5 s: entry=large") == 1
    assert caplog.text.count("can't fire, trying again in 10 s: entry=damaged") == 1
    redis.delete(app.client.keys.queue("damaged"))
    clock.now += 300
    worker.tick()
    assert len(fired(look, "damaged")) == 1
    app.close()


def test_damaged_slots_fire_nothing_until_they_are_moved_aside(app, redis, clock, start, look, ran):
    app.periodic("* * * * *", app.jobs["note"])
    redis.set(app.client.keys.periodic_slots, "not a hash")
    worker = start(app)

    worker.tick()
    assert fired(look) == []
    worker.check_keys()
    clock.now += 5
    worker.tick()

    assert fired(look) == [NOON]


def test_a_worker_fires_nothing_before_it_has_looked_for_dead_ones(app, clock, look, ran):
    app.periodic("* * * * *", app.jobs["note"], unique="until_executed")
    worker = InlineWorker(app)
    worker.ticker._server_time = clock
    worker.beat()

    assert worker.ticker.tick() == ticker.WAITING_PAUSE_S
    assert fired(look) == []
    worker.rescue()
    worker.tick()
    assert fired(look) == [NOON]


def test_a_quiet_worker_fires_nothing_and_catches_up(app, clock, start, look, ran):
    app.periodic("* * * * *", app.jobs["note"])
    worker = start(app)
    worker.ticker.pause(True)
    worker.tick()
    assert fired(look) == []
    assert len(look.periodic()) == 1, "it goes on publishing"

    clock.now += 10 * MINUTE
    worker.ticker.pause(False)
    worker.tick()

    assert fired(look) == [NOON + 10 * MINUTE]


def test_a_clock_that_was_far_ahead_is_told_of(app, clock, start, look, ran, caplog):
    app.periodic("* * * * *", app.jobs["note"], name="minutely")
    clock.now += 86400
    start(app).tick()
    clock.now -= 86400

    start(app).tick()

    assert len(fired(look)) == 1
    assert "fires no time slot before one far ahead: entry=minutely" in caplog.text


def test_what_is_declared_while_a_worker_runs_is_fired(app, clock, start, look, ran):
    worker = start(app)
    worker.tick()

    app.periodic("* * * * *", app.jobs["note"])
    worker.tick()

    assert fired(look) == [NOON]


def test_many_entries_go_in_several_calls(app, clock, start, look, ran, monkeypatch):
    monkeypatch.setattr(ticker, "MOST_CLAIMS_A_CALL", 3)
    for number in range(10):
        app.periodic("* * * * *", app.jobs["note"], args=[number])

    start(app).tick()

    assert sorted(job["args"] for job in waiting(look)) == [[number] for number in range(10)]


def test_thousands_of_entries_are_published_by_one_worker(app, clock, start, look, ran):
    for number in range(5_001):
        app.periodic(every=3600, args=[number])(app.jobs["note"])

    start(app).tick()

    assert len(look.periodic()) == 5_001


@pytest.mark.parametrize("call", range(1, 4))
def test_a_lost_reply_makes_no_claim_another_s(app, clock, start, look, ran, caplog, call):
    caplog.set_level(logging.DEBUG)
    fault = Fault()
    app.client.runner.connector = FlakyConnector(app.config, fault)
    app.periodic("* * * * *", app.jobs["note"], unique="until_executed", name="minutely")
    worker = start(app)
    fault.arm(call, "loses reply")

    worker.tick()

    assert fault.count >= call, "there are fewer calls than that"
    assert fired(look) == [NOON]
    assert caplog.text.count(f"fired: entry=minutely slot={NOON} jid=") == 1
    assert "skipped" not in caplog.text


def test_who_is_woken_by_a_resume_finds_that_it_may_fire(app, start, ran, monkeypatch):
    app.periodic("* * * * *", app.jobs["note"])
    ticker = start(app).ticker
    woken = []
    monkeypatch.setattr(ticker, "poke", lambda: woken.append(ticker._paused))

    ticker.pause(True)
    ticker.pause(False)
    ticker.pause(False)

    assert woken == [False]


def test_firing_and_skipping_are_logged(app, clock, start, ran, caplog):
    caplog.set_level(logging.DEBUG)
    app.periodic("* * * * *", app.jobs["note"], unique="until_executed", name="minutely")
    worker = start(app)
    worker.tick()
    clock.now += MINUTE
    worker.tick()

    assert f"fired: entry=minutely slot={NOON} jid=" in caplog.text
    assert f"skipped: entry=minutely slot={NOON + MINUTE} held_by=" in caplog.text


# Real workers, on the real clock.


def test_a_worker_fires_on_time_and_runs_what_it_fires(app, ran):
    app.periodic("* * * * * *", app.jobs["note"])  # every second
    with app.worker():
        eventually(lambda: len(ran) >= 3)


def test_entries_of_the_file_are_fired(workers):
    workers.write("@cog.job\ndef greet(name):\n    print('hello', name, flush=True)\n")
    (workers.folder / "cogworker.yml").write_text(
        "periodic:\n  - {every: 1, job: tasks.greet, args: [ada]}\n"
    )

    worker = workers.start("-C", "cogworker.yml")

    worker.wait_for("hello ada", times=2)
    assert worker.stop() == 0


@pytest.mark.parametrize("command", ["worker", "swarm"])
def test_an_entry_of_an_unknown_job_is_told_at_boot(workers, command):
    workers.write("")
    (workers.folder / "cogworker.yml").write_text(
        "periodic:\n  - {every: 1, job: tasks.greet, name: minutely}\n"
    )

    started = workers.run(command, "-r", "tasks:cog", "-C", "cogworker.yml")

    assert eventually(lambda: started.process.poll() is not None)
    assert started.process.returncode != 0
    assert "periodic: minutely: no job is named 'tasks.greet' here" in started.log
    assert "Traceback" not in started.log


def test_a_bad_line_in_the_code_is_told_at_boot(workers):
    workers.write("@cog.periodic('0 0 31 2 *', name='leap')\ndef job():\n    pass\n")

    started = workers.run("worker", "-r", "tasks:cog")

    assert eventually(lambda: started.process.poll() is not None)
    assert "DeclarationError: periodic entry leap: the cron line '0 0 31 2 *'" in started.log
