"""The verbs that keep books: exactly this is in the database, whatever is there already."""

import pytest

from cogworker._engine import books
from cogworker._engine.effects import Effect, append, claim, count, forget, log, record, tally
from cogworker._engine.places import Place
from cogworker._engine.plan import Move, merged

LOG, HASH, LIST = "log:success", "throughput:1", "attempts:j"


@pytest.fixture
def hold(redis, keys, worker):
    """Have the worker hold jobs; their tags are numbers."""

    def hold(*tags):
        for tag in tags:
            redis.hset(keys.in_flight(worker.worker), tag, "job")
        return [str(tag).encode() for tag in tags]

    return hold


@pytest.fixture
def settle(run, moves, worker, hold):
    """Settle so many jobs that are there, then so many that are gone, with the same effects.

    A log's entries are for one after another.
    """

    def settle(effects, jobs=1, gone=0):
        tags = [*hold(*range(jobs)), *(b"gone %d" % number for number in range(gone))]
        return run(moves.move([done(worker, tags, effects)]))

    return settle


def done(worker, tags, effects):
    """The jobs are over; each says what the same effects say, but to a log its own."""
    items = []
    for number, tag in enumerate(tags):
        items.append(tag)
        for effect in effects:
            items += effect.own[number : number + 1] if effect.verb.listed else effect.own
    return Move(worker, Place.NOWHERE, len(tags), items, tuple(each.verb for each in effects))


@pytest.fixture
def entries(run, keys):
    """The log from its oldest entry on."""
    return lambda: run(books.newest(keys.logged_successes, "+", 0, 10_000))[::-1]


def said(entries):
    return [group for entry in entries for group, _ in entry.groups]


class TestCount:
    def test_adds_once_for_each_job_that_moves(self, settle, keys, dump):
        settle([count(keys.processed, 2), count(keys.failed)], jobs=3, gone=2)

        assert dump() == {"stats:processed": b"6", "stats:failed": b"3"}

    def test_is_summed_over_all_groups_of_a_call(self, run, moves, worker, hold, keys, dump):
        groups = [done(worker, [tag], [count(keys.processed)]) for tag in hold(1, 2)]

        run(moves.move(groups))

        assert dump() == {"stats:processed": b"2"}

    def test_a_damaged_counter_is_told_and_holds_up_nothing(self, settle, keys, redis, dump):
        redis.set(keys.processed, "many")

        moved = settle([count(keys.processed), count(keys.failed)])

        assert [key for key, _ in moved.problems] == [keys.processed]
        assert dump() == {"stats:processed": b"many", "stats:failed": b"1"}


class TestTally:
    def test_adds_to_fields_and_expires(self, settle, keys, redis, dump):
        effect = tally(keys.throughput(1), {"a b": 1, "c:d": 3}, 99.5)

        settle([effect], jobs=2, gone=1)
        settle([effect])

        assert dump() == {HASH: {b"a b": b"3", b"c:d": b"9"}}
        assert 95 < redis.ttl(keys.throughput(1)) <= 100

    def test_nothing_is_written_when_no_job_moves(self, settle, keys, dump):
        settle([tally(keys.throughput(1), {"a": 1}, 99), count(keys.processed)], jobs=0, gone=2)

        assert dump() == {}

    def test_a_damaged_hash_is_told_and_holds_up_nothing(self, settle, keys, redis, dump):
        redis.set(keys.throughput(1), "text")

        moved = settle([tally(keys.throughput(1), {"a": 1}, 99), count(keys.failed)])

        assert {key for key, _ in moved.problems} == {keys.throughput(1)}
        assert dump() == {HASH: b"text", "stats:failed": b"1"}


