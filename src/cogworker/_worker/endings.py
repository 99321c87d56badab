"""What becomes of a job whose run has ended with an exception, or has no end.

A job that raises Discard or Reschedule decides itself. Anything else is a failure, Retry too: the
job runs again, is dead, or is dropped, as its retries, its ``retry_in`` and its policy say. A run
that was interrupted is given back, unless the job must not run twice.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from cogworker import clock, payload, retry
from cogworker._engine.places import InFlight
from cogworker._engine.plan import KEEP, Move
from cogworker._worker import failure
from cogworker._worker.around import ended_run_of
from cogworker._worker.deaths import Deaths
from cogworker._worker.delivery import Delivery
from cogworker._worker.fetch import Fetch
from cogworker._worker.hook_thread import HookThread
from cogworker.errors import Discard, InvalidPayload, JobAbandoned, JobControl, Reschedule, Retry
from cogworker.features.event import Run
from cogworker.features.transitions import Transitions
from cogworker.hooks import Hooks
from cogworker.payload import Envelope
from cogworker.retry import Outcome, RetryPolicy, Verdict

logger = logging.getLogger("cogworker.worker")

_DEFAULT_POLICY = RetryPolicy()


class Endings:
    """Decides for one worker, in whatever thread the run was."""

    def __init__(
        self,
        transitions: Transitions,
        worker: InFlight,
        fetch: Fetch,
        deaths: Deaths,
        hooks: Hooks,
        thread: HookThread,
    ) -> None:
        self._transitions = transitions
        self._worker = worker
        self._fetch = fetch
        self._deaths = deaths
        self._hooks = hooks
        self._thread = thread

    def of_exception(self, delivery: Delivery, error: BaseException) -> Move:
        """What becomes of a job that raised something."""
        control = control_of(error)
        if isinstance(control, Discard):
            return self._discarded(delivery, control)
        if isinstance(control, Reschedule):
            return self._rescheduled(delivery, control)
        return self._failed(delivery, error if control is None else control)

    def of_unfinished(self, delivery: Delivery) -> Move:
        """What becomes of a delivery that could not be begun, or was interrupted.

        It is given back, unless it has begun and must not run twice.
        """
        if delivery.begun and self._fetch.at_most_once(delivery):
            if not delivery.lost:  # otherwise nothing of this will be done, and that is logged
                logger.error("not finished, moved to dead: %s", payload.label(delivery.envelope))
            error = JobAbandoned("had to stop")
            described = failure.describe(error)
            kept = failure.record(delivery.payload, delivery.queue, described)
            return self._bury(delivery, kept, delivery.run(described), error)
        if not delivery.lost:
            logger.warning("given back: %s", payload.label(delivery.envelope))
        run = None if delivery.progress is None else delivery.run()
        waiting = self._transitions.waiting(
            delivery.tag, KEEP, delivery.envelope, delivery.queue, run
        )
        return self._transitions.back(self._worker, [waiting])[0]

    def _discarded(self, delivery: Delivery, control: Discard) -> Move:
        logger.info(
            "discarded by itself: %s reason=%s",
            payload.label(delivery.envelope),
            payload.one_line(failure.message_of(control)),
        )
        return self._transitions.discard(
            *(self._worker, delivery.tag, delivery.envelope, delivery.queue, delivery.run()),
            reason=failure.describe(control),
        )

    def _rescheduled(self, delivery: Delivery, control: Reschedule) -> Move:
        now = clock.wall()
        at = now + (control.delay_s or 0.0) if control.at is None else control.at
        delay_s = max(0.0, at - now)
        try:
            kept = payload.amend(
                delivery.payload,
                {"at": at},
                missing={"queue": delivery.queue},
                drop=("orphaned", "enqueued_at", "lock_waits"),
            )
        except InvalidPayload as problem:  # some part of it that nobody had to read before
            return self._bury_unreadable(delivery, problem, delivery.run())
        logger.info(
            "rescheduled by itself: %s again_in_s=%.1f", payload.label(delivery.envelope), delay_s
        )
        return self._transitions.reschedule(
            *(self._worker, delivery.tag, kept, delivery.envelope, delivery.queue, delay_s),
            delivery.run(),
            at=control.at,
        )

    def _failed(self, delivery: Delivery, raised: BaseException) -> Move:
        envelope = delivery.envelope
        failures = payload.failures(envelope) + 1
        error = _shown(raised)
        described = failure.describe(error)
        run = delivery.run(described)
        try:
            kept = payload.amend(
                delivery.payload,
                {"retry_count": failures, **described},
                missing={"failed_at": clock.wall(), "queue": delivery.queue},
                drop=("orphaned", "lock_waits"),
            )
        except InvalidPayload as problem:  # some part of it that nobody had to read before
            _log_failure(delivery, failures, described, "dead")
            self._tell_error(delivery, error, False)
            return self._bury_unreadable(delivery, problem, run)
        verdict = _in_time(envelope, self._verdict(delivery, raised, failures))
        _log_failure(delivery, failures, described, _OUTCOMES[verdict.outcome](verdict))
        self._tell_error(delivery, error, verdict.outcome is Outcome.RETRY)
        if verdict.outcome is Outcome.RETRY:
            return self._transitions.retry(
                *(self._worker, delivery.tag, kept, envelope, delivery.queue),
                verdict.delay_s,
                run,
            )
        if verdict.outcome in (Outcome.DISCARD, Outcome.TOO_LATE):
            return self._transitions.discard(
                self._worker, delivery.tag, envelope, delivery.queue, run
            )
        killed = verdict.outcome is Outcome.KILLED
        return self._bury(delivery, kept, run._replace(killed=killed), error)

    def _verdict(self, delivery: Delivery, raised: BaseException, failures: int) -> Verdict:
        job, retries = delivery.job, retry.budget(delivery.envelope.retry)
        policy = _DEFAULT_POLICY if job is None else job.policy
        if isinstance(raised, Retry):  # the job has been asked
            if failures > retries:
                return Verdict(Outcome.DEAD)
            delay_s = retry.asked_delay(policy, failures, raised, raised.delay_s)
            return Verdict(Outcome.RETRY, delay_s)
        ask = _question(delivery, failures, raised)
        label = payload.label(delivery.envelope)
        return retry.decide(policy, failures, retries, raised, ask, label)

    def _tell_error(self, delivery: Delivery, error: BaseException, will_retry: bool) -> None:
        for hook in self._hooks.error:
            self._thread.call(
                hook,
                lambda: (error, ended_run_of(delivery), will_retry),
                f"event=error {payload.label(delivery.envelope)}",
            )

    def _bury(
        self,
        delivery: Delivery,
        kept: bytes,
        run: Run,
        error: BaseException,
        reason: Mapping[str, Any] | None = None,
    ) -> Move:
        envelope = delivery.envelope
        self._deaths.expect(delivery.tag, envelope.class_, envelope.jid, kept, error)
        return self._transitions.bury(
            self._worker, delivery.tag, kept, envelope, delivery.queue, run, reason
        )

    def _bury_unreadable(self, delivery: Delivery, problem: InvalidPayload, run: Run) -> Move:
        kept = payload.wrap_unparseable(delivery.payload, delivery.queue, problem, clock.wall())
        return self._bury(delivery, kept, run, problem, payload.described(problem))


_OUTCOMES: Mapping[Outcome, Callable[[Verdict], str]] = {
    Outcome.RETRY: lambda verdict: f"again in {verdict.delay_s:.1f} s",
    Outcome.DEAD: lambda _: "dead",
    Outcome.KILLED: lambda _: "dead",
    Outcome.DISCARD: lambda _: "discarded",
    Outcome.TOO_LATE: lambda _: "again would be too late, discarded",
}


def control_of(error: BaseException) -> JobControl | None:
    """What a job asks for with what it raised; a group that asks for nothing else counts."""
    while issubclass(type(error), BaseExceptionGroup):
        group: BaseExceptionGroup[BaseException] = error  # type: ignore[assignment]
        if group.subgroup(lambda each: not isinstance(each, JobControl | BaseExceptionGroup)):
            return None
        error = group.exceptions[0]
    return error if isinstance(error, JobControl) else None


def _question(delivery: Delivery, failures: int, error: BaseException) -> Callable[[], Any] | None:
    """The job's own ``retry_in`` with its arguments."""
    ask = None if delivery.job is None else delivery.job.options.retry_in
    if ask is None:
        return None
    if retry.takes_run(ask):
        return lambda: ask(failures, error, ended_run_of(delivery))
    return lambda: ask(failures, error)


def _in_time(job: Envelope, verdict: Verdict) -> Verdict:
    """A job that would be discarded at its retry is so at once: it would only hold its lock."""
    if verdict.outcome is Outcome.RETRY and payload.is_over(job, clock.wall() + verdict.delay_s):
        return Verdict(Outcome.TOO_LATE)
    return verdict


def _shown(raised: BaseException) -> BaseException:
    """What is kept of a failure: of a Retry that gives no reason, what it was raised from."""
    if isinstance(raised, Retry) and raised.reason is None and raised.__cause__ is not None:
        return raised.__cause__
    return raised


def _log_failure(delivery: Delivery, attempt: int, error: Mapping[str, Any], outcome: str) -> None:
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
            payload.one_line(error["error_message"][:500]),
            backtrace,
        )
    except Exception:  # a log line must not decide what becomes of a job
        logger.exception("can't log a failure: tag=%s", delivery.tag)
