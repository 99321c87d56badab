"""Unique jobs without Redis: which event does what to a lock, and what a lock is called."""

import inspect

import msgspec
import pytest

from cogworker import Cogworker, DeclarationError, EnqueueError, InvalidArguments
from cogworker._engine.effects import claim, hold, release
from cogworker._redis.keys import Keys
from cogworker.features.event import Event, Kind
from cogworker.features.unique import MODES, Unique
from cogworker.payload import Envelope, parse

KEYS = Keys("n")
TTL_S = 100.0
WAIT_S = 7.0

CLAIM, HOLD, LAST, FREE = "claimed", "held", "made to last", "freed"
ANEW = "claimed, though its owner has it refused"

TABLE = {
    # kind               until_executed  until_executing  while_executing
    Kind.PUSHED:         (ANEW,          ANEW,            None),
    Kind.QUEUED:         (HOLD,          HOLD,            FREE),
    Kind.REVIVED:        (CLAIM,         CLAIM,           None),
    Kind.BEGUN:          (None,          FREE,            CLAIM),
    Kind.WORKING:        (None,          None,            None),
    Kind.DONE:           (FREE,          FREE,            FREE),
    Kind.RETRYING:       (HOLD,          HOLD,            FREE),
    Kind.RESCHEDULED:    (HOLD,          HOLD,            FREE),
    Kind.DEAD:           (FREE,          FREE,            FREE),
    Kind.KILLED:         (FREE,          FREE,            FREE),
    Kind.DISCARDED:      (FREE,          FREE,            FREE),
    Kind.DELETED:        (FREE,          FREE,            FREE),
    Kind.HELD:           (HOLD,          None,            HOLD),
    Kind.WAITING:        (LAST,          LAST,            None),
}  # fmt: skip


@pytest.fixture
def unique():
    return Unique(KEYS, TTL_S)


def job(mode, lock="the-lock"):
    return Envelope("tasks.job", "j1", unique=mode, lock=lock)


class TestEffects:
    @pytest.mark.parametrize("kind", Kind)
    @pytest.mark.parametrize("mode", MODES)
    def test_of_each_event_in_each_mode(self, unique, kind, mode):
        key = KEYS.lock("the-lock")
        expected = {
            None: [],
            CLAIM: [claim(key, "j1", TTL_S + WAIT_S)],
            ANEW: [claim(key, "j1", TTL_S + WAIT_S, anew=True)],
            HOLD: [hold(key, "j1", TTL_S + WAIT_S)],
            LAST: [hold(key, "j1", TTL_S + WAIT_S, take=False)],
            FREE: [release(key, "j1")],
        }

        effects = unique.effects(Event(kind, job(mode), "q", WAIT_S))

        assert list(effects) == expected[TABLE[kind][MODES.index(mode)]]

    @pytest.mark.parametrize("kind", Kind)
    @pytest.mark.parametrize(
        "mode", [None, False, "", "until_exhausted", 1, ["until_executed"], {}]
    )
    def test_of_any_other_job_there_are_none(self, unique, kind, mode):
        assert not list(unique.effects(Event(kind, job(mode), "q")))

    @pytest.mark.parametrize(
        "payload",
        [
            b'{"class":"InvoiceSweep","args":[{"limit":50}],"jid":"j","unique":"until_executed"}',
            b'{"class":"InvoiceSweep","args": [ {"limit" : 50} ],"jid":"j","lock":""}',
            b'{"class":"InvoiceSweep","args":[{"limit":50}],"jid":"j","lock":[1]}',
        ],
    )
    def test_a_payload_that_names_no_lock_has_the_ruby_system_s(self, unique, payload):
        # printf '%s' 'InvoiceSweep|default|[{"limit":50}]' | sha1sum
        name = "fb4a4324ce10fd6b14e3d6dc3303d098f23bb9ff"

        assert unique.lock_of(parse(payload), "default") == f"n:unique:{name}"

    def test_a_payload_that_names_no_lock_differs_by_its_named_arguments_too(self, unique):
        payloads = [
            b'{"class":"a","args":[],"jid":"j"}',
            b'{"class":"a","args":[],"kwargs":{"b":1},"jid":"j"}',
            b'{"class":"a","args":[],"kwargs": { "b" : 2 },"jid":"j"}',
            b'{"class":"a","args":[],"kwargs":{"b":2},"jid":"j"}',
        ]

        locks = [unique.lock_of(parse(payload), "q") for payload in payloads]

        assert len(set(locks)) == 3
        assert locks[2] == locks[3]

    def test_arguments_that_can_be_read_only_in_part_have_a_lock_all_the_same(self, unique):
        odd = Envelope("a", "j", msgspec.Raw(b'["\\ud800"]'), unique="until_executed")

        assert unique.lock_of(odd, "q").startswith("n:unique:")


