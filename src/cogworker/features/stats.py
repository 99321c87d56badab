"""Totals and throughput: how many runs succeeded and failed, when, of which class, how long.

Keys: three counters; a hash for each hour with its totals, those of its minutes and of each class,
and each class's histogram of run times; a hash for each day with its totals.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable
from functools import partial

from cogworker import clock
from cogworker._engine.effects import Effect, Verb, count, tally
from cogworker._redis.keys import Keys
from cogworker.features.event import Event, Kind

HOURS_KEPT_S = 25 * 3600
DAYS_KEPT_S = 400 * 86400
BOUNDS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
"""Upper bounds of the histogram's buckets, in seconds; longer runs are in one more, ``inf``."""
BUCKETS = (*(f"{bound:g}" for bound in BOUNDS_S), "inf")


class Stats:
    """Counts. Times are those of the worker's host, to the minute."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._processed = count(keys.processed)
        self._failed = count(keys.failed)
        self._discarded = count(keys.discarded)
        self._minute = -1
        self._of_success: dict[tuple[str, int], tuple[Verb, ...]] = {}

    def effects(self, event: Event) -> Iterable[Effect]:
        """Count runs by their outcome, and jobs that were discarded."""
        kind, run = event.kind, event.run
        if kind is Kind.DONE and run is not None:
            return map(Effect, self.of_success(event.job.class_, bucket_of(run.ran_s)))
        effects: list[Effect] = []
        if kind is Kind.DISCARDED:
            effects.append(self._discarded)
        if kind is Kind.DEAD or (run is not None and run.error is not None):
            bucket = None if run is None else bucket_of(run.ran_s)
            effects.append(self._failed)
            effects += self._tallies(clock.wall(), "failed", event.job.class_, bucket)
        return effects

    def of_success(self, name: str, bucket: int) -> tuple[Verb, ...]:
        """What a success of a class changes; the same until the minute is over."""
        now = clock.wall()
        minute = int(now) // 60
        if minute != self._minute:
            self._minute = minute
            self._of_success = {}
        verbs = self._of_success.get((name, bucket))
        if verbs is None:
            effects = (self._processed, *self._tallies(now, "processed", name, bucket))
            verbs = self._of_success[name, bucket] = tuple(effect.verb for effect in effects)
        return verbs

    def _tallies(self, now: float, outcome: str, name: str, bucket: int | None) -> Iterable[Effect]:
        day = time.strftime("%Y-%m-%d", time.gmtime(now))
        fields = {outcome: 1, minute_field(now, outcome): 1, class_field(outcome, name): 1}
        if bucket is not None:
            fields[class_field(BUCKETS[bucket], name)] = 1
        yield tally(self._keys.throughput(int(now) // 3600), fields, HOURS_KEPT_S)
        yield tally(self._keys.runs_of_day(day), {outcome: 1}, DAYS_KEPT_S)


bucket_of = partial(bisect_left, BOUNDS_S)
"""Which of the histogram's buckets a run of so many seconds is in."""


def minute_field(at: float, outcome: str) -> str:
    """Where an hour's hash counts one of its minutes, 0 to 59."""
    return f"{int(at) // 60 % 60} {outcome}"


def class_field(what: str, name: str) -> str:
    """Where an hour's hash counts a class's outcome, or a bucket of its histogram."""
    return f"{what}:{name}"
