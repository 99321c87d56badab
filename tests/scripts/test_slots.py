"""What the script does with a claim of a time slot: conditions, lock and push in one step."""

import pytest

from cogworker._engine.effects import claim
from cogworker._engine.moves import NewJob
from cogworker._engine.replies import Moved, Refused
from cogworker.features.periodic import Slots

MAIL = {"queues": {b"mail"}, "wake:mail": [b"1"]}


@pytest.fixture
def slots(keys):
    return Slots(keys)


@pytest.fixture
def fire(run, moves, slots, keys):
    def fire(slot, *, entry="e", lock="", catch_up=True):
        payload = f"{entry}{slot}".encode()
        effects = (claim(keys.lock(lock), f"j{slot}", 100),) if lock else ()
        conditions = slots.fire(entry, slot, f"j{slot}", catch_up=catch_up)
        return run(moves.move([moves.put(NewJob("mail", payload, effects=effects), conditions)]))

    return fire


def test_the_first_claim_pushes_and_is_noted(fire, dump):
    assert fire(60) == Moved()

    assert dump() == {
        **MAIL,
        "queue:mail": [b"e60"],
        "periodic:slots": {b"e": b"60"},
        "periodic:runs": {b"e": b"60 j60"},
    }


@pytest.mark.parametrize("slot", [60, 0, 59])
def test_a_slot_that_is_not_later_than_the_last_one_changes_nothing(fire, dump, slot):
    fire(60)
    before = dump()

    assert fire(slot).refused == [Refused(b"1", "advance", "60")]
    assert dump() == before


def test_slots_are_numbers_and_no_texts(fire, dump):
    fire(900)

    assert fire(1000) == Moved()
    assert dump()["periodic:slots"] == {b"e": b"1000"}


@pytest.mark.parametrize("odd", [b"0x7fffffffffffffff", b"1e300", b"nan", b"abc", b"", b"\xff"])
def test_a_slot_that_is_no_number_is_overwritten(fire, redis, keys, dump, odd):
    redis.hset(keys.periodic_slots, "e", odd)

    assert fire(60) == Moved()
    assert dump()["periodic:slots"] == {b"e": b"60"}


def test_without_catching_up_the_first_slot_is_only_remembered(fire, dump):
    assert fire(60, catch_up=False).refused == [Refused(b"1", "advance", "seeded")]
    assert dump() == {"periodic:slots": {b"e": b"60"}}
    assert fire(60, catch_up=False).refused == [Refused(b"1", "advance", "60")]

    assert fire(120, catch_up=False) == Moved()
    assert dump()["queue:mail"] == [b"e120"]


def test_a_disabled_entry_claims_nothing(fire, redis, keys, dump):
    fire(60)
    redis.sadd(keys.periodic_disabled, "e")
    before = dump()

    assert fire(120).refused == [Refused(b"1", "unless", "")]
    assert dump() == before
    assert fire(120, entry="other") == Moved()


def test_a_slot_whose_lock_is_held_is_skipped_for_everybody(fire, dump, redis, keys):
    fire(60, lock="l")
    before = dump()

    assert fire(120, lock="l").refused == [Refused(b"1", "claim", "j60")]
    assert dump() == {**before, "periodic:slots": {b"e": b"120"}}
    redis.delete(keys.lock("l"))
    assert fire(120, lock="l").refused == [Refused(b"1", "advance", "120")]
    assert fire(180, lock="l") == Moved()


@pytest.mark.parametrize("lock", ["", "l"])
def test_a_claim_whose_job_can_t_be_pushed_is_taken_back(fire, redis, keys, dump, lock):
    fire(60)
    redis.delete(keys.queue("mail"))
    redis.set(keys.queue("mail"), "not a list")
    before = dump()

    [(number, error)] = fire(120, lock=lock).failed
    assert (number, "WRONGTYPE" in error) == (b"1", True)
    assert dump() == before


def test_who_can_t_tell_what_was_fired_fires_nothing(fire, redis, keys, dump):
    redis.set(keys.periodic_slots, "not a hash")

    moved = fire(60)

    assert moved.refused == [Refused(b"1", "advance", "damaged")]
    assert moved.problems[0][0] == keys.periodic_slots
    assert dump() == {"periodic:slots": b"not a hash"}


@pytest.mark.parametrize("name", ["periodic_disabled", "periodic_runs"])
def test_other_damaged_keys_hold_up_nothing(fire, redis, keys, dump, name):
    redis.set(getattr(keys, name), "x")

    assert fire(60).problems[0][0] == getattr(keys, name)
    assert dump()["queue:mail"] == [b"e60"]


def test_one_call_claims_for_many_entries_each_by_itself(run, moves, slots, keys, redis, dump):
    redis.sadd(keys.periodic_disabled, "e1")
    redis.hset(keys.periodic_slots, "e2", 60)
    jobs = [NewJob("mail", b"p%d" % n) for n in range(4)]

    moved = run(
        moves.move(
            [
                moves.put(job, slots.fire(f"e{n}", 60, f"j{n}", catch_up=n != 3))
                for n, job in enumerate(jobs)
            ]
        )
    )

    assert [(each.job, each.verb) for each in moved.refused] == [
        (b"2", "unless"), (b"3", "advance"), (b"4", "advance"),
    ]  # fmt: skip
    assert dump()["queue:mail"] == [b"p0"]


def test_what_is_published_stays_and_is_forgotten(run, moves, slots, redis, keys, dump):
    run(moves.move([moves.note(slots.publish({"a": b"{}", "b": b"[]"}, 5.0, "w"))]))
    redis.hset(keys.periodic_slots, mapping={"a": 1, "b": 2})
    run(moves.move([moves.note(slots.skipped("a", 60, "j"))]))
    redis.sadd(keys.periodic_disabled, "a")
    assert dump() == {
        "periodic:entries": {b"a": b"{}", b"b": b"[]"},
        "periodic:seen": {b"a": b"5.000 w", b"b": b"5.000 w"},
        "periodic:slots": {b"a": b"1", b"b": b"2"},
        "periodic:skips": {b"a": b"60 j"},
        "periodic:disabled": {b"a"},
    }
    assert redis.ttl(keys.periodic_entries) == -1

    run(moves.move([moves.note(slots.forget(pjid, b"5.000 w")) for pjid in ("a", "c")]))

    assert dump() == {
        "periodic:entries": {b"b": b"[]"},
        "periodic:seen": {b"b": b"5.000 w"},
        "periodic:slots": {b"b": b"2"},
        "periodic:disabled": {b"a"},
    }


def test_what_was_published_meanwhile_is_not_forgotten(run, moves, slots, dump):
    run(moves.move([moves.note(slots.publish({"a": b"{}"}, 5.0, "w"))]))
    before = dump()

    run(moves.move([moves.note(slots.forget("a", b"4.000 w"))]))

    assert dump() == before
