"""Runs one delivery, in whatever thread or task it is called.

In order: find the job by its name, decode the arguments as its signature says, call it; around all
that are the server middlewares, if there are any. The end of the call becomes a move: none for a
success; what an exception comes to, ``endings.py`` decides.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from types import CoroutineType
from typing import Any, NamedTuple

from cogworker import clock, payload
from cogworker._engine.places import InFlight
from cogworker._engine.plan import KEEP, Move
from cogworker._engine.replies import Taken
from cogworker._worker import failure, results
from cogworker._worker.around import run_inside, run_inside_async, run_of
from cogworker._worker.delivery import Delivery
from cogworker._worker.endings import Endings
from cogworker._worker.notes import Notes
from cogworker.errors import Discard, InvalidPayload, UnknownJob
from cogworker.features.transitions import Transitions
from cogworker.job import Job, running
from cogworker.middleware import Chain, JobRun, Link, ServerMiddleware

logger = logging.getLogger("cogworker.worker")


class Call(NamedTuple):
    """A job's function with what it is called with."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]
    delivery: Delivery


class _Prepared(NamedTuple):
    """What middlewares are told of a run, and its call, or why there is none."""

    run: JobRun
    ready: Call | None
    problem: BaseException | None

    def call(self) -> Call:
        if self.ready is None:
            assert self.problem is not None  # noqa: S101 - it is one of the two
            raise self.problem
        return self.ready


