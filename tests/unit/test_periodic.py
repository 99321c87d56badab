"""Periodic entries: their ids, what they push, and what is refused, with the entry's name."""

import hashlib
import json
from datetime import timedelta

import msgspec
import pytest

from cogworker import Cogworker, ConfigError, DeclarationError, RetryPolicy
from cogworker.config import load
from cogworker.periodic import entry_of, id_of
from cogworker.schedules import Cron, Every


@pytest.fixture
def cog():
    return Cogworker()


@pytest.fixture
def report(cog):
    @cog.job(name="report", queue="slow", retry=3)
    def report(limit=10, *, deep=False):
        pass

    return report


def only(cog):
    [planned] = cog.timetable.declared()
    return planned


def sha1(text):
    return hashlib.sha1(text.encode()).hexdigest()


def test_a_plain_entry_s_id_is_the_ruby_system_s():
    found = id_of(Cron("15 4 * * 1"), "InvoiceSweep", b'[{"limit":50}]', None)

    assert found == sha1('15 4 * * 1|InvoiceSweep|[{"limit":50}]')


def test_ids_tell_apart_what_differs_and_nothing_else(cog, report):
    cog.periodic("0 3 * * *", report)
    cog.periodic("0 3 * * *", report, timezone="Europe/Berlin")
    cog.periodic("0 3 * * *", report, timezone="Africa/Casablanca")
    cog.periodic("0 3 * * *", report, args=[1])
    cog.periodic("0 3 * * *", report, kwargs={"deep": True})
    cog.periodic("1 3 * * *", report)
    cog.periodic(None, report, every=300)

    ids = [planned.pjid for planned in cog.timetable.declared()]
    assert ids[0] == sha1("0 3 * * *|report|[]")
    assert ids[3] == sha1("0 3 * * *|report|[1]")
    assert ids[6] == sha1("@every 300|report|[]")
    assert len(set(ids)) == 7


@pytest.mark.parametrize(
    "options",
    [{"timezone": "UTC"}, {"queue": "other"}, {"retry": 1}, {"unique": "until_executed"},
     {"name": "nightly"}, {"catch_up": False}],
)  # fmt: skip
def test_two_entries_with_one_id_are_refused(cog, report, options):
    cog.periodic("0 3 * * *", report)

    with pytest.raises(DeclarationError, match=r"there is one with the same times, job and arg"):
        cog.periodic("0 3 * * *", report, **options)


def test_a_module_that_is_imported_anew_declares_its_entries_anew(cog):
    for _ in range(2):

        @cog.periodic("0 3 * * *")
        @cog.job(name="again")
        def again():
            pass

    assert only(cog).function is again.function


def test_an_entry_pushes_what_its_job_s_options_say(cog, report):
    cog.periodic("0 3 * * *", report, args=[5], kwargs={"deep": True})

    draft = only(cog).draft
    assert draft[:5] == ("report", "slow", 3, b"[5]", b'{"deep":true}')
    assert draft.fields == {"periodic_pjid": only(cog).pjid}


def test_an_entry_may_have_another_queue_and_another_number_of_retries(cog, report):
    cog.periodic("0 3 * * *", report, queue="cron", retry=1)

    assert only(cog).draft[1:3] == ("cron", 1)
    assert report.queue == "slow"


def test_an_entry_has_no_retry_policy_of_its_own(cog, report):
    with pytest.raises(DeclarationError, match="RetryPolicy belongs to the job's declaration"):
        cog.periodic("0 3 * * *", report, retry=RetryPolicy(1))


@pytest.mark.parametrize(
    "declare",
    [
        lambda cog, report: cog.periodic(report),
        lambda cog, report: cog.periodic(report.function),
        lambda cog, report: cog.periodic(report, every=5),
        lambda cog, report: cog.periodic("* * * * *", job=report),
        lambda cog, report: cog.periodic("* * * * *", func=report),
    ],
)
def test_a_slip_does_not_go_unnoticed(cog, report, declare):
    with pytest.raises(DeclarationError, match=r"cog\.periodic (needs to know when|takes the job)"):
        declare(cog, report)


