"""Throughput: what is counted, and what is read of it."""

import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cogworker import clock
from cogworker._redis.keys import Keys
from cogworker.features import figures
from cogworker.features.event import Event, Kind, Run
from cogworker.features.figures import RunsOfDay, Throughput, percentile
from cogworker.features.stats import BOUNDS_S, BUCKETS, Stats, bucket_of
from cogworker.payload import Envelope

NOON = 1_764_763_200 + 125  # 2025-12-03 12:02:05 UTC
ERROR = {"error_class": "E", "error_message": "m", "error_backtrace": []}


def histogram(**counts):
    return tuple(counts.get(f"b{number}", 0) for number in range(len(BUCKETS)))


@pytest.fixture
def now(monkeypatch):
    """The time, which a test may change."""
    times = [float(NOON)]
    monkeypatch.setattr(clock, "wall", lambda: times[0])
    return times


class TestCounting:
    def changes(self, event):
        """Each counter and field, with what is added."""
        added = {}
        for (name, key, words, *_), _ in Stats(Keys("ns")).effects(event):
            if name == "count":
                added[key] = words[0]
            else:
                fields = words[2:]
                added |= {
                    f"{key} {field}": amount
                    for field, amount in zip(fields[::2], fields[1::2], strict=True)
                }
        return added

    def test_a_success(self, now):
        event = Event(Kind.DONE, Envelope("A::B", "j"), "q", run=Run(1, 0.0, 0.02))
        hour = f"ns:throughput:{NOON // 3600}"

        assert self.changes(event) == {
            "ns:stats:processed": 1,
            f"{hour} processed": 1,
            f"{hour} 2 processed": 1,
            f"{hour} processed:A::B": 1,
            f"{hour} 0.025:A::B": 1,
            "ns:runs:2025-12-03 processed": 1,
        }

    @pytest.mark.parametrize("kind", [Kind.RETRYING, Kind.DEAD])
    def test_a_failure(self, now, kind):
        event = Event(kind, Envelope("A", "j"), "q", run=Run(1, 0.0, 2000.0, ERROR))
        hour = f"ns:throughput:{NOON // 3600}"

        assert self.changes(event) == {
            "ns:stats:failed": 1,
            f"{hour} failed": 1,
            f"{hour} 2 failed": 1,
            f"{hour} failed:A": 1,
            f"{hour} inf:A": 1,
            "ns:runs:2025-12-03 failed": 1,
        }

    def test_a_death_without_a_run_has_no_run_time(self, now):
        changes = self.changes(Event(Kind.DEAD, Envelope("A", "j"), "q"))

        assert changes["ns:stats:failed"] == 1
        assert not any(key.endswith(":A") and " failed:" not in key for key in changes)

    def test_what_is_discarded_without_a_failure(self, now):
        event = Event(Kind.DISCARDED, Envelope("A", "j"), "q", run=Run(1, 0.0, 1.0))

        assert self.changes(event) == {"ns:stats:discarded": 1}

    @pytest.mark.parametrize("kind", [Kind.PUSHED, Kind.QUEUED, Kind.DELETED, Kind.KILLED])
    def test_what_is_no_run_counts_nothing(self, now, kind):
        assert self.changes(Event(kind, Envelope("A", "j"), "q")) == {}

    def test_a_minute_s_verbs_are_made_once_and_then_anew(self, now):
        stats = Stats(Keys("ns"))
        first = stats.of_success("A", 0)

        assert stats.of_success("A", 0) is first
        assert stats.of_success("A", 1) != first
        now[0] += 60
        assert "3 processed" in stats.of_success("A", 0)[1].words
        now[0] += 86400
        assert stats.of_success("A", 0)[2].key == "ns:runs:2025-12-04"

    @pytest.mark.parametrize(
        ("ran_s", "bucket"), [(0.0, "0.001"), (0.001, "0.001"), (0.0011, "0.0025"), (1801, "inf")]
    )
    def test_a_bucket_s_upper_bound_belongs_to_it(self, ran_s, bucket):
        assert BUCKETS[bucket_of(ran_s)] == bucket