class Performer:
    """Runs deliveries for one worker, in whatever thread or task it is called."""

    def __init__(
        self,
        jobs: Mapping[str, Job[..., Any]],
        transitions: Transitions,
        worker: InFlight,
        endings: Endings,
        middlewares: Chain[ServerMiddleware],
        notes: Notes,
    ) -> None:
        self._jobs = jobs
        self._transitions = transitions
        self._worker = worker
        self._endings = endings
        self._middlewares = middlewares
        self._notes = notes

    def accept(self, taken: Taken, now: float) -> Delivery | Move:
        """A delivery to run, or the move of what is not run: too late, or not a job."""
        try:
            envelope = payload.parse(taken.payload)
        except InvalidPayload as error:
            logger.error(
                "not a job, moved to dead: queue=%s error=%s payload=%s",
                taken.queue,
                error,
                payload.excerpt(taken.payload),
            )
            return self._transitions.bury_unreadable(
                self._worker, taken.tag, taken.payload, error, taken.queue
            )
        if envelope.expires_at is not None and payload.is_over(envelope, clock.wall()):
            logger.info("too late, discarded: %s queue=%s", payload.label(envelope), taken.queue)
            return self._transitions.discard(
                *(self._worker, taken.tag, envelope, taken.queue),
                reason=failure.describe(Discard("it was taken too late")),
            )
        return Delivery(taken.tag, taken.payload, envelope, self._jobs.get(envelope.class_), now)

    def perform(self, delivery: Delivery) -> Move | None:
        """Run a plain function here; only an interrupt that comes after the run gets out."""
        try:
            if self._middlewares.links:
                result = Context().run(self._perform_inside, delivery)
            else:
                call = self._prepare(delivery)
                delivery.begin()
                result = Context().run(_call, call)
                if type(result) is CoroutineType:
                    raise _not_awaited(call, result)
            delivery.returned = True
        except BaseException as error:  # SystemExit and the like are failures of the job, too
            return self._failed(delivery, error)
        if delivery.progress is not None:
            results.keep(delivery, result)
        self._log_success(delivery)
        return None

    async def perform_async(self, delivery: Delivery) -> Move | None:
        """Run an ``async`` function here, in a task of its own."""
        try:
            if self._middlewares.links:
                result = await self._perform_inside_async(delivery)
            else:
                call = self._prepare(delivery)
                running.set(delivery)
                delivery.begin()
                result = await call.function(*call.args, **call.kwargs)
            delivery.returned = True
        except BaseException as error:  # a task that let SystemExit out would end the event loop
            return self._failed(delivery, error)
        if delivery.progress is not None:
            results.keep(delivery, result)
        self._log_success(delivery)
        return None

    def not_run(self, delivery: Delivery) -> Move:
        """What becomes of a delivery that could not be begun, or was interrupted."""
        return self._endings.of_unfinished(delivery)

    def _prepare(self, delivery: Delivery) -> Call:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("start: %s", payload.label(delivery.envelope))
        envelope, job = delivery.envelope, delivery.job
        if job is None:
            raise UnknownJob(envelope.class_)
        named = None if envelope.kwargs is payload.NO_KWARGS else envelope.kwargs
        args, kwargs = job.codec.decode(envelope.args, named)
        if envelope.status is not None:
            self._notes.open(delivery)
        return Call(job.function, args, kwargs, delivery)

    def _perform_inside(self, delivery: Delivery) -> Any:
        """Run a plain function inside the server middlewares."""
        prepared, links = self._prepare_inside(delivery)

        def call() -> Any:
            inner = prepared.call()
            delivery.begin()
            result = inner.function(*inner.args, **inner.kwargs)
            if type(result) is CoroutineType:
                raise _not_awaited(inner, result)
            return result

        return run_inside(links, prepared.run, call)

    async def _perform_inside_async(self, delivery: Delivery) -> Any:
        """Run an ``async`` function inside the server middlewares."""
        prepared, links = self._prepare_inside(delivery)

        async def call() -> Any:
            inner = prepared.call()
            delivery.begin()
            return await inner.function(*inner.args, **inner.kwargs)

        return await run_inside_async(links, prepared.run, call)

    def _prepare_inside(self, delivery: Delivery) -> tuple["_Prepared", Sequence[Link]]:
        run = run_of(delivery)
        skipped = () if delivery.job is None else delivery.job.options.skip_middleware
        links = self._middlewares.without(skipped) if skipped else self._middlewares.links
        running.set(delivery)
        try:
            call = self._prepare(delivery)
        except BaseException as error:  # the middlewares shall see it
            return _Prepared(run, None, error), links
        run.args, run.kwargs = call.args, call.kwargs
        return _Prepared(run, call, None), links

    def _log_success(self, delivery: Delivery) -> None:
        if not logger.isEnabledFor(logging.DEBUG):
            return
        ran_ms = (clock.monotonic() - delivery.started_at) * 1000
        with contextlib.suppress(Exception):  # a filter of the application must not undo a run
            logger.debug("done: %s ran_ms=%.1f", payload.label(delivery.envelope), ran_ms)

    def _failed(self, delivery: Delivery, error: BaseException) -> Move:
        if delivery.interrupted:
            return self.not_run(delivery)
        try:
            delivery.move = self._endings.of_exception(delivery, error)
            delivery.returned = True
            return delivery.move
        except BaseException:  # out of memory, say: the failure must not be lost
            if delivery.interrupted:
                return self.not_run(delivery)
            with contextlib.suppress(BaseException):
                logger.exception("can't record a failure, moved to dead: tag=%s", delivery.tag)
            return self._buried_as_it_is(delivery, error)

    def _buried_as_it_is(self, delivery: Delivery, error: BaseException) -> Move:
        """The last resort: dead with the payload that it has, and nothing else if need be."""
        worker, tag = self._worker, delivery.tag
        try:
            run = delivery.run(failure.describe(error))
            return self._transitions.bury(worker, tag, KEEP, delivery.envelope, delivery.queue, run)
        except BaseException:
            return self._transitions.moves.bury(worker, tag, KEEP)


def _call(call: Call) -> Any:
    running.set(call.delivery)
    return call.function(*call.args, **call.kwargs)


def _not_awaited(call: Call, result: "CoroutineType[Any, Any, Any]") -> TypeError:
    result.close()
    name = call.delivery.envelope.class_
    return TypeError(f"{name} returned a coroutine that nobody awaits; declare it with async def")