class TestRecord:
    def test_writes_and_drops_fields_and_expires(self, settle, keys, redis, dump):
        redis.hset(keys.status("j"), mapping={"a": 0, "b": 0, "c": 0, "d": 0})

        settle([record(keys.status("j"), {"a": 1, "new": b"\xff\x00"}, 99.5, drop=("b", "c", "x"))])

        assert dump() == {"status:j": {b"a": b"1", b"new": b"\xff\x00", b"d": b"0"}}
        assert 95 < redis.ttl(keys.status("j")) <= 100

    def test_a_time_beyond_what_the_server_can_count_is_cut(self, settle, keys, redis):
        moved = settle([record(keys.status("j"), {"a": 1}, 1e308)])

        assert not moved.problems
        assert redis.ttl(keys.status("j")) > 10**9

    def test_without_a_time_it_stays_as_long_as_it_would(self, settle, keys, redis, dump):
        settle([record(keys.status("j"), {"a": 1}, 0)])
        assert redis.ttl(keys.status("j")) == -1

        settle([record(keys.status("j"), {}, 50)])
        settle([record(keys.status("j"), {}, 0, drop=("x",))])
        assert dump() == {"status:j": {b"a": b"1"}}
        assert 45 < redis.ttl(keys.status("j")) <= 50

    def test_what_is_only_dropped_or_kept_makes_no_hash(self, settle, keys, dump):
        settle([record(keys.status("j"), {}, 50, drop=("x",))])

        assert dump() == {}

    def test_each_job_has_its_own_hash(self, run, moves, worker, hold, keys, dump):
        groups = []
        for tag in [*hold(1, 2), b"gone"]:
            name = tag.decode()
            groups.append(done(worker, [tag], [record(keys.status(name), {"n": name, "m": 0}, 9)]))

        run(moves.move(merged(groups)))

        assert len(merged(groups)) == 1
        fields = {b"m": b"0"}
        assert dump() == {
            "status:1": {**fields, b"n": b"1"},
            "status:2": {**fields, b"n": b"2"},
        }

    def test_a_damaged_hash_is_told_and_holds_up_nothing(self, settle, keys, redis, dump):
        redis.set(keys.status("j"), "text")

        effect = record(keys.status("j"), {"a": 1}, 50, drop=("b",))
        moved = settle([effect, count(keys.processed)])

        assert [key for key, _ in moved.problems] == [keys.status("j")] * 2
        assert dump() == {"status:j": b"text", "stats:processed": b"1"}
        assert redis.ttl(keys.status("j")) > 0, "what does not belong there goes by itself"


class TestAppend:
    def test_keeps_the_last_and_expires(self, settle, keys, redis, dump):
        for number in range(5):
            settle([append(keys.attempts("j"), b"%d" % number, 3, 50)])

        assert dump() == {LIST: [b"2", b"3", b"4"]}
        assert 45 < redis.ttl(keys.attempts("j")) <= 50

    def test_each_job_has_its_own_list(self, run, moves, worker, hold, keys, dump):
        tags = hold(1, 2)
        items = [word for tag in tags for word in (tag, keys.attempts(tag.decode()), tag + b"!")]
        verb = append("", b"", 3, 50).verb

        run(moves.move([Move(worker, Place.NOWHERE, 2, items, (verb,))]))

        assert dump() == {"attempts:1": [b"1!"], "attempts:2": [b"2!"]}

    def test_a_job_that_is_gone_appends_nothing(self, settle, keys, dump):
        settle([append(keys.attempts("j"), b"x", 3, 50)], jobs=0, gone=1)

        assert dump() == {}

    def test_a_damaged_list_is_told_and_holds_up_nothing(self, settle, keys, redis, dump):
        redis.set(keys.attempts("j"), "text")

        moved = settle([append(keys.attempts("j"), b"x", 3, 50)])

        assert {key for key, _ in moved.problems} == {keys.attempts("j")}
        assert dump() == {LIST: b"text"}


class TestForget:
    def test_deletes_whatever_it_is(self, settle, keys, redis, dump):
        redis.rpush(keys.attempts("j"), "x")

        settle([forget(keys.attempts("j"))])
        settle([forget(keys.attempts("j"))])

        assert dump() == {}

    def test_a_job_that_is_gone_deletes_nothing(self, settle, keys, redis, dump):
        redis.rpush(keys.attempts("j"), "x")

        settle([forget(keys.attempts("j"))], jobs=0, gone=1)

        assert dump() == {LIST: [b"x"]}


