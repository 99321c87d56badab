"""Unique jobs through every fault: locks are exact, and a worker that wakes lets go.

The life, for each mode: jobs are pushed (one, a duplicate, many, scheduled); one is held by a
worker that dies, and rescued; one fails and is retried; one dies; one must wait for its like. Each
call of it fails in four ways. In the end each job has run, and no lock is left.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field

import pytest

from cogworker import Cogworker, current_job
from cogworker.features.unique import MODES
from cogworker.inspector import Inspector
from cogworker.retry import RetryPolicy

from support.dump import ANSWERS
from support.flaky import MODES as FAULTS
from support.flaky import Fault, FlakyConnector
from support.inline import InlineWorker
from support.lives import Life
from support.processes import eventually, lines
from support.swarms import QUICK
from support.throughput import pop_throughput
from support.times import all_workers_are_dead, everything_is_due


@dataclass
class Ledger:
    """What the test knows without looking into Redis."""

    runs: Counter = field(default_factory=Counter)
    pushed: Counter = field(default_factory=Counter)
    refused: list = field(default_factory=list)


def make_app(settings, fault, ledger, mode):
    app = Cogworker(**settings)
    app.client.runner.connector = FlakyConnector(app.config, fault)

    @app.job(name="job", unique=mode, retry=RetryPolicy(1, delay=(1000,)))
    def job(label):
        ledger.runs[label] += 1
        if label == "again" and current_job().attempt == 1:
            raise ValueError("the first time")
        if label == "dead":
            raise ValueError("always")

    return app


def live(app, redis, ledger):
    """A whole life, in one process after another."""
    job = app.jobs["job"]

    def push(label):
        ledger.pushed[label] += job.enqueue(label) is not None

    push("held")
    doomed = InlineWorker(app, run_jobs=False)
    doomed.beat()
    doomed.turn()
    doomed.turn()
    doomed.keep()
    push("held")
    all_workers_are_dead(redis, app.client.keys)

    for label in ("one", "one", "again", "dead"):
        push(label)
    jids = job.enqueue_many([("many",), ("many",), ("others",)])
    ledger.pushed.update(
        label
        for label, jid in zip(("many", "many", "others"), jids, strict=True)
        if jid is not None
    )
    ledger.pushed["later"] += job.enqueue_in(1000, "later") is not None
    finish(app, redis)


def finish(app, redis):
    """A healthy worker from its start to its end, with all the time in the world."""
    worker = InlineWorker(app)
    worker.beat()
    worker.rescue()
    for _ in range(3):  # what fails is tried again, what was refused, too
        worker.work_off()
        worker.keep()
        everything_is_due(redis, app.client.keys)
        worker.promote()
    worker.work_off()
    worker.leave()


def check_books(dump, ledger, mode, *, died):
    rest = {
        key: value
        for key, value in dump().items()
        # A dead worker's fence stays for an hour.
        if not key.startswith(ANSWERS) and not (key.endswith(":in_flight") and len(value) == 1)
    }
    assert not [key for key in rest if key.startswith("unique:")], "a lock is left over"
    doubtful = ledger.runs.keys() - ledger.pushed.keys()
    assert len(doubtful) <= 2, "only the push that was cut off may be in doubt"
    for label, pushes in ledger.pushed.items():
        assert bool(ledger.runs[label]) == bool(pushes), f"{label} was lost"
    dead = rest.pop("dead", {})
    assert len(dead) == (ledger.runs["dead"] > 0)
    failures = Counter(again=1, dead=2)
    failed = sum(failures[label] for label in failures if ledger.runs[label])
    assert int(rest.pop("stats:failed", 0)) == failed
    processed = int(rest.pop("stats:processed", 0))
    assert pop_throughput(rest) == Counter(processed=processed, failed=failed)
    for key in [key for key in rest if key.startswith("attempts:")]:
        del rest[key]
    assert rest.pop("queues", {b"default"}) == {b"default"}
    assert rest == {}
    if not died:
        twice = mode == "while_executing"  # there may be two in the queue
        freed = mode == "until_executing"  # or one, and another that runs
        assert ledger.pushed == Counter(
            held=2 if twice or freed else 1, one=1 + twice, again=1, dead=1,
            many=1 + twice, others=1, later=1,
        )  # fmt: skip
        expected = ledger.pushed + Counter(again=1, dead=1)
        assert ledger.runs == expected, "nobody died, so nothing may run twice"
        assert processed == expected.total() - failed


def life(mode):
    return Life(
        Ledger,
        lambda settings, fault, ledger: make_app(settings, fault, ledger, mode),
        live,
        finish,
        lambda dump, ledger, *, died: check_books(dump, ledger, mode, died=died),
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_life_without_faults_balances(mode, settings, redis, dump):
    ledger = Ledger()

    live(make_app(settings, Fault(), ledger, mode), redis, ledger)

    check_books(dump, ledger, mode, died=False)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mode", MODES)
def test_a_life_balances_whichever_call_fails(mode, fault, settings, redis, dump):
    life(mode).balances_whichever_call_fails(fault, settings, redis, dump)


PRODUCER = """
import sys, threading
from tasks import cog, job
jids = []
def produce(number):
    jids.extend(job.enqueue() for _ in range(number))
