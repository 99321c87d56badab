"""The verbs of locks: claim, hold, release; and the scripts that list and free locks."""

import pytest

from cogworker._engine import control, look
from cogworker._engine.effects import claim, count, hold, release
from cogworker._engine.look import Lock
from cogworker._engine.moves import NewJob
from cogworker._engine.places import Place, Queue
from cogworker._engine.plan import KEEP, move
from cogworker._engine.replies import Refused

RECORD_OF_ONE = "producer:lane"


@pytest.fixture
def lock(keys):
    return keys.lock("l")


@pytest.fixture
def in_flight(run, moves, worker, keys, redis):
    """A job that the worker holds, and all keys but those that every take leaves."""
    redis.lpush(keys.queue("q"), "job")
    [taken] = run(moves.turn(worker, 1, [], 1, ["q"])).taken
    return taken.tag


@pytest.fixture
def dump(dump):
    """All keys but the registry of workers, which has its own test."""
    return lambda: {key: value for key, value in dump().items() if key != "workers"}


def new(payload, *effects, queue="q"):
    return NewJob(queue, payload, effects=effects)


class TestClaim:
    def test_takes_a_free_lock_with_the_push(self, run, moves, keys, lock, redis, dump):
        moved = run(moves.push("lane", 1, "j1", [new(b"1", claim(lock, "j1", 59.2))]))

        assert not moved.refused
        after = dump()
        assert after.pop(RECORD_OF_ONE)
        assert after == {
            "queues": {b"q"}, "queue:q": [b"1"], "wake:q": [b"1"], "unique:l": b"j1",
        }  # fmt: skip
        assert 59_000 < redis.pttl(lock) <= 60_000

    def test_a_foreign_lock_refuses_the_job_and_stays_as_it_is(self, run, moves, lock, redis, dump):
        redis.set(lock, "j0", ex=10)

        moved = run(moves.push("lane", 1, "j1", [new(b"1", claim(lock, "j1", 60))]))

        assert moved.refused == [Refused(b"1", "claim", "j0")]
        after = dump()
        assert after.pop(RECORD_OF_ONE)
        assert after == {"unique:l": b"j0"}
        assert redis.ttl(lock) <= 10

    def test_a_push_that_is_sent_again_answers_the_same_refusals(
        self, run, moves, keys, lock, redis, dump
    ):
        redis.set(lock, "j0")
        jobs = [new(b"1", claim(lock, "j1", 60)), new(b"2", claim(keys.lock("other"), "j2", 60))]
        push = moves.push("lane", 1, "j1", jobs)
        first = run(push)
        redis.delete(lock)
        before = dump()

        assert run(push).refused == first.refused == [Refused(b"1", "claim", "j0")]
        assert dump() == before

    def test_duplicates_within_one_call_are_refused_for_the_first_of_them(
        self, run, moves, keys, dump
    ):
        a, b = keys.lock("a"), keys.lock("b")
        jobs = [
            new(b"1", claim(a, "j1", 60)),
            new(b"2", claim(a, "j2", 60)),
            new(b"3", claim(b, "j3", 60), queue="other"),
            new(b"4"),
            new(b"5", claim(b, "j5", 60)),
            new(b"6", claim(a, "j6", 99)),
        ]

        moved = run(moves.push("lane", 1, "j1", jobs))

        refused = [
            (number, "claim", by) for number, by in ((b"2", "j1"), (b"5", "j3"), (b"6", "j1"))
        ]
        assert moved.refused == refused
        after = dump()
        assert (after["queue:q"], after["queue:other"]) == ([b"4", b"1"], [b"3"])
        assert (after["unique:a"], after["unique:b"]) == (b"j1", b"j3")

    def test_is_taken_back_when_the_job_can_t_be_put_down(
        self, run, moves, keys, lock, redis, dump
    ):
        redis.set(keys.queue("q"), "no list")

        moved = run(moves.push("lane", 1, "j1", [new(b"1", claim(lock, "j1", 60))]))

        assert [number for number, _ in moved.failed] == [b"1"]
        assert dump().keys() == {"queue:q", "producer:lane"}

    def test_the_owner_s_own_lock_is_not_taken_back(self, run, moves, keys, lock, redis, dump):
        redis.set(lock, "j1")
        redis.set(keys.queue("q"), "no list")

        run(moves.push("lane", 1, "j1", [new(b"1", claim(lock, "j1", 60))]))

        assert dump()["unique:l"] == b"j1"

    def test_those_before_a_refusal_are_taken_back(self, run, moves, keys, lock, redis, dump):
        other = keys.lock("other")
        redis.set(other, "j0")

        job = new(b"1", claim(lock, "j1", 60), claim(other, "j1", 60))
        moved = run(moves.push("lane", 1, "j1", [job]))

        assert moved.refused == [Refused(b"1", "claim", "j0")]
        after = dump()
        assert after.pop(RECORD_OF_ONE)
        assert after == {"unique:other": b"j0"}

    def test_a_damaged_lock_holds_up_no_job_and_is_named(self, run, moves, lock, redis, dump):
        redis.rpush(lock, "no string")

        moved = run(moves.push("lane", 1, "j1", [new(b"1", claim(lock, "j1", 60))]))

        assert not moved.refused
        assert [key for key, _ in moved.problems] == [lock]
        assert dump()["queue:q"] == [b"1"]
        assert dump()["unique:l"] == [b"no string"]

    def test_before_a_run_the_refused_job_stays_in_flight(
        self, run, moves, worker, in_flight, lock, redis, dump
    ):
        redis.set(lock, "j0")
        before = dump()

        begin = moves.stay(worker, in_flight, [claim(lock, "j1", 60)])
        moved = run(moves.turn(worker, 2, [begin], 0, [])).moved

        assert moved.refused == [Refused(in_flight, "claim", "j0")]
        before["worker:w1:in_flight"][b"@turn"] = b"2 reliable"
        assert dump() == before

    def test_far_future_expiries_are_within_what_the_server_can_count(
        self, run, moves, lock, redis
    ):
        run(moves.push("lane", 1, "j1", [new(b"1", claim(lock, "j1", 1e300))]))

        assert redis.ttl(lock) == pytest.approx(10**11, abs=10)


