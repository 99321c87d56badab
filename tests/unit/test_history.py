"""The run log: which runs are in it, and what of them; what is read of it, whatever it holds."""

import msgspec
import pytest

from cogworker._engine.books import LogEntry
from cogworker._engine.moves import Moves
from cogworker._engine.places import InFlight
from cogworker._engine.plan import merged
from cogworker._redis.keys import Keys
from cogworker.config import Config
from cogworker.features import Features
from cogworker.features.event import Event, Kind, Run
from cogworker.features.logged import (
    UNREADABLE,
    Attempt,
    Place,
    raw_runs,
    read_attempt,
    read_run,
)
from cogworker.features.transitions import Transitions
from cogworker.payload import encode, parse

KEYS = Keys("ns")
ERROR = {"error_class": "E", "error_message": "m", "error_backtrace": ["a", "b"]}
RUN = Run(2, 100.0, 0.5)
SUCCESS, FAILURE = Place(5, 0, 1, 1), Place(5, 1, 1, 1)


def job(**fields):
    return parse(encode({"class": "mail", "jid": "j1", "args": [1, "x"], **fields}))


def logged(event, **settings):
    """What an event has logged: the log and the entry."""
    history = Features(KEYS, Config(**settings)).history
    return {
        effect.verb.key: msgspec.json.decode(effect.own[0]) for effect in history.effects(event)
    }


def only(event, **settings):
    [entry] = logged(event, history=True, **settings).values()
    return entry


class Delivered:
    """A delivery whose run has succeeded."""

    def __init__(self, number, envelope, ran_s=0.0001):
        self.tag = b"1.%d.mail" % number
        self.envelope = envelope
        self.started_at = 1000.0 + number
        self.ran_s = ran_s
        self.queue = "mail"


class TestWhichRuns:
    def test_those_of_all_jobs_or_of_none(self):
        event = Event(Kind.DONE, job(), "q", run=RUN)

        assert logged(event) == {}
        assert list(logged(event, history=True)) == [KEYS.logged_successes]

    @pytest.mark.parametrize("always", [True, False])
    def test_a_job_may_say_otherwise(self, always):
        for wanted in (True, False):
            event = Event(Kind.DONE, job(history=wanted), "q", run=RUN)
            assert bool(logged(event, history=always)) is wanted

    @pytest.mark.parametrize("nonsense", ["yes", 1, [], None])
    def test_nonsense_in_a_payload_is_no_wish(self, nonsense):
        event = Event(Kind.DONE, job(history=nonsense), "q", run=RUN)

        assert logged(event) == {}
        assert logged(event, history=True)

    @pytest.mark.parametrize(
        ("kind", "error", "status", "outcome"),
        [
            (Kind.DONE, None, "success", "done"),
            (Kind.RESCHEDULED, None, "success", "rescheduled"),
            (Kind.DISCARDED, None, "success", "discarded"),
            (Kind.DISCARDED, ERROR, "failed", "discarded"),
            (Kind.RETRYING, ERROR, "failed", "retrying"),
            (Kind.DEAD, ERROR, "failed", "dead"),
        ],
    )
    def test_every_run_that_has_ended(self, kind, error, status, outcome):
        event = Event(kind, job(), "q", run=RUN._replace(error=error))

        [(log, entry)] = logged(event, history=True).items()

        assert log == {"success": KEYS.logged_successes, "failed": KEYS.logged_failures}[status]
        assert entry.get("outcome", "done") == outcome

    @pytest.mark.parametrize("kind", Kind)
    def test_nothing_without_a_run(self, kind):
        assert logged(Event(kind, job(), "q"), history=True) == {}

    def test_the_logs_are_kept_as_the_settings_say(self):
        features = Features(KEYS, Config(history=True, history_max_runs=7, history_max_age=2.5))
        [effect] = features.history.effects(Event(Kind.DONE, job(), "q", run=RUN))

        assert effect.verb.words == (7, 3)


