"""When a cron line is due, found by looking at a clock on the wall minute by minute.

It shares nothing with ``cogworker.schedules``: no library, and no arithmetic of its own with time
zones; only what ``zoneinfo`` says that a clock shows at a moment.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
LOWEST, HIGHEST = (0, 0, 1, 1, 0), (59, 23, 31, 12, 7)


def due(line: str, zone: str, start: int, end: int) -> list[int]:
    """The time slots of a line of five fields from ``start`` up to ``end``, epoch seconds."""
    matches = _matcher(line.split())
    is_fixed = not any(field.startswith("*") for field in line.split()[:2])
    clock = ZoneInfo(zone)
    looks = range(start - start % 60 - 3 * 3600, end, 60)
    seen = datetime.fromtimestamp(looks[0], clock).replace(tzinfo=None) - MINUTE
    found = []
    for moment in looks:
        shown = datetime.fromtimestamp(moment, clock).replace(tzinfo=None)
        times = [shown]
        if is_fixed:  # each time once: the first time it is shown, or when it has been jumped over
            times = [seen + count * MINUTE for count in range(1, (shown - seen) // MINUTE + 1)]
        if any(map(matches, times)):
            found.append(moment)
        seen = max(seen, shown)
    return [moment for moment in found if moment >= start]


def _matcher(fields: list[str]) -> Callable[[datetime], bool]:
    minutes, hours, days, months, weekdays = map(_values, fields, LOWEST, HIGHEST)
    is_both = fields[2].startswith("*") or fields[4].startswith("*")

    def matches(time: datetime) -> bool:
        if time.minute not in minutes or time.hour not in hours or time.month not in months:
            return False
        of_month = time.day in days
        of_week = time.isoweekday() in weekdays or time.isoweekday() % 7 in weekdays
        return (of_month and of_week) if is_both else (of_month or of_week)

    return matches


def _values(field: str, low: int, high: int) -> set[int]:
    return {value for term in field.split(",") for value in _of_term(term, low, high)}


def _of_term(term: str, low: int, high: int) -> range:
    span, _, step = term.partition("/")
    first, _, last = span.partition("-")
    if span == "*":
        first, last = str(low), str(high)
    elif not last:
        last = str(high) if step else first
    return range(int(first), int(last) + 1, int(step or 1))
