"""Orders, pauses and quarantine, and what they leave in the database."""

import pytest

from cogworker._engine import control, presence, quarantine
from cogworker.errors import RedisRefused


def test_an_order_is_stored_and_rings_a_bell_that_falls_silent(run, keys, redis, dump, server_time):
    run(presence.beat(keys, "w", {"busy": "0"}, 60))
    now = server_time()

    assert run(control.order(keys, "w", "quiet", "ada")) == "ordered"
    assert run(control.order(keys, "w", "stop", "bob")) == "ordered"

    after = dump()
    orders = after["worker:w:orders"]
    at = float(orders.pop(b"at"))
    assert now <= at <= server_time()
    assert len(order_id := orders.pop(b"id")) == 16
    assert orders == {b"order": b"stop", b"by": b"bob"}
    assert after["worker:w:bell"] == [b"1"]
    assert 0 < redis.ttl(keys.order_bell("w")) <= 60
    assert 0 < redis.ttl(keys.orders("w")) <= 86400
    assert run(control.standing(keys, "w")) == (order_id.decode(), "stop", "bob", False, "")


def test_an_order_for_nobody_leaves_nothing(run, keys, dump):
    assert run(control.order(keys, "w", "quiet", "ada")) == "gone"
    assert dump() == {}
    assert run(control.standing(keys, "w")) == ("", "", "", False, "")


def test_pausing_queues_and_intake(run, keys, redis, dump):
    assert run(control.pause_queue(keys, "a", True, "ada"))
    assert not run(control.pause_queue(keys, "a", True, "bob"))
    assert run(control.pause_intake(keys, True, "ada"))
    after = dump()
    assert after["paused_queues"] == {b"a"}
    assert after["pauses"][b"a"].endswith(b" ada")
    assert after["intake"][b"by"] == b"ada"
    assert run(control.standing(keys, "w")) == ("", "", "", True, "ada")

    assert run(control.pause_queue(keys, "a", False, "ada"))
    assert run(control.pause_intake(keys, False, "ada"))
    assert not run(control.pause_intake(keys, False, "ada"))
    assert [key for key in dump() if not key.startswith("call:")] == []


def test_what_is_sent_again_gets_the_same_answer_and_changes_nothing(run, keys, dump):
    run(presence.beat(keys, "w", {"busy": "0"}, 60))
    steps = [
        control.order(keys, "w", "quiet", "ada"),
        control.pause_queue(keys, "a", True, "ada"),
        control.pause_intake(keys, True, "ada"),
    ]
    answers = [run(step) for step in steps]
    later = [
        control.order(keys, "w", "stop", "bob"),
        control.pause_queue(keys, "a", False, "bob"),
        control.pause_intake(keys, False, "bob"),
    ]
    assert [run(step) for step in later] == ["ordered", True, True]
    before = dump()

    assert [run(step) for step in steps] == answers == ["ordered", True, True]
    assert dump() == before


def test_a_damaged_note_of_who_paused_is_an_error_before_anything_is_written(
    run, keys, redis, dump
):
    redis.set(keys.pauses, "mess")
    redis.set(keys.intake, "mess")
    before = dump()
    for command in (
        control.pause_queue(keys, "a", True, "ada"),
        control.pause_intake(keys, True, "ada"),
    ):
        with pytest.raises(RedisRefused, match="WRONGTYPE"):
            run(command)
    assert dump() == before


def test_bells_are_rung_in_portions(run, keys, dump):
    workers = [str(number) for number in range(1100)]
    calls = list(control.ring(keys, workers))
    assert [run(call) for call in calls] == [500, 500, 100]
    assert len(dump()) == 1100
    assert list(control.ring(keys, [])) == []


def test_only_keys_of_the_wrong_type_are_named_and_moved(run, keys, redis, dump):
    redis.set(keys.dead, "mess")
    redis.zadd(keys.retry, {"x": 1})
    expected = quarantine.fixed(keys)
    [question] = quarantine.wrong(expected)

    assert run(question) == [keys.dead]
    assert run(quarantine.put_aside(keys, keys.retry, "zset")) is None
    assert run(quarantine.put_aside(keys, keys.schedule, "zset")) is None
    aside = run(quarantine.put_aside(keys, keys.dead, "zset"))

    assert aside == ("string", keys.quarantine(keys.dead, 1))
    assert dump() == {"quarantine:dead:1": b"mess", "retry": {b"x": 1.0}}


def test_a_copy_that_somebody_wants_to_keep_is_not_overwritten(run, keys, redis):
    for number in range(1, 7):
        redis.set(keys.dead, number)
        run(quarantine.put_aside(keys, keys.dead, "zset"))
        redis.persist(keys.quarantine(keys.dead, 1))

    assert redis.get(keys.quarantine(keys.dead, 1)) == b"1"


def test_more_keys_than_one_call_can_ask_for(keys):
    expected = quarantine.growing(keys, [], [str(number) for number in range(600)])
    calls = list(quarantine.wrong(expected))
    assert [len(call.keys) for call in calls] == [1000, 1000, 400]
