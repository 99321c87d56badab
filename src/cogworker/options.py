"""Every option of a job: what ``@cog.job(...)`` takes, and ``using(...)`` changes.

``JobOptions`` is what the type checker knows, ``Options`` the same, checked and with its defaults.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal, TypedDict

from cogworker import clock
from cogworker import retry as retries
from cogworker._hints import did_you_mean
from cogworker._kinds import Refusal, check_queue_name
from cogworker.errors import DeclarationError
from cogworker.features.status import LONGEST_KEPT_S
from cogworker.features.unique import MODES, Mode
from cogworker.hooks import DeathHook, check_hook
from cogworker.payload import MOST_TAG_CHARACTERS, MOST_TAGS
from cogworker.retry import RetryIn, RetryPolicy

UniqueBy = Sequence[str] | Callable[..., Any]
OnDuplicate = Literal["skip", "raise"]


class JobOptions(TypedDict, total=False):
    """The options of a job; see ``Options`` for what they mean."""

    queue: str
    retry: bool | int | RetryPolicy
    at_most_once: bool
    unique: Mode | None
    unique_by: UniqueBy | None
    on_duplicate: OnDuplicate
    history: bool | None
    retry_in: RetryIn | None
    on_death: DeathHook | None
    skip_middleware: Collection[Callable[..., Any]]
    expires_in: float | timedelta | None
    tags: Sequence[str]
    status: bool | float | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A job's options, checked. Raises ValueError, which says what is wrong with which.

    ``queue`` is where it is enqueued. ``retry`` is True for 25 retries, a number of them, False for
    none, or a RetryPolicy. ``at_most_once``: when its worker dies or stops in the middle, it is put
    in dead and not run again; a failure is retried as ``retry`` says.

    ``unique`` keeps a second job with the same queue and arguments away: ``until_executed`` and
    ``until_executing`` from the queue, until the first one is over or begins; ``while_executing``
    from running at the same time. ``unique_by`` is what must be the same instead of all arguments:
    names of parameters, or a function that gets the arguments and answers with a JSON value.
    ``on_duplicate``: with ``skip`` enqueueing a duplicate answers None, with ``raise`` it raises
    DuplicateJob.

    ``history``: whether the run log keeps its runs; None: as the setting of that name says.

    ``retry_in`` decides about each failure that would be retried: a function that gets the number
    of the retry (1 is the first), the error and, if it takes a third argument, the JobRun. It
    answers with seconds or a timedelta, "dead", "discard", or None for what ``retry`` says.
    ``on_death`` is called with the payload and the error when the job has been put in dead.
    ``skip_middleware`` are middlewares that this job does not go through, of either chain. A worker
    goes by the declaration for these three.

    ``expires_in``, seconds or a timedelta from when it is due: a worker that takes it later than
    that discards it. ``tags`` are what it can be found by, 20 printable texts of up to 100
    characters at most.

    ``status`` keeps what becomes of the job, what it tells of its progress and what it returns, for
    ``cog.status`` and ``cog.result``: with True until ``status_ttl`` after the last change, or for
    seconds or a timedelta.
    """

    queue: str = "default"
    retry: bool | int | RetryPolicy = True
    at_most_once: bool = False
    unique: Mode | None = None
    unique_by: UniqueBy | None = None
    on_duplicate: OnDuplicate = "skip"
    history: bool | None = None
    retry_in: RetryIn | None = None
    on_death: DeathHook | None = None
    skip_middleware: Collection[Callable[..., Any]] = ()
    expires_in: float | timedelta | None = None
    tags: Sequence[str] = ()
    status: bool | float | timedelta = False

    def __post_init__(self) -> None:
        try:
            check_queue_name(self.queue)
        except Refusal as refusal:
            raise ValueError(str(refusal)) from None
        retries.policy_of(self.retry)
        if not isinstance(self.at_most_once, bool):
            raise ValueError(f"at_most_once must be True or False, not {self.at_most_once!r:.100}")
        _check_choice("unique", self.unique, (None, *MODES))
        _check_choice("on_duplicate", self.on_duplicate, ("skip", "raise"))
        if not isinstance(self.history, bool | None):
            raise ValueError(f"history must be True, False or None, not {self.history!r:.100}")
        _check_status(self.status)
        if self.unique_by is not None and self.unique is None:
            raise ValueError("unique_by needs unique, such as unique='until_executed'")
        if self.expires_in is not None and not _is_wait(self.expires_in):
            raise ValueError(
                f"expires_in must be a number of seconds over 0, or a timedelta, "
                f"not {self.expires_in!r:.100}"
            )
        check_tags(self.tags)
        self._check_functions()

    def _check_functions(self) -> None:
        if self.retry_in is not None:
            retries.takes_run(self.retry_in)
        if self.on_death is not None:
            check_hook("on_death", self.on_death, 2)
        skipped = self.skip_middleware
        if not isinstance(skipped, Collection) or not all(callable(each) for each in skipped):
            raise ValueError(f"skip_middleware must be middlewares in a list, not {skipped!r:.100}")

    @property
    def expires_in_s(self) -> float | None:
        """``expires_in`` in seconds."""
        wait: float | None = clock.seconds_of(self.expires_in)
        return wait


