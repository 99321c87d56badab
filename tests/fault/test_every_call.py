"""Every single call of a life fails: before, after, its request lost, its reply lost, no memory.

The life: jobs are pushed (one, many, scheduled), taken, run; one fails and is retried, promoted and
run again; one goes to dead; one is held by a worker that dies, is rescued and run; another one is
held by it that may run at most once, and goes to dead. Workers look for orders and check keys.
After each fault a healthy worker finishes what is left, and the books must balance.
"""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from cogworker import BulkRefused, Cogworker, RedisRefused, current_job
from cogworker.retry import RetryPolicy

from support.dump import ANSWERS
from support.flaky import MODES, Fault, FlakyConnector
from support.inline import InlineWorker
from support.lives import Life
from support.throughput import pop_throughput
from support.times import all_workers_are_dead, everything_is_due


@dataclass
class Ledger:
    """What the test knows without looking into Redis."""

    runs: Counter = field(default_factory=Counter)
    pushed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def make_app(settings, fault, ledger):
    app = Cogworker(**settings)
    connector = FlakyConnector(app.config, fault)
    app.client.runner.connector = connector

    @app.job
    def fine(label):
        ledger.runs[label] += 1

    @app.job(retry=RetryPolicy(max_retries=3, delay=(1000,)))
    def fails_once(label):
        ledger.runs[label] += 1
        if current_job().attempt == 1:
            raise ValueError("the first time")

    @app.job(at_most_once=True)
    def once(label):
        ledger.runs[label] += 1

    @app.job(retry=False)
    def fails(label):
        ledger.runs[label] += 1
        raise ValueError("always")

    return app


def live(app, redis, ledger):
    """A whole life, in one process after another."""
    fine, fails_once, fails, once = (
        next(job for name, job in app.jobs.items() if name.endswith("." + wanted))
        for wanted in ("fine", "fails_once", "fails", "once")
    )

    def push(label, action):
        try:
            action()
        except (RedisRefused, BulkRefused):
            ledger.refused.append(label)
        else:
            ledger.pushed.append(label)

    push("held", lambda: fine.enqueue("held"))
    push("once", lambda: once.enqueue("once"))
    doomed = InlineWorker(app, run_jobs=False)
    doomed.beat()
    doomed.turn()
    all_workers_are_dead(redis, app.client.keys)

    push("one", lambda: fine.enqueue("one"))
    push("many", lambda: fine.enqueue_many([("many",), ("many",)]))
    push("later", lambda: fine.enqueue_in(1000, "later"))
    push("again", lambda: fails_once.enqueue("again"))
    push("dead", lambda: fails.enqueue("dead"))
    finish(app, redis)


def finish(app, redis):
    """A healthy worker from its start to its end, with all the time in the world."""
    worker = InlineWorker(app)
    worker.beat()
    worker.obey()
    worker.check_keys()
    worker.rescue()
    worker.work_off()
    for _ in range(2):  # the second time for what failed after the first
        everything_is_due(redis, app.client.keys)
        worker.promote()
        worker.work_off()
    worker.leave()


def check_books(dump, ledger, *, died):
    """Each job ran and lies nowhere, or in dead; every counter is exact; nothing is left over."""
    rest = {
        key: value
        for key, value in dump().items()
        # A dead worker's fence stays for an hour.
        if not key.startswith(ANSWERS) and not (key.endswith(":in_flight") and len(value) == 1)
    }
    known = set(ledger.pushed)
    maybe = set(ledger.runs) - known
    assert len(maybe) <= 1, "only the push that was cut off may be in doubt"
    dead = rest.pop("dead", {})
    abandoned = [entry for entry in dead if b"JobAbandoned" in entry]
    assert len(abandoned) + ledger.runs["once"] >= ("once" in known), "it was lost"
    assert len(abandoned) <= 1
    assert ledger.runs["once"] <= 1, "it has run twice"
    for label in known - {"once"}:
        assert ledger.runs[label] > 0, f"{label} was lost"

    ran = known | maybe | ({"once"} if abandoned else set())
    jobs = {label: 2 if label == "many" else 1 for label in ran}
    buried = [entry for entry in dead if b'"dead"' in entry]
    failures = ("again" in ran) + ("dead" in ran) + len(abandoned)
    assert len(buried) == ("dead" in ran)
    processed = int(rest.pop("stats:processed", 0))
    assert processed == sum(jobs.values()) - len(dead)
    assert int(rest.pop("stats:failed", 0)) == failures
    assert pop_throughput(rest) == Counter(processed=processed, failed=failures)
    attempts = {key: value for key, value in rest.items() if key.startswith("attempts:")}
    failed_runs = ("again" in ran) + ("dead" in ran)
    assert [len(rest.pop(key)) for key in attempts] == [1] * failed_runs
    assert rest.pop("queues", {b"default"}) == {b"default"}
    assert rest == {}
    if not died:
        runs = {label: 2 if label in ("many", "again") else 1 for label in ran}
        if abandoned:  # its worker was declared dead
            del runs["once"]
        assert ledger.runs == runs, "nobody died, so nothing may run twice"


ALL = ("held", "once", "one", "many", "later", "again", "dead")


LIFE = Life(Ledger, make_app, live, finish, check_books)


def test_a_life_without_faults_balances(settings, redis, dump):
    ledger = Ledger()

    live(make_app(settings, Fault(), ledger), redis, ledger)

    assert tuple(ledger.pushed) == ALL
    check_books(dump, ledger, died=False)


@pytest.mark.parametrize("mode", MODES)
def test_a_life_balances_whichever_call_fails(mode, settings, redis, dump):
    LIFE.balances_whichever_call_fails(mode, settings, redis, dump)


def test_a_life_balances_whichever_call_finds_the_server_full(settings, redis, dump):
    """A push is refused then, and nothing of it is enqueued; all other calls work."""
    refused = LIFE.balances_whichever_call_finds_the_server_full(settings, redis, dump)

    assert refused == list(ALL)
