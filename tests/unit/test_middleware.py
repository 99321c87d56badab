"""Chains, jobs on their way out, and what a job asks for by raising."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cogworker import (
    CogworkerError,
    DeclarationError,
    Discard,
    EnqueueError,
    JobControl,
    OutgoingJob,
    Reschedule,
    Retry,
)
from cogworker._worker.endings import control_of
from cogworker.middleware import Chain
from cogworker.outgoing import outgoing, payload_fields, send_through


def a(job):
    return job


def b(job):
    return job


def c(job):
    return job


def chain_of(*middlewares):
    chain = Chain()
    for middleware in middlewares:
        chain.add(middleware)
    return chain


def test_the_order_is_that_of_adding_until_somebody_changes_it():
    chain = chain_of(a, b)
    chain.prepend(c)
    assert list(chain) == [c, a, b]

    chain.insert_before(b, c)
    assert list(chain) == [a, c, b]

    chain.insert_after(b, a)
    assert list(chain) == [c, b, a]

    chain.add(c)
    assert list(chain) == [b, a, c]

    chain.remove(a)
    assert list(chain) == [b, c]
    assert len(chain) == 2
    assert a not in chain
    assert c in chain


def test_it_can_decorate():
    chain = Chain()

    @chain.add
    def middleware(job):
        return job

    assert list(chain) == [middleware]


def test_further_arguments_are_passed_and_replaced():
    seen = []
    chain = Chain()

    def note(job, *args, **kwargs):
        seen.append((args, kwargs))
        return job

    chain.add(note, 1, key=2)
    send_through(chain.links, JOB)
    chain.add(note, 3)
    send_through(chain.links, JOB)

    assert seen == [((1,), {"key": 2}), ((3,), {})]


class Counter:
    def count(self, job):
        return job


def test_a_bound_method_is_known_again():
    counter = Counter()
    chain = chain_of(counter.count, a)

    chain.insert_after(a, counter.count)
    assert list(chain) == [a, counter.count]
    chain.remove(counter.count)
    assert list(chain) == [a]


def test_who_iterates_is_not_disturbed():
    chain = chain_of(a, b, c)

    for middleware in chain:
        chain.remove(middleware)

    assert list(chain) == []


async def coroutine(job):
    return job


@pytest.mark.parametrize(
    "action",
    [
        lambda chain: chain.remove(b),
        lambda chain: chain.insert_before(b, c),
        lambda chain: chain.insert_after(a, a),
        lambda chain: chain.add("a"),
        lambda chain: chain.add(coroutine),
    ],
)
def test_what_can_t_be_is_refused_and_changes_nothing(action):
    chain = chain_of(a)

    with pytest.raises(DeclarationError):
        action(chain)

    assert list(chain) == [a]


JOB = OutgoingJob(jid="1", name="job", queue="default", retry=3, args=(1,), kwargs={})


def test_each_gets_what_the_one_before_has_answered():
    chain = chain_of(
        lambda job: replace(job, args=(*job.args, 2)),
        lambda job: replace(job, args=(*job.args, 3)).with_fields(trace="x"),
    )

    changed = send_through(chain.links, JOB)

    assert changed.args == (1, 2, 3)
    assert changed.fields == {"trace": "x"}
    assert JOB.fields == {}


def test_none_stops_the_job_and_those_after_it(caplog):
    caplog.set_level("INFO")
    chain = chain_of(lambda job: None, lambda job: pytest.fail("asked"))

    assert send_through(chain.links, JOB) is None
    assert "stopped by a client middleware: jid=1 job=job middleware=" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"jid": "2"}, {"name": "other"}, {"queue": ""}, {"queue": 5}, {"retry": -1},
        {"retry": "many"}, {"args": "abc"}, {"args": None}, {"kwargs": [1]}, {"at": "soon"},
        {"at": float("nan")}, {"delay_s": True}, {"at": 5.0, "delay_s": 5.0}, {"fields": [1]},
        {"fields": {"jid": "2"}}, {"fields": {"class": "x"}}, {"fields": {1: 2}},
    ],
)  # fmt: skip
def test_a_change_that_can_t_be_is_refused(change):
    chain = chain_of(lambda job: replace(job, **change))

    with pytest.raises(EnqueueError, match=r"job: the client middleware .*lambda"):
        send_through(chain.links, JOB)


@pytest.mark.parametrize("answer", [True, {}, "job"])
def test_an_answer_that_is_no_job_is_refused(answer):
    with pytest.raises(EnqueueError, match="answers with the job or None"):
        send_through(chain_of(lambda job: answer).links, JOB)


def test_what_a_middleware_raises_refuses_the_job():
    def fails(job):
        raise PermissionError("not you")

    with pytest.raises(EnqueueError, match=r"test_middleware.*fails failed: not you") as caught:
        send_through(chain_of(fails).links, JOB)
    assert isinstance(caught.value.__cause__, PermissionError)

    class TooMany(EnqueueError):
        pass

    def refuses(job):
        raise TooMany

    with pytest.raises(TooMany):
        send_through(chain_of(refuses).links, JOB)


def test_a_pushed_payload_is_the_same_when_nobody_changes_it():
    fields = {
        "class": "Some", "jid": "1", "queue": "q", "retry": None, "args": [1], "kwargs": {"a": 1},
        "at": 5.0, "created_at": 1.0, "mine": [1], "unique": "until_executed",
    }  # fmt: skip

    job = outgoing(fields)

    assert job.fields == {"mine": [1], "unique": "until_executed"}
    assert payload_fields(job, fields) == fields


def test_controls_pass_except_exception():
    for control in (Retry(), Discard("no"), Reschedule(in_=1)):
        assert isinstance(control, JobControl)
        assert not isinstance(control, Exception)
        assert not isinstance(control, CogworkerError)


def test_the_times_that_controls_take():
    assert Retry().delay_s is None
    assert Retry(in_=timedelta(minutes=2)).delay_s == 120
    assert Retry(in_=-5).delay_s == 0
    assert Reschedule(in_=1.5).delay_s == 1.5
    assert Reschedule(at=datetime(2030, 1, 1, tzinfo=UTC)).at == 1893456000


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(in_="5"),
        lambda: Retry(in_=float("nan")),
        lambda: Retry(in_=10**400),
        lambda: Retry(in_=True),
        lambda: Reschedule(),
        lambda: Reschedule(in_=1, at=datetime.now(UTC)),
        lambda: Reschedule(in_=float("inf")),
        lambda: Reschedule(at=datetime.now()),
        lambda: Reschedule(at=5),
    ],
)
def test_times_that_are_none_are_refused(make):
    with pytest.raises(ValueError, match=r"Re\w+"):
        make()


def test_a_group_asks_for_what_its_members_ask_for():
    discard, retry = Discard("no"), Retry()
    nested = BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [discard]), retry])

    assert control_of(discard) is discard
    assert control_of(nested) is discard
    assert control_of(BaseExceptionGroup("mixed", [discard, ValueError()])) is None
    assert control_of(ExceptionGroup("errors", [ValueError()])) is None
    assert control_of(ValueError()) is None
