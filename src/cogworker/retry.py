"""What happens to a job that failed: again after a delay, dead, or discarded. Pure decisions.

In this order, as soon as one of them has an answer (``decide``): the policy's lists of exceptions;
whether a retry is left; the job's own ``retry_in``; the policy's delay.
"""

import inspect
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

from cogworker import clock

logger = logging.getLogger("cogworker.retry")

DEFAULT_MAX_RETRIES = 25
LONG_DELAY_S = 365 * 86400
MOST_DELAY_S = 100.0 * LONG_DELAY_S
"""No job waits longer: a payload may say that it has failed 10**80 times."""

DelayFunction = Callable[[int, BaseException], float | timedelta]
"""From the number of the retry (1 is the first) and the error to a delay."""

RetryIn = Callable[..., Any]
"""From the number of the retry, the error, and, if it takes a third, the run, to an answer."""

Errors = type[BaseException] | Sequence[type[BaseException]]


def default_delay(retry: int, error: BaseException | None = None) -> float:
    """Seconds before retry number ``retry``: n⁴ + 15 + random(0…29) · (n + 1).

    About 25 days for all 25 of them; the random part keeps jobs that failed together apart.
    """
    return retry**4 + 15 + random.randrange(30) * (retry + 1)  # noqa: S311 - no secret


class Outcome(Enum):
    """What becomes of a job that failed."""

    RETRY = "retry"
    DEAD = "dead"
    """No retry is left."""
    KILLED = "killed"
    """Retries are left, but it is not to have them."""
    DISCARD = "discard"
    TOO_LATE = "too late"
    """The retry would come when the job has expired."""


class Verdict(NamedTuple):
    """What becomes of a job that failed, and, if it runs again, after how many seconds."""

    outcome: Outcome
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Which failures of a job are retried, how often, and when.

    ``max_retries`` retries make ``max_retries + 1`` runs; then the job is dead. ``delay`` is a
    function from the retry's number and the error to seconds or a timedelta, or a sequence of them
    whose last one serves all later retries. No delay is longer than ``max_delay``, nor than 100
    years. ``jitter``, 0 to 1, is the part of a delay that is left to chance: with 0.2 it lasts
    between 80 and 100 % of what it would be.

    ``retry_on``, ``give_up_on`` and ``discard_on`` are exception classes, one or a sequence. A job
    that fails with one of ``discard_on`` is dropped; with one of ``give_up_on``, or, when
    ``retry_on`` is given, with one that is not of it, it is dead at once. Raises ValueError.
    """

    max_retries: int = DEFAULT_MAX_RETRIES
    delay: DelayFunction | Sequence[float | timedelta] = default_delay
    max_delay: float | timedelta | None = None
    jitter: float = 0.0
    retry_on: Errors | None = None
    give_up_on: Errors = ()
    discard_on: Errors = ()

    def __post_init__(self) -> None:
        if type(self.max_retries) is not int or self.max_retries < 0:
            raise ValueError(f"max_retries must be 0 or more, not {self.max_retries!r}")
        if not callable(self.delay):
            object.__setattr__(self, "delay", _delays(self.delay))
        most_s = clock.seconds_of(self.max_delay)
        if most_s is not None and not _is_delay(most_s):
            raise ValueError(
                f"max_delay must be seconds, 0 or more, or a timedelta, not {self.max_delay!r}"
            )
        object.__setattr__(self, "max_delay", most_s)
        if not _is_delay(self.jitter) or self.jitter > 1:
            raise ValueError(f"jitter must be between 0 and 1, not {self.jitter!r}")
        for name in ("retry_on", "give_up_on", "discard_on"):
            object.__setattr__(self, name, _classes(name, getattr(self, name)))

    def judge(self, error: BaseException) -> Outcome:
        """What the policy's lists of exceptions say of an error."""
        if _is_one(error, self.discard_on):
            return Outcome.DISCARD
        if _is_one(error, self.give_up_on):
            return Outcome.KILLED
        if self.retry_on is not None and not _is_one(error, self.retry_on):
            return Outcome.KILLED
        return Outcome.RETRY

    def delay_before(self, retry: int, error: BaseException) -> float:
        """Seconds before retry number ``retry``; a function that fails gets the default delay."""
        most_s = MOST_DELAY_S if self.max_delay is None else clock.seconds_of(self.max_delay)
        delay_s = min(self._plain_delay(retry, error), most_s, MOST_DELAY_S)
        if self.jitter:  # downwards, or all that are cut to max_delay would come back together
            delay_s *= random.uniform(1 - self.jitter, 1)  # noqa: S311 - only spreads the load
        return delay_s

    def _plain_delay(self, retry: int, error: BaseException) -> float:
        if not callable(self.delay):
            delay_s: float = clock.seconds_of(self.delay[min(retry, len(self.delay)) - 1])
            return delay_s
        try:
            delay = clock.seconds_of(self.delay(retry, error))
        except BaseException:  # the job's own code: it may raise SystemExit
            logger.exception("the delay function failed: retry=%d takes the default delay", retry)
            return default_delay(retry)
        if not _is_delay(delay):
            logger.warning(
                "the delay function answered %s instead of seconds, 0 or more: "
                "retry=%d takes the default delay",
                _shown(delay),
                retry,
            )
            return default_delay(retry)
        _warn_of_long(retry, delay)
        return float(delay)