class TestHold:
    @pytest.fixture
    def stay(self, run, moves, worker, in_flight, lock):
        def stay(**options):
            return run(
                moves.move([moves.stay(worker, in_flight, [hold(lock, "j1", 60, **options)])])
            )

        return stay

    @pytest.mark.parametrize("take", [True, False])
    def test_the_owner_s_lock_lasts_from_now(self, stay, lock, redis, dump, take):
        redis.set(lock, "j1", ex=5)
        before = dump()

        assert not stay(take=take).lost

        assert dump() == before
        assert 55 < redis.ttl(lock) <= 60

    @pytest.mark.parametrize("take", [True, False])
    def test_a_free_lock_is_taken_if_it_may_be(self, stay, dump, take):
        before = dump()

        stay(take=take)

        assert dump() == (before | {"unique:l": b"j1"} if take else before)

    def test_a_foreign_lock_is_left_alone(self, stay, lock, redis, dump):
        redis.set(lock, "j0", ex=5)
        before = dump()

        stay()

        assert dump() == before
        assert redis.ttl(lock) <= 5

    def test_a_damaged_lock_is_named_and_left_alone(self, stay, lock, redis, dump):
        redis.rpush(lock, "no string")
        before = dump()

        assert [key for key, _ in stay().problems] == [lock]
        assert dump() == before

    def test_a_job_that_is_not_there_any_more_holds_nothing(
        self, run, moves, worker, in_flight, lock, dump
    ):
        run(moves.turn(worker, 2, [moves.drop(worker, in_flight)], 0, []))
        before = dump()

        stay = moves.stay(worker, in_flight, [hold(lock, "j1", 60)])

        assert run(moves.move([stay])).lost == [in_flight]
        assert dump() == before

    def test_alone_it_needs_no_job(self, run, moves, lock, redis, dump):
        redis.set(lock, "j1", ex=5)

        run(moves.move([moves.note([hold(lock, "j1", 60, take=False)])]))

        assert dump() == {"unique:l": b"j1"}
        assert redis.ttl(lock) > 55


