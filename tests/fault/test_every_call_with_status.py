"""With every feature on, each call of a life fails, and statuses, ends and results stay exact.

The life: jobs are pushed and run; one fails, is retried and succeeds; one goes to dead, is revived
and dies again; one discards itself, one waits until later, one is deleted; one runs, and has told
of it, while its worker is frozen: it is rescued, done elsewhere, and ends too late.
"""

import json
import threading
from collections import Counter
from dataclasses import dataclass, field

import pytest

from cogworker import Cogworker, Discard, current_job
from cogworker._worker import notes
from cogworker.inspector import Inspector
from cogworker.retry import RetryPolicy

from support.flaky import MODES, Fault, FlakyConnector
from support.inline import InlineWorker
from support.lives import Life
from support.times import all_workers_are_dead, everything_is_due

ALL = {"status": 1000, "unique": "until_executed", "history": True, "tags": ["tag"]}


@dataclass
class Ledger:
    """What the test knows without looking into Redis. ``results``: of the runs that were over."""

    jids: dict[str, str] = field(default_factory=dict)
    runs: Counter = field(default_factory=Counter)
    refused: list = field(default_factory=list)
    app: Cogworker | None = None


@pytest.fixture(autouse=True)
def _notes_go_with_the_next_turn(monkeypatch):
    monkeypatch.setattr(notes, "SOON_S", 0.0)
    monkeypatch.setattr(notes, "PAUSE_S", 0.0)


def make_app(settings, fault, ledger):
    ledger.app = app = Cogworker(**settings)
    app.client.runner.connector = FlakyConnector(app.config, fault)
    app.gate = threading.Event()
    app.gate.set()

    @app.job(name="job", retry=RetryPolicy(max_retries=1, delay=(1000,)), **ALL)
    def job(label):
        ledger.runs[label] += 1
        run = ledger.runs[label]
        current_job().at(50, label)
        current_job().store(label=label)
        if label == "frozen" and run == 1:
            app.gate.wait(60)
        if label == "dead" or (label == "again" and current_job().attempt == 1):
            raise ValueError(label)
        if label == "discards":
            raise Discard("it is not wanted")
        return run

    return app


def live(app, redis, ledger):
    """A whole life, in one process after another."""
    job, look = app.jobs["job"], Inspector(app)

    def push(label, when_s=0):
        jid = job.enqueue_in(when_s, label) if when_s else job.enqueue(label)
        ledger.jids[label] = jid

    app.gate.clear()
    push("frozen")
    frozen = InlineWorker(app, run_jobs=False)
    frozen.beat()
    frozen.turn()
    thread = threading.Thread(target=lambda: [frozen.perform(each) for each in frozen.started])
    thread.start()
    try:
        while not ledger.runs["frozen"] or app.status(ledger.jids["frozen"]).pct != 50:
            frozen.turn()
        all_workers_are_dead(redis, app.client.keys)
        for label in ("one", "again", "dead", "discards", "deleted"):
            push(label)
        push("later", 1000)
        look.jobs_in("default").delete(ledger.jids["deleted"])
        finish(app, redis)
        look.jobs("dead").revive(ledger.jids["dead"])
        finish(app, redis)
    finally:
        app.gate.set()
        thread.join(60)
    frozen.turn()
    frozen.turn()


def finish(app, redis):
    """A healthy worker from its start to its end, with all the time in the world."""
    worker = InlineWorker(app)
    worker.beat()
    worker.rescue()
    worker.work_off()
    worker.keep()
    everything_is_due(redis, app.client.keys)
    worker.promote()
    worker.work_off()
    worker.leave()


ENDS = {  # state, result, and the error that the status tells of
    "frozen": ("complete", 2, None),
    "one": ("complete", 1, None),
    "again": ("complete", 2, None),
    "dead": ("failed", None, "ValueError"),
    "discards": ("cancelled", None, "cogworker.errors.Discard"),
    "later": ("complete", 1, None),
}


def check_books(dump, ledger, *, died):
    """Each job that is known has its last state; each end was told once; no lock is left."""
    keys = dump()
    look = Inspector(ledger.app)
    ends = Counter(jid for entry in keys.get("status_ends", ()) for jid in ends_of(entry))
    assert not [key for key in keys if key.startswith("unique:")], "a lock is left over"
    for label, (state, result, error) in ENDS.items():
        jid = ledger.jids.get(label)
        if jid is None:
            continue  # the push that was cut off, and what would have come after it
        status = ledger.app.status(jid)
        assert status.state == state, label
        assert died or status.result == result, label
        assert status.fields == {"label": label}
        assert (status.pct, status.message) == (50, label), label
        assert status.error_class == error, label
        told = 2 if label == "dead" else 1  # it was revived, and died again
        assert ends[jid] == told or (died and ends[jid] == 1), label
        runs = Counter(run.attempt for run in look.history(jid=jid).runs)
        assert died or label == "dead" or set(runs.values()) <= {1}, label
    deleted = ledger.jids.get("deleted")
    if deleted is not None:
        wanted = {"cancelled", "complete"} if died else {"cancelled"}
        assert ledger.app.status(deleted).state in wanted
        assert ends[deleted] == 1
    stats = look.stats()
    assert stats.dead == (ledger.runs["dead"] > 0)
    assert (stats.enqueued, stats.in_flight, stats.scheduled, stats.retrying) == (0, 0, 0, 0)
    if not died:
        assert stats.lost_claims == 1
        assert (stats.processed, stats.failed, stats.discarded) == (4, 5, 1)
        assert ledger.runs == Counter(frozen=2, one=1, again=2, dead=4, discards=1, later=1)


def ends_of(entry):
    """The ids in one entry of the stream of ends."""
    for name, words in entry.items():
        if not name.endswith(b" but"):
            but = [int(place) for place in entry.get(name + b" but", b"").split()]
            yield from (jid for at, jid in enumerate(json.loads(words), 1) if at not in but)


LIFE = Life(Ledger, make_app, live, finish, check_books)


def test_a_life_without_faults_balances(settings, redis, dump):
    ledger = Ledger()

    live(make_app(settings, Fault(), ledger), redis, ledger)

    check_books(dump, ledger, died=False)


@pytest.mark.parametrize("mode", MODES)
def test_statuses_are_exact_whichever_call_fails(mode, settings, redis, dump):
    LIFE.balances_whichever_call_fails(mode, settings, redis, dump)
