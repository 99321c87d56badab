"""When something is due again and again. Pure.

A *time slot* is a moment at which it is due, in whole epoch seconds. A schedule tells the latest
one and the next one; it is a cron line in a time zone (``Cron``), or an interval (``Every``).

When clocks change, a cron line at a fixed time (neither its hour nor its minute begins with ``*``)
is due once: right after the gap, if its time is left out, and the first time, if it comes twice.
Any other line goes by what the clock shows, as often as it shows it. That is Debian's cron.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from cogworker import clock
from cogworker._hints import did_you_mean

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EVERY = "@every "
"""What the text of an interval begins with; seconds follow."""
DAY_S = 86400
MOST_CHARACTERS = 200
LONGEST_INTERVAL_S = 100 * 365 * DAY_S

_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)


class Schedule(Protocol):
    """When something is due. ``text`` and ``timezone`` say it for people and for the id."""

    text: str
    timezone: str | None

    def latest(self, now: float) -> int | None:
        """The latest time slot that is not after ``now``, if there is any."""
        ...

    def next(self, now: float) -> int | None:
        """The first time slot after ``now``, if there is any."""
        ...


class Every:
    """An interval: whole multiples of it since the epoch. Raises ValueError."""

    def __init__(self, interval: object) -> None:
        seconds = clock.seconds_of(interval)
        if not clock.is_seconds(seconds) or seconds != int(seconds) or seconds < 1:
            raise ValueError(
                f"every must be a whole number of seconds from 1 on, or such a timedelta, "
                f"not {interval!r:.100}"
            )
        self._interval_s = int(seconds)
        if self._interval_s > LONGEST_INTERVAL_S:
            raise ValueError(f"every must be 100 years at most, not {interval!r:.100}")
        self.text = f"{EVERY}{self._interval_s}"
        self.timezone: str | None = None

    def latest(self, now: float) -> int:
        """The latest time slot that is not after ``now``."""
        return int(now // self._interval_s) * self._interval_s

    def next(self, now: float) -> int:
        """The first time slot after ``now``."""
        return self.latest(now) + self._interval_s


class Cron:
    """A cron line of five fields, or of six with seconds first, in a time zone, by default UTC.

    Raises ValueError, which says what is wrong with the line. The library is only asked what a
    calendar without a time zone shows. With one it goes wrong where clocks change: it misses 02:00
    to 02:20 of ``*/10 2 * * *`` on Lord Howe Island when clocks there go back by half an hour, and
    calls 02:30 the next time when it has been over for 40 minutes in Berlin.
    """

    def __init__(self, text: object, timezone: object = None) -> None:
        self.text = _checked_text(text)
        self.timezone = _checked_zone(timezone)
        self._zone: tzinfo = ZoneInfo(self.timezone) if self.timezone else UTC
        self._line = ALIASES.get(self.text.strip().lower(), self.text)
        if self._line.lstrip().startswith("@"):
            raise ValueError(f"there is no {self.text!r}; there are {', '.join(ALIASES)}")
        try:
            self._matching(_EPOCH)
        except CronSimError as error:
            raise ValueError(
                f"the cron line {self.text!r} can't be used: {_reason(error)}"
            ) from None
        *_, minute, hour, _, _, _ = self._line.split()
        self._is_fixed = not minute.startswith("*") and not hour.startswith("*")
        if self.next(clock.wall()) is None:
            raise ValueError(f"the cron line {self.text!r} never matches")

    def latest(self, now: float) -> int | None:
        """The latest time slot that is not after ``now``, if there is any in fifty years."""
        return self._latest_fixed(int(now)) if self._is_fixed else self._latest_shown(int(now))

    def next(self, now: float) -> int | None:
        """The first time slot after ``now``, if there is any in fifty years."""
        return self._next_fixed(int(now)) if self._is_fixed else self._next_shown(int(now))

    # At fixed times: each time that the calendar has is one time slot, and they have one order.

    def _latest_fixed(self, now: int) -> int | None:
        local = datetime.fromtimestamp(now, self._zone)
        # When this is the second time, later ones have been, too.
        shown = _shown(local) + (_offset(local.replace(fold=0)) - _offset(local)) * _SECOND
        while (found := self._matching(shown + _SECOND, back=True)) is not None:
            if (slot := self._first_time(found)) <= now:
                return slot
            shown = found - _SECOND
        return None

    def _next_fixed(self, now: int) -> int | None:
        shown: datetime | None = _shown(datetime.fromtimestamp(now, self._zone))
        while shown is not None and (shown := self._matching(shown)) is not None:
            if (slot := self._first_time(shown)) > now:
                return slot
        return None

    def _first_time(self, shown: datetime) -> int:
        """When a clock first shows a time, or the end of the gap in which it doesn't."""
        before, after = (_offset(shown.replace(tzinfo=self._zone, fold=fold)) for fold in (0, 1))
        if before >= after:
            return _epoch(shown) - before
        return self._change(_epoch(shown) - after, _epoch(shown) - before)

    # By what the clock shows: within a time of one offset, a calendar's order is that of time.

    def _latest_shown(self, now: int) -> int | None:
        while True:
            offset, start = self._offset_at(now), now - DAY_S
            same = self._offset_at(start) == offset
            if not same:
                start = self._change(start, now)
            found = self._matching(_EPOCH + (now + offset + 1) * _SECOND, back=True)
            if found is None:
                return None
            if (slot := _epoch(found) - offset) >= start:
                return slot
            # An offset can bring it nearer, by less than a day.
            now = min(start - 1, slot + DAY_S) if same else start - 1

    def _next_shown(self, now: int) -> int | None:
        now += 1
        while True:
            offset, end = self._offset_at(now), now + DAY_S
            same = self._offset_at(end) == offset
            if not same:
                end = self._change(now, end)
            found = self._matching(_EPOCH + (now + offset - 1) * _SECOND)
            if found is None:
                return None
            if (slot := _epoch(found) - offset) < end:
                return slot
            now = max(end, slot - DAY_S) if same else end

    def _offset_at(self, moment: int) -> int:
        return _offset(datetime.fromtimestamp(moment, self._zone))

    def _change(self, low: int, high: int) -> int:
        """The first second after ``low`` with the offset that ``high`` has."""
        offset = self._offset_at(high)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset_at(middle) == offset:
                high = middle
            else:
                low = middle
        return high

    def _matching(self, shown: datetime, *, back: bool = False) -> datetime | None:
        """What the calendar has next after a time, or before it."""
        return next(CronSim(self._line, shown, reverse=back), None)