@pytest.fixture
def app():
    return Cogworker(namespace="n")


@pytest.fixture
def lock(app):
    """The name of the lock that a call of a declared job would take."""

    def lock(job, *args, **kwargs):
        return job._draft(args, kwargs).fields["lock"]

    return lock


def declare(app, function, **options):
    return app.job(name=options.pop("name", "job"), unique="until_executed", **options)(function)


class TestNames:
    def test_is_the_ruby_system_s_for_positional_arguments(self, app, lock):
        sweep = declare(app, lambda options: None, name="InvoiceSweep")

        assert lock(sweep, {"limit": 50}) == "fb4a4324ce10fd6b14e3d6dc3303d098f23bb9ff"

    def test_is_the_same_however_a_call_is_written(self, app, lock):
        def function(a, b=0, *rest, c=0, d=0, **more): ...

        job = declare(app, function)
        same = [
            [((1,), {}), ((), {"a": 1})],
            [((1, 2), {}), ((1,), {"b": 2}), ((), {"b": 2, "a": 1})],
            [((1,), {"c": 3, "d": 4}), ((), {"d": 4, "a": 1, "c": 3})],
            [((1,), {"x": 5, "y": 6}), ((1,), {"y": 6, "x": 5})],
            [((1, 2, 3), {})],
            [((1,), {"c": 3})],
            [((1,), {"d": 3})],
        ]
        names = [{lock(job, *args, **kwargs) for args, kwargs in calls} for calls in same]

        assert [len(each) for each in names] == [1] * len(same)
        assert len(set.union(*names)) == len(same)

    def test_differs_by_job_queue_and_arguments(self, app, lock):
        one = declare(app, lambda a: None)
        other = declare(app, lambda a: None, name="other")
        names = [lock(one, 1), lock(one, "1"), lock(other, 1), lock(one.using(queue="q"), 1)]

        assert len(set(names)) == 4
        assert lock(one.using(retry=3, unique="while_executing"), 1) == names[0]
        assert lock(one.using(queue="q").using(queue="default"), 1) == names[0]

    def test_parameters_by_name_are_all_that_counts(self, app, lock):
        def function(user, text, *rest, lang="en", **more): ...

        job = declare(app, function, unique_by=["user", "lang"])
        name = lock(job, 1, "a")
        assert lock(job, 1, "b", "c") == lock(job, user=1, text="d", x=1) == name
        assert lock(job, 2, "a") != name
        assert lock(job, 1, "a", lang="de") != name

    def test_the_rest_of_the_arguments_can_be_named(self, app, lock):
        def function(a, /, b=0, *rest, **more): ...

        job = declare(app, function, unique_by=["rest", "more"])
        assert lock(job, 1, 2, 3, 4) == lock(job, 9, 9, 3, 4)
        assert len({lock(job, 1, 2, 3), lock(job, 1, 2, 3, 4), lock(job, 1, 2), lock(job, 1)}) == 3
        assert lock(job, 1, x=1, y=2) == lock(job, 2, y=2, x=1) != lock(job, 1, x=1)
        assert lock(job, 1, a=1) != lock(job, 1), "a keyword like a positional-only parameter"
        by_a = declare(app, function, unique_by=["a"])
        assert lock(by_a, 1, a=2) == lock(by_a, 1) != lock(by_a, 2)

    def test_no_parameters_make_all_calls_one(self, app, lock):
        job = declare(app, lambda a: None, unique_by=())

        assert lock(job, 1) == lock(job, 2)

    def test_a_function_says_what_must_be_the_same(self, app, lock):
        job = declare(app, lambda name, n: None, unique_by=lambda first, *_: first.lower())

        assert lock(job, "Ada", 1) == lock(job, n=2, name="ADA") != lock(job, "Bob", 1)

    def test_what_annotations_encode_counts_as_it_travels(self, app, lock):
        from uuid import UUID

        def function(key: UUID): ...

        job = declare(app, function)
        assert lock(job, UUID(int=1)) == lock(job, key=UUID(int=1)) != lock(job, UUID(int=2))