class TestEntry:
    def test_of_a_success(self):
        assert only(Event(Kind.DONE, job(retry_count=1), "q", run=RUN)) == {
            "jid": "j1",
            "class": "mail",
            "queue": "q",
            "args": [1, "x"],
            "attempt": 2,
            "started_at": 100.0,
            "finished_at": 100.5,
        }

    def test_of_a_failure(self):
        entry = only(Event(Kind.DEAD, job(), "q", run=RUN._replace(error=ERROR)))

        assert {name: entry[name] for name in ("error_class", "error_message", "backtrace")} == {
            "error_class": "E",
            "error_message": "m",
            "backtrace": ["a", "b"],
        }

    def test_named_arguments_and_tags_when_there_are_any(self):
        entry = only(Event(Kind.DONE, job(kwargs={"k": 1}, tags=["a", "b"]), "q", run=RUN))

        assert (entry["kwargs"], entry["tags"]) == ({"k": 1}, ["a", "b"])

    def test_tags_that_other_software_made_are_bounded(self):
        tags = [5, "x" * 1000, *map(str, range(100))]
        entry = only(Event(Kind.DONE, job(tags=tags), "q", run=RUN))

        assert entry["tags"] == ["x" * 100, *map(str, range(19))]

    @pytest.mark.parametrize("fields", [{"args": ["é" * 9000]}, {"kwargs": {"k": "é" * 9000}}])
    def test_of_large_arguments_only_the_beginning(self, fields):
        entry = only(Event(Kind.DONE, job(**fields), "q", run=RUN))

        assert not {"args", "kwargs"} & entry.keys()
        assert entry["excerpt"].startswith(('["ééé', '[1,"x"]{"k":"ééé'))
        assert len(entry["excerpt"]) == 1000

    def test_of_a_large_stack_trace_the_end(self):
        lines = [f"{number:03} {'x' * 996}" for number in range(200)]
        run = RUN._replace(error={**ERROR, "error_backtrace": lines})

        assert only(Event(Kind.RETRYING, job(), "q", run=run))["backtrace"] == lines[-20:]

    def test_large_integers_stay_what_they_are(self):
        envelope = parse(b'{"class":"c","jid":"j","args":[ 123456789012345678901234567890 ]}')
        history = Features(KEYS, Config(history=True)).history
        [effect] = history.effects(Event(Kind.DONE, envelope, "q", run=RUN))

        assert b'"args":[ 123456789012345678901234567890 ]' in effect.own[0]


class TestAlike:
    def alike(self, deliveries, **settings):
        return Features(KEYS, Config(**settings)).of_plain_successes(deliveries)

    def test_what_differs_in_nothing_is_one_group(self):
        deliveries = [Delivered(number, job()) for number in range(5)]

        [group] = self.alike(deliveries)

        assert group.items == [each.tag for each in deliveries]
        assert [verb.name for verb in group.verbs] == ["count", "tally", "tally"]

    def test_with_history_it_is_still_one_group(self):
        deliveries = [Delivered(number, job(jid=f"j{number}")) for number in range(5)]

        [group] = self.alike(deliveries, history=True)

        assert group.items[::2] == [each.tag for each in deliveries]
        assert [verb.name for verb in group.verbs] == ["count", "tally", "tally", "log"]
        entries = [msgspec.json.decode(entry) for entry in group.items[1::2]]
        assert [entry["jid"] for entry in entries] == [f"j{number}" for number in range(5)]
        assert [entry["started_at"] - entries[0]["started_at"] for entry in entries] == (
            pytest.approx([0, 1, 2, 3, 4])
        )
        assert entries[0]["finished_at"] - entries[0]["started_at"] == pytest.approx(
            0.0001, rel=0.1
        )

    def test_groups_by_class_by_run_time_and_by_wish(self):
        deliveries = [
            Delivered(0, job()),
            Delivered(1, parse(b'{"class":"other","jid":"j"}')),
            Delivered(2, job(), ran_s=3.0),
            Delivered(3, job(history=True)),
            Delivered(4, job(history=False)),
        ]

        first, *others = self.alike(deliveries)

        assert first.items == [b"1.0.mail", b"1.4.mail"]
        assert [group.items[0] for group in others] == [b"1.1.mail", b"1.2.mail", b"1.3.mail"]
        assert [group.verbs[-1].name == "log" for group in others] == [False, False, True]

    def test_jobs_with_other_features_are_one_move_as_well(self):
        moves = Moves(KEYS, dead_max_jobs=1, dead_max_age_s=1)
        transitions = Transitions(moves, Features(KEYS, Config(history=True)))
        singles = [
            transitions.done(InFlight("w"), b"1.%d.q" % number, unique, "q", RUN)
            for number in range(3)
            for unique in [job(unique="until_executed", jid=f"j{number}", args=[number])]
        ]

        [one] = merged(singles)

        assert one.jobs == 3
        assert [verb.name for verb in one.verbs][-1] == "log"