def _checked_text(text: object) -> str:
    if isinstance(text, str) and len(text) <= MOST_CHARACTERS and text.isprintable():
        return text
    raise ValueError(
        f"a cron line is a text of {MOST_CHARACTERS} characters at most, not {text!r:.100}"
    )


def _checked_zone(zone: object) -> str | None:
    name = zone.key if isinstance(zone, ZoneInfo) else zone
    if name is None or name == "UTC":
        return None
    with suppress(KeyError, ValueError, OSError):  # OSError: it is the name of a folder of zones
        if isinstance(name, str):
            return ZoneInfo(name).key
    hint = did_you_mean(str(name), sorted(available_timezones()), "an example is Europe/Berlin")
    raise ValueError(f"there is no time zone {name!r:.100}; {hint}")


def _reason(error: CronSimError) -> str:
    words = str(error)
    if words == "Bad day-of-month":
        return "its day-of-month is out of range, is none of these months, or can't be read"
    if words.startswith("Bad "):
        return f"its {words.removeprefix('Bad ')} is out of range or can't be read"
    return "it must have five fields, or six with the seconds first"


def _shown(local: datetime) -> datetime:
    return local.replace(tzinfo=None, fold=0)


def _epoch(shown: datetime) -> int:
    return (shown - _EPOCH) // _SECOND


def _offset(local: datetime) -> int:
    offset = local.utcoffset()
    assert offset is not None  # noqa: S101 - an aware time has one
    return offset // _SECOND
