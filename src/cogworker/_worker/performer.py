"""Runs one delivery and decides what becomes of it.

In order: find the job by its name, decode the arguments as its signature says, call it, and turn
the end of the call into a move: none for a success, otherwise again after a delay, or dead.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from types import CoroutineType
from typing import Any, NamedTuple

from cogworker import clock, payload, retry
from cogworker._engine.places import InFlight
from cogworker._engine.plan import KEEP, Move
from cogworker._engine.replies import Taken
from cogworker._worker import failure
from cogworker._worker.delivery import Delivery
from cogworker._worker.fetch import Fetch
from cogworker.errors import InvalidPayload, JobAbandoned, UnknownJob
from cogworker.features.event import Run
from cogworker.features.transitions import Transitions
from cogworker.job import CurrentJob, Job, running
from cogworker.retry import RetryPolicy

logger = logging.getLogger("cogworker.worker")

_DEFAULT_POLICY = RetryPolicy()


class Call(NamedTuple):
    """A job's function with what it is called with."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]
    current: CurrentJob


class Performer:
    """Runs deliveries for one worker, in whatever thread or task it is called."""

    def __init__(
        self,
        jobs: Mapping[str, Job[..., Any]],
        transitions: Transitions,
        worker: InFlight,
        fetch: Fetch,
    ) -> None:
        self._jobs = jobs
        self._transitions = transitions
        self._worker = worker
        self._fetch = fetch

    def accept(self, taken: Taken, now: float) -> Delivery | Move:
        """A delivery to run, or the move that buries something that is not a job."""
        try:
            envelope = payload.parse(taken.payload)
        except InvalidPayload as error:
            logger.error(
                "not a job, moved to dead: queue=%s error=%s payload=%s",
                taken.queue,
                error,
                payload.excerpt(taken.payload),
            )
            wrapped = payload.wrap_unparseable(taken.payload, taken.queue, error, clock.wall())
            return self._transitions.bury_junk(self._worker, taken.tag, wrapped, taken.queue)
        return Delivery(taken.tag, taken.payload, envelope, self._jobs.get(envelope.class_), now)

    def perform(self, delivery: Delivery) -> Move | None:
        """Run a plain function here; only an interrupt that comes after the run gets out."""
        try:
            call = self._prepare(delivery)
            delivery.begin()
            result = Context().run(_call, call)
            if type(result) is CoroutineType:
                result.close()
                raise TypeError(
                    f"{call.current.name} returned a coroutine that nobody awaits; "
                    f"declare it with async def"
                )
            delivery.returned = True
        except BaseException as error:  # SystemExit and the like are failures of the job, too
            return self._failed(delivery, error)
        self._log_success(delivery)
        return None

    async def perform_async(self, delivery: Delivery) -> Move | None:
        """Run an ``async`` function here, in a task of its own."""
        try:
            call = self._prepare(delivery)
            running.set(call.current)
            delivery.begin()
            await call.function(*call.args, **call.kwargs)
            delivery.returned = True
        except BaseException as error:  # a task that let SystemExit out would end the event loop
            return self._failed(delivery, error)
        self._log_success(delivery)
        return None

    def not_run(self, delivery: Delivery) -> Move:
        """What becomes of a delivery that could not be begun, or was interrupted.

        It is given back, unless it has begun and must not run twice.
        """
        if delivery.begun and self._fetch.at_most_once(delivery):
            logger.error("not finished, moved to dead: %s", payload.label(delivery.envelope))
            described = failure.describe(JobAbandoned("had to stop"))
            kept = failure.record(delivery.payload, delivery.queue, described)
            return self._bury(delivery, kept, delivery.run(described))
        logger.warning("given back: %s", payload.label(delivery.envelope))
        waiting = self._transitions.waiting(delivery.tag, KEEP, delivery.envelope, delivery.queue)
        return self._transitions.back(self._worker, [waiting])[0]

    def _prepare(self, delivery: Delivery) -> Call:
        envelope, job = delivery.envelope, delivery.job
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("start: %s", payload.label(envelope))
        if job is None:
            raise UnknownJob(envelope.class_)
        named = None if envelope.kwargs is payload.NO_KWARGS else envelope.kwargs
        args, kwargs = job.codec.decode(envelope.args, named)
        current = CurrentJob(
            envelope.jid, envelope.class_, delivery.queue, payload.failures(envelope) + 1
        )
        return Call(job.function, args, kwargs, current)

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
            delivery.move = self._settle_failure(delivery, error)
            delivery.returned = True
            return delivery.move
        except BaseException:  # out of memory, say: the failure must not be lost
            if delivery.interrupted:
                return self.not_run(delivery)
            logger.exception("can't record a failure, moved to dead: tag=%s", delivery.tag)
            return self._transitions.moves.bury(self._worker, delivery.tag, KEEP)

    def _settle_failure(self, delivery: Delivery, error: BaseException) -> Move:
        envelope = delivery.envelope
        failures = payload.failures(envelope) + 1
        retries = retry.budget(envelope.retry)
        described = failure.describe(error)
        try:
            kept = payload.amend(
                delivery.payload,
                {"retry_count": failures, **described},
                missing={"failed_at": clock.wall()},
                drop=("orphaned",),
            )
        except InvalidPayload as problem:  # some part of it that nobody had to read before
            kept = payload.wrap_unparseable(delivery.payload, delivery.queue, problem, clock.wall())
            retries = 0
        run = delivery.run(described)
        if failures > retries:
            self._log_failure(delivery, failures, described, "dead")
            return self._bury(delivery, kept, run)
        policy = delivery.job.policy if delivery.job is not None else _DEFAULT_POLICY
        delay_s = policy.delay_before(failures, error)
        self._log_failure(delivery, failures, described, f"again in {delay_s:.1f} s")
        return self._transitions.retry(
            self._worker, delivery.tag, kept, envelope, delivery.queue, delay_s, run
        )

    def _bury(self, delivery: Delivery, kept: bytes, run: Run) -> Move:
        return self._transitions.bury(
            self._worker, delivery.tag, kept, delivery.envelope, delivery.queue, run
        )

    def _log_failure(
        self, delivery: Delivery, attempt: int, error: Mapping[str, Any], outcome: str
    ) -> None:
        """One line, and the stack trace."""
        try:
            backtrace = "".join(f"\n{line}" for line in error["error_backtrace"])
            logger.log(
                logging.ERROR if outcome == "dead" else logging.WARNING,
                "failed, %s: %s attempt=%d error=%s: %s%s",
                outcome,
                payload.label(delivery.envelope),
                attempt,
                error["error_class"],
                error["error_message"][:500].encode("unicode_escape").decode(),
                backtrace,
            )
        except Exception:  # a log line must not decide what becomes of a job
            logger.exception("can't log a failure: tag=%s", delivery.tag)


def _call(call: Call) -> Any:
    running.set(call.current)
    return call.function(*call.args, **call.kwargs)