count, calls = map(int, sys.argv[1:])
threads = [threading.Thread(target=produce, args=(calls,)) for _ in range(count)]
sys.stdin.read()
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(jids), *filter(None, jids))
"""


@pytest.mark.long
def test_of_ten_thousand_enqueues_at_the_same_time_one_gets_a_jid(workers, settings, app):
    workers.write("@cog.job(unique='until_executed', on_duplicate='skip')\ndef job(): pass\n")
    processes, threads, calls = 5, 4, 500
    environment = {f"COGWORKER_{name.upper()}": value for name, value in settings.items()}
    producers = [
        subprocess.Popen(
            [sys.executable, "-c", PRODUCER, str(threads), str(calls)],
            cwd=workers.folder, env={**os.environ, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(processes)
    ]  # fmt: skip
    for producer in producers:
        producer.stdin.close()
    answers = [producer.stdout.read().split() for producer in producers]
    for producer in producers:
        assert producer.wait() == 0
        producer.stdout.close()

    assert sum(int(count) for count, *_ in answers) == 10_000
    [jid] = [jid for _, *jids in answers for jid in jids]
    look = Inspector(app)
    assert look.stats().enqueued == 1
    assert [lock.holder for lock in look.locks()] == [jid]
    payload = {"class": "tasks.job", "unique": "until_executed"}
    assert app.push(payload) is None


HOLDING = """
import asyncio, os, pathlib, time
from cogworker import JobInterrupted
here = pathlib.Path({folder!r})
def note(text):
    with open(here / "ran", "a") as file:
        file.write(f"{{text}} {{os.getpid()}}\\n")
@cog.job(unique="while_executing")
def job():
    note("begins")
    try:
        while (here / "hold").exists():
            time.sleep(0.01)
    except JobInterrupted:
        note("interrupted")
        raise
    note("ends")
@cog.job
async def coroutine():
    note("begins")
    try:
        while (here / "hold").exists():
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        note("interrupted")
        raise
    note("ends")
@cog.job(at_most_once=True)
def once():
    job.function()
@cog.job(unique="until_executed")
def tries():
    until = time.monotonic() + 4
    while time.monotonic() < until:
        time.sleep(0.01)
        if tries.enqueue() is not None:
            note("a second one")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fields"),
    [("job", {"unique": "while_executing"}), ("coroutine", {}), ("once", {"at_most_once": True})],
)
def test_a_frozen_worker_that_wakes_interrupts_what_has_been_rescued(
    workers, tmp_path, push, look, name, fields
):
    workers.write(HOLDING.format(folder=str(tmp_path)))
    (tmp_path / "hold").touch()
    frozen = workers.start(**QUICK)
    jid = push(name, **fields)
    eventually(lambda: lines(tmp_path / "ran"))
    frozen.freeze()
    other = workers.start(**QUICK)
    other.wait_for("rescued: jobs=")
    again = name != "once"
    if again:
        eventually(lambda: len(lines(tmp_path / "ran")) == 2)

    frozen.signal(signal.SIGCONT)
    frozen.wait_for("interrupting, the job was rescued while this worker was away: jid=" + jid)
    frozen.wait_for("lost claim")
    eventually(lambda: f"interrupted {frozen.pid}" in lines(tmp_path / "ran"))

    assert look.stats().lost_claims == 1
    assert [lock.holder for lock in look.locks()] == ([jid] if name == "job" else [])
    (tmp_path / "hold").unlink()
    eventually(lambda: look.stats().processed == again)
    assert f"ends {frozen.pid}" not in lines(tmp_path / "ran")
    assert "given back" not in frozen.log
    assert "moved to dead" not in frozen.log
    push("coroutine")  # it goes on working
    other.signal(signal.SIGTSTP)
    eventually(lambda: look.stats().processed == again + 1)
    assert look.stats().dead == (not again)
    assert list(look.locks()) == []
    assert frozen.stop() == other.stop() == 0


@pytest.mark.long
def test_a_run_that_takes_longer_than_the_expiry_keeps_its_lock(workers, tmp_path, push, look):
    """It tries to enqueue itself all the time."""
    workers.write(HOLDING.format(folder=str(tmp_path)))
    quick = {"heartbeat_interval": 0.1, "orphan_threshold": 1, "orphan_check_interval": 0.1}
    worker = workers.start(**quick, unique_lock_ttl=2)

    push("tries", unique="until_executed")
    eventually(lambda: look.stats().processed == 1)

    assert lines(tmp_path / "ran") == []
    assert list(look.locks()) == []
    assert worker.stop() == 0
