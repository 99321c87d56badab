"""With the run log on, every call of a life fails, and each run that was settled is in it once.

The life: jobs are pushed and run; one fails, is retried and succeeds; one goes to dead; a worker is
frozen with two jobs until they were rescued, and settles them too late.
"""

from collections import Counter

import pytest

from cogworker import Cogworker, current_job
from cogworker.features.logged import UNREADABLE
from cogworker.inspector import Inspector
from cogworker.retry import RetryPolicy

from support.dump import clear
from support.flaky import MODES, Death, Fault, FlakyConnector
from support.inline import InlineWorker
from support.throughput import pop_throughput
from support.times import all_workers_are_dead, everything_is_due


def make_app(settings, fault, runs):
    app = Cogworker(**settings, history=True)
    app.client.runner.connector = FlakyConnector(app.config, fault)

    @app.job(name="fine")
    def fine(label):
        runs[label] += 1

    @app.job(name="fails", retry=RetryPolicy(max_retries=1, delay=(1000,)))
    def fails(label):
        runs[label] += 1
        if label == "dead" or current_job().attempt == 1:
            raise ValueError(label)

    @app.job(name="once", at_most_once=True)
    def once(label):
        runs[label] += 1

    @app.job(name="quiet", history=False)
    def quiet(label):
        runs[label] += 1

    return app


def live(app, redis):
    """A whole life, in one process after another."""
    fine, fails, once, quiet = (app.jobs[name] for name in ("fine", "fails", "once", "quiet"))
    fine.enqueue("frozen")
    once.enqueue("once")
    frozen = InlineWorker(app, run_jobs=False)
    frozen.turn()
    all_workers_are_dead(redis, app.client.keys)
    fine.enqueue_many([("many",)] * 3)
    fails.enqueue("again")
    fails.enqueue("dead")
    quiet.enqueue("quiet")
    finish(app, redis)
    frozen.run_jobs = True
    for delivery in list(frozen.started):
        frozen.perform(delivery)
    frozen.turn()


def finish(app, redis):
    """A healthy worker from its start to its end, with all the time in the world."""
    worker = InlineWorker(app)
    worker.beat()
    worker.rescue()
    worker.work_off()
    everything_is_due(redis, app.client.keys)
    worker.promote()
    worker.work_off()
    worker.leave()


def check_books(dump, app, runs, *, died):
    """Every run that was settled is logged once; log, counters and throughput agree."""
    look = Inspector(app)
    logged = look.history(limit=1000).runs
    stats = look.stats()
    rest = dump()
    abandoned = sum(b"JobAbandoned" in entry for entry in rest.get("dead", {}))
    quiet = stats.processed - sum(run.status == "success" for run in logged)

    assert not [run for run in logged if run.outcome == UNREADABLE]
    settled = Counter((run.jid, run.attempt) for run in logged)
    assert set(settled.values()) <= {1}, "a run is logged twice"
    # Who died with a job that may run once has not ended a run.
    assert sum(run.status == "failed" for run in logged) == stats.failed - abandoned
    assert quiet == (runs["quiet"] > 0), "the books disagree, or a job that opted out is logged"
    assert look.history_size() == (stats.processed - quiet, stats.failed - abandoned)
    assert pop_throughput(rest) == Counter(processed=stats.processed, failed=stats.failed)
    by_class = {row.name: (row.runs, row.failed) for row in look.job_classes()}
    of_log = Counter(run.name for run in logged)
    assert by_class.get("fine", (0, 0)) == (of_log["fine"], 0)
    assert {run.outcome for run in logged if run.name == "fails"} <= {"retrying", "dead", "done"}

    labels = Counter(run.args[0] for run in logged)
    for label, count in {"frozen": 1, "many": 3, "again": 2, "dead": 2}.items():
        if died:
            assert labels[label] <= count
            assert (labels[label] > 0) == (runs[label] > 0), label
        else:
            assert labels[label] == count, label
    if not died:
        assert stats.lost_claims == 2
        assert (runs["frozen"], runs["once"], labels["once"]) == (2, 1, 0)
        assert runs.total() == len(logged) + 3  # two lost claims, and the quiet one


def test_a_life_without_faults_balances(settings, redis, dump):
    runs = Counter()
    app = make_app(settings, Fault(), runs)

    live(app, redis)

    check_books(dump, app, runs, died=False)


@pytest.mark.parametrize("mode", MODES)
def test_the_log_is_exact_whichever_call_fails(mode, settings, redis, dump):
    clean = Fault()
    live(make_app(settings, clean, Counter()), redis)
    assert clean.count > 20

    for at in range(1, clean.count + 1):
        clear(redis, settings["namespace"])
        runs, died = Counter(), False
        healthy = make_app(settings, Fault(), runs)
        try:
            live(make_app(settings, Fault(at, mode), runs), redis)
        except Death:
            died = True
            all_workers_are_dead(redis, healthy.client.keys)
            finish(healthy, redis)
        assert died == mode.startswith("dies")
        try:
            check_books(dump, healthy, runs, died=died)
        except AssertionError as error:
            raise AssertionError(f"call {at} of {clean.count} {mode}: {error}") from error
