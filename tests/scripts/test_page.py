"""page.lua: a place is looked through, a part in each call, while it changes."""

import pytest

from cogworker import RedisRefused
from cogworker._engine import browse
from cogworker._engine.browse import START
from cogworker._engine.places import Place, Queue

MAIL = Queue("mail")


@pytest.fixture
def look(run, keys):
    def look(place, start=START, limit=100, *texts):
        return run(browse.page(keys, place, start, limit, texts))

    return look


def raws(part):
    return [found.raw for found in part.found]


def test_an_empty_place_has_nothing(look, dump):
    for place in (Place.SCHEDULE, Place.RETRY, Place.DEAD, MAIL):
        assert look(place) == ([], None)
    assert dump() == {}


def test_sets_are_read_from_the_end_that_matters(look, redis, keys):
    redis.zadd(keys.schedule, {"b": 2, "a": 1, "c": 3.25})
    redis.zadd(keys.dead, {"b": 2, "a": 1, "c": 3.25})

    first = look(Place.SCHEDULE, START, 2)
    assert first.found == [(b"a", 1), (b"b", 2)]
    assert look(Place.SCHEDULE, first.end) == ([(b"c", 3.25)], None)
    first = look(Place.DEAD, START, 2)
    assert first.found == [(b"c", 3.25), (b"b", 2)]
    assert look(Place.DEAD, first.end) == ([(b"a", 1)], None)


@pytest.mark.parametrize("place", [Place.RETRY, Place.DEAD])
def test_entries_of_one_time_are_told_apart_and_go_meanwhile(place, look, redis, keys):
    key = keys.retry if place is Place.RETRY else keys.dead
    redis.zadd(key, {f"{number:03}": 7 for number in range(120)})
    seen, end = [], START

    while end is not None:
        part = look(place, end, 50)
        seen += raws(part)
        for raw in raws(part)[::2] + raws(part)[-1:]:
            redis.zrem(key, raw)
        end = part.end

    assert {int(raw) for raw in seen} == set(range(120))


def test_one_that_is_due_later_meanwhile_hides_nothing(look, redis, keys):
    redis.zadd(keys.schedule, {"a": 1, "b": 2, "c": 3})

    first = look(Place.SCHEDULE, START, 1)
    redis.zadd(keys.schedule, {"a": 9})

    assert raws(look(Place.SCHEDULE, first.end)) == [b"b", b"c", b"a"]


def test_a_queue_is_read_from_its_newest_job_on(look, redis, keys):
    redis.lpush(keys.queue("mail"), *"abcde")

    first = look(MAIL, START, 2)

    assert first.found == [(b"e", 1), (b"d", 2)]
    assert look(MAIL, first.end).found == [(b"c", 3), (b"b", -2), (b"a", -1)]


def test_what_is_pushed_and_taken_meanwhile_hides_nothing(look, redis, keys):
    queue = keys.queue("mail")
    redis.lpush(queue, *(f"{number:03}" for number in range(300)))
    staying = {f"{number:03}".encode() for number in range(60, 300)}
    seen, end, number = [], START, 300

    while end is not None:
        part = look(MAIL, end, 20)
        seen += raws(part)
        redis.lpush(queue, *(f"{number + more:03}" for more in range(30)))
        number += 30
        redis.rpop(queue, 3)
        redis.lrem(queue, 1, seen[-1])
        end = part.end

    assert staying <= set(seen)
    assert max(seen) < b"300", "it goes on to the jobs that were there, not after those that come"


def test_jobs_that_come_back_to_the_end_hide_nothing(look, redis, keys):
    queue = keys.queue("mail")
    redis.lpush(queue, *(f"{number:03}" for number in range(100)))

    first = look(MAIL, START, 50)
    redis.rpush(queue, *(f"back {number}" for number in range(15)))
    rest = look(MAIL, first.end)

    assert raws(rest)[:50] == [f"{number:03}".encode() for number in reversed(range(50))]


def test_the_server_looks_for_texts(look, redis, keys):
    redis.zadd(keys.dead, {b"one \xff two": 1, "one": 2, "two": 3, "(.*)": 4})

    assert raws(look(Place.DEAD, START, 9, b"one", b"two")) == [b"one \xff two"]
    assert raws(look(Place.DEAD, START, 9, b"\xff")) == [b"one \xff two"]
    assert raws(look(Place.DEAD, START, 9, b".*")) == [b"(.*)"]


@pytest.mark.parametrize("place", [Place.SCHEDULE, MAIL])
def test_a_call_looks_at_a_thousand_entries_or_a_megabyte(place, look, redis, keys):
    def fill(entries):
        if place is MAIL:
            redis.lpush(keys.queue("mail"), *entries)
        else:
            redis.zadd(keys.schedule, {entry: number for number, entry in enumerate(entries)})

    fill([f"{number:04}" for number in range(2500)])
    first = look(place, START, 500, b"nothing")
    assert first.found == []
    second = look(place, first.end, 500, b"nothing")
    third = look(place, second.end, 500, b"nothing")
    assert (bool(second.end), third.end) == (True, None)

    redis.delete(keys.schedule, keys.queue("mail"))
    fill([f"{number}" + "x" * 400_000 for number in range(7)])
    assert len(look(place).found) == 3


def test_a_key_of_the_wrong_type_is_told(look, redis, keys):
    redis.set(keys.dead, "not a set")

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        look(Place.DEAD)


def test_the_oldest_of_a_queue_and_its_size(run, redis, keys):
    redis.lpush(keys.queue("mail"), *"abcde")

    assert raws(run(browse.oldest(keys, MAIL, 2))) == [b"b", b"a"]
    assert raws(run(browse.oldest(keys, MAIL, 9))) == [b"e", b"d", b"c", b"b", b"a"]
    assert run(browse.size(keys, MAIL)) == 5
    assert run(browse.size(keys, Place.DEAD)) == 0