class TestLog:
    @pytest.fixture
    def logs(self, keys):
        """An effect that logs, with an entry for each of several jobs."""

        def logs(*entries, most=100, age_s=1000.0):
            return Effect(log(keys.logged_successes, b"", most, age_s).verb, entries)

        return logs

    def test_adds_an_entry_and_expires(self, settle, logs, entries, redis, keys, dump, server_time):
        start = server_time()

        settle([logs(b"1", b"2")], jobs=2)

        assert dump() == {LOG: [{b"1": b"[1,2]"}]}
        [entry] = entries()
        assert entry.number == 2
        assert int(1000 * start) <= entry.ms <= 1000 * server_time()
        assert 990 < redis.ttl(keys.logged_successes) <= 1000

    def test_who_was_not_moved_does_not_count(self, settle, logs, entries, dump):
        settle([logs(b"1", b"2", b"3", b"4")], jobs=2, gone=2)

        assert dump() == {LOG: [{b"1": b"[1,2,3,4]", b"1 but": b"3 4"}]}
        assert [(entry.number, entry.groups) for entry in entries()] == [
            (2, [(b"[1,2,3,4]", {3, 4})])
        ]

    def test_nothing_is_logged_when_no_job_moves(self, settle, logs, dump):
        settle([logs(b"1")], jobs=0, gone=1)

        assert dump() == {}

    def test_a_refused_job_is_not_logged(self, run, moves, worker, hold, logs, keys, redis, dump):
        [free, held] = hold(1, 2)
        redis.set(keys.lock("held"), "another")
        verbs = (claim("", "", 9).verb, logs(b"1", b"2").verb)
        items = [free, keys.lock("free"), "j1", b"1", held, keys.lock("held"), "j2", b"2"]

        moved = run(moves.move([Move(worker, Place.NOWHERE, 2, items, verbs)]))

        assert [refused.job for refused in moved.refused] == [held]
        assert dump()[LOG] == [{b"1": b"[1,2]", b"1 but": b"2"}]

    def test_all_groups_of_a_call_are_one_entry(
        self, run, moves, worker, hold, logs, entries, dump
    ):
        [a, b, c] = hold(1, 2, 3)
        groups = [done(worker, tags, [logs(*said)]) for tags, said in (
            ([a], [b"1"]), ([b"gone"], [b"0"]), ([b"gone", b, c], [b"2", b"3", b"4"]),
        )]  # fmt: skip

        run(moves.move(groups))

        assert dump() == {LOG: [{b"1": b"[1]", b"2": b"[2,3,4]", b"2 but": b"1"}]}
        assert [entry.number for entry in entries()] == [3]

    def test_a_call_with_much_to_say_makes_several_entries(
        self, run, moves, worker, hold, logs, entries
    ):
        tags = hold(*range(5))
        groups = [done(worker, [tag], [logs(b'"%b"' % (b"x" * 40_000))]) for tag in tags]

        run(moves.move(groups))

        assert [entry.number for entry in entries()] == [2, 4, 5]

    def test_a_long_list_goes_in_portions(self, settle, logs, entries):
        told = [b'"%d %b"' % (number, b"x" * 9000) for number in range(50)]

        settle([logs(*told)], jobs=45, gone=5)

        assert b"".join(said(entries())).replace(b"][", b",") == b"[%b]" % b",".join(told)
        assert max(map(len, said(entries()))) <= 65_600
        assert entries()[-1].number == 45
        assert sum(len(others) for entry in entries() for _, others in entry.groups) == 5

    def test_beside_words_of_other_verbs(self, run, moves, worker, hold, logs, keys, dump):
        tags = hold(1, 2)
        verbs = (
            *(claim("", "", 9).verb, logs(b"").verb, append("", b"", 3, 9).verb),
            *(log(keys.logged_failures, b"", 9, 9).verb, count(keys.processed).verb),
        )
        items = [
            word
            for tag in tags
            for word in (
                tag,
                keys.lock(f"u{tag.decode()}"),
                b"j",
                tag,
                keys.attempts("j"),
                b"!",
                b"0",
            )
        ]

        run(moves.move([Move(worker, Place.NOWHERE, 2, items, verbs)]))

        assert dump() == {
            "unique:u1": b"j",
            "unique:u2": b"j",
            LOG: [{b"1": b"[1,2]"}],
            LIST: [b"!", b"!"],
            "log:failed": [{b"1": b"[0,0]"}],
            "stats:processed": b"2",
        }

    def test_a_huge_call_passes(self, run, moves, worker, hold, logs, entries):
        tags = hold(*range(2500))
        groups = [done(worker, [tag], [logs(b"%d" % n, most=9999)]) for n, tag in enumerate(tags)]

        run(moves.move(groups))

        assert [entry.number for entry in entries()] == [1000, 2000, 2500]
        assert said(entries()) == [b"[%d]" % number for number in range(2500)]

    def test_the_number_goes_on_and_ids_rise(self, settle, logs, entries):
        for _ in range(50):
            settle([logs(b"1", b"2", b"3")], jobs=3)

        ids = [(entry.ms, entry.number) for entry in entries()]
        assert ids == sorted(set(ids))
        assert [number for _, number in ids] == list(range(51, 151, 3))

    def test_ids_rise_even_when_the_clock_goes_back(
        self, settle, logs, entries, redis, keys, server_time
    ):
        ahead = int(1000 * server_time()) + 3_600_000
        redis.xadd(keys.logged_successes, {"1": "[0]"}, id=f"{ahead}-7")

        settle([logs(b"1")])

        assert [(entry.ms, entry.number) for entry in entries()] == [(ahead, 7), (ahead, 8)]

    @pytest.mark.parametrize("most", [1, 5])
    def test_so_many_are_kept_when_they_come_singly(self, settle, logs, entries, most):
        for number in range(12):
            settle([logs(b"%d" % number, most=most)])

        assert said(entries()) == [b"[%d]" % number for number in range(12 - most, 12)]

    @pytest.mark.parametrize("sizes", [[7] * 60, [1] * 200 + [64] * 40, [64] * 10 + [1] * 300])
    def test_about_so_many_are_kept_in_groups_of_any_size(self, settle, logs, entries, sizes):
        for size in sizes:
            settle([logs(*[b"1"] * size, most=200)], jobs=size)
            if entries()[-1].number > 300:
                kept = entries()[-1].number - entries()[0].number  # and those of the first
                assert 136 <= kept <= 264

    def test_shortening_is_bounded_and_goes_on(self, settle, logs, entries, redis, keys):
        for number in range(1, 1502):
            redis.xadd(keys.logged_successes, {"1": "[0]"}, id=f"{number}-{number}")
        old = 1e9  # older than any of these

        settle([logs(b"1", most=10, age_s=old * 10)])
        assert len(entries()) == 502
        settle([logs(b"1", most=10, age_s=old * 10)])

        assert len(entries()) == 10

    def test_what_is_too_old_goes(self, settle, logs, entries, redis, keys, server_time):
        now_ms = int(1000 * server_time())
        for number in range(1, 401):  # whole pages of the stream go
            redis.xadd(keys.logged_successes, {"1": "[0]"}, id=f"{now_ms - 50_000}-{number}")

        settle([logs(b"1", most=10_000, age_s=60.0)])
        assert len(entries()) == 401
        settle([logs(b"1", most=10_000, age_s=40.0)])

        assert 2 <= len(entries()) <= 102

    @pytest.mark.parametrize("kind", ["string", "zset"])
    def test_a_damaged_log_is_told_and_holds_up_nothing(
        self, settle, logs, redis, keys, dump, kind
    ):
        if kind == "string":
            redis.set(keys.logged_successes, "text")
        else:
            redis.zadd(keys.logged_successes, {"run": 1})
        before = dump()

        moved = settle([logs(b"1"), count(keys.processed)])

        assert {key for key, _ in moved.problems} == {keys.logged_successes}
        assert dump() == {**before, "stats:processed": b"1"}