class TestReading:
    def test_what_was_written_comes_back(self):
        envelope = job(kwargs={"k": [10**30]}, tags=["t"])
        history = Features(KEYS, Config(history=True)).history
        event = Event(Kind.DEAD, envelope, "q", run=RUN._replace(error=ERROR))
        [effect] = history.effects(event)

        [(place, raw), (end, nothing)] = raw_runs(
            LogEntry(5, 9, [(b"[%b]" % effect.own, frozenset())]), 1, ()
        )

        assert (end, nothing) == (Place(5, 1, 9, 0), b"")
        assert read_run(place, raw) == (
            *("5-failed-9-1", "failed", raw, "j1", "mail", "q", [1, "x"], {"k": [10**30]}),
            *("", ("t",), "dead", 2, 100.0, 100.5, "E", "m", ("a", "b")),
        )

    @pytest.mark.parametrize("raw", [b"", b"{}", b"null", b"[", b'{"jid":5}', b"\xff", b"[" * 5000])
    def test_an_entry_that_can_t_be_read_is_shown_as_such(self, raw):
        run = read_run(SUCCESS, raw)

        assert (run.id, run.status, run.outcome, run.raw) == (
            *("5-success-1-1", "success"),
            *(UNREADABLE, raw),
        )

    def test_one_bad_entry_does_not_hide_its_neighbours(self):
        entry = LogEntry(
            5, 9, [(b'[{"jid":1},{"jid":"\xff"},5]', frozenset()), (b"x", frozenset())]
        )

        assert [raw for _, raw in raw_runs(entry, 0, ())] == [
            *(b"x", b"5", b'{"jid":"\xff"}', b'{"jid":1}', b"")
        ]

    def test_those_that_were_not_moved_are_left_out(self):
        entry = LogEntry(5, 9, [(b"[1,2,3]", frozenset((1, 3))), (b"[4,5]", frozenset((2,)))])

        assert [raw for _, raw in raw_runs(entry, 0, ())] == [b"4", b"2", b""]

    def test_a_run_has_the_same_place_whatever_is_looked_for(self):
        entry = LogEntry(5, 9, [(b'["a"]', frozenset()), (b'["b"]', frozenset())])
        everywhere = {raw: place for place, raw in raw_runs(entry, 0, ())}

        for wanted in (b'"a"', b'"b"'):
            [(place, raw), _] = raw_runs(entry, 0, (wanted,))
            assert (everywhere[raw], raw) == (place, wanted)

    def test_places_are_read_as_they_are_written(self):
        for place in (SUCCESS, FAILURE, Place(10**13, 1, 0, 0)):
            assert Place.read(str(place)) == place

    @pytest.mark.parametrize("text", ["", "1-2", "1-good-2-3", "a-failed-1-1", "1-failed-1-1-1"])
    def test_what_is_no_place_is_refused(self, text):
        with pytest.raises(ValueError):  # noqa: PT011
            Place.read(text)

    def test_where_older_runs_can_be(self):
        assert (SUCCESS.until(0), SUCCESS.until(1)) == ("5-1", "4")
        assert (FAILURE.until(0), FAILURE.until(1)) == ("5", "5-1")

    def test_an_attempt_that_can_t_be_read_is_shown_as_such(self):
        good = {
            "attempt": 1,
            "failed_at": 2.0,
            "outcome": "dead",
            "error_class": "E",
            "error_message": "m",
        }

        assert read_attempt(encode(good)) == Attempt(1, 2.0, "dead", "E", "m")
        for raw in (b"", b"{}", b"\xff", encode({**good, "attempt": "one"})):
            assert read_attempt(raw) == Attempt(outcome=UNREADABLE)
