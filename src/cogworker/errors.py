"""Every exception that Cogworker raises.

::

    CogworkerError                 catch this to catch all of them
    ├── ConfigError                a setting, flag or file that can't be used
    ├── DeclarationError           ``@cog.job`` was used wrongly
    ├── EnqueueError               a job was refused, and not enqueued
    │   ├── InvalidArguments       wrong signature, or a value that can't travel
    │   ├── PayloadTooLarge        over ``max_payload_bytes``
    │   ├── DuplicateJob           a unique job is there already
    │   └── BulkRefused            ``enqueue_many``: some were refused, the others are queued
    ├── InvalidPayload             what lies in Redis is not a job
    ├── UnknownJob                 a worker has no job of that name
    ├── JobOrphaned                a job's worker died too often; kept with the dead job
    ├── JobAbandoned               a worker died or stopped in the middle of a job that must not
    │                              run twice; kept with the dead job
    ├── RedisError                 the server could not do it
    │   ├── RedisUnavailable       no connection, no answer, or "not now" (loading, read-only …)
    │   └── RedisRefused           the server said no (out of memory, wrong type, no permission …)
    ├── NoCurrentJob               ``current_job()`` outside of a job
    ├── StartupFailed              an ``on_startup`` hook failed, so the worker did not start
    ├── InvalidProgress            what a job tells of itself can't be kept
    ├── NoResult                   ``cog.result()`` has none to answer with
    │   ├── JobFailed              the job is dead
    │   ├── JobCancelled           it was discarded, killed or deleted
    │   ├── ResultNotKept          it succeeded, and what it returned could not be kept
    │   ├── ResultTimeout          it has not ended in time; also a TimeoutError
    │   └── NoStatus               nothing is known of it (any more)
    └── EmbeddedServerError        the private development server did not start

    JobInterrupted                 a BaseException, raised *into* a job at a hard stop
    JobControl                     a BaseException, raised *by* a job that decides its own fate
    ├── Retry                      it failed, and runs again after a delay of its own
    ├── Discard                    it is over, though it has not succeeded
    └── Reschedule                 it runs again later, though it has not failed

Messages say what to do, where there is something; the facts in them are attributes too.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cogworker import clock


class CogworkerError(Exception):
    """Base of every error of this package."""


class ConfigError(CogworkerError):
    """A setting can't be used.

    ``setting`` is its name; ``source`` says where the value came from, for example
    ``the environment variable COGWORKER_CONCURRENCY``.
    """

    def __init__(self, setting: str, problem: str, source: str = "") -> None:
        self.setting = setting
        self.problem = problem
        self.source = source
        origin = f" (from {source})" if source else ""
        super().__init__(f"{setting}: {problem}{origin}")


class DeclarationError(CogworkerError):
    """A job was declared in a way that can't work."""


class EnqueueError(CogworkerError):
    """A job was refused, and not enqueued."""


class InvalidArguments(EnqueueError):
    """Arguments that do not fit the job's signature, or a value that can't travel as JSON.

    ``job`` is the job's name; ``path`` points at the value (``args[1]['when']``, or empty when
    the signature itself does not fit).
    """

    def __init__(self, job: str, path: str, problem: str) -> None:
        self.job = job
        self.path = path
        self.problem = problem
        where = f" {path}" if path else ""
        super().__init__(f"{job}:{where} {problem}")


class PayloadTooLarge(EnqueueError):
    """A job's payload is larger than ``max_payload_bytes``."""

    def __init__(self, job: str, size: int, limit: int) -> None:
        self.job = job
        self.size = size
        self.limit = limit
        super().__init__(
            f"{job}: the payload has {size:,} bytes, over the limit of {limit:,}; store the data "
            f"elsewhere and pass a reference, or raise max_payload_bytes"
        )


class BulkRefused(EnqueueError):
    """Some jobs of ``enqueue_many`` were refused; all the others are queued.

    ``refused`` maps the index of each refused call to its error (an EnqueueError, or a RedisRefused
    where the server refused it); ``jids`` has the job ids of the
    others, in order, with None where a job was refused.
    """

    def __init__(self, refused: Mapping[int, CogworkerError], jids: Sequence[str | None]) -> None:
        self.refused = refused
        self.jids = jids
        index, error = next(iter(refused.items()))
        super().__init__(
            f"{len(refused)} of {len(jids)} jobs were refused and the others are queued; "
            f"the first, number {index}: {error}"
        )