def test_an_entry_with_until_executed_has_a_lock_of_its_own(cog, report):
    cog.periodic("0 3 * * *", report, unique="until_executed")

    planned = only(cog)
    assert planned.draft.fields["unique"] == "until_executed"
    assert planned.draft.fields["lock"] == f"periodic:{planned.pjid}"


def test_a_unique_job_keeps_its_own_lock(cog):
    @cog.periodic("0 3 * * *", unique="until_executed")
    @cog.job(name="own", unique="until_executed", on_duplicate="raise")
    def own():
        pass

    draft = only(cog).draft
    assert draft.fields["lock"] == sha1("own|default|[]")
    assert not draft.raises_duplicate


def test_a_lock_that_can_t_keep_the_entry_s_promise_is_refused(cog):
    @cog.job(name="own", unique="while_executing")
    def own():
        pass

    with pytest.raises(DeclarationError, match=r"nightly: its job is declared with unique='while"):
        cog.periodic("0 3 * * *", own, unique="until_executed", name="nightly")


def test_a_plain_function_becomes_a_job_and_several_entries_may_share_one(cog):
    @cog.periodic(every=timedelta(minutes=5), args=["b"])
    @cog.periodic("@daily", args=["a"])
    def tidy(what):
        return what

    assert tidy("x") == "x"
    assert tidy.name in cog.jobs
    assert [planned.draft.args for planned in cog.timetable.declared()] == [b'["a"]', b'["b"]']


def test_what_is_published_is_enough_to_show_an_entry_and_to_run_it(cog, report):
    cog.periodic("0 3 * * *", report, args=[2**70], timezone="Europe/Berlin", name="nightly")

    planned = only(cog)
    assert msgspec.json.decode(planned.published) == {
        "cron": "0 3 * * *", "timezone": "Europe/Berlin", "class": "report", "args": [2**70],
        "queue": "slow", "retry": 3, "name": "nightly", "fields": {"periodic_pjid": planned.pjid},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cron", "options", "problem"),
    [
        ("0 0 31 2 *", {}, "its day-of-month is out of range, is none of these months"),
        ("61 * * * *", {}, "its minute is out of range"),
        (None, {}, "needs a cron line or every=, and not both"),
        ("0 3 * * *", {"every": 5}, "needs a cron line or every=, and not both"),
        (None, {"every": 0.5}, "every must be a whole number of seconds"),
        (None, {"every": 5, "timezone": "Europe/Berlin"}, "every= has no time zone"),
        ("0 3 * * *", {"timezone": "Europe/Berln"}, "did you mean Europe/Berlin?"),
        ("0 3 * * *", {"args": [1, 2]}, "too many positional arguments; call it as report"),
        ("0 3 * * *", {"args": 5}, "args must be a list or a tuple, not 5"),
        ("0 3 * * *", {"args": [object()]}, r"args\[0\]"),
        ("0 3 * * *", {"kwargs": {"dep": 1}}, "unexpected keyword argument 'dep'"),
        ("0 3 * * *", {"kwargs": [1]}, "kwargs must map names to values"),
        ("0 3 * * *", {"uniqe": "until_executed"}, "no option uniqe; did you mean unique?"),
        ("0 3 * * *", {"unique": "while_executing"}, "unique must be 'until_executed'"),
        ("0 3 * * *", {"catch_up": 1}, "catch_up must be True or False"),
        ("0 3 * * *", {"queue": "a,b"}, "the name of a queue must have"),
        ("0 3 * * *", {"retry": -1}, "retry must be"),
    ],
)
def test_what_can_t_work_is_refused_where_it_is_declared(cog, report, cron, options, problem):
    with pytest.raises(DeclarationError, match=problem.replace("?", ".")) as caught:
        cog.periodic(cron, report, name="nightly", **options)

    assert str(caught.value).startswith("periodic entry nightly: ")
    assert cog.timetable.declared() == []


@pytest.mark.parametrize("name", [5, ["x"]])
def test_a_name_is_a_text(cog, report, name):
    with pytest.raises(DeclarationError, match="name must be a text"):
        cog.periodic("0 3 * * *", report, name=name)


