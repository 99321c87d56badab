"""The status of jobs: what each event writes, what a run may say of itself, what is read."""

import threading
from datetime import timedelta
from fractions import Fraction
from math import inf, nan

import pytest

from cogworker import (
    Cogworker,
    CurrentJob,
    DeclarationError,
    InvalidProgress,
    JobCancelled,
    JobFailed,
    JobStatus,
    ResultNotKept,
)
from cogworker._engine.moves import Moves
from cogworker._engine.places import InFlight, Place
from cogworker._redis.keys import Keys
from cogworker._worker import notes as worker_notes
from cogworker._worker.delivery import Delivery
from cogworker._worker.notes import PAUSE_S, SOON_S, Notes
from cogworker.config import Config
from cogworker.features import Features
from cogworker.features.event import NO_RESULT_YET, Event, Kind, Run
from cogworker.features.status import LONGEST_KEPT_S
from cogworker.features.transitions import Transitions
from cogworker.payload import encode, parse
from cogworker.progress import (
    MOST_FIELD_BYTES,
    MOST_FIELDS,
    MOST_MESSAGE_CHARACTERS,
    Progress,
)
from cogworker.status import Statuses

KEYS = Keys("ns")
ERROR = {"error_class": "E", "error_message": "m", "error_backtrace": []}
SAID = {"pct": b"50", "message": b"half", "own": b"1"}


def job(**fields):
    return parse(encode({"class": "mail", "jid": "j1", "status": 100, **fields}))


def written(event):
    """What an event does to the status: in order, in short."""
    done = []
    for effect in Features(KEYS, Config()).status.effects(event):
        verb = effect.verb
        if verb.name == "record":
            ttl_s, drops = verb.words[:2]
            dropped = verb.words[2 : 2 + drops]
            values = dict(zip(verb.words[3 + drops :], effect.own[1:], strict=True))
            assert effect.own[0] == "ns:status:j1"
            if values:
                assert float(values.pop("update_time")) > 1e9
                assert (values.pop("class"), values.pop("queue")) == ("mail", "q")
            done.append((values, dropped, ttl_s))
        else:
            done.append(verb.name)
    return done


PROGRESS, FAILURE = ("pct", "message"), ("error_class", "error_message")
FAILED = {"error_class": "E", "error_message": "m"}
RUN = Run(2, 0.0, 1.0, notes=SAID)
FAILED_RUN = RUN._replace(error=ERROR)

# What happens: a kind, how long until it is due, the run that led to it, an error without a run.
# What is written: fields, those that are dropped, and for how long.
TABLE = {
    "pushed": (
        (Kind.PUSHED, 0.0, None, None),
        ["forget", ({"status": "queued"}, (), 100)],
    ),
    "scheduled": (
        (Kind.PUSHED, 50.5, None, None),
        ["forget", ({"status": "scheduled"}, (), 151)],
    ),
    "promoted or rescued": (
        (Kind.QUEUED, 0.0, None, None),
        [({"status": "queued"}, PROGRESS, 100)],
    ),
    "given back in mid-run": (
        (Kind.QUEUED, 0.0, RUN, None),
        [({"status": "queued", "attempt": 2, "own": b"1"}, PROGRESS, 100)],
    ),
    "revived": ((Kind.REVIVED, 0.0, None, None), [({"status": "queued"}, PROGRESS, 100)]),
    "asks whether it may begin": ((Kind.BEGUN, 0.0, None, None), []),
    "held by a worker that beats": ((Kind.HELD, 0.0, None, None), [({}, (), 100)]),
    "seen waiting for long": ((Kind.WAITING, 0.0, None, None), []),
    "working": (
        (Kind.WORKING, 0.0, RUN, None),
        [({"status": "working", "attempt": 2, **SAID}, (), 100)],
    ),
    "done": (
        (Kind.DONE, 0.0, RUN._replace(result=b"7"), None),
        [({"status": "complete", "attempt": 2, **SAID, "result": b"7"}, FAILURE, 100), "log"],
    ),
    "done, its result is lost": (
        (Kind.DONE, 0.0, RUN._replace(no_result="why", notes={}), None),
        [({"status": "complete", "attempt": 2, "no_result": "why"}, FAILURE, 100), "log"],
    ),
    "retrying": (
        (Kind.RETRYING, 900.0, FAILED_RUN, None),
        [({"status": "retrying", "attempt": 2, **SAID, **FAILED}, (), 1000)],
    ),
    "rescheduled by itself": (
        (Kind.RESCHEDULED, 900.0, RUN, None),
        [({"status": "scheduled", "attempt": 2, "own": b"1"}, PROGRESS, 1000)],
    ),
    "put off, as its like runs": (
        (Kind.RESCHEDULED, 1.0, None, None),
        [({"status": "scheduled"}, PROGRESS, 101)],
    ),
    "dead": (
        (Kind.DEAD, 0.0, FAILED_RUN, None),
        [({"status": "failed", "attempt": 2, **SAID, **FAILED}, (), 100), "log"],
    ),
    "dead, its worker died too often": (
        (Kind.DEAD, 0.0, None, ERROR),
        [({"status": "failed", **FAILED}, (), 100), "log"],
    ),
    "killed": ((Kind.KILLED, 0.0, None, None), [({"status": "cancelled"}, (), 100), "log"]),
    "discarded as too late": (
        (Kind.DISCARDED, 0.0, None, None),
        [({"status": "cancelled"}, (), 100), "log"],
    ),
    "discarded by itself": (
        (Kind.DISCARDED, 0.0, RUN._replace(notes={}), ERROR),
        [({"status": "cancelled", "attempt": 2, **FAILED}, (), 100), "log"],
    ),
    "deleted": (
        (Kind.DELETED, 0.0, None, None),
        ["forget", ({"status": "cancelled"}, (), 100), "log"],
    ),
}


