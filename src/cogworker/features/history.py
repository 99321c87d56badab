"""The run log: every run that has ended, of jobs that ask for it or of all.

Two streams, of the runs that succeeded and of those that failed, so that a day of successes does
not push the failures out. They are kept to a number and an age with each write, about; who reads
leaves out what is too old.
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from cogworker._engine.effects import Effect, log
from cogworker._redis.keys import Keys
from cogworker.features.event import Event, Kind
from cogworker.payload import (
    MOST_TAG_CHARACTERS,
    MOST_TAGS,
    NO_KWARGS,
    Envelope,
    encode,
    failures,
    tags,
)

RunStatus = Literal["success", "failed"]

MOST_ARGS_BYTES = 10_000
"""Larger arguments are not kept, but for the beginning of them."""
MOST_EXCERPT_CHARACTERS = 1_000
MOST_BACKTRACE_CHARACTERS = 20_000
"""Of a stack trace its end is kept: 50,000 failures are to fit into memory."""

_OUTCOMES = {
    Kind.DONE: "done",
    Kind.RESCHEDULED: "rescheduled",
    Kind.RETRYING: "retrying",
    Kind.DEAD: "dead",
    Kind.DISCARDED: "discarded",
}


class HistoryEntry(msgspec.Struct, gc=False, omit_defaults=True):
    """A run as it lies in the log, which tells its status; what has its default is left out.

    Times are in epoch seconds, by the worker's clock.
    """

    jid: str
    class_: str = msgspec.field(name="class")
    queue: str
    args: Raw | UnsetType
    started_at: float
    finished_at: float
    attempt: int = 1
    outcome: str = "done"
    kwargs: Raw | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    excerpt: str | UnsetType = UNSET
    error_class: str | UnsetType = UNSET
    error_message: str | UnsetType = UNSET
    backtrace: list[str] | UnsetType = UNSET


class History:
    """Logs runs: those of all jobs if ``always``, but for what a job says for itself.

    ``success`` has a success logged, whose own word is its encoded entry.
    """

    def __init__(self, keys: Keys, *, always: bool, most: int, age_s: float) -> None:
        self.always = always
        self.success = log(keys.logged_successes, b"", most, age_s).verb
        self._failure = log(keys.logged_failures, b"", most, age_s).verb

    def wants(self, job: Envelope) -> bool:
        """Whether a job's runs are logged."""
        return job.history if type(job.history) is bool else self.always

    def effects(self, event: Event) -> Iterable[Effect]:
        """Log a run that has ended."""
        job, run, outcome = event.job, event.run, _OUTCOMES.get(event.kind)
        if run is None or outcome is None or not self.wants(job):
            return ()
        entry = entry_of(job, event.queue, run.started_at, run.ran_s)
        entry.attempt, entry.outcome = run.attempt, outcome
        if run.error is None:
            return (Effect(self.success, (encode(entry),)),)
        _add_error(entry, run.error)
        return (Effect(self._failure, (encode(entry),)),)


def entry_of(job: Envelope, queue: str, started_at: float, ran_s: float) -> HistoryEntry:
    """A run that succeeded."""
    args, finished_at = job.args, started_at + ran_s
    entry = HistoryEntry(job.jid, job.class_, queue, args, started_at, finished_at)
    if job.retry_count:
        entry.attempt = failures(job) + 1
    if job.tags:
        entry.tags = [tag[:MOST_TAG_CHARACTERS] for tag in tags(job)[:MOST_TAGS]]
    if job.kwargs is not NO_KWARGS:
        entry.kwargs = job.kwargs
        args = Raw(bytes(args) + bytes(job.kwargs))
    if len(args) > MOST_ARGS_BYTES:
        entry.excerpt = bytes(args).decode("utf-8", "replace")[:MOST_EXCERPT_CHARACTERS]
        entry.args = entry.kwargs = UNSET
    return entry


def _add_error(entry: HistoryEntry, error: dict[str, Any]) -> None:
    entry.error_class = error["error_class"]
    entry.error_message = error["error_message"]
    lines: list[str] = error["error_backtrace"]
    sizes = accumulate(len(line) for line in reversed(lines))
    kept = sum(size <= MOST_BACKTRACE_CHARACTERS for size in sizes)
    entry.backtrace = lines[len(lines) - kept :]
