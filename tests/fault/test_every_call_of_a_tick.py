"""Every single call fails in a life with periodic entries: each time slot fires once all the same.

The life, at three time slots: a worker fires and dies with what it took; the next one rescues
that, fires, runs and promotes. ``plain`` fires at each time slot; ``alone`` may be there once at a
time; ``fails``, too, and each of its jobs fails once and waits for its retry.
Whoever dies is followed by a healthy worker at the same time slot.
"""

import json
from collections import Counter, defaultdict

import pytest

from cogworker import Cogworker, current_job
from cogworker.retry import RetryPolicy

from support.dump import ANSWERS
from support.flaky import FULL, MODES, Death, Fault, FlakyConnector
from support.inline import InlineWorker
from support.throughput import pop_throughput
from support.times import all_workers_are_dead, everything_is_due

SLOTS = (60_000, 60_060, 60_120)
UNIQUE = ("alone", "fails")


class Ledger:
    """What the test knows without looking into Redis."""

    def __init__(self):
        self.runs = Counter()
        self.jobs = defaultdict(set)
        self.slot = 0

    def note(self, worker):
        """Which jobs a worker has taken, by entry and time slot."""
        for delivery in worker.started:
            job = json.loads(delivery.payload)
            self.jobs[job["class"], job["periodic_slot"]].add(job["jid"])


def make_app(settings, fault, ledger):
    app = Cogworker(**settings)
    app.client.runner.connector = FlakyConnector(app.config, fault)

    def run():
        ledger.runs[current_job().jid] += 1

    @app.periodic(every=60)
    @app.job(name="plain")
    def plain():
        run()

    @app.periodic(every=60, unique="until_executed")
    @app.job(name="alone")
    def alone():
        run()

    @app.periodic(every=60, unique="until_executed")
    @app.job(name="fails", retry=RetryPolicy(3, delay=(1000,)))
    def fails():
        run()
        if current_job().attempt == 1:
            raise ValueError("the first time")

    return app


def live(app, redis, ledger, dump):
    """A whole life, or what is left of it; the first time slot's worker dies with what it took."""
    for slot in SLOTS[SLOTS.index(ledger.slot) if ledger.slot else 0 :]:
        ledger.slot = slot
        work(app, redis, ledger, dump, dies=slot == SLOTS[0])


def work(app, redis, ledger, dump, *, dies):
    worker = InlineWorker(app, run_jobs=False)
    worker.ticker._server_time = lambda: ledger.slot + 1.5
    keys = app.client.keys
    try:
        worker.beat()
        worker.rescue()
        worker.tick()
        check_alone(dump())
        worker.turn()
        if dies:
            return
        for _ in range(2):
            run_all(worker)
            worker.tick()  # the slot is decided, whatever the locks say now
            check_alone(dump())
            everything_is_due(redis, keys)
            worker.promote()
            worker.turn()
        run_all(worker)
        worker.leave()
    finally:
        ledger.note(worker)
        check_alone(dump())
        all_workers_are_dead(redis, keys)


def run_all(worker):
    begun = 0
    while begun < len(worker.started) or worker.dispatcher.held:
        for delivery in worker.started[begun:]:
            begun += 1
            if not delivery.begun:
                worker.perform(delivery)
        worker.turn()


def check_alone(left):
    """Of an entry that may be there once, there is one job at most, wherever it lies."""
    payloads = [
        *left.get("queue:default", ()),
        *left.get("retry", ()),
        *(raw for key, held in left.items() if key.endswith(":in_flight") for raw in held.values()),
    ]
    jobs = [json.loads(raw) for raw in payloads if raw.startswith(b"{")]
    for name in UNIQUE:
        assert len({job["jid"] for job in jobs if job["class"] == name}) <= 1, name


def check_books(left, ledger, *, died):
    rest = {
        key: value
        for key, value in left.items()
        if not key.startswith(ANSWERS) and not (key.endswith(":in_flight") and len(value) == 1)
    }
    for (name, slot), jids in ledger.jobs.items():
        assert len(jids) == 1, f"{name} has fired {len(jids)} times at {slot}"
    fired = Counter(name for name, _ in ledger.jobs)
    assert fired["plain"] == len(SLOTS), "a time slot was lost"
    assert fired["alone"] >= 2
    assert fired["fails"] >= 1
    jids = {jid for found in ledger.jobs.values() for jid in found}
    assert set(ledger.runs) == jids, "a job was lost"

    failures = fired["fails"]
    assert int(rest.pop("stats:processed")) == len(jids)
    assert int(rest.pop("stats:failed")) == failures
    assert pop_throughput(rest) == Counter(processed=len(jids), failed=failures)
    for key in [key for key in rest if key.startswith("attempts:")]:
        assert len(rest.pop(key)) == 1
        failures -= 1
    assert failures == 0
    check_slots(rest, ledger)
    assert rest.pop("queues") == {b"default"}
    assert rest == {}, "a lock, say, was left behind"
    if not died:
        fails = {
            jid for (name, _), found in ledger.jobs.items() if name == "fails" for jid in found
        }
        assert ledger.runs == {jid: 2 if jid in fails else 1 for jid in jids}


def check_slots(rest, ledger):
    """The last time slot was decided for all, and what is told of the last runs is so."""
    assert set(rest.pop("periodic:slots").values()) == {b"%d" % SLOTS[-1]}
    assert len(rest.pop("periodic:entries")) == len(rest.pop("periodic:seen")) == 3
    told = {tuple(note.decode().split()) for note in rest.pop("periodic:runs").values()}
    last = {
        name: max(slot for each, slot in ledger.jobs if each == name) for name, _ in ledger.jobs
    }
    assert told == {(str(slot), *ledger.jobs[name, slot]) for name, slot in last.items()}
    rest.pop("periodic:skips", None)


def test_a_life_without_faults_balances(settings, redis, dump):
    ledger = Ledger()

    live(make_app(settings, Fault(), ledger), redis, ledger, dump)

    check_books(dump(), ledger, died=False)
    assert Counter(name for name, _ in ledger.jobs) == {"plain": 3, "alone": 2, "fails": 2}


@pytest.mark.parametrize("mode", MODES)
def test_a_life_balances_whichever_call_fails(mode, settings, redis, dump):
    for at in range(1, count_calls(settings, redis, dump) + 1):
        clear(settings, redis)
        ledger, died = Ledger(), False
        try:
            live(make_app(settings, Fault(at, mode), ledger), redis, ledger, dump)
        except Death:
            died = True
            live(make_app(settings, Fault(), ledger), redis, ledger, dump)
        assert died == mode.startswith("dies")
        try:
            check_books(dump(), ledger, died=died)
        except AssertionError as error:
            raise AssertionError(f"call {at} {mode}: {error}") from error


def test_a_life_balances_whichever_call_finds_the_server_full(settings, redis, dump):
    for at in range(1, count_calls(settings, redis, dump) + 1):
        clear(settings, redis)
        ledger = Ledger()
        live(make_app(settings, Fault(at, FULL, redis), ledger), redis, ledger, dump)
        try:
            check_books(dump(), ledger, died=False)
        except AssertionError as error:
            raise AssertionError(f"call {at} {FULL}: {error}") from error


def count_calls(settings, redis, dump):
    clean, ledger = Fault(), Ledger()
    live(make_app(settings, clean, ledger), redis, ledger, dump)
    assert clean.count > 20
    return clean.count


def clear(settings, redis):
    for key in redis.scan_iter(settings["namespace"].replace("{", "\\{") + "*"):
        redis.delete(key)
