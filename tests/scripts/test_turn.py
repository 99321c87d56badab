"""turn.lua: settles deliveries and takes jobs, once."""

import pytest

from cogworker import RedisUnavailable
from cogworker._engine.effects import count
from cogworker._engine.moves import NewJob
from cogworker._engine.places import Place
from cogworker._engine.plan import Move
from cogworker._engine.replies import Moved

from support.counting import back


@pytest.fixture
def dump(dump):
    """All keys but the registry of workers, which has its own test."""
    return lambda: {key: value for key, value in dump().items() if key != "workers"}


@pytest.fixture
def fill(redis, keys):
    def fill(queue, *payloads):
        redis.lpush(keys.queue(queue), *payloads)
        redis.lpush(keys.wake(queue), "1")

    return fill


def test_takes_the_oldest_first_over_the_queues_in_order(run, moves, worker, fill, dump):
    fill("a", "1", "2", "3")
    fill("b", "4", "5")

    turned = run(moves.turn(worker, 1, [], 4, ["b", "a"]))

    assert [(taken.tag, taken.payload) for taken in turned.taken] == [
        (b"1.1.b", b"4"), (b"1.2.b", b"5"), (b"1.3.a", b"1"), (b"1.4.a", b"2"),
    ]  # fmt: skip
    assert dump() == {
        "queue:a": [b"3"],
        "wake:a": [b"1"],
        "worker:w1:in_flight": {
            b"@turn": b"1 reliable", b"1.1.b": b"4", b"1.2.b": b"5", b"1.3.a": b"1", b"1.4.a": b"2",
        },
    }  # fmt: skip


def test_an_empty_queue_has_no_tokens_left(run, moves, worker, fill, dump):
    fill("a", "1")

    run(moves.turn(worker, 1, [], 2, ["a", "b"]))

    assert set(dump()) == {"worker:w1:in_flight"}


def test_paused_queues_are_passed_over_and_named(run, moves, worker, fill, redis, keys):
    fill("a", "1")
    fill("b", "2")
    redis.sadd(keys.paused_queues, "a")

    turned = run(moves.turn(worker, 1, [], 2, ["a", "b"]))

    assert [taken.payload for taken in turned.taken] == [b"2"]
    assert turned.paused == ["a"]
    assert redis.lrange(keys.queue("a"), 0, -1) == [b"1"]


def test_a_turn_that_is_sent_again_answers_with_what_it_took_in_order(
    run, moves, worker, fill, dump
):
    fill("a", *[str(number) for number in range(300)])  # more than a small hash keeps in order
    turn = moves.turn(worker, 5, [], 290, ["a"])
    first = run(turn)
    before = dump()

    assert run(turn).taken == first.taken
    assert dump() == before


def test_a_turn_that_is_sent_again_settles_once_and_loses_nothing(run, moves, worker, fill, dump):
    fill("a", "1", "2")
    [one, two] = run(moves.turn(worker, 1, [], 2, ["a"])).taken
    settle = [moves.done(worker, [one.tag]), moves.retry(worker, two.tag, b"2 again", 9.0)]
    turn = moves.turn(worker, 2, settle, 0, [])
    run(turn)
    before = dump()

    assert not run(turn).moved.lost
    assert dump() == before
    assert before["stats:processed"] == before["stats:failed"] == b"1"


def test_a_turn_that_comes_late_takes_and_settles_nothing(run, moves, worker, fill, dump):
    fill("a", "1", "2")
    [one] = run(moves.turn(worker, 1, [], 1, ["a"])).taken
    late = moves.turn(worker, 2, [moves.done(worker, [one.tag])], 1, ["a"])
    run(moves.turn(worker, 3, [], 0, []))
    before = dump()

    assert run(late) == (3,)
    assert dump() == before