def test_without_a_name_messages_call_an_entry_by_its_line_and_its_job(cog, report):
    with pytest.raises(DeclarationError, match=r"^periodic entry 61 \* \* \* \* report: "):
        cog.periodic("61 * * * *", report)


# From the configuration.


def configured(cog, *entries):
    return cog.timetable.configured(load(arguments={"periodic": entries}), cog.jobs)


def test_the_configuration_may_have_entries_for_jobs_that_are_declared_later(tmp_path):
    path = tmp_path / "cogworker.yml"
    path.write_text(
        """
        periodic_catch_up: false
        periodic:
          - {cron: "0 3 * * *", job: report, timezone: Europe/Berlin, args: [5], name: nightly}
          - {every: 5m, job: report, kwargs: {deep: true}, queue: "${QUEUE}", retry: 0}
          - {cron: "@daily", job: report, args: ["${QUEUE}"], kwargs: {deep: ["${QUEUE}"]}}
        """
    )
    config = load(file=path, environ={"QUEUE": "cron"})
    cog = Cogworker()

    @cog.job(name="report", queue="slow")
    def report(limit=10, *, deep=False):
        pass

    nightly, often, daily = cog.timetable.configured(config, cog.jobs)

    assert config.periodic_catch_up is False
    assert nightly.pjid == id_of(Cron("0 3 * * *", "Europe/Berlin"), "report", b"[5]", None)
    assert often.pjid == id_of(Every(300), "report", b"[]", b'{"deep":true}')
    assert often.draft[1:3] == ("cron", 0)
    assert (daily.draft.args, daily.draft.kwargs) == (b'["cron"]', b'{"deep":["cron"]}')


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"cron": "61 * * * *", "job": "report", "name": "bad"}, "bad: the cron line"),
        ({"cron": "0 0 31 2 *", "job": "report", "name": "bad"}, "bad: the cron line"),
        (
            {"cron": "* * * * *", "job": "report", "timezone": "Mars"},
            r"\* report: there is no time",
        ),
        ({"every": "1.5s", "job": "report"}, "1.5 report: every must be a whole number"),
        ({"cron": "* * * * *", "job": "report", "tz": "UTC"}, "there is no option tz"),
        ({"cron": "* * * * *"}, "each a mapping with cron or every, and job"),
        ("* * * * * report", "each a mapping with cron or every, and job"),
    ],
)
def test_a_bad_entry_is_refused_as_soon_as_the_configuration_is_read(entry, problem):
    with pytest.raises(ConfigError, match=f"periodic: .*{problem}.*arguments of Cogworker"):
        load(arguments={"periodic": [entry]})


def test_the_environment_has_no_entries():
    with pytest.raises(ConfigError, match=r"must be a list of entries.*COGWORKER_PERIODIC"):
        load(environ={"COGWORKER_PERIODIC": json.dumps([])})


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([{"cron": "1 * * * *", "job": "reprot", "name": "x"}], "x: no job is named 'reprot'"),
        ([{"cron": "1 * * * *", "job": "report", "args": [1, 2], "name": "x"}], "x: report: too"),
        ([{"cron": "0 3 * * *", "job": "report", "name": "x"}], "x: there is one with the same"),
        (
            [{"cron": "1 * * * *", "job": "report", "name": n} for n in "ab"],
            "b: there is one .* a;",
        ),
    ],
)
def test_what_only_shows_with_the_jobs_is_refused_when_a_worker_starts(
    cog, report, entries, problem
):
    cog.periodic("0 3 * * *", report)

    with pytest.raises(ConfigError, match=problem):
        configured(cog, *entries)


def test_a_worker_with_an_entry_that_can_t_be_had_does_not_start():
    cog = Cogworker(periodic=[{"cron": "1 * * * *", "job": "reprot", "name": "x"}])

    for begin in (cog.worker().run, cog.worker().start, cog.worker().prepare):
        with pytest.raises(ConfigError, match="x: no job is named"):
            begin()


def test_entries_are_checked_once():
    entry = entry_of({"cron": "* * * * *", "job": "report"})

    assert load(arguments={"periodic": [entry]}).periodic == (entry,)
