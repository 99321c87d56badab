"""``Cogworker``: where jobs, configuration and connections are joined."""

import inspect
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack, overload

import msgspec

from cogworker import clock, codec
from cogworker import config as configuration
from cogworker._kinds import Refusal, check_queue_name
from cogworker.client import Client, Prepared
from cogworker.config import Config
from cogworker.errors import DeclarationError, EnqueueError
from cogworker.hooks import DeathHook, ErrorHook, Hook, declared
from cogworker.job import Job, declare
from cogworker.middleware import Middleware
from cogworker.options import JobOptions, check_fields
from cogworker.outgoing import outgoing, payload_fields, send_through
from cogworker.payload import new_jid
from cogworker.status import JobStatus, Statuses
from cogworker.timetable import PeriodicOptions, Timetable
from cogworker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
HookT = TypeVar("HookT", bound=Hook)
DeathHookT = TypeVar("DeathHookT", bound=DeathHook)
ErrorHookT = TypeVar("ErrorHookT", bound=ErrorHook)


class Cogworker:
    """An application's jobs and its way to Redis.

    ``settings`` are those of ``cogworker.config.Config``; they beat the file, which beats the
    environment. Nothing is connected before it is needed. Raises ConfigError.
    """

    def __init__(self, *, config_file: str | Path | None = None, **settings: Any) -> None:
        self._file = config_file
        self._settings = settings
        self.jobs: dict[str, Job[..., Any]] = {}
        self.timetable = Timetable()
        self.client = Client(configuration.load(file=config_file, arguments=settings))
        self._statuses = Statuses(self.client, self.jobs)

    @property
    def middleware(self) -> Middleware:
        """The chains of client and server middlewares."""
        return self.client.middleware

    # Hooks, as decorators: called by each worker, plain functions in a thread of their own, async
    # ones on the event loop of its async jobs. Each raises DeclarationError.

    def on_startup(self, hook: HookT) -> HookT:
        """Have a worker call this before it takes jobs; one that raises keeps it from starting."""
        return declared(self.client.hooks.startup, hook, 0)

    def on_quiet(self, hook: HookT) -> HookT:
        """Have a worker call this when it takes no more jobs: it is quiet, or begins to stop."""
        return declared(self.client.hooks.quiet, hook, 0)

    def on_shutdown(self, hook: HookT) -> HookT:
        """Have a worker call this at its end, when no job runs any more."""
        return declared(self.client.hooks.shutdown, hook, 0)

    def on_death(self, hook: DeathHookT) -> DeathHookT:
        """Have a worker call this, with payload and error, when it has put a job in dead."""
        return declared(self.client.hooks.death, hook, 2)

    def on_error(self, hook: ErrorHookT) -> ErrorHookT:
        """Have a worker call this for each failed run: error, run, and whether it is retried."""
        return declared(self.client.hooks.error, hook, 3)

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.client.config

    def configure(
        self, *, config_file: str | Path | None = None, flags: Mapping[str, Any] | None = None
    ) -> None:
        """Load the configuration again, with a command line's file and flags on top.

        For programs that run an application they did not make. Raises ConfigError.
        """
        self.client.use(
            configuration.load(
                file=config_file or self._file, arguments=self._settings, flags=flags or {}
            )
        )

    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...

    @overload
    def job(
        self, *, name: str | None = None, **options: Unpack[JobOptions]
    ) -> Callable[[Callable[P, R]], Job[P, R]]: ...

    def job(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Declare a function, plain or ``async``, as a job.

        ``name`` is what a payload calls it, by default ``module.function``. The options are those
        of ``cogworker.options.Options``; all but the delays of a RetryPolicy travel in the payload:
        whoever pushes one without ``enqueue`` has to say them there. Raises DeclarationError.
        """

        def declare_as_job(function: Callable[..., Any]) -> Job[..., Any]:
            _check_function(function)
            if name is not None and (not isinstance(name, str) or not name.isprintable()):
                raise DeclarationError(f"a job's name is printable text, not {name!r:.100}")
            job = declare(self.client, function, name or _name_of(function), options)
            self._register(job)
            return job

        return declare_as_job if function is None else declare_as_job(function)

    @overload
    def periodic(
        self,
        cron: str | None = None,
        job: None = None,
        /,
        *,
        every: float | timedelta | None = None,
        **options: Unpack[PeriodicOptions],
    ) -> Callable[[Callable[P, R]], Job[P, R]]: ...

    @overload
    def periodic(
        self,
        cron: str | None,
        job: Callable[P, R],
        /,
        *,
        every: float | timedelta | None = None,
        **options: Unpack[PeriodicOptions],
    ) -> Job[P, R]: ...

    def periodic(
        self,
        cron: str | None = None,
        job: Callable[..., Any] | None = None,
        /,
        *,
        every: float | timedelta | None = None,
        **options: Unpack[PeriodicOptions],
    ) -> Any:
        """Have workers push a job again and again: above a declaration, or with the job given.

        ``cron`` is a line of five fields, of six with seconds first, or ``@hourly``, ``@daily``,
        ``@weekly``, ``@monthly``, ``@yearly``, in the time zone ``timezone``, by default UTC;
        ``every`` an interval in whole seconds instead, counted from the epoch. The job gets
        ``args`` and ``kwargs``, and has its own ``queue`` and ``retry`` unless others are given.
        With ``unique="until_executed"`` a time slot is skipped while the job of an earlier one is
        not over. ``name`` is shown. ``catch_up`` is the setting ``periodic_catch_up`` for this
        entry. A plain function becomes a job. Raises DeclarationError.
        """
        given = {"cron": cron, "every": every, **options}
        for wrong in ("job", "fn", "func"):
            if wrong in options:
                raise DeclarationError(
                    f"cog.periodic takes the job as its second argument, not as {wrong}=…"
                )
        if callable(cron):
            raise DeclarationError(
                f"cog.periodic needs to know when: write @cog.periodic('@hourly'), or "
                f"cog.periodic('@hourly', {getattr(cron, '__name__', 'job')})"
            )

        def declared(function: Callable[..., Any]) -> Job[..., Any]:
            job = function if isinstance(function, Job) else self.job(function)
            self.timetable.declare(job, given)
            return job

        return declared if job is None else declared(job)

    def push(self, payload: Mapping[str, Any]) -> str | None:
        """Push a payload as it is, for example for a worker written in another language.

        ``class`` is required; ``args``, ``jid``, ``queue``, ``retry`` and ``created_at`` are
        filled in; with ``at`` (epoch seconds) it is scheduled; other keys are kept. Answers with
        the job's id, or None when it is ``unique`` and there already, or stopped by a client
        middleware. Raises EnqueueError.
        """
        return self.client.push(self._prepare(payload))

    async def apush(self, payload: Mapping[str, Any]) -> str | None:
        """Push a payload as it is; see ``push``."""
        return await self.client.apush(self._prepare(payload))

    def status(self, jid: str | None) -> JobStatus | None:
        """What is known of a job that was declared with ``status``; None when that is nothing.

        What ``enqueue`` has answered will do, None as well.
        """
        return self._statuses.get(jid)

    async def astatus(self, jid: str | None) -> JobStatus | None:
        """What is known of a job; see ``status``."""
        return await self._statuses.aget(jid)

    def wait_for(self, jid: str | None, timeout: float | None = None) -> JobStatus:
        """Wait until a job has ended, whatever has come of it; answers with its status.

        ``timeout`` is in seconds, by default without end. Raises ResultTimeout and NoStatus.
        """
        return self._statuses.wait(jid, timeout)

    async def await_for(self, jid: str | None, timeout: float | None = None) -> JobStatus:
        """Wait until a job has ended; see ``wait_for``."""
        return await self._statuses.await_(jid, timeout)

    def result(self, jid: str | None, timeout: float | None = None) -> Any:
        """Wait until a job has ended; answers with what it returned.

        It is of the type that the job's annotation says, if the job is declared here. ``timeout``
        is in seconds, by default without end. Raises a kind of NoResult: JobFailed, JobCancelled,
        ResultNotKept, ResultTimeout or NoStatus.
        """
        return self.wait_for(jid, timeout).outcome()

    async def aresult(self, jid: str | None, timeout: float | None = None) -> Any:
        """Wait until a job has ended; see ``result``."""
        return (await self.await_for(jid, timeout)).outcome()

    def worker(self, **settings: Any) -> Worker:
        """A worker in this process, for all jobs declared so far and later.

        ``settings`` are this worker's own ``queues``, ``concurrency`` and the like, in place of the
        application's. Raises ConfigError.
        """
        config = configuration.for_worker(self.config, settings)
        return Worker(self.client, self.jobs, self.timetable, config)

    def close(self) -> None:
        """Close the connections of synchronous calls; later calls open new ones."""
        self.client.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop's calls."""
        await self.client.aclose()

    def _prepare(self, payload: Mapping[str, Any]) -> Prepared | None:
        if not isinstance(payload, Mapping):
            raise EnqueueError(f"a payload is a mapping, not {payload!r:.100}")
        name = payload.get("class")
        if not isinstance(name, str) or not name:
            raise EnqueueError(f"a payload needs the name of its job as 'class', not {name!r}")
        now = clock.wall()
        fields: dict[str, Any] = {
            "class": name,
            "args": [],
            "jid": new_jid(),
            "queue": "default",
            "retry": True,
            "created_at": now,
            **payload,
        }
        _check_fields(name, fields)
        delay_s = None
        if self.middleware.client.links:
            fields, delay_s = self._through_middleware(fields)
            if not fields:
                return None
            _check_fields(name, fields)
        at = fields.get("at")
        try:
            check_queue_name(fields["queue"])
        except Refusal as refusal:
            raise EnqueueError(f"{name}: {refusal}") from None
        if delay_s is not None:
            fields["at"] = now + delay_s
        elif at is None:
            fields.setdefault("enqueued_at", now)
        encoded: dict[str, Any] = {
            key: msgspec.Raw(codec.encode_json(value, key, name)) for key, value in fields.items()
        }
        encoded |= {"class": name, "jid": fields["jid"], "queue": fields["queue"]}
        return self.client.seal(encoded, None if at is None else float(at), delay_s)

    def _through_middleware(self, fields: dict[str, Any]) -> tuple[dict[str, Any], float | None]:
        """A payload as client middlewares have changed it, none when stopped; and its delay."""
        declared_here = self.jobs.get(fields["class"])
        skipped = declared_here.options.skip_middleware if declared_here else ()
        links = self.middleware.client.without(skipped)
        job = send_through(links, outgoing(fields))
        return ({}, None) if job is None else (payload_fields(job, fields), job.delay_s)

    def _register(self, job: Job[..., Any]) -> None:
        known = self.jobs.get(job.name)
        if known is not None and _place_of(known.function) != _place_of(job.function):
            raise DeclarationError(
                f"{job.name} is declared twice, by {_place_of(known.function)} and by "
                f"{_place_of(job.function)}; give one of them another name="
            )
        self.jobs[job.name] = job


def _check_function(function: object) -> None:
    if not inspect.isroutine(function):
        raise DeclarationError(f"@cog.job declares functions, not {function!r:.100}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DeclarationError(
            f"{_place_of(function)} is a generator function: calling it runs nothing; "
            f"make it a plain or an async function"
        )


def _check_fields(name: str, fields: Mapping[Any, Any]) -> None:
    for key in fields:
        if not isinstance(key, str):
            raise EnqueueError(f"{name}: the keys of a payload are texts, not {key!r:.100}")
    wanted = {"jid": str, "queue": str, "args": list, "kwargs": dict, "retry": int | None}
    for key, kind in wanted.items():
        if key in fields and not isinstance(fields[key], kind):
            shown = getattr(kind, "__name__", "a number of retries, a bool or None")
            raise EnqueueError(f"{name}: {key!r} must be {shown}, not {fields[key]!r:.100}")
    if not fields["jid"]:
        raise EnqueueError(f"{name}: 'jid' must not be empty; leave it out to get one")
    if fields.get("at") is not None and not clock.is_seconds(fields["at"]):
        raise EnqueueError(
            f"{name}: 'at' must be a time in epoch seconds, not {fields['at']!r:.100}"
        )
    try:
        check_fields(fields)
    except ValueError as error:
        raise EnqueueError(f"{name}: {error}") from None


def _name_of(function: Callable[..., Any]) -> str:
    module = function.__module__
    if module == "__main__":
        # A worker imports the same file under its own name.
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        path = getattr(main, "__file__", None)
        module = spec.name if spec else Path(path).stem if path else module
    return f"{module}.{function.__qualname__}"


def _place_of(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