class DuplicateJob(EnqueueError):
    """A unique job is there already.

    Attributes: ``job`` (its name), ``holder`` (the id of the job that is there).
    """

    def __init__(self, job: str, holder: str) -> None:
        super().__init__(f"{job}: it is unique, and there already as job {holder}")
        self.job = job
        self.holder = holder


class InvalidPayload(CogworkerError):
    """What lies in Redis is not a job."""


class UnknownJob(CogworkerError):
    """No job of that name is declared in this process."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"no job is named {name!r} in this worker; import the module that declares it "
            f"(cogworker worker -r), or declare it with @cog.job(name={name!r})"
        )


class JobOrphaned(CogworkerError):
    """A job was in flight when its worker died, more often than ``max_orphanings``.

    Never raised: it is the error of a job that was moved to dead for that reason.
    """

    def __init__(self, times: int, limit: int) -> None:
        self.times = times
        self.limit = limit
        super().__init__(
            f"its worker died {times} times while it held it, more often than "
            f"max_orphanings={limit}; "
            f"find out what it does to its process before you revive it"
        )


class JobAbandoned(CogworkerError):
    """A job began, its end is unknown, and it must not run twice.

    ``how`` says what happened to its worker. Never raised: it is the error of a job that was moved
    to dead for that reason.
    """

    def __init__(self, how: str) -> None:
        self.how = how
        super().__init__(
            f"its worker {how} while it held it, and it must not run twice (at_most_once=True, or "
            f"a worker with fetch=basic); find out how far it got before you revive it"
        )


class RedisError(CogworkerError):
    """The server could not do what was asked.

    ``jids`` has the ids of the jobs that ``enqueue_many`` had queued before the error.
    """

    jids: Sequence[str | None] = ()


class RedisUnavailable(RedisError):
    """No connection, no answer in time, or a server that can't serve now.

    The call was repeated as often as the caller allows; whether the last one was carried out is
    unknown. It is safe to send it again.
    """


class RedisRefused(RedisError):
    """The server answered with an error, which the message quotes."""


class NoCurrentJob(CogworkerError):
    """``current_job()`` was called outside of a job."""

    def __init__(self) -> None:
        super().__init__("no job runs here; call current_job() from a job's own thread or task")


class StartupFailed(CogworkerError):
    """An ``on_startup`` hook raised something, so the worker did not take a job.

    ``hook`` is the hook's name; what it raised is the cause.
    """

    def __init__(self, hook: str, problem: str) -> None:
        self.hook = hook
        super().__init__(f"the startup hook {hook} failed, the worker does not start: {problem}")


class InvalidProgress(CogworkerError):
    """What a job told of itself, with ``at`` or ``store``, can't be kept.

    Attributes: ``job`` (its name), ``problem``.
    """

    def __init__(self, job: str, problem: str) -> None:
        self.job = job
        self.problem = problem
        super().__init__(f"{job}: {problem}")


class NoResult(CogworkerError):
    """There is no result of a job. ``jid`` is its id, ``job`` its name, if that is known."""

    def __init__(self, jid: str | None, job: str | None, problem: str) -> None:
        self.jid = jid
        self.job = job
        super().__init__(f"{job or 'job'} {jid} {problem}")


class JobFailed(NoResult):
    """The job is dead. ``error_class`` and ``error_message`` say of what, if that is known."""

    def __init__(
        self, jid: str, job: str | None, error_class: str | None, error_message: str | None
    ) -> None:
        self.error_class = error_class
        self.error_message = error_message
        error = "" if error_class is None else f": {error_class}: {error_message}"
        super().__init__(jid, job, f"has failed{error}")


class JobCancelled(NoResult):
    """The job was discarded, killed or deleted.

    ``error_class`` and ``reason`` are the last error and its message, if there was one; a job that
    raised Discard has its words as the reason.
    """

    def __init__(
        self, jid: str, job: str | None, error_class: str | None, reason: str | None
    ) -> None:
        self.error_class = error_class
        self.reason = reason
        decided = error_class == f"{Discard.__module__}.{Discard.__qualname__}"
        words = (None if decided else error_class, reason)
        super().__init__(jid, job, ": ".join(["was cancelled", *filter(None, words)]))


class ResultNotKept(NoResult):
    """The job has succeeded, but what it returned could not be kept; ``reason`` says why."""

    def __init__(self, jid: str, job: str | None, reason: str) -> None:
        self.reason = reason
        super().__init__(jid, job, f"has succeeded, without a result: {reason}")


class ResultTimeout(NoResult, TimeoutError):
    """The job had not ended in time; its ``state`` was queued, working or the like."""

    def __init__(self, jid: str, job: str | None, state: str, timeout_s: float) -> None:
        self.state = state
        self.timeout_s = timeout_s
        super().__init__(jid, job, f"has not ended within {timeout_s:g} s, it is {state}")


class NoStatus(NoResult):
    """There is no status of a job: it asked for none, it has expired, or there is no such job.

    ``jid`` is None when there never was one: it was not enqueued.
    """

    def __init__(self, jid: str | None) -> None:
        problem = "has no status; declare it with status=True, or have the status kept for longer"
        if jid is None:
            problem = "is no job: it was not enqueued, as a duplicate or by a client middleware"
        super().__init__(jid, None, problem)


class EmbeddedServerError(CogworkerError):
    """The private development server could not be found or started."""


class JobInterrupted(BaseException):
    """Raised into a job that still runs when its worker must end.

    It is a BaseException so that ``except Exception`` in a job does not swallow it. The job
    is given back to its queue and will run again.
    """


class JobControl(BaseException):
    """Raised by a job, or by a middleware around it, to say what becomes of the job.

    It is a BaseException so that ``except Exception`` in a job does not make a success of it: a job
    that was to run again would be gone. ``finally`` and ``with`` blocks see it as they see any.
    """


class Retry(JobControl):
    """The job failed and runs again after ``in_``, in seconds or as a timedelta.

    It uses one of the job's retries; when none is left, the job is dead. Without ``in_`` the delay
    is that of the job's policy. ``reason`` is kept as the error's message; without one, and raised
    ``from`` another error, that one is kept. Raises ValueError for what is no delay.
    """

    def __init__(self, *, in_: float | timedelta | None = None, reason: str | None = None) -> None:
        self.delay_s = None if in_ is None else _delay_s("Retry(in_=…)", in_)
        self.reason = reason
        super().__init__(reason or "the job asked to run again")


class Discard(JobControl):
    """The job is over: it neither succeeded nor failed, and is counted as discarded.

    ``reason`` is logged, and told in its status.
    """

    def __init__(self, reason: str = "the job asked to be dropped") -> None:
        self.reason = reason
        super().__init__(reason)


class Reschedule(JobControl):
    """The job runs again at a time, an aware datetime, or after a delay; it did not fail.

    It goes to the schedule and uses no retry: nothing limits how often a job does so. Raises
    ValueError unless one of the two is given, and for what is no time or delay.
    """

    def __init__(self, *, at: datetime | None = None, in_: float | timedelta | None = None) -> None:
        if (at is None) == (in_ is None):
            raise ValueError("Reschedule takes either at=… or in_=…")
        self.delay_s = None if in_ is None else _delay_s("Reschedule(in_=…)", in_)
        self.at = None if at is None else _epoch("Reschedule(at=…)", at)
        super().__init__("the job asked to run later")


def _delay_s(where: str, delay: Any) -> float:
    """A delay in seconds; one that is past is none."""
    seconds = clock.seconds_of(delay)
    try:
        if not isinstance(seconds, bool) and math.isfinite(seconds):
            return max(0.0, float(seconds))
    except (TypeError, OverflowError):
        pass
    raise ValueError(f"{where} takes seconds or a timedelta, not {delay!r:.100}")


def _epoch(where: str, when: Any) -> float:
    if isinstance(when, datetime) and when.tzinfo is not None:
        return when.timestamp()
    raise ValueError(f"{where} takes a datetime with a time zone, not {when!r:.100}")