class TestRelease:
    @pytest.mark.parametrize(("holder", "left"), [("j1", False), ("j0", True), (None, False)])
    def test_frees_the_owner_s_lock_and_no_other(
        self, run, moves, worker, in_flight, lock, redis, dump, holder, left
    ):
        if holder:
            redis.set(lock, holder)

        run(moves.move([moves.drop(worker, in_flight, [release(lock, "j1")])]))

        after = dump()
        assert after.pop("worker:w1:in_flight") == {b"@turn": b"1 reliable"}
        assert after == ({"unique:l": b"j0"} if left else {})

    def test_a_lost_job_frees_nothing(self, run, moves, worker, in_flight, lock, redis, dump):
        redis.set(lock, "j1")
        run(moves.move([moves.drop(worker, in_flight)]))
        before = dump()

        late = moves.drop(worker, in_flight, [release(lock, "j1"), count(moves.keys.processed)])
        run(moves.turn(worker, 2, [late], 0, []))

        after = dump()
        assert after.pop("stats:lost_claims") == b"1"
        before["worker:w1:in_flight"][b"@turn"] = b"2 reliable"
        assert after == before

    def test_a_job_that_can_t_be_put_down_keeps_its_lock(
        self, run, moves, worker, in_flight, keys, lock, redis, dump
    ):
        redis.set(lock, "j1")
        redis.set(keys.schedule, "no set")
        before = dump()

        later = moves.reschedule(worker, in_flight, KEEP, "+5", [release(lock, "j1")])
        moved = run(moves.turn(worker, 2, [later], 0, [])).moved

        assert [tag for tag, _ in moved.failed] == [in_flight]
        before["worker:w1:in_flight"][b"@turn"] = b"2 reliable"
        assert dump() == before

    def test_a_damaged_lock_holds_up_no_job(self, run, moves, worker, in_flight, lock, redis, dump):
        redis.rpush(lock, "no string")

        moved = run(moves.move([moves.drop(worker, in_flight, [release(lock, "j1")])]))

        assert [key for key, _ in moved.problems] == [lock]
        assert dump()["worker:w1:in_flight"] == {b"@turn": b"1 reliable"}
        assert dump()["unique:l"] == [b"no string"]


def test_a_revival_is_refused_while_another_job_has_the_lock(run, moves, keys, lock, redis, dump):
    redis.zadd(keys.dead, {"dead": 1})
    redis.set(lock, "j0")
    before = dump()
    revive = move(Place.DEAD, Queue("q"), (b"dead", KEEP), [claim(lock, "j1", 60)])

    assert run(moves.move([revive])).refused == [Refused(b"dead", "claim", "j0")]
    assert dump() == before


def test_a_turn_that_is_sent_again_says_that_a_job_was_rescued_in_between(
    run, moves, worker, in_flight, keys, lock, redis, dump
):
    begin = moves.stay(worker, in_flight, [claim(lock, "j1", 60)])
    turn = moves.turn(worker, 2, [begin], 0, [])
    run(turn)  # its reply is lost
    redis.hdel(keys.in_flight(worker.worker), in_flight)
    redis.delete(lock)
    before = dump()

    again = run(turn)

    assert again.moved.lost == [in_flight], "it would begin although it is another's"
    assert dump() == before


class TestSteering:
    def test_locks_are_told_with_their_holders_and_what_is_left(self, run, keys, redis):
        redis.set(keys.lock("a"), "j1", px=30_500)
        redis.set(keys.lock("stays"), "j2")
        redis.rpush(keys.lock("damaged"), "x")

        a, stays, damaged = run(look.locks(keys, ["a", "gone", "stays", "damaged"]))

        assert a[:2] == ("a", "j1")
        assert 29 < a.left_s <= 30.5
        assert stays == Lock("stays", "j2", None)
        assert damaged == Lock("damaged", "", None)

    @pytest.mark.parametrize("holder", ["", "j1"])
    def test_a_lock_is_freed_once_however_often_it_is_sent(self, run, keys, redis, lock, holder):
        redis.set(lock, "j1", ex=30)
        unlock = control.release_lock(keys, "l", holder)
        freed = run(unlock)
        redis.set(lock, "j2")

        assert run(unlock) == freed
        assert freed[:2] == ("l", "j1")
        assert 29 < freed.left_s <= 30
        assert redis.get(lock) == b"j2"

    def test_another_job_s_lock_is_not_freed(self, run, keys, redis, lock):
        redis.set(lock, "j0")
        unlock = control.release_lock(keys, "l", "j1")

        assert run(unlock) is None
        redis.set(lock, "j1")
        assert run(unlock) is None, "it was answered before"
        assert redis.get(lock) == b"j1"

    def test_what_is_not_there_is_not_freed(self, run, keys):
        assert run(control.release_lock(keys, "l", "")) is None

    def test_a_damaged_lock_can_be_freed(self, run, keys, redis, lock):
        redis.rpush(lock, "x")

        assert run(control.release_lock(keys, "l", "")) == Lock("l", "", None)
        assert not redis.exists(lock)

    def test_a_full_server_frees_locks(self, run, keys, redis, lock):
        redis.set(lock, "j1")
        before = redis.config_get("maxmemory")["maxmemory"]
        redis.config_set("maxmemory", "1")
        try:
            assert run(control.release_lock(keys, "l", "")) == Lock("l", "j1", None)
        finally:
            redis.config_set("maxmemory", before)
