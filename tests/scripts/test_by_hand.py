"""move.lua with a queue as the source, within one set, and sent again with a record."""

import pytest

from cogworker._engine.effects import claim, count
from cogworker._engine.moves import Moves
from cogworker._engine.places import Place, Within
from cogworker._engine.plan import KEEP
from cogworker._engine.replies import Moved


@pytest.fixture
def moves(keys):
    return Moves(keys, dead_max_jobs=3, dead_max_age_s=1000)


@pytest.fixture
def mail(redis, keys):
    redis.lpush(keys.queue("mail"), *"abcde")  # "a" is the oldest


def rest(dump):
    """All but the records of calls."""
    return {key: value for key, value in dump().items() if not key.startswith("call:")}


@pytest.mark.parametrize("reach", [-5, 5, -100, 100])
def test_a_job_leaves_its_queue(reach, run, moves, keys, mail, dump):
    drop = moves.drop(Within("mail", reach), b"c", [count(keys.discarded)])

    assert run(moves.move([drop])) == Moved()

    assert dump() == {"queue:mail": [b"e", b"d", b"b", b"a"], "stats:discarded": b"1"}


@pytest.mark.parametrize(("ref", "reach"), [(b"e", -4), (b"a", 4), (b"x", -100)])
def test_a_job_is_looked_for_only_within_reach(ref, reach, run, moves, keys, mail, dump):
    before = dump()
    for move in (
        moves.drop(Within("mail", reach), ref, [count(keys.discarded)]),
        moves.bury(Within("mail", reach), ref, b"dead", [count(keys.failed)]),
    ):
        assert run(moves.move([move])).lost == [ref]

    assert dump() == before


def test_of_two_that_are_alike_one_goes(run, moves, redis, keys, dump):
    redis.lpush(keys.queue("mail"), "a", "b", "a", "c", "a")

    run(moves.move([moves.drop(Within("mail", -9), b"a")]))
    assert dump()["queue:mail"] == [b"a", b"c", b"a", b"b"]
    run(moves.move([moves.drop(Within("mail", 9), b"a")]))
    assert dump()["queue:mail"] == [b"c", b"a", b"b"]


def test_a_job_goes_from_its_queue_to_dead(run, moves, keys, mail, dump):
    run(moves.move([moves.bury(Within("mail", -9), b"b", b"b killed")]))

    after = dump()
    assert list(after.pop("dead")) == [b"b killed"]
    assert after == {"queue:mail": [b"e", b"d", b"c", b"a"]}


def test_a_job_that_can_t_be_put_down_stays_in_its_queue(run, moves, redis, keys, mail):
    redis.set(keys.dead, "not a set")

    moved = run(moves.move([moves.bury(Within("mail", -9), b"b", b"b killed")]))

    assert [ref for ref, _ in moved.failed] == [b"b"]
    assert redis.lrange(keys.queue("mail"), 0, -1) == [b"e", b"d", b"c", b"b", b"a"]


def test_putting_off_changes_the_time_and_maybe_the_payload(run, moves, redis, keys, dump):
    redis.zadd(keys.schedule, {"a": 1, "b": 2})

    run(moves.move([moves.put_off(Place.SCHEDULE, b"a", KEEP, 50.5)]))
    run(moves.move([moves.put_off(Place.SCHEDULE, b"b", b"b later", 60)]))
    assert run(moves.move([moves.put_off(Place.SCHEDULE, b"gone", KEEP, 9)])).lost == [b"gone"]

    assert dump() == {"schedule": {b"a": 50.5, b"b later": 60}}


def test_a_call_that_is_sent_again_answers_as_the_first_time(run, moves, redis, keys, dump):
    redis.zadd(keys.dead, {b"a \xff": 1, "b": 2})
    redis.set(keys.lock("l"), "holder")
    calls = [
        moves.move([moves.drop(Place.DEAD, b"a \xff", [count(keys.discarded)])], answer_again=True),
        moves.move([moves.drop(Place.DEAD, b"x", [count(keys.discarded)])], answer_again=True),
        moves.move(
            [moves.drop(Place.DEAD, b"b", [claim(keys.lock("l"), "b", 9)])], answer_again=True
        ),
    ]

    answers = [run(call) for call in calls]
    after = dump()
    redis.delete(keys.lock("l"))
    redis.zadd(keys.dead, {"x": 3})

    assert [run(call) for call in calls] == answers
    assert answers[0] == Moved()
    assert answers[1].lost == [b"x"]
    assert [(each.job, each.verb, each.why) for each in answers[2].refused] == [
        (b"b", "claim", "holder")
    ]
    redis.zrem(keys.dead, "x")
    assert rest(dump) == {"dead": {b"b": 2}, "stats:discarded": b"1"}
    assert {key for key in after if key.startswith("call:")} != set()
    for key in redis.scan_iter(keys.call("*").replace("{", "\\{")):
        assert 0 < redis.ttl(key) <= 900