def test_settling_done_retry_dead_and_give_back(run, moves, worker, fill, dump, server_time):
    fill("a", "1", "2", "3", "4", "5")
    taken = run(moves.turn(worker, 1, [], 6, ["a"])).taken
    one, two, three, four, five = (each.tag for each in taken)
    start = server_time()

    turned = run(
        moves.turn(
            worker,
            2,
            [
                moves.done(worker, [one]),
                moves.retry(worker, two, b"2 again", 9.5),
                moves.bury(worker, three, b"3 dead"),
                *moves.give_back(worker, [back(four), back(five, b"5 changed")]),
            ],
            0,
            [],
        )
    )

    assert turned.moved == Moved()
    after = dump()
    assert start + 9.5 <= after["retry"].pop(b"2 again") <= server_time() + 9.5
    assert start <= after["dead"].pop(b"3 dead") <= server_time()
    assert after == {
        "retry": {},
        "dead": {},
        "queue:a": [b"5 changed", b"4"],
        "queues": {b"a"},
        "wake:a": [b"1", b"1"],
        "stats:processed": b"1",
        "stats:failed": b"2",
        "worker:w1:in_flight": {b"@turn": b"2 reliable"},
    }


def test_a_tag_that_is_gone_changes_nothing_and_is_counted_as_lost(run, moves, worker, fill, dump):
    fill("a", "1")
    [one] = run(moves.turn(worker, 1, [], 2, ["a"])).taken
    gone = b"1.9.a"

    turned = run(
        moves.turn(
            worker,
            2,
            [
                moves.done(worker, [one.tag, gone]),
                moves.retry(worker, gone, b"x", 1.0),
                moves.bury(worker, gone, b"x"),
                *moves.give_back(worker, [back(gone, b"x")]),
            ],
            0,
            [],
        )
    )

    assert turned.moved.lost == [gone] * 4
    assert dump() == {
        "stats:processed": b"1",
        "stats:lost_claims": b"4",
        "worker:w1:in_flight": {b"@turn": b"2 reliable"},
    }


def test_a_settlement_that_is_refused_leaves_the_job_and_stops_no_other(
    run, moves, worker, fill, redis, keys, dump
):
    fill("a", "1", "2", "3")
    one, two, three = run(moves.turn(worker, 1, [], 3, ["a"])).taken
    redis.set(keys.dead, "not a sorted set")

    settle = [
        moves.bury(worker, one.tag, b"1 dead"),
        moves.done(worker, [two.tag]),
        moves.retry(worker, three.tag, b"3 again", 1.0),
    ]
    turned = run(moves.turn(worker, 2, settle, 0, []))

    [(tag, error)] = turned.moved.failed
    assert tag == one.tag
    assert "WRONGTYPE" in error
    after = dump()
    assert after["worker:w1:in_flight"] == {b"@turn": b"2 reliable", one.tag: b"1"}
    assert after["stats:processed"] == after["stats:failed"] == b"1"


def test_a_damaged_counter_holds_up_no_job(run, moves, worker, fill, redis, keys, dump):
    fill("a", "1")
    [one] = run(moves.turn(worker, 1, [], 1, ["a"])).taken
    redis.set(keys.processed, "many")

    turned = run(moves.turn(worker, 2, [moves.done(worker, [one.tag])], 0, []))

    assert [key for key, _ in turned.moved.problems] == [keys.processed]
    assert dump()["worker:w1:in_flight"] == {b"@turn": b"2 reliable"}


def test_a_damaged_queue_stops_no_other(run, moves, worker, fill, redis, keys):
    fill("b", "1")
    redis.set(keys.queue("a"), "not a list")

    turned = run(moves.turn(worker, 1, [], 2, ["a", "b"]))

    assert [taken.payload for taken in turned.taken] == [b"1"]
    assert [key for key, _ in turned.moved.problems] == [keys.queue("a")]


def test_dead_is_kept_to_its_count_and_age(run, moves, worker, fill, redis, keys, server_time):
    fill("a", "1")
    [one] = run(moves.turn(worker, 1, [], 1, ["a"])).taken
    now = server_time()
    redis.zadd(keys.dead, {"old": now - 1001, "1": now - 3, "2": now - 2, "3": now - 1})

    run(moves.turn(worker, 2, [moves.bury(worker, one.tag, b"new")], 0, []))

    assert redis.zrange(keys.dead, 0, -1) == [b"2", b"3", b"new"]

    redis.delete(keys.dead)
    redis.zadd(keys.dead, {"old": now - 1001})
    fill("a", "2")
    [two] = run(moves.turn(worker, 3, [], 1, ["a"])).taken
    run(moves.turn(worker, 4, [moves.bury(worker, two.tag, b"newer")], 0, []))

    assert redis.zrange(keys.dead, 0, -1) == [b"newer"]


