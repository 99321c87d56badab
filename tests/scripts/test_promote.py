"""due.lua and move.lua: entries that are due go to their queues."""

import pytest

from cogworker._engine.moves import Waiting
from cogworker._engine.places import Place
from cogworker._engine.replies import Moved

from support.counting import back


def test_due_reads_pages_and_the_time_of_the_next_entry(run, moves, redis, keys, server_time, dump):
    now = server_time()
    redis.zadd(keys.schedule, {"b": now - 1, "a": now - 2, "c": now - 0.5, "later": now + 90})
    redis.zadd(keys.retry, {"r": now - 3, "soon": now + 30})
    redis.zadd(keys.workers, {"w1": now, "w2": now})
    before = dump()

    due = run(moves.due(2, 10**6))

    assert due.schedule == [b"a", b"b"]
    assert due.retry == [b"r"]
    assert due.more
    assert due.workers == 2
    assert 25 < due.next_in_s <= 30
    assert now <= due.time <= server_time()
    assert dump() == before


def test_reading_what_is_due_stops_after_so_many_bytes(run, moves, redis, keys):
    redis.zadd(keys.retry, {f"{number:03}" + "x" * 10_000: number for number in range(1, 101)})

    due = run(moves.due(100, 500_000))

    assert 50 <= len(due.retry) <= 70
    assert due.more
    assert not run(moves.due(200, 10**7)).more


def test_a_set_that_is_damaged_does_not_hide_the_other(run, moves, redis, keys):
    redis.set(keys.schedule, "not a sorted set")
    redis.zadd(keys.retry, {"a": 1})

    due = run(moves.due(10, 10**6))

    assert due.retry == [b"a"]
    assert [key for key, _ in due.problems] == [keys.schedule]


def test_nothing_is_due_and_nothing_will_be(run, moves):
    due = run(moves.due(10, 10**6))

    assert (due.schedule, due.retry, due.next_in_s, due.workers) == ([], [], None, 0)


def test_promoting_moves_each_entry_once(run, moves, redis, keys, dump):
    redis.zadd(keys.schedule, {"a": 1, "b": 2, "c": 3})
    jobs = [
        Waiting(b"a", b"a now", "mail"),
        Waiting(b"b", b"b now", "slow"),
        Waiting(b"gone", b"x", "mail"),
    ]
    promote = moves.move(moves.promote(Place.SCHEDULE, jobs))

    assert run(promote).lost == [b"gone"]
    after = dump()
    assert after == {
        "schedule": {b"c": 3},
        "queue:mail": [b"a now"],
        "queue:slow": [b"b now"],
        "queues": {b"mail", b"slow"},
        "wake:mail": [b"1"],
        "wake:slow": [b"1"],
    }

    assert sorted(run(promote).lost) == [b"a", b"b", b"gone"]
    assert dump() == after


def test_an_entry_whose_queue_is_damaged_stays(run, moves, redis, keys, dump):
    redis.zadd(keys.retry, {"a": 1, "b": 2})
    redis.set(keys.queue("mail"), "not a list")
    jobs = [Waiting(b"a", b"a now", "mail"), Waiting(b"b", b"b now", "slow")]

    moved = run(moves.move(moves.promote(Place.RETRY, jobs)))

    assert [entry for entry, _ in moved.failed] == [b"a"]
    assert dump()["retry"] == {b"a": 1}


def test_burying_an_entry_that_is_no_job(run, moves, redis, keys, dump, server_time):
    redis.zadd(keys.schedule, {"junk": 1})

    run(moves.move([moves.bury(Place.SCHEDULE, b"junk", b"wrapped")]))

    after = dump()
    assert after.pop("dead")[b"wrapped"] <= server_time()
    assert after == {"stats:failed": b"1"}


@pytest.fixture
def full(redis):
    before = redis.config_get("maxmemory")["maxmemory"]
    redis.config_set("maxmemory", "1")
    yield
    redis.config_set("maxmemory", before)


def test_a_full_server_lets_promotion_and_rescue_go_on(run, moves, worker, redis, keys, dump, full):
    redis.config_set("maxmemory", "0")
    redis.zadd(keys.retry, {"a": 1})
    redis.hset(keys.in_flight(worker.worker), "1.1.mail", "b")
    redis.config_set("maxmemory", "1")

    promote = moves.promote(Place.RETRY, [Waiting(b"a", b"a again", "mail")])
    assert run(moves.move(promote)) == Moved()
    give_back = moves.give_back(worker, [back(b"1.1.mail")])
    assert run(moves.rescue(worker, None, give_back)) == Moved()

    assert dump()["queue:mail"] == [b"a again", b"b"]


def test_postponing_changes_only_the_time(run, moves, redis, keys, dump, server_time):
    redis.zadd(keys.retry, {"a": 1, "b": 2})

    run(moves.move([moves.postpone(Place.RETRY, [b"a"], 60)]))

    after = dump()["retry"]
    assert after[b"b"] == 2
    assert after[b"a"] == pytest.approx(server_time() + 60, abs=5)