class TestPercentiles:
    def test_nobody_has_measured_anything(self):
        assert percentile(histogram(), 50) is None

    @pytest.mark.parametrize(
        ("percent", "expected"), [(10, 0.0001), (50, 0.0005), (99, 0.00099), (100, 0.001)]
    )
    def test_grows_evenly_within_a_bucket(self, percent, expected):
        assert percentile(histogram(b0=1000), percent) == pytest.approx(expected)

    def test_over_several_buckets(self):
        counts = histogram(b0=90, b9=8, b11=2)  # up to 1 ms; 0.5 to 1 s; 2.5 to 5 s

        assert percentile(counts, 50) == pytest.approx(0.001 * 50 / 90)
        assert percentile(counts, 90) == pytest.approx(0.001)
        assert percentile(counts, 95) == pytest.approx(0.5 + 0.5 * 5 / 8)
        assert percentile(counts, 99) == pytest.approx(2.5 + 2.5 * 1 / 2)

    def test_what_is_beyond_all_bounds_is_the_last_bound(self):
        assert percentile(histogram(b0=1, b17=99), 99) == BOUNDS_S[-1]

    @given(
        st.lists(st.floats(0, 4000), min_size=1, max_size=60),
        st.floats(0.1, 100),
        st.floats(0.1, 100),
    )
    def test_is_in_the_bucket_of_the_run_and_never_falls(self, times, one, other):
        counts = [0] * len(BUCKETS)
        for ran_s in times:
            counts[bucket_of(ran_s)] += 1
        low, high = sorted((one, other))

        assert percentile(counts, low) <= percentile(counts, high)
        rank = max(1, -int(-len(times) * high // 100))  # the smallest number that is enough
        exact = sorted(times)[min(rank, len(times)) - 1]
        found = percentile(counts, high)
        bucket = bucket_of(exact)
        assert (BOUNDS_S[bucket - 1] if bucket else 0) <= found
        assert bucket == len(BOUNDS_S) or found <= BOUNDS_S[bucket] + 1e-9


class TestRows:
    def test_hours_and_days_include_the_running_one(self):
        hour = NOON // 3600

        assert figures.hours_until(NOON, 3) == [hour - 2, hour - 1, hour]
        assert figures.days_until(NOON, 4) == [
            *(date(2025, 11, 30), date(2025, 12, 1), date(2025, 12, 2), date(2025, 12, 3))
        ]

    def test_what_is_missing_or_nonsense_is_zero(self):
        rows = [[b"3", None], [], [b"x", b"4"]]

        assert figures.by_hour([1, 2, 3], rows) == [
            *(Throughput(3600, 3, 0), Throughput(7200, 0, 0), Throughput(10800, 0, 4))
        ]
        assert figures.by_day([date(2025, 1, 1)], [[b"1", b"2"]]) == [
            RunsOfDay(date(2025, 1, 1), 1, 2)
        ]

    def test_minutes(self):
        fields = figures.minute_fields()
        row = [None] * len(fields)
        row[fields.index("59 failed")] = b"7"
        row[fields.index("0 processed")] = b"2"

        rows = figures.by_minute([1, 2], [[], row])

        assert len(rows) == 120
        assert [row for row in rows if row.processed or row.failed] == [
            *(Throughput(7200, 2, 0), Throughput(7200 + 59 * 60, 0, 7))
        ]

    def test_classes_add_up_over_hours(self):
        classes = figures.Classes()
        hour = [
            *(b"processed", b"9", b"failed", b"1", b"5 processed", b"9"),
            *(b"processed:A::B", b"3", b"failed:A::B", b"1", b"0.001:A::B", b"4"),
            *(b"processed:\xff", b"1", b"inf:\xff", b"1", b"what:A::B", b"5"),
        ]
        classes.add(hour)
        classes.add(hour)
        classes.add([])

        one, other = classes.rows()

        assert one[:4] == ("A::B", 8, 2, 0.25)
        assert one.p50_s == pytest.approx(0.0005)
        assert one.histogram == histogram(b0=8)
        assert other[:4] == ("\ufffd", 2, 0, 0.0)
        assert other.p99_s == BOUNDS_S[-1]


def test_the_day_is_that_of_utc(now, monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        [*_, day] = Stats(Keys("ns")).of_success("A", 0)
        assert day.key == "ns:runs:2025-12-03"
        assert figures.days_until(NOON, 1) == [date(2025, 12, 3)]
    finally:
        monkeypatch.undo()
        time.tzset()
