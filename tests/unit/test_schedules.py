"""Time slots, compared with what a clock on the wall shows minute by minute (``support.wall``)."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from cogworker.schedules import ALIASES, Cron, Every

from support.wall import due

CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),  # by half an hour
    "Africa/Casablanca": ("2026-02-15", "2026-03-22"),  # back before Ramadan, forth after it
    "Pacific/Apia": ("2011-12-30",),  # a day that was not
    "UTC": ("2026-03-29",),
}
PLACES = [(zone, day) for zone, days in CHANGES.items() for day in days]
LINES = (
    "30 2 * * *", "0 * * * *", "* * * * *", "*/10 2 * * *", "*/10 1 * * *", "15,45 1-3 * * *",
    "0-59 1-3 * * *", "*/7 */2 * * *", "5 2,3 * * 0", "0 0 * * *", "45 1 29-31 * 1-5",
    "59 23 * * *", "0,30 0 * * *",
)  # fmt: skip


def days_around(zone, day, days=1):
    noon = datetime.fromisoformat(day + "T12:00").replace(tzinfo=ZoneInfo(zone))
    return tuple(int((noon + timedelta(days=n)).timestamp()) for n in (-days, days))


def forwards(schedule, start, end):
    slot = start - 1
    while (slot := schedule.next(slot)) < end:
        yield slot


def backwards(schedule, start, end):
    slot = end
    while (slot := schedule.latest(slot - 1)) >= start:
        yield slot


@pytest.mark.parametrize(("zone", "day"), PLACES)
def test_time_slots_are_those_of_a_clock_on_the_wall(zone, day):
    start, end = days_around(zone, day)
    for line in LINES:
        expected = due(line, zone, start, end)
        schedule = Cron(line, zone)

        assert list(forwards(schedule, start, end)) == expected, line
        assert list(backwards(schedule, start, end)) == expected[::-1], line


field = st.sampled_from(["*", "*/2", "*/7", "1", "0-20", "5,50", "2-50/3"])
hour = st.sampled_from(["*", "*/2", "1", "2", "3", "0-4", "1,2", "1-3/2", "23"])
day = st.sampled_from(["*", "*/2", "1-31", "29,30,31", "4-8", "1"])
weekday = st.sampled_from(["*", "0", "7", "1-5", "6,0"])


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.sampled_from(PLACES), field, hour, day, weekday, st.integers(-30 * 3600, 30 * 3600))
@example(("Europe/Berlin", "2026-03-29"), "30", "2", "*", "*", -11 * 3600)  # the gap's very end
@example(("Europe/Berlin", "2026-10-25"), "30", "2", "*", "*", -11 * 3600 + 600)  # the second time
@example(("Australia/Lord_Howe", "2026-04-05"), "*/10", "2", "*", "*", -10 * 3600)
def test_from_any_moment_the_latest_and_the_next_one_are_found(place, minute, hour, day, week, off):
    zone, date = place
    line = f"{minute} {hour} {day} * {week}"
    start, end = days_around(zone, date, 2)
    now = (start + end) // 2 + off
    expected = due(line, zone, start, end)
    schedule = Cron(line, zone)

    before = [slot for slot in expected if slot <= now]
    after = [slot for slot in expected if slot > now]
    latest, following = schedule.latest(now + 0.9), schedule.next(now + 0.9)

    assert latest == before[-1] if before else latest < start
    assert following == after[0] if after else following >= end


@pytest.mark.parametrize(
    ("line", "zone", "now", "latest", "following"),
    [
        # The library alone finds the day before at the first, and the past at the second.
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T03:00+02:00", "2026-03-29T03:00+02:00",
         "2026-03-30T02:30+02:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:10+01:00", "2026-10-25T02:30+02:00",
         "2026-10-26T02:30+01:00"),
        ("0 30 2 * * *", "Europe/Berlin", "2026-10-25T02:50+01:00", "2026-10-25T02:30+02:00",
         "2026-10-26T02:30+01:00"),
        ("0 30 2 * * *", "Europe/Berlin", "2026-03-29T12:00+02:00", "2026-03-29T03:00+02:00",
         "2026-03-30T02:30+02:00"),
        ("*/15 30 2 * * *", "UTC", "2026-03-29T02:30:20+00:00", "2026-03-29T02:30:15+00:00",
         "2026-03-29T02:30:30+00:00"),
        ("0 3 29 2 *", "Europe/Berlin", "2026-03-29T12:00+02:00", "2024-02-29T03:00+01:00",
         "2028-02-29T03:00+01:00"),
        ("0 0 L * *", "UTC", "2026-03-01T00:00+00:00", "2026-02-28T00:00+00:00",
         "2026-03-31T00:00+00:00"),
        ("0 0 * 2 MON#5", "UTC", "2026-03-01T00:00+00:00", "2016-02-29T00:00+00:00",
         "2044-02-29T00:00+00:00"),
    ],
)  # fmt: skip
def test_single_moments(line, zone, now, latest, following):
    schedule = Cron(line, zone)
    moment = datetime.fromisoformat(now).timestamp()

    assert schedule.latest(moment) == datetime.fromisoformat(latest).timestamp()
    assert schedule.next(moment) == datetime.fromisoformat(following).timestamp()


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_are_what_they_stand_for(alias):
    now = datetime(2026, 7, 15, 11, 20, tzinfo=UTC).timestamp()

    assert Cron(alias).next(now) == Cron(ALIASES[alias]).next(now)
    assert Cron(alias).text == alias


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("0 0 31 2 *", "its day-of-month is out of range, is none of these months"),
        ("0 0 30-31 2 */3", "its day-of-month is out of range, is none of these months"),
        ("60 * * * *", "its minute is out of range"),
        ("0 24 * * *", "its hour is out of range"),
        ("0 0 32 * *", "its day-of-month is out of range"),
        ("0 0 * 13 *", "its month is out of range"),
        ("0 0 * * 8", "its day-of-week is out of range"),
        ("60 0 0 * * *", "its second is out of range"),
        ("5-1 * * * *", "its minute is out of range or can't be read"),
        ("*/0 * * * *", "its minute is out of range or can't be read"),
        ("x * * * *", "its minute is out of range or can't be read"),
        ("² * * * *", "its minute is out of range or can't be read"),
        ("* * * *", "five fields, or six"),
        ("* * * * * * *", "five fields, or six"),
        ("", "five fields, or six"),
        ("@dayly", "there is no '@dayly'; there are @yearly"),
        ("* * * *\n*", "a cron line is a text of 200 characters at most"),
        ("0" * 5000 + " * * * *", "a cron line is a text of 200 characters at most"),
        (None, "a cron line is a text of 200 characters at most, not None"),
        (5, "a cron line is a text"),
    ],
)
def test_what_never_matches_or_makes_no_sense_is_refused(line, problem):
    with pytest.raises(ValueError, match=problem.replace("'", ".")):
        Cron(line)


@pytest.mark.parametrize(
    ("zone", "problem"),
    [
        ("Europe/Berln", "there is no time zone 'Europe/Berln'; did you mean Europe/Berlin?"),
        ("Europe", "there is no time zone 'Europe'"),
        ("", "there is no time zone ''"),
        ("../etc/passwd", "there is no time zone"),
        (5, "there is no time zone 5"),
    ],
)
def test_a_misspelt_zone_is_refused(zone, problem):
    with pytest.raises(ValueError, match=problem.replace("?", ".")):
        Cron("* * * * *", zone)


def test_zones_are_kept_by_their_names():
    assert Cron("* * * * *", ZoneInfo("Europe/Berlin")).timezone == "Europe/Berlin"
    assert Cron("* * * * *", "UTC").timezone is None


@pytest.mark.parametrize("interval", [1, 7, 300, 300.0, timedelta(hours=1)])
def test_an_interval_counts_from_the_epoch(interval):
    schedule = Every(interval)
    seconds = int(interval.total_seconds() if isinstance(interval, timedelta) else interval)
    now = 1_800_000_001.5

    assert schedule.latest(now) == 1_800_000_001 // seconds * seconds
    assert schedule.next(now) == schedule.latest(now) + seconds
    assert schedule.latest(schedule.next(now)) == schedule.next(now)


@pytest.mark.parametrize(
    "interval", [0, -1, 0.5, 1.5, float("nan"), float("inf"), True, "5", None, 10**12, 10**400]
)
def test_an_interval_is_a_whole_number_of_seconds(interval):
    with pytest.raises(ValueError, match="every must be"):
        Every(interval)