class TestEvents:
    @pytest.mark.parametrize("name", TABLE)
    def test_write(self, name):
        (kind, wait_s, run, reason), expected = TABLE[name]

        assert written(Event(kind, job(), "q", wait_s, run, reason)) == expected

    def test_of_every_kind_are_in_the_table(self):
        assert {kind for (kind, *_), _ in TABLE.values()} == set(Kind)

    @pytest.mark.parametrize(
        "garbage", [None, False, 0, -1, nan, "yes", "60", [], {}, LONGEST_KEPT_S + 1, 10**400]
    )
    def test_write_nothing_for_a_job_that_asks_for_it_in_no_known_way(self, garbage):
        envelope = parse(b'{"class":"mail","jid":"j1"}')
        status = Features(KEYS, Config()).status
        event = Event(Kind.DONE, _with(envelope, garbage), "q", 0.0, RUN)

        assert list(status.effects(event)) == []

    def test_other_software_may_leave_the_time_to_the_setting(self):
        status = Features(KEYS, Config(status_ttl=7)).status

        assert status.ttl_of(job(status=True)) == 7.0
        assert status.ttl_of(job(status=0.5)) == 0.5

    def test_only_jobs_with_a_status_are_not_plain(self):
        assert Features.is_plain(parse(b'{"class":"mail","jid":"j1"}'))
        assert not Features.is_plain(job())

    @pytest.mark.parametrize("run", [None, RUN])
    def test_a_plain_job_that_is_queued_again_changes_nothing_else(self, run):
        features = Features(KEYS, Config(history=True))
        plain = parse(b'{"class":"mail","jid":"j1","tags":["a"],"retry_count":1,"history":true}')

        assert features.effects(Event(Kind.QUEUED, plain, "q", 0.0, run)) == []


def _with(envelope, status):
    return type(envelope)(envelope.class_, envelope.jid, status=status)


@pytest.fixture
def told():
    return []


@pytest.fixture
def progress(told):
    return Progress("mail", lambda: told.append(1))


