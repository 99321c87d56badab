"""Every call of a life fails in which jobs decide what becomes of them; the books stay exact.

The life: jobs raise Retry, Discard and Reschedule, with and without a lock, and with and without a
retry that is left; ``retry_in`` gives each of its answers; a client middleware stops a job, and a
server middleware is around all runs. Hooks are told once of each death; when a process died, at
most once.
"""

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from cogworker import Cogworker, Discard, RedisRefused, Reschedule, Retry, current_job

from support.dump import ANSWERS
from support.flaky import MODES, Fault, FlakyConnector
from support.inline import InlineWorker
from support.lives import Life
from support.throughput import pop_throughput
from support.times import everything_is_due


class Books(NamedTuple):
    """What a job leaves behind, however often its life was disturbed."""

    processed: int = 0
    failed: int = 0
    discarded: int = 0
    dead: int = 0
    attempts: tuple[str, ...] = ()
    runs: int = 1


EXPECTED = {
    "asks again": Books(1, 1, 0, 0, ("retrying",), 2),
    "asks in vain": Books(0, 1, 0, 1, ("dead",)),
    "discards": Books(0, 0, 1, 0),
    "later": Books(1, 0, 0, 0, (), 2),
    "in a while": Books(1, 1, 0, 0, ("retrying",), 2),
    "kills": Books(0, 1, 0, 1, ("killed",)),
    "drops": Books(0, 1, 1, 0, ("discarded",)),
    "default": Books(0, 2, 0, 1, ("retrying", "dead"), 2),
    "async": Books(0, 0, 1, 0),
}


@dataclass
class Ledger:
    """What the test knows without looking into Redis."""

    runs: Counter = field(default_factory=Counter)
    around: Counter = field(default_factory=Counter)
    deaths: Counter = field(default_factory=Counter)
    pushed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def make_app(settings, fault, ledger):
    app = Cogworker(**settings)
    app.client.runner.connector = FlakyConnector(app.config, fault)
    app.middleware.client.add(lambda job: None if job.args == ("stopped",) else job)

    @app.middleware.server.add
    @contextmanager
    def around(run):
        ledger.around[run.args[0]] += 1
        yield

    @app.on_death
    def note_death(job, error):
        ledger.deaths[job["args"][0]] += 1

    def declare(label, raises, **options):
        @app.job(name=label, **options)
        def job(label):
            ledger.runs[label] += 1
            error = raises()
            if error is not None:
                raise error

    declare("asks again", lambda: first(Retry(in_=1000)), unique="until_executed")
    declare("asks in vain", lambda: Retry(in_=1000), retry=False, unique="until_executed")
    declare("discards", lambda: Discard("no"), unique="until_executed")
    declare(
        "later",
        lambda: Reschedule(in_=1000) if ledger.runs["later"] == 1 else None,
        retry=False,
        unique="until_executed",
    )
    declare("in a while", lambda: first(ValueError()), retry_in=lambda retry, error: 1000)
    declare("kills", ValueError, retry_in=lambda retry, error: "dead")
    declare("drops", ValueError, retry_in=lambda retry, error: "discard", unique="until_executed")
    declare("default", ValueError, retry=1, retry_in=lambda retry, error, run: None)
    declare("async", lambda: BaseExceptionGroup("group", [Discard("no")]))
    declare("stopped", lambda: None)
    return app


def first(error):
    return error if current_job().attempt == 1 else None


def live(app, redis, ledger):
    """All jobs, from their push to their end."""
    for label in (*EXPECTED, "stopped"):
        try:
            jid = app.jobs[label].enqueue(label)
        except RedisRefused:
            ledger.refused.append(label)
        else:
            assert (jid is None) == (label == "stopped")
            ledger.pushed += [label] if jid else []
    finish(app, redis)


def finish(app, redis):
    """A healthy worker from its start to its end, with all the time in the world."""
    worker = InlineWorker(app)
    try:
        worker.beat()
        worker.rescue()
        worker.work_off()
        for _ in range(3):
            everything_is_due(redis, app.client.keys)
            worker.promote()
            worker.work_off()
        worker.leave()
    finally:
        worker.tell_hooks()


def check_books(dump, ledger, *, died):
    """Each job came to its end once, and nothing is left over."""
    rest = {
        key: value
        for key, value in dump().items()
        # A dead worker's fence stays for an hour.
        if not key.startswith(ANSWERS) and not (key.endswith(":in_flight") and len(value) == 1)
    }
    known, ran = set(ledger.pushed), set(ledger.runs)
    assert known <= ran, "a job was lost"
    assert len(ran - known) <= 1, "only the push that was cut off may be in doubt"
    assert "stopped" not in ran
    expected = {label: EXPECTED[label] for label in ran}

    def total(what):
        return sum(getattr(books, what) for books in expected.values())

    for what in ("processed", "failed", "discarded"):
        assert int(rest.pop(f"stats:{what}", 0)) == total(what), what
    tallied = Counter(processed=total("processed"), failed=total("failed"))
    assert pop_throughput(rest) == +tallied
    assert len(rest.pop("dead", ())) == total("dead")
    logs = [rest.pop(key) for key in list(rest) if key.startswith("attempts:")]
    assert sorted(outcomes(log) for log in logs) == sorted(
        books.attempts for books in expected.values() if books.attempts
    )
    assert rest.pop("queues", {b"default"}) == {b"default"}
    assert rest == {}
    deaths = Counter({label: books.dead for label, books in expected.items()})
    assert ledger.around == ledger.runs
    if died:
        assert ledger.deaths <= deaths, "a death was told twice"
    else:
        assert ledger.deaths == +deaths
        runs = {label: books.runs for label, books in expected.items()}
        assert ledger.runs == runs, "nobody died, so nothing may run twice"


def outcomes(log):
    return tuple(entry.split(b'"outcome":"')[1].split(b'"')[0].decode() for entry in log)


LIFE = Life(Ledger, make_app, live, finish, check_books)


def test_a_life_without_faults_balances(settings, redis, dump):
    ledger = Ledger()

    live(make_app(settings, Fault(), ledger), redis, ledger)

    assert ledger.pushed == list(EXPECTED)
    check_books(dump, ledger, died=False)


@pytest.mark.parametrize("mode", MODES)
def test_a_life_balances_whichever_call_fails(mode, settings, redis, dump):
    LIFE.balances_whichever_call_fails(mode, settings, redis, dump)


def test_a_life_balances_whichever_call_finds_the_server_full(settings, redis, dump):
    refused = LIFE.balances_whichever_call_finds_the_server_full(settings, redis, dump)

    assert refused == list(EXPECTED)