def test_trimming_is_bounded(run, moves, worker, fill, redis, keys):
    fill("a", "1")
    [one] = run(moves.turn(worker, 1, [], 1, ["a"])).taken
    redis.zadd(keys.dead, {f"old {number}": number for number in range(3000)})

    run(moves.turn(worker, 2, [moves.bury(worker, one.tag, b"new")], 0, []))

    assert redis.zcard(keys.dead) == 2001


def test_counts_are_added_once_for_each_job_that_moves(run, moves, worker, fill, keys, dump):
    fill("a", "1", "2", "3")
    tags = [each.tag for each in run(moves.turn(worker, 1, [], 3, ["a"])).taken]
    verbs = (count(keys.processed, 2).verb, count(keys.failed, 5).verb)

    move = Move(worker, Place.NOWHERE, 4, [*tags, b"1.7.a"], verbs)
    run(moves.turn(worker, 2, [move], 0, []))

    after = dump()
    assert after["stats:processed"] == b"6"
    assert after["stats:failed"] == b"15"


def test_who_takes_is_in_the_registry_so_that_its_jobs_can_be_rescued(
    run, moves, worker, fill, redis, keys, server_time
):
    fill("a", "1")

    run(moves.turn(worker, 1, [], 1, ["a"]))
    first = redis.zscore(keys.workers, worker.worker)
    run(moves.turn(worker, 2, [], 1, ["a"]))

    assert first == pytest.approx(server_time(), abs=5)
    assert redis.zscore(keys.workers, worker.worker) == first, "a turn is not a beat"


def test_a_damaged_set_of_paused_queues_stops_nothing(run, moves, worker, fill, redis, keys):
    fill("a", "1", "2")
    redis.set(keys.paused_queues, "not a set")

    turned = run(moves.turn(worker, 1, [], 1, ["a"]))
    assert len(turned.taken) == 1
    assert [key for key, _ in turned.moved.problems] == [keys.paused_queues]
    settle = moves.turn(worker, 2, [moves.done(worker, [turned.taken[0].tag])], 1, ["a"])
    run(settle)
    run(settle)

    assert redis.get(keys.processed) == b"1"
    assert redis.get(keys.lost_claims) is None


def test_a_read_only_server_changes_nothing_and_says_so(
    run, moves, worker, fill, redis, keys, dump
):
    fill("a", "1", "2")
    [one, two] = run(moves.turn(worker, 1, [], 2, ["a"])).taken
    before = dump()
    redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        settle = [moves.retry(worker, one.tag, b"x", 1.0), moves.done(worker, [two.tag])]
        for command in (
            moves.turn(worker, 2, settle, 1, ["a"]),
            moves.push("lane", 1, "j", [NewJob("a", b"new")]),
            moves.push("lane", 1, "j", [NewJob("a", b"new", None, 5.0)]),
        ):
            with pytest.raises(RedisUnavailable):
                run(command)
    finally:
        redis.execute_command("REPLICAOF", "NO", "ONE")

    assert dump() == before


def test_large_batches_pass(run, moves, worker, fill, dump):
    fill("a", *[str(number) for number in range(1000)])
    tags = [each.tag for each in run(moves.turn(worker, 1, [], 1001, ["a"])).taken]

    run(moves.turn(worker, 2, [moves.done(worker, tags)], 0, []))

    assert dump() == {"stats:processed": b"1000", "worker:w1:in_flight": {b"@turn": b"2 reliable"}}


@pytest.mark.parametrize("queue", ["a.b", "ü", "a b", "1.2.3", "📮", "x" * 200])
def test_any_queue_name_survives_in_a_tag(queue, run, moves, worker, fill, redis, keys):
    fill(queue, "1")

    [taken] = run(moves.turn(worker, 1, [], 1, [queue])).taken
    assert taken.queue == queue

    run(moves.turn(worker, 2, moves.give_back(worker, [back(taken.tag)]), 0, []))
    assert redis.lrange(keys.queue(queue), 0, -1) == [b"1"]
