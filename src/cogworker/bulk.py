"""One action on all jobs at a place, or on those that a filter matches, while the place changes.

An operation fixes its bounds when it is made: a job that comes to the place later, or comes back
because it has failed again, is left alone. So it comes to its end however fast jobs fail.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, Unpack

import msgspec

from cogworker import clock
from cogworker._engine.browse import MOST_FOUND, START, Cursor
from cogworker._engine.places import Place
from cogworker._kinds import printable
from cogworker.by_hand import JobEntry
from cogworker.jobs_at import ActionName, Filter, JobsAt, Tally

logger = logging.getLogger("cogworker.by_hand")


class Counted(NamedTuple):
    """How many jobs an operation is for; ``complete`` is False when the time was up before."""

    jobs: int
    complete: bool


class _Times(msgspec.Struct):
    """Since when a payload waits."""

    enqueued_at: float | None = None
    created_at: float | None = None


_times = msgspec.json.Decoder(_Times)


class Bulk:
    """An operation: see ``JobsAt.act`` for the actions, ``Filter`` for what can be wanted.

    Raises CogworkerError for what can't be, RedisUnavailable and RedisRefused.
    """

    def __init__(
        self,
        jobs: JobsAt,
        action: ActionName,
        *,
        when: datetime | None = None,
        **wanted: Unpack[Filter],
    ) -> None:
        jobs.check(action, when, **wanted)
        self._jobs = jobs
        self._action: ActionName = action
        self._when = when
        self._wanted = wanted
        self._began_at = jobs.now()

    def count(self, most_s: float = 1.0) -> Counted:
        """Count the jobs that it is for now, ``most_s`` seconds long."""
        until = clock.monotonic() + most_s
        jobs = 0
        for entries in self._pages():
            jobs += len(entries)
            if clock.monotonic() > until:
                return Counted(jobs, False)
        return Counted(jobs, True)

    def run(self) -> Iterator[Tally]:
        """Carry it out; answers after each portion with what has come of all so far.

        Who stops iterating stops it: what was done stays done.
        """
        came: Tally = Counter()
        try:
            for entries in self._pages():
                came += self._jobs.act(self._action, entries, self._when)
                yield came.copy()
        finally:
            numbers = " ".join(f"{word}={number}" for word, number in sorted(came.items()))
            place = printable(str(self._jobs))
            logger.info("bulk: action=%s place=%s %s", self._action, place, numbers)

    def _pages(self) -> Iterator[list[JobEntry]]:
        end: Cursor | None = START
        while end is not None:
            entries, end = self._jobs.page(end, MOST_FOUND, **self._wanted)
            yield [entry for entry in entries if self._was_there(entry)]

    def _was_there(self, entry: JobEntry) -> bool:
        """Whether an entry lay there when the operation was made."""
        if self._when is not None and entry.where == self._when.timestamp():
            return False  # it has been put off already
        if entry.place is Place.DEAD:
            return entry.where <= self._began_at
        try:
            times = _times.decode(entry.raw)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return True  # nothing that runs, so it does not come back
        return max(times.enqueued_at or 0.0, times.created_at or 0.0) <= self._began_at