def decide(
    policy: RetryPolicy,
    failures: int,
    retries: int,
    error: BaseException,
    ask: Callable[[], Any] | None = None,
    label: str = "",
) -> Verdict:
    """What becomes of a job that has failed ``failures`` times and has ``retries`` retries.

    ``ask`` is the job's ``retry_in`` with its arguments; it is asked only if a retry would follow.
    ``label`` names the job in the log.
    """
    judged = policy.judge(error)
    if judged is Outcome.DISCARD:
        return Verdict(judged)
    if failures > retries:
        return Verdict(Outcome.DEAD)
    if judged is not Outcome.RETRY:
        return Verdict(judged)
    verdict = None if ask is None else _answer(ask, failures, label)
    return verdict or Verdict(Outcome.RETRY, policy.delay_before(failures, error))


def asked_delay(
    policy: RetryPolicy, failures: int, error: BaseException, delay_s: float | None
) -> float:
    """The delay of a job that asked to run again, after a time of its own or its policy's."""
    if delay_s is None:
        return policy.delay_before(failures, error)
    _warn_of_long(failures, delay_s)
    return min(delay_s, MOST_DELAY_S)


def takes_run(retry_in: RetryIn) -> bool:
    """Whether a ``retry_in`` takes the run as its third argument. Raises ValueError."""
    if not callable(retry_in) or inspect.iscoroutinefunction(retry_in):
        raise ValueError(f"retry_in must be a plain function, not {retry_in!r:.100}")
    try:
        signature = inspect.signature(retry_in)
    except (TypeError, ValueError):  # written in C, and does not tell
        return False
    for takes in (3, 2):
        try:
            signature.bind(*range(takes))
        except TypeError:
            continue
        return takes == 3
    raise ValueError(
        "retry_in gets the number of the retry, the error and, if it takes a third, the run; "
        f"it is declared as {signature}"
    )


def policy_of(retry: object) -> RetryPolicy:
    """The policy that a job's ``retry`` option means. Raises ValueError when it means none."""
    if isinstance(retry, RetryPolicy):
        return retry
    if retry is True or retry is None:
        return RetryPolicy()
    if retry is False:
        return RetryPolicy(max_retries=0)
    if type(retry) is int and retry >= 0:
        return RetryPolicy(max_retries=retry)
    raise ValueError(
        f"retry must be True, False, a number of retries or a RetryPolicy, not {retry!r}"
    )


def budget(retry: Any) -> int:
    """How many retries a payload's ``retry`` field allows, whoever wrote it.

    True, null or nothing: 25. A number, also as text: as many. Anything else: none, cautiously.
    """
    if retry is True or retry is None:
        return DEFAULT_MAX_RETRIES
    try:
        return max(0, int(float(retry)) if isinstance(retry, str) else int(retry))
    except (TypeError, ValueError, OverflowError):
        return 0


def _answer(ask: Callable[[], Any], retry: int, label: str) -> Verdict | None:
    """What the job's own ``retry_in`` says; None leaves it to the policy."""
    try:
        answer = ask()
    except BaseException:  # the job's own code: it may raise SystemExit
        logger.exception("retry_in failed, the policy decides: retry=%d %s", retry, label)
        return None
    answer = clock.seconds_of(answer)
    if answer is None or _is_word(answer, "default"):
        return None
    if _is_word(answer, "dead"):
        return Verdict(Outcome.KILLED)
    if _is_word(answer, "discard"):
        return Verdict(Outcome.DISCARD)
    if _is_delay(answer):
        _warn_of_long(retry, answer)
        return Verdict(Outcome.RETRY, min(float(answer), MOST_DELAY_S))
    logger.warning(
        'retry_in answered %s instead of seconds, 0 or more, "dead", "discard" or "default"; '
        "the policy decides: retry=%d %s",
        _shown(answer),
        retry,
        label,
    )
    return None


def _classes(name: str, errors: Any) -> tuple[type[BaseException], ...] | None:
    if errors is None and name == "retry_on":
        return None
    classes = (errors,) if isinstance(errors, type) else errors
    if not isinstance(classes, list | tuple | set | frozenset) or not all(
        isinstance(each, type) and issubclass(each, BaseException) for each in classes
    ):
        raise ValueError(f"{name} must be exception classes, not {errors!r:.100}")
    return tuple(classes)


def _is_one(error: BaseException, classes: Any) -> bool:
    try:
        return isinstance(error, classes)
    except BaseException:  # a metaclass is the job's code, too
        logger.exception("can't tell the class of an error")
        return False


def _is_word(answer: object, word: str) -> bool:
    return type(answer) is str and answer == word


def _shown(answer: object) -> str:
    try:
        return repr(answer)[:100]
    except BaseException:  # it is the job's code, too
        return f"a {type(answer).__name__}"


def _warn_of_long(retry: int, delay_s: float) -> None:
    if delay_s > LONG_DELAY_S:
        logger.warning("retry=%d is more than a year away: delay_s=%.0f", retry, delay_s)


def _delays(given: Any) -> tuple[float, ...]:
    if isinstance(given, list | tuple) and given:
        delays_s = [clock.seconds_of(delay) for delay in given]
        if all(map(_is_delay, delays_s)):
            return tuple(map(float, delays_s))
    raise ValueError(
        f"delay must be a function or a list of seconds or timedeltas, 0 or more, not {given!r}"
    )


def _is_delay(delay: Any) -> bool:
    return clock.is_seconds(delay) and delay >= 0