def test_a_turn_that_is_sent_again_keeps_the_books_once(run, moves, worker, hold, keys, dump):
    effects = [
        count(keys.processed), tally(keys.throughput(1), {"a": 1}, 99),
        append(keys.attempts("j"), b"x", 3, 50), log(keys.logged_successes, b"1", 9, 99),
    ]  # fmt: skip
    turn = moves.turn(worker, 1, [done(worker, hold(1), effects)], 0, [])

    run(turn)
    before = dump()
    run(turn)

    assert dump() == before
    assert {key: before[key] for key in ("stats:processed", HASH, LIST, LOG)} == {
        "stats:processed": b"1",
        HASH: {b"a": b"1"},
        LIST: [b"x"],
        LOG: [{b"1": b"[1]"}],
    }


def test_a_full_server_lets_books_be_kept(run, moves, worker, hold, keys, redis, dump):
    [tag] = hold(1)
    effects = [count(keys.processed), log(keys.logged_successes, b"1", 9, 99)]
    redis.config_set("maxmemory", 1)
    try:
        moved = run(moves.move([done(worker, [tag], effects)]))
    finally:
        redis.config_set("maxmemory", 0)

    assert not moved.problems
    assert dump() == {"stats:processed": b"1", LOG: [{b"1": b"[1]"}]}


def test_hashes_are_read_whole_or_by_field_and_a_damaged_one_is_empty(run, keys, redis):
    redis.hset("{h}1", mapping={"a": 1, "b": 2})
    redis.set("{h}2", "text")

    try:
        assert run(books.hashes(["{h}1", "{h}2", "{h}3"], ["b", "c"])) == [
            [b"2", None], [], [None, None],
        ]  # fmt: skip
        assert run(books.hashes(["{h}1", "{h}2", "{h}3"])) == [[b"a", b"1", b"b", b"2"], [], []]
    finally:
        redis.delete("{h}1", "{h}2")