def declared(job: str, given: dict[str, Any]) -> Options:
    """The options of a declaration. Raises DeclarationError."""
    return _made(job, lambda: Options(**given), given)


def changed(job: str, options: Options, given: dict[str, Any]) -> Options:
    """Options of which some are changed. Raises DeclarationError."""
    return _made(job, lambda: replace(options, **given), given)


def check_fields(fields: Mapping[str, Any]) -> None:
    """What options have put into a payload, or others in their place. Raises ValueError."""
    if "tags" in fields:
        check_tags(fields["tags"])
    given = {name: value for name, value in fields.items() if value is not None}
    if "unique" in given:
        _check_choice("unique", given["unique"], (None, *MODES))
    if "history" in given:
        _check_choice("history", given["history"], (None, True, False))
    if "status" in given:
        _check_status(given["status"])
    if not clock.is_seconds(given.get("expires_at", 0)):
        raise ValueError(
            f"'expires_at' must be a time in epoch seconds, not {given['expires_at']!r:.100}"
        )


def check_tags(tags: object) -> None:
    """Raises ValueError when they are not what tags may be."""
    if not isinstance(tags, list | tuple) or len(tags) > MOST_TAGS:
        raise ValueError(f"tags must be a list of up to {MOST_TAGS} texts, not {tags!r:.100}")
    for tag in tags:
        if not isinstance(tag, str) or not 0 < len(tag) <= MOST_TAG_CHARACTERS:
            raise ValueError(
                f"a tag is a text of 1 to {MOST_TAG_CHARACTERS} characters, not {tag!r:.100}"
            )
        if not tag.isprintable():
            raise ValueError(f"a tag is printable text, not {tag!r:.100}")


def _is_wait(wait: object) -> bool:
    seconds = clock.seconds_of(wait)
    return clock.is_seconds(seconds) and seconds > 0


def _made(job: str, make: Callable[[], Options], given: dict[str, Any]) -> Options:
    known = [option.name for option in fields(Options)]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, f"there are {', '.join(known)}")
            raise DeclarationError(f"{job}: there is no option {name}; {hint}")
    try:
        return make()
    except ValueError as error:
        raise DeclarationError(f"{job}: {error}") from None


def _check_status(status: object) -> None:
    kept_s = clock.seconds_of(status)
    if isinstance(kept_s, bool) or (clock.is_seconds(kept_s) and 0 < kept_s <= LONGEST_KEPT_S):
        return
    raise ValueError(
        f"status must be True, False, or a number of seconds above 0 or such a timedelta "
        f"(100 years at most), not {status!r:.100}"
    )


def _check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r:.100}"
        )
