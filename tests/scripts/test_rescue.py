"""beat.lua, stale.lua, examine.lua, rescue.lua: who is dead, and what becomes of its jobs."""

import pytest

from cogworker._engine import control, presence
from cogworker._engine.places import InFlight
from cogworker._engine.replies import Moved

from support.counting import back


@pytest.fixture
def held(run, moves, worker, redis, keys):
    """Two jobs in flight with a worker that has beaten once."""
    run(presence.beat(keys, worker.worker, {"info": "{}", "busy": "2"}, 60))
    redis.lpush(keys.queue("a"), "1", "2")
    return run(moves.turn(worker, 1, [], 2, ["a"])).taken


@pytest.fixture
def left(dump):
    """What is in the database besides the answers to calls."""

    def left():
        return {key: held for key, held in dump().items() if not key.startswith("call:")}

    return left


def die(redis, keys, worker, silent_s):
    redis.delete(keys.presence(worker.worker))
    redis.zincrby(keys.workers, -silent_s, worker.worker)


def test_a_beat_says_who_what_and_when(run, keys, redis, dump, server_time):
    start = server_time()

    answered = run(presence.beat(keys, "w1", {"info": "{}", "busy": "3"}, 60))

    after = dump()
    assert start <= answered <= server_time()
    assert after["workers"] == {b"w1": pytest.approx(answered, abs=1e-5)}
    assert after["worker:w1"] == {b"info": b"{}", b"busy": b"3"}
    assert redis.ttl(keys.presence("w1")) == 60


def test_a_worker_that_beats_is_left_alone(run, moves, worker, held, dump):
    before = dump()

    assert run(moves.stale(300, 0, 100)) == {}
    assert run(moves.examine(worker, 300)) is None
    assert run(moves.rescue(worker, 300, moves.give_back(worker, _back(held)))) is None
    assert dump() == before


def test_a_worker_silent_for_less_than_the_threshold_is_left_alone(
    run, moves, worker, held, redis, keys
):
    die(redis, keys, worker, 299)

    assert run(moves.stale(300, 0, 100)) == {}
    assert run(moves.rescue(worker, 300, moves.give_back(worker, _back(held)))) is None


def test_a_worker_with_an_old_beat_and_a_presence_is_left_alone(
    run, moves, worker, held, redis, keys
):
    redis.zincrby(keys.workers, -3600, worker.worker)

    assert run(moves.stale(300, 0, 100)).keys() == {"w1"}
    assert run(moves.examine(worker, 300)) is None
    assert run(moves.rescue(worker, 300, [])) is None


def test_without_a_recorded_beat_presence_alone_decides(run, moves, worker, held, redis, keys):
    redis.zrem(keys.workers, worker.worker)
    assert run(moves.examine(worker, 300)) is None

    redis.delete(keys.presence(worker.worker))
    assert run(moves.examine(worker, 300)) == (False, list(held))


def test_a_dead_worker_s_jobs_come_back_in_order_and_nothing_is_left_of_it(
    run, moves, worker, held, redis, keys, left
):
    redis.lpush(keys.queue("a"), "3")
    die(redis, keys, worker, 301)

    assert run(moves.stale(300, 0, 100)).keys() == {"w1"}
    assert run(moves.examine(worker, 300)) == (False, list(held))
    moved = run(moves.rescue(worker, 300, moves.give_back(worker, _back(held))))

    assert moved == Moved()
    assert left() == {
        "queue:a": [b"3", b"2", b"1"],
        "queues": {b"a"},
        "wake:a": [b"1", b"1"],
        "worker:w1:in_flight": {b"@turn": b"1 reliable"},  # the fence, for an hour
    }
    assert 3500 < redis.ttl(keys.in_flight("w1")) <= 3600


def test_a_packet_that_comes_after_the_rescue_takes_nothing_and_the_fence_does_not_expire(
    run, moves, worker, held, redis, keys
):
    run(moves.turn(worker, 2, [], 0, []))
    die(redis, keys, worker, 301)
    run(moves.rescue(worker, 300, moves.give_back(worker, _back(held))))

    assert run(moves.turn(worker, 1, [], 2, ["a"])) == (2,)
    assert len(run(moves.turn(worker, 3, [], 2, ["a"])).taken) == 2
    assert redis.ttl(keys.in_flight("w1")) == -1


def test_a_worker_that_still_holds_jobs_is_not_forgotten(run, moves, worker, held, redis, keys):
    die(redis, keys, worker, 301)

    run(moves.rescue(worker, 300, moves.give_back(worker, _back(held[:1]))))

    assert run(moves.stale(300, 0, 100)).keys() == {"w1"}
    assert [job.payload for job in run(moves.examine(worker, 300)).jobs] == [b"2"]


def test_only_one_of_two_rescuers_moves_a_job(run, moves, worker, held, redis, keys, left):
    die(redis, keys, worker, 301)
    back = moves.give_back(worker, _back(held))
    run(moves.rescue(worker, 300, back))
    before = left()

    assert list(run(moves.rescue(worker, 300, back)).lost) == [held[1].tag, held[0].tag]
    assert left() == before


def test_a_rescue_that_is_sent_again_answers_as_the_first_time(
    run, moves, worker, held, redis, keys, dump
):
    die(redis, keys, worker, 301)
    lost = moves.bury(worker, b"1.9.a", b"never held")
    rescue = moves.rescue(worker, 300, [*moves.give_back(worker, _back(held)), lost])
    first = run(rescue)
    before = dump()

    assert first.lost == [b"1.9.a"]
    assert run(rescue) == first
    assert dump() == before


def test_a_worker_gives_back_what_is_in_its_own_name(run, moves, worker, held, left):
    assert run(moves.examine(worker, None)) == (False, list(held))

    run(moves.rescue(worker, None, moves.give_back(worker, _back(held))))

    assert left() == {"queue:a": [b"2", b"1"], "queues": {b"a"}, "wake:a": [b"1", b"1"]}


def test_a_late_settlement_of_a_rescued_job_is_lost(run, moves, worker, held, redis, keys, dump):
    die(redis, keys, worker, 301)
    run(moves.rescue(worker, 300, moves.give_back(worker, _back(held))))
    other = InFlight("w2")
    [again, _] = run(moves.turn(other, 1, [], 2, ["a"])).taken
    run(moves.turn(other, 2, [moves.done(other, [again.tag])], 0, []))

    turned = run(moves.turn(worker, 2, [moves.done(worker, [held[0].tag])], 0, []))

    assert turned.moved.lost == [held[0].tag]
    after = dump()
    assert after["stats:processed"] == b"1"
    assert after["stats:lost_claims"] == b"1"


def test_who_was_cut_off_finds_its_orders_after_the_rescue(run, moves, worker, held, redis, keys):
    run(control.order(keys, "w1", "stop", "ada"))
    die(redis, keys, worker, 301)
    run(moves.rescue(worker, 300, moves.give_back(worker, _back(held))))

    assert run(control.standing(keys, "w1")).order == "stop"


def _back(taken):
    return [back(each.tag) for each in taken]
