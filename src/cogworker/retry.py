"""What happens to a job that failed: again after a delay, or dead. Pure decisions."""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cogworker import clock

logger = logging.getLogger("cogworker.retry")

DEFAULT_MAX_RETRIES = 25
LONG_DELAY_S = 365 * 86400

DelayFunction = Callable[[int, BaseException], float]
"""From the number of the retry (1 is the first) and the error to seconds."""


def default_delay(retry: int, error: BaseException | None = None) -> float:
    """Seconds before retry number ``retry``: n⁴ + 15 + random(0…29) · (n + 1).

    About 25 days for all 25 of them; the random part keeps jobs that failed together apart.
    """
    return retry**4 + 15 + random.randrange(30) * (retry + 1)  # noqa: S311 - no secret


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a failed job runs again, and when.

    ``max_retries`` retries make ``max_retries + 1`` runs; then the job is dead. ``delay`` is a
    function from the retry's number and the error to seconds, or a sequence of seconds whose last
    entry serves all later retries.
    """

    max_retries: int = DEFAULT_MAX_RETRIES
    delay: DelayFunction | Sequence[float] = default_delay

    def __post_init__(self) -> None:
        if type(self.max_retries) is not int or self.max_retries < 0:
            raise ValueError(f"max_retries must be 0 or more, not {self.max_retries!r}")
        if callable(self.delay):
            return
        if (
            not isinstance(self.delay, list | tuple)
            or not self.delay
            or not all(_is_delay(delay) for delay in self.delay)
        ):
            raise ValueError(
                f"delay must be a function or a list of seconds, each 0 or more, not {self.delay!r}"
            )

    def delay_before(self, retry: int, error: BaseException) -> float:
        """Seconds before retry number ``retry``; a function that fails gets the default delay."""
        if not callable(self.delay):
            return float(self.delay[min(retry, len(self.delay)) - 1])
        try:
            delay = self.delay(retry, error)
        except BaseException:  # the job's own code: it may raise SystemExit
            logger.exception("the delay function failed: retry=%d takes the default delay", retry)
            return default_delay(retry)
        if not _is_delay(delay):
            logger.warning(
                "the delay function answered %r instead of seconds, 0 or more: "
                "retry=%d takes the default delay",
                delay,
                retry,
            )
            return default_delay(retry)
        if delay > LONG_DELAY_S:
            logger.warning("retry=%d is more than a year away: delay_s=%.0f", retry, delay)
        return float(delay)


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


def _is_delay(delay: Any) -> bool:
    return clock.is_seconds(delay) and delay >= 0