class TestProgress:
    def test_tells_once_until_it_is_taken(self, progress, told):
        for pct in range(100):
            progress.at(pct, f"{pct}")
            progress.store({"n": pct})
        assert len(told) == 1

        assert progress.take() == {"pct": b"99", "message": b"99", "n": b"99"}
        assert progress.take() == {}
        progress.at(99.5)
        assert len(told) == 2
        assert progress.take() == {"pct": b"99.5"}, "the message stays as it was"

    def test_at_the_end_only_what_was_not_taken_is_left(self, progress, told):
        progress.store({"a": 1, "b": [1, None, "é"]})
        progress.take()
        progress.store({"a": 2})

        assert progress.close() == progress.close() == {"a": b"2"}
        progress.at(1)
        assert progress.take() is None
        assert len(told) == 2

    @pytest.mark.parametrize("pct", [-0.1, 100.0001, nan, inf, True, "50", None, 1j])
    def test_what_is_no_progress_is_refused(self, progress, pct):
        with pytest.raises(InvalidProgress, match="mail: at"):
            progress.at(pct)
        assert progress.take() == {}

    @pytest.mark.parametrize(("pct", "kept"), [(0, b"0"), (100, b"100"), (Fraction(1, 3), b"0.33")])
    def test_any_number_is_progress(self, progress, pct, kept):
        progress.at(pct)

        assert progress.take()["pct"].startswith(kept)

    def test_a_message_is_a_text_that_is_cut(self, progress):
        with pytest.raises(InvalidProgress, match="must be a text"):
            progress.at(1, 5)
        progress.at(1, "é" * 5000 + "\ud800")
        assert progress.take()["message"].decode() == "é" * MOST_MESSAGE_CHARACTERS
        progress.at(1, "\ud800")
        assert progress.take()["message"] == rb"\ud800"

    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({"pct": 1}, "'pct' is no field of its own"),
            ({"": 1}, "1 to 100 characters"),
            ({"a" * 101: 1}, "1 to 100 characters"),
            ({"\ud800": 1}, "printable"),
            ({"a": object()}, "a is"),
            ({"a": {"b": {1, 2}}}, r"a\['b'\]"),
            ({"a": nan}, "a is"),
            ({"a": "x" * MOST_FIELD_BYTES}, "10,002 bytes, over 10,000"),
            ({f"f{n}": 1 for n in range(MOST_FIELDS + 1)}, "50 fields at most"),
        ],
    )
    def test_what_can_t_be_stored_is_refused_as_a_whole(self, progress, fields, problem):
        with pytest.raises(InvalidProgress, match=problem):
            progress.store({"fine": 1, **fields})
        assert progress.take() == {}

    def test_fields_may_be_stored_again_when_there_are_as_many_as_can_be(self, progress):
        progress.store({f"f{n}": 1 for n in range(MOST_FIELDS)})
        progress.store({"f0": 2})

        assert progress.take()["f0"] == b"2"

    def test_nothing_that_is_said_is_lost_between_threads(self, progress):
        taken = {}

        def say(name):
            for n in range(3000):
                progress.store({name: n})
                progress.at(n / 30)

        threads = [threading.Thread(target=say, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            taken |= progress.take()
        taken |= progress.close()

        assert [taken[f"t{n}"] for n in range(4)] == [b"2999"] * 4
        assert float(taken["pct"]) > 0

    def test_a_job_without_a_status_says_it_to_nobody(self):
        current = CurrentJob("j", "mail", "q", 1)

        current.at(1000)
        current.store(pct=object())


WORKER = InFlight("w")


@pytest.fixture
def notes(told):
    moves = Moves(KEYS, dead_max_jobs=1, dead_max_age_s=1)
    transitions = Transitions(moves, Features(KEYS, Config()))
    return Notes(transitions, WORKER, lambda: told.append(1))


def delivery(number=1, **fields):
    return Delivery(b"1.%d.q" % number, b"", job(jid=f"j{number}", **fields), None, 0.0)


class TestNotes:
    def test_a_run_that_goes_on_for_a_moment_is_told_of(self, notes, told):
        notes.open(delivery())
        assert told == [1]

        assert not notes.is_due(10.0)
        assert notes.due_at == 10.0 + SOON_S
        assert notes.take(10.0) == []
        [move] = notes.take(10.0 + SOON_S)
        assert (move.source, move.target, move.ref) == (WORKER, Place.SAME, b"1.1.q")
        assert b"working" in [str(item).encode() for item in move.items]
        assert notes.due_at == inf

    def test_all_runs_together_are_told_of_a_few_times_a_second(self, notes):
        open_runs = [delivery(number) for number in range(1, 11)]
        for run in open_runs:
            notes.open(run)
        assert notes.is_due(0.0) is False
        taken = []
        for tenth_ms in range(20_000):  # two seconds
            now = tenth_ms / 10_000
            for run in open_runs:
                run.current.at(tenth_ms / 200)
            moves = notes.take(now)
            if moves:
                taken.append(len(moves))

        assert len(taken) == 2 / PAUSE_S
        assert set(taken) == {10}

    def test_a_run_that_has_ended_is_not_told_of(self, notes):
        short = delivery()
        notes.open(short)
        short.current.at(50)
        run = short.run()

        assert run.notes == {"pct": b"50"}
        assert notes.is_due(1.0) is False
        assert notes.take(2.0) == []

    def test_nobody_asks_for_a_job_without_a_status(self, notes, told):
        odd = delivery(status="garbage")
        notes.open(odd)
        assert odd.progress is None
        assert told == []
        assert notes.is_due(1.0) is False

    def test_the_pause_is_short_enough_to_look_alive(self):
        assert worker_notes.SOON_S <= worker_notes.PAUSE_S <= 0.5


def read(**fields):
    app = Cogworker()

    @app.job(name="typed")
    def typed() -> tuple[int, ...]: ...

    raw = {"status": b"complete", **{name: value.encode() for name, value in fields.items()}}
    return Statuses(app.client, app.jobs)._read("j", raw)


class TestReading:
    def test_all_fields(self):
        status = read(
            update_time="1.5", attempt="2", pct="50", message="half", error_class="E",
            error_message="m", result="[1,2]", mine='{"a":null}', queue="q", **{"class": "typed"},
        )  # fmt: skip

        assert status == JobStatus(
            jid="j", state="complete", updated_at=1.5, name="typed", queue="q", attempt=2, pct=50.0,
            message="half", error_class="E", error_message="m", result=(1, 2),
            fields={"mine": {"a": None}},
        )  # fmt: skip
        assert status.ended
        assert status.outcome() == (1, 2)

    def test_what_other_software_wrote_is_shown_as_far_as_it_can_be_read(self):
        status = read(update_time="soon", attempt="1.5", pct="", mine="plain text", result="oh")

        assert (status.updated_at, status.attempt, status.pct) == (None, None, None)
        assert (status.fields, status.result) == ({"mine": "plain text"}, "oh")

    def test_a_result_that_does_not_fit_the_annotation_any_more_is_shown_as_json(self):
        assert read(result='["a"]', **{"class": "typed"}).result == ["a"]

    def test_a_result_that_is_missing_is_an_error_that_says_why(self):
        with pytest.raises(ResultNotKept, match="typed j has succeeded, without a result: why"):
            read(no_result="why", **{"class": "typed"}).outcome()

    def test_an_end_without_success_is_an_error(self):
        failed = JobStatus(jid="j", state="failed", name="n", error_class="E", error_message="m")
        with pytest.raises(JobFailed, match="n j has failed: E: m") as caught:
            failed.outcome()
        assert (caught.value.error_class, caught.value.error_message) == ("E", "m")
        with pytest.raises(JobCancelled, match=r"job j was cancelled$"):
            JobStatus(jid="j", state="cancelled").outcome()


class TestOption:
    @pytest.mark.parametrize("status", [0, -1, nan, "yes", None, 1e12, timedelta(0)])
    def test_is_checked(self, status):
        with pytest.raises(DeclarationError, match="status must be True, False, or a number"):
            Cogworker().job(status=status)(lambda: None)

    @pytest.mark.parametrize(
        ("status", "sent"), [(True, 60.0), (5, 5), (2.5, 2.5), (timedelta(minutes=1), 60)]
    )
    def test_travels_in_seconds(self, status, sent):
        app = Cogworker(status_ttl=60)
        declared = app.job(name="n", status=status)(lambda: None)

        assert parse(app.client.prepare(declared._draft((), {})).job.payload).status == sent

    def test_is_in_no_payload_that_does_not_need_it(self):
        app = Cogworker()
        declared = app.job(name="n")(lambda: None)

        prepared = app.client.prepare(declared._draft((), {}))
        assert b"status" not in prepared.job.payload
        assert prepared.job.effects == ()


def test_a_run_that_was_cut_off_at_its_last_instruction_says_why_it_has_no_result():
    assert Run(1, 0.0, 0.0).no_result == NO_RESULT_YET
