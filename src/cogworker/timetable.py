"""The periodic entries of an application, each with the job that it pushes.

An entry that is declared in Python is checked at once, together with its job: that its arguments
fit, and that nobody has declared the same. One from the configuration names its job, which may be
imported later; it is looked up when a worker starts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec

from cogworker import periodic
from cogworker.client import Client, Draft, Prepared
from cogworker.config import Config
from cogworker.errors import ConfigError, DeclarationError, InvalidArguments
from cogworker.job import Job, draft_of
from cogworker.payload import encode
from cogworker.periodic import Entry
from cogworker.retry import RetryPolicy
from cogworker.schedules import Schedule


class PeriodicOptions(TypedDict, total=False):
    """The options of a periodic entry; see ``Cogworker.periodic`` for what they mean."""

    timezone: str | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue: str | None
    retry: bool | int | None
    unique: Literal["until_executed"] | None
    name: str
    catch_up: bool | None


class Planned(NamedTuple):
    """An entry with what it pushes.

    ``pjid`` is its id; ``draft`` its job without an id and a time slot. ``published`` is what
    workers tell of it: all that is needed to show it, and to run it now.
    """

    pjid: str
    entry: Entry
    draft: Draft
    published: bytes
    function: Callable[..., Any]

    @property
    def schedule(self) -> Schedule:
        """When it is due."""
        return self.entry.schedule

    def prepare(self, client: Client, slot: int) -> Prepared:
        """The job of a time slot, ready to be pushed."""
        fields = {**self.draft.fields, "periodic_slot": slot}
        return client.prepare(self.draft._replace(fields=fields))


class Timetable:
    """The entries of one application."""

    def __init__(self) -> None:
        self._declared: dict[str, Planned] = {}

    def declare(self, job: Job[..., Any], given: Mapping[str, Any]) -> None:
        """Add an entry for a job. Raises DeclarationError, which names it."""
        try:
            planned = _plan(periodic.entry_of({**given, "job": job.name}), job)
            known = self._declared.get(planned.pjid)
            # A module that is imported anew declares the same again, with other functions.
            if known is not None and known.function is planned.function:
                raise ValueError(_is_duplicate(planned.entry, known.entry))
        except ValueError as error:
            raise DeclarationError(f"periodic entry {error}") from None
        self._declared[planned.pjid] = planned

    def declared(self) -> Sequence[Planned]:
        """The entries that were declared in Python so far."""
        return list(self._declared.values())

    def configured(self, config: Config, jobs: Mapping[str, Job[..., Any]]) -> Sequence[Planned]:
        """The entries of the configuration. Raises ConfigError, which names the one at fault."""
        found: dict[str, Planned] = {}
        for entry in config.periodic:
            try:
                job = jobs.get(entry.job)
                if job is None:
                    raise ValueError(
                        f"{entry.label}: no job is named {entry.job!r} here; import the module "
                        f"that declares it"
                    )
                planned = _plan(entry, job)
                known = found.get(planned.pjid) or self._declared.get(planned.pjid)
                if known is not None:
                    raise ValueError(_is_duplicate(entry, known.entry))
            except ValueError as error:
                raise ConfigError("periodic", str(error)) from None
            found[planned.pjid] = planned
        return list(found.values())


def _plan(entry: Entry, job: Job[..., Any]) -> Planned:
    """Raises ValueError, which begins with what the entry is called."""
    if isinstance(entry.retry, RetryPolicy):
        raise ValueError(
            f"{entry.label}: retry is True, False or a number here; a RetryPolicy belongs to the "
            f"job's declaration, by which its retries go"
        )
    try:
        changes: dict[str, Any] = {"queue": entry.queue, "retry": entry.retry}
        job = job.using(**{name: value for name, value in changes.items() if value is not None})
        draft = draft_of(job, entry.args, dict(entry.kwargs))
    except (DeclarationError, InvalidArguments) as error:
        raise ValueError(f"{entry.label}: {error}") from None
    pjid = periodic.id_of(entry.schedule, job.name, draft.args, draft.kwargs)
    fields = {**draft.fields, **_lock(entry, draft, pjid), "periodic_pjid": pjid}
    draft = draft._replace(fields=fields, raises_duplicate=False)
    return Planned(pjid, entry, draft, _published(entry, draft), job.function)


def _lock(entry: Entry, draft: Draft, pjid: str) -> dict[str, str]:
    """The lock by which no two runs of an entry are there at once.

    A job that is unique itself has one already, and a payload has one at most.
    """
    own = draft.fields.get("unique")
    if entry.unique is None or own == entry.unique:
        return {}
    if own is not None:
        raise ValueError(
            f"{entry.label}: its job is declared with unique={own!r}, which does not keep a "
            f"second run away from the queue; declare it with unique='until_executed', "
            f"or leave out one of them"
        )
    return {"unique": entry.unique, "lock": f"periodic:{pjid}"}


def _published(entry: Entry, draft: Draft) -> bytes:
    told: dict[str, Any] = {
        "cron": entry.schedule.text,
        "timezone": entry.schedule.timezone,
        "class": draft.name,
        "args": msgspec.Raw(draft.args),
        "kwargs": None if draft.kwargs is None else msgspec.Raw(draft.kwargs),
        "queue": draft.queue,
        "retry": draft.retry,
        "unique": draft.fields.get("unique"),
        "name": entry.name or None,
        "catch_up": entry.catch_up,
        "expires_in": draft.expires_in_s,
        "fields": dict(draft.fields),
    }
    return encode({key: value for key, value in told.items() if value is not None})


def _is_duplicate(entry: Entry, known: Entry) -> str:
    return (
        f"{entry.label}: there is one with the same times, job and arguments"
        f"{f', called {known.name}' if known.name else ''}; remove one of them"
    )
