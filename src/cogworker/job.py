"""``Job``: a function that can be enqueued, and ``current_job()``: the one that runs."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack

from cogworker import clock, options
from cogworker.client import Client, Draft
from cogworker.codec import ArgumentCodec
from cogworker.errors import CogworkerError, EnqueueError, NoCurrentJob
from cogworker.middleware import OutgoingJob
from cogworker.options import JobOptions, Options
from cogworker.outgoing import encoded_fields, send_through
from cogworker.payload import new_jid
from cogworker.progress import Progress
from cogworker.retry import policy_of
from cogworker.uniqueness import lock_of

P = ParamSpec("P")
R = TypeVar("R")


class Job(Generic[P, R]):
    """A declared job. Calling it is an ordinary call; ``enqueue`` has a worker call it.

    Each enqueueing method answers with the job's id (24 hex digits), or None for a unique job that
    is there already, or that a client middleware has stopped. It raises InvalidArguments or
    PayloadTooLarge when the job is refused, DuplicateJob instead of None when the job is declared
    so, RedisUnavailable when the server does not answer, RedisRefused when it says no. The methods
    that begin with ``a`` are for ``async`` code.
    """

    def __init__(
        self,
        client: Client,
        function: Callable[P, R],
        name: str,
        options: Options,
    ) -> None:
        self.client = client
        self.function = function
        self.name = name
        self.codec = ArgumentCodec(function, name)
        self.is_async = inspect.iscoroutinefunction(function)
        self._chain = client.middleware.client
        self._take(options)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Job {self.name} queue={self.queue}>"

    @property
    def queue(self) -> str:
        """The queue that it is enqueued in."""
        return self.options.queue

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Have a worker run the job as soon as it can."""
        return self.client.enqueue(self._draft(args, kwargs))

    def enqueue_in(
        self, delay: float | timedelta, /, *args: P.args, **kwargs: P.kwargs
    ) -> str | None:
        """Have it run after a delay, in seconds or as a timedelta; the server's clock counts."""
        return self.client.enqueue(self._draft(args, kwargs, delay_s=_seconds(self.name, delay)))

    def enqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Have it run at a time, an aware datetime; one that is past means now."""
        return self.client.enqueue(self._draft(args, kwargs, at=_epoch(self.name, when)))

    def enqueue_many(self, calls: Iterable[tuple[Any, ...]]) -> list[str | None]:
        """Have it run once for each tuple of arguments, in one round trip for a thousand jobs.

        A call that is refused does not hold up the others: BulkRefused, raised at the end, names
        each of them.
        """
        return self.client.enqueue_many(self._drafts(calls))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Have a worker run the job as soon as it can."""
        return await self.client.aenqueue(self._draft(args, kwargs))

    async def aenqueue_in(
        self, delay: float | timedelta, /, *args: P.args, **kwargs: P.kwargs
    ) -> str | None:
        """Have it run after a delay, in seconds or as a timedelta; the server's clock counts."""
        draft = self._draft(args, kwargs, delay_s=_seconds(self.name, delay))
        return await self.client.aenqueue(draft)

    async def aenqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Have it run at a time, an aware datetime; one that is past means now."""
        return await self.client.aenqueue(self._draft(args, kwargs, at=_epoch(self.name, when)))

    async def aenqueue_many(self, calls: Iterable[tuple[Any, ...]]) -> list[str | None]:
        """Have it run once for each tuple of arguments; see ``enqueue_many``."""
        return await self.client.aenqueue_many(self._drafts(calls))

    def using(self, **changes: Unpack[JobOptions]) -> "Job[P, R]":
        """A copy of the job with some options changed, for what is enqueued through it.

        The worker goes by what the job's payload says, and for what is no data, such as the delays
        of a RetryPolicy, by the declaration.
        """
        copy: Job[P, R] = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._take(options.changed(self.name, self.options, dict(changes)))
        return copy

    def _take(self, chosen: Options) -> None:
        self.options = chosen
        self.policy = policy_of(chosen.retry)
        self._fields: dict[str, Any] = {}
        if chosen.at_most_once:
            self._fields["at_most_once"] = True
        if chosen.unique is not None:
            self._fields["unique"] = chosen.unique
        if chosen.history is not None:
            self._fields["history"] = chosen.history
        if chosen.tags:
            self._fields["tags"] = list(dict.fromkeys(chosen.tags))
        self._expires_in_s = chosen.expires_in_s
        if chosen.status is not False:
            self._fields["status"] = clock.seconds_of(chosen.status)
        self._lock = lock_of(chosen, self.codec, self.name)
        self._raises = chosen.on_duplicate == "raise"

    @property
    def _payload_fields(self) -> Mapping[str, Any]:
        """What the options add to each payload, whatever the arguments."""
        if self.options.status is True:
            return {**self._fields, "status": self.client.config.status_ttl}
        return self._fields

    def _draft(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        at: float | None = None,
        delay_s: float | None = None,
        is_through: bool = False,
    ) -> Draft | None:
        """The call as a draft, after the client middlewares; None when one has stopped it."""
        if self._chain.links and not is_through:
            return self._draft_through_middleware(args, kwargs, at, delay_s)
        encoded, named = self.codec.encode(args, kwargs)
        fields = self._payload_fields
        if self._lock is not None:
            fields = {**fields, "lock": self._lock(args, kwargs, encoded)}
        retries = self.policy.max_retries
        return Draft(
            *(self.name, self.options.queue, retries, encoded, named, fields, at, delay_s),
            self._raises,
            self._expires_in_s,
        )

    def _draft_through_middleware(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        at: float | None,
        delay_s: float | None,
    ) -> Draft | None:
        entries = self._chain.without(self.options.skip_middleware)
        before = self._payload_fields
        asked = OutgoingJob(
            jid=new_jid(),
            name=self.name,
            queue=self.options.queue,
            retry=self.policy.max_retries,
            args=args,
            kwargs=kwargs,
            at=at,
            delay_s=delay_s,
            fields=dict(before),
        )
        job = send_through(entries, asked)
        if job is None:
            return None
        try:
            options.check_fields(job.fields)
        except ValueError as error:
            raise EnqueueError(f"{self.name}: after its client middlewares: {error}") from None
        chosen = self if job.queue == self.options.queue else self.using(queue=job.queue)
        draft = chosen._draft(
            tuple(job.args), dict(job.kwargs), job.at, job.delay_s, is_through=True
        )
        assert draft is not None  # noqa: S101 - what can stop it is behind it
        fields = {**draft.fields, **encoded_fields(job, before), "jid": job.jid}
        for dropped in before.keys() - job.fields.keys():
            del fields[dropped]
        return draft._replace(retry=policy_of(job.retry).max_retries, fields=fields)

    def _drafts(self, calls: Iterable[tuple[Any, ...]]) -> Iterable[Callable[[], Draft]]:
        if not isinstance(calls, Iterable):
            raise EnqueueError(f"{self.name}: enqueue_many takes many calls, not {calls!r:.100}")
        for call in calls:
            yield lambda call=call: self._draft(_arguments(self.name, call), {})  # type: ignore[misc]


class CurrentJob(NamedTuple):
    """The job that runs here. ``attempt`` is 1 for the first run, 2 for the first retry.

    It may be handed to threads that the job starts. ``progress`` is there for a job with a status.
    """

    jid: str
    name: str
    queue: str
    attempt: int
    tags: tuple[str, ...] = ()
    progress: Progress | None = None

    def at(self, pct: float, message: str | None = None) -> None:
        """Tell how far the run is, from 0 to 100, for the job's status.

        Without a message the last one stays. Call it as often as you like, from any thread: it is
        written a few times a second. Nothing happens for a job without a status. Raises
        InvalidProgress.
        """
        if self.progress is not None:
            self.progress.at(pct, message)

    def store(self, **fields: Any) -> None:
        """Keep fields of its own, JSON values, in the job's status; see ``at``.

        A run has 50 fields at most, of 10,000 bytes each. They stay when the job is retried.
        """
        if self.progress is not None:
            self.progress.store(fields)


class Running(Protocol):
    """A run that goes on."""

    @property
    def current(self) -> CurrentJob:
        """The job as it sees itself."""
        ...


running: ContextVar[Running] = ContextVar("cogworker_current_job")


def current_job() -> CurrentJob:
    """The job that runs in this thread or task. Raises NoCurrentJob outside of one."""
    run = running.get(None)
    if run is None:
        raise NoCurrentJob
    return run.current


def declare(client: Client, function: Callable[P, R], name: str, given: JobOptions) -> Job[P, R]:
    """Make a job of a function. Raises DeclarationError."""
    return Job(client, function, name, options.declared(name, dict(given)))


def draft_of(job: Job[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Draft:
    """A call of a job, before any client middleware. Raises InvalidArguments."""
    draft = job._draft(args, kwargs, is_through=True)
    assert draft is not None  # noqa: S101 - only a middleware stops a call
    return draft


def _arguments(job: str, call: object) -> tuple[Any, ...]:
    if isinstance(call, tuple | list):
        return tuple(call)
    raise EnqueueError(
        f"{job}: enqueue_many takes a tuple of arguments for each call, not {call!r:.100}; "
        f"for a single argument write (value,)"
    )


def name_of_job(job: object) -> str:
    """The name of a job that is given itself, or by its name. Raises CogworkerError."""
    name = job.name if isinstance(job, Job) else job
    if isinstance(name, str):
        return name
    raise CogworkerError(f"a job is given by its name, or itself, not by {job!r:.100}")


def _seconds(job: str, delay: Any) -> float:
    seconds = clock.seconds_of(delay)
    if clock.is_seconds(seconds):
        return max(0.0, float(seconds))
    raise EnqueueError(f"{job}: a delay is a number of seconds or a timedelta, not {delay!r:.100}")


def _epoch(job: str, when: object) -> float:
    if isinstance(when, datetime) and when.tzinfo is not None:
        return when.timestamp()
    if isinstance(when, datetime):
        raise EnqueueError(
            f"{job}: {when!r} has no time zone; give it one, for example "
            f"datetime(…, tzinfo=UTC), or use enqueue_in"
        )
    raise EnqueueError(f"{job}: a time is an aware datetime, not {when!r:.100}")
