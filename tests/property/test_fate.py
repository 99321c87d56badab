"""Whatever a job decides, run after run, and however middlewares are put in order: as the model."""

import json
import secrets
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cogworker import Cogworker, Discard, Reschedule, Retry, RetryPolicy
from cogworker.inspector import Inspector
from cogworker.middleware import Chain

from support.inline import InlineWorker
from support.times import everything_is_due

FAILS = ("fails", "asks again", "waits 5", "kills", "drops", "is dropped", "is given up")
DECISIONS = ("succeeds", "discards", "reschedules", *FAILS)


class Dropped(Exception):
    pass


class GivenUp(Exception):
    pass


class Outcome(NamedTuple):
    """What the model says of a job, after all its runs."""

    processed: int
    failed: int
    discarded: int
    dead: int
    attempts: list[str]
    runs: int


def model(decisions, retries):
    """Go through the decisions until one of them is the last."""
    attempts = []
    for run, decision in enumerate(decisions, 1):
        if decision == "reschedules":
            continue
        failed = len(attempts)
        if decision == "succeeds":
            return Outcome(1, failed, 0, 0, attempts, run)
        if decision == "discards":
            return Outcome(0, failed, 1, 0, attempts, run)
        if decision == "is dropped" or (decision == "drops" and failed < retries):
            return Outcome(0, failed + 1, 1, 0, [*attempts, "discarded"], run)
        if failed >= retries:
            return Outcome(0, failed + 1, 0, 1, [*attempts, "dead"], run)
        if decision in ("kills", "is given up"):
            return Outcome(0, failed + 1, 0, 1, [*attempts, "killed"], run)
        attempts.append("retrying")
    raise AssertionError("the last decision is to succeed")


ERRORS = {
    "succeeds": None,
    "discards": Discard("no"),
    "reschedules": Reschedule(in_=1000),
    "asks again": Retry(in_=1000),
    "is dropped": Dropped(),
    "is given up": GivenUp(),
}
ANSWERS = {"waits 5": 5, "kills": "dead", "drops": "discard"}


@given(
    decisions=st.lists(st.sampled_from(DECISIONS), max_size=6),
    retries=st.integers(0, 4),
    locked=st.booleans(),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_books_and_runs_are_those_of_the_model(decisions, retries, locked, server_url, redis):
    namespace = f"{{p{secrets.token_hex(6)}}}"
    decisions = [*decisions, "succeeds"]
    expected = model(decisions, retries)
    app = Cogworker(redis_url=server_url, namespace=namespace)
    runs, deaths = [], []
    app.on_death(lambda job, error: deaths.append(job["jid"]))

    @app.job(
        retry=RetryPolicy(retries, discard_on=Dropped, give_up_on=GivenUp),
        retry_in=lambda retry, error: ANSWERS.get(decisions[len(runs) - 1]),
        unique="until_executed" if locked else None,
    )
    def job():
        runs.append(1)
        error = ERRORS.get(decisions[len(runs) - 1], ValueError())
        if error is not None:
            raise error

    jid = job.enqueue()
    worker = InlineWorker(app)
    for _ in decisions:
        worker.work_off()
        everything_is_due(redis, app.client.keys)
        worker.promote()
    worker.tell_hooks()

    stats = Inspector(app).stats()
    log = redis.lrange(app.client.keys.attempts(jid), 0, -1)
    app.close()
    assert expected == Outcome(
        stats.processed,
        stats.failed,
        int(redis.get(app.client.keys.discarded) or 0),
        stats.dead,
        [json.loads(entry)["outcome"] for entry in log],
        len(runs),
    )
    assert (stats.retrying, stats.scheduled, stats.enqueued, stats.in_flight) == (0, 0, 0, 0)
    assert deaths == [jid] * expected.dead
    assert list(redis.scan_iter(namespace + ":unique:*")) == []


def one(job):
    return job


def two(job):
    return job


def three(job):
    return job


ALL = (one, two, three)
STEPS = st.tuples(
    st.sampled_from(["add", "prepend", "insert_before", "insert_after", "remove"]),
    st.sampled_from(ALL),
    st.sampled_from(ALL),
)


@given(st.lists(STEPS))
def test_a_chain_is_a_list_without_repetition(steps):
    chain, known = Chain(), []
    for method, middleware, other in steps:
        others = [each for each in known if each is not middleware]
        if method == "remove":
            possible, known_after = middleware in known, others
        else:
            beside = method.startswith("insert")
            possible = not beside or other in others
            at = {"add": len(others), "prepend": 0}.get(method)
            if beside and possible:
                at = others.index(other) + (method == "insert_after")
            known_after = [*others[:at], middleware, *others[at:]]
        arguments = (other, middleware) if method.startswith("insert") else (middleware,)
        try:
            getattr(chain, method)(*arguments)
        except Exception:
            assert not possible
        else:
            assert possible
            known = known_after
        assert list(chain) == known
