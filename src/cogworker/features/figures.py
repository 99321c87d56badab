"""Reads what ``stats`` has counted: rows by hour, minute and day, and what is known of a class."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from cogworker._engine.books import Row
from cogworker.features.stats import BOUNDS_S, BUCKETS, minute_field

OUTCOMES = ("processed", "failed")


class Throughput(NamedTuple):
    """The runs that succeeded and failed in an hour or a minute from ``start``, epoch seconds."""

    start: int
    processed: int
    failed: int


class RunsOfDay(NamedTuple):
    """The runs that succeeded and failed on a day, in UTC."""

    day: date
    processed: int
    failed: int


class JobClass(NamedTuple):
    """What is known of the runs of the jobs of one name.

    ``runs`` is all of them, ``failed`` those that failed. ``p50_s`` and the like are run times in
    seconds that so many percent of the runs did not exceed, estimated (``percentile``); None when
    nobody has measured a run. ``histogram`` counts runs by bucket (``stats.BUCKETS``).
    """

    name: str
    runs: int
    failed: int
    failure_rate: float
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    histogram: tuple[int, ...]


def percentile(histogram: Sequence[int], percent: float) -> float | None:
    """A run time that ``percent`` of the runs did not exceed, in seconds, estimated.

    Within its bucket a run's time is taken to grow evenly: of ``n`` runs in a bucket from ``low``
    to ``high``, the ``k``-th has taken ``low + (high - low) * k / n``. (Prometheus does the same.)
    The first bucket begins at 0; in the last one, which has no end, it is where that begins.
    """
    wanted = sum(histogram) * percent / 100
    if not wanted:
        return None
    for bucket, (count, reached) in enumerate(zip(histogram, accumulate(histogram), strict=True)):
        if count and reached >= wanted:
            low = BOUNDS_S[bucket - 1] if bucket else 0.0
            high = BOUNDS_S[bucket] if bucket < len(BOUNDS_S) else low
            return low + (high - low) * (wanted - (reached - count)) / count
    return BOUNDS_S[-1]


def hours_until(now: float, number: int) -> list[int]:
    """The last hours, the running one included, each as hours since the epoch."""
    hour = int(now) // 3600
    return list(range(hour - number + 1, hour + 1))


def days_until(now: float, number: int) -> list[date]:
    """The last days in UTC, today included."""
    today = datetime.fromtimestamp(now, UTC).date()
    return [today - timedelta(days=back) for back in reversed(range(number))]


def by_hour(hours: Sequence[int], rows: Iterable[Row]) -> list[Throughput]:
    """A row for each hour, from the values of ``OUTCOMES``."""
    return [Throughput(3600 * hour, *_pair(row)) for hour, row in zip(hours, rows, strict=True)]


def by_day(days: Sequence[date], rows: Iterable[Row]) -> list[RunsOfDay]:
    """A row for each day, from the values of ``OUTCOMES``."""
    return [RunsOfDay(day, *_pair(row)) for day, row in zip(days, rows, strict=True)]


def minute_fields() -> list[str]:
    """The fields that count an hour's minutes, two for each."""
    return [minute_field(60 * minute, what) for minute in range(60) for what in OUTCOMES]


def by_minute(hours: Sequence[int], rows: Iterable[Row]) -> list[Throughput]:
    """A row for each minute, from the values of ``minute_fields``."""
    return [
        Throughput(3600 * hour + 60 * minute, *_pair(row[2 * minute : 2 * minute + 2]))
        for hour, row in zip(hours, rows, strict=True)
        for minute in range(60)
    ]


class Classes:
    """Adds up what hours know of classes."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))

    def add(self, hour: Row) -> None:
        """Add all fields of an hour's hash, names and values."""
        for field, value in zip(hour[::2], hour[1::2], strict=True):
            what, colon, name = (field or b"").decode("utf-8", "replace").partition(":")
            if colon and what in _OF_A_CLASS:
                self._sums[name][what] += _int(value)

    def rows(self) -> list[JobClass]:
        """What is known of each class, the busiest first."""
        rows = [_job_class(name, sums) for name, sums in self._sums.items()]
        return sorted(rows, key=lambda row: (-row.runs, row.name))


_OF_A_CLASS = frozenset((*OUTCOMES, *BUCKETS))


def _job_class(name: str, sums: Mapping[str, int]) -> JobClass:
    failed = sums["failed"]
    runs = sums["processed"] + failed
    histogram = tuple(sums[bucket] for bucket in BUCKETS)
    p50_s, p95_s, p99_s = (percentile(histogram, percent) for percent in (50, 95, 99))
    rate = failed / runs if runs else 0.0
    return JobClass(name, runs, failed, rate, p50_s, p95_s, p99_s, histogram)


def _pair(row: Row) -> tuple[int, int]:
    return (_int(row[0]), _int(row[1])) if len(row) == 2 else (0, 0)


def _int(value: bytes | None) -> int:
    """A count; 0 for something that is none."""
    try:
        return int(value or 0)
    except ValueError:
        return 0
