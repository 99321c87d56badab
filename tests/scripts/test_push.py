"""push.lua: new jobs go where they belong, once."""

import pytest

from cogworker._engine import presence
from cogworker._engine.moves import NewJob
from cogworker._redis.keys import Keys
from cogworker.client import MOST_JOBS_A_CALL

RECORD = b"\x01\xa2j1\x90\x90"
"""Number, first job id, what failed and what was refused, in MessagePack."""


def now(payload, queue="mail"):
    return NewJob(queue, payload)


def test_jobs_are_put_at_the_left_and_wake_as_many_workers(run, moves, dump):
    moved = run(moves.push("lane", 1, "j1", [now(b"1"), now(b"2"), now(b"x", "slow")]))

    assert not moved.failed
    assert dump() == {
        "queues": {b"mail", b"slow"},
        "queue:mail": [b"2", b"1"],
        "queue:slow": [b"x"],
        "wake:mail": [b"1", b"1"],
        "wake:slow": [b"1"],
        "producer:lane": RECORD,
    }


def test_the_producer_s_record_expires(run, moves, keys, redis):
    run(moves.push("lane", 1, "j1", [now(b"1")]))

    assert 890 < redis.ttl(keys.producer("lane")) <= 900


def test_a_push_that_is_sent_again_adds_nothing(run, moves, dump):
    push = moves.push("lane", 7, "j1", [now(b"1")])
    run(push)
    before = dump()

    assert run(push) is not None
    assert dump() == before


def test_a_push_that_comes_late_adds_nothing(run, moves, dump):
    run(moves.push("lane", 8, "j8", [now(b"8")]))
    before = dump()

    assert run(moves.push("lane", 7, "j7", [now(b"7")])) is None
    assert dump() == before


def test_two_producers_on_one_lane_collide_instead_of_losing_a_job(run, moves, dump):
    run(moves.push("lane", 7, "mine", [now(b"1")]))
    before = dump()

    assert run(moves.push("lane", 7, "other", [now(b"2")])) is None
    assert dump() == before


def test_later_is_the_schedule_until_it_is_due(run, moves, dump, server_time):
    start = server_time()
    jobs = [
        NewJob("mail", b"past", start - 60),
        NewJob("mail", b"at", start + 60),
        NewJob("mail", b"in", None, 60.0),
        NewJob("mail", b"at once", None, 0.0),
    ]
    run(moves.push("lane", 1, "j1", jobs))

    after = dump()
    schedule = after.pop("schedule")
    assert schedule[b"at"] == pytest.approx(start + 60, abs=1e-5)
    assert start + 60 <= schedule[b"in"] <= server_time() + 60
    assert set(schedule) == {b"at", b"in"}
    assert after == {
        "queues": {b"mail"},
        "queue:mail": [b"at once", b"past"],
        "wake:mail": [b"1", b"1"],
        "producer:lane": RECORD,
    }


def test_a_queue_that_is_no_list_refuses_its_jobs_and_no_others(run, moves, keys, redis, dump):
    redis.set(keys.queue("mail"), "not a list")

    moved = run(moves.push("lane", 1, "j1", [now(b"1"), now(b"x", "slow")]))

    [(number, error)] = moved.failed
    assert number == b"1"
    assert "WRONGTYPE" in error
    after = dump()
    assert after["queue:slow"] == [b"x"]
    assert after["queue:mail"] == b"not a list"


def test_a_push_that_failed_in_part_is_answered_again_and_adds_nothing(
    run, moves, keys, redis, dump
):
    redis.set(keys.queue("mail"), "not a list")
    push = moves.push("lane", 1, "j1", [now(b"1"), now(b"x", "slow"), now(b"2")])
    first = run(push)
    before = dump()

    again = run(push)

    assert dump() == before
    assert again.failed == first.failed
    assert [number for number, _ in again.failed] == [b"1", b"3"]


def test_damaged_book_keeping_holds_up_no_job(run, moves, keys, redis, dump):
    redis.set(keys.queues, "not a set")
    redis.set(keys.wake("mail"), "not a list")

    moved = run(moves.push("lane", 1, "j1", [now(b"1")]))

    assert not moved.failed
    assert [key for key, _ in moved.problems] == [keys.queues, keys.wake("mail")]
    assert dump()["queue:mail"] == [b"1"]


def test_tokens_never_pile_up(run, moves, keys, redis):
    for number in range(1, 4):
        run(moves.push("lane", number, "j", [now(b"1")] * MOST_JOBS_A_CALL))

    assert redis.llen(keys.wake("mail")) == 64
    assert redis.llen(keys.queue("mail")) == 3 * MOST_JOBS_A_CALL


def test_a_full_server_refuses_new_jobs_and_lets_workers_empty_it(
    run, moves, worker, keys, redis, dump
):
    run(moves.push("lane", 1, "j1", [now(b"1"), now(b"2")]))
    before = redis.config_get("maxmemory")["maxmemory"]
    redis.config_set("maxmemory", "1")
    try:
        moved = run(moves.push("lane", 2, "j2", [now(b"3")]))
        assert "OOM" in moved.failed[0][1]

        turned = run(moves.turn(worker, 1, [], 1, ["mail"]))
        [taken] = turned.taken
        settle = [moves.retry(worker, taken.tag, b"1 again", 5.0)]
        turned = run(moves.turn(worker, 2, settle, 1, ["mail"]))
        run(presence.beat(keys, worker.worker, {"busy": "1"}, 60))
        assert not turned.moved.failed
        run(moves.turn(worker, 3, [moves.done(worker, [turned.taken[0].tag])], 0, []))
    finally:
        redis.config_set("maxmemory", before)

    after = dump()
    assert set(after["retry"]) == {b"1 again"}
    assert after["worker:w1"] == {b"busy": b"1"}
    assert after["stats:processed"] == b"1"
    assert after["stats:failed"] == b"1"
    assert after["worker:w1:in_flight"] == {b"@turn": b"3 reliable"}


def test_all_keys_of_a_namespace_begin_with_it():
    keys = Keys("{tag}")
    names = [getattr(keys, name) for name in keys.__slots__ if not name.startswith("_")]
    names += [keys.queue("q"), keys.wake("q"), keys.presence("w"), keys.in_flight("w")]
    names.append(keys.producer("l"))

    assert all(name.startswith("{tag}:") for name in names)
    assert len(set(names)) == len(names)