class TestMistakes:
    def test_a_function_that_fails_refuses_the_call(self, app):
        job = declare(app, lambda a: None, unique_by=lambda a: 1 / a)

        with pytest.raises(InvalidArguments) as caught:
            job._draft((0,), {})
        assert str(caught.value) == ("job: unique_by() failed: ZeroDivisionError: division by zero")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert isinstance(caught.value, EnqueueError)

    @pytest.mark.parametrize("key", [object(), {1, 2}, [b"bytes"]])
    def test_what_can_t_be_json_refuses_the_call(self, app, key):
        job = declare(app, lambda: None, unique_by=lambda: key)

        with pytest.raises(InvalidArguments) as caught:
            job._draft((), {})
        assert caught.value.path.startswith("unique_by()")

    def test_wrong_arguments_are_told_before_the_function_sees_them(self, app):
        job = declare(app, lambda a: None, unique_by=lambda a: pytest.fail("called"))

        for args, kwargs in ((), {}), ((1, 2), {}), ((1,), {"b": 2}), ((object(),), {}):
            with pytest.raises(InvalidArguments):
                job._draft(args, kwargs)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"unique": "until_done"}, "unique must be one of None, 'until_executed', "),
            ({"unique": True}, "unique must be one of "),
            ({"unique": ["until_executed"]}, "unique must be one of "),
            ({"on_duplicate": "wait"}, "on_duplicate must be one of 'skip', 'raise', not 'wait'"),
            ({"unique_by": ["a"]}, "unique_by needs unique"),
            ({"unique": MODES[0], "unique_by": "a"}, "names of parameters in a list, not 'a'"),
            ({"unique": MODES[0], "unique_by": [1]}, "names of parameters in a list, not [1]"),
            ({"unique": MODES[0], "unique_by": 1}, "names of parameters in a list, not 1"),
            ({"unique": MODES[0], "unique_by": ["b"]}, "names 'b', which is no parameter of it"),
        ],
    )
    def test_a_wrong_declaration_says_what_is_wrong(self, app, options, said):
        with pytest.raises(DeclarationError) as caught:
            app.job(name="job", **options)(lambda a: None)
        assert str(caught.value).startswith("job: ")
        assert said in str(caught.value)

    def test_an_async_function_can_t_name_a_lock(self, app):
        async def key(a): ...

        assert inspect.iscoroutinefunction(key)
        with pytest.raises(DeclarationError, match="can't be async"):
            declare(app, lambda a: None, unique_by=key)

    def test_a_changed_copy_is_checked_as_well(self, app):
        job = declare(app, lambda a: None, unique_by=["a"])

        with pytest.raises(DeclarationError, match="unique_by needs unique"):
            job.using(unique=None)
        assert "lock" not in job.using(unique=None, unique_by=None)._draft((1,), {}).fields
