"""Periodic entries: what is to be done again and again, and what it is called. Pure.

An ``Entry`` is a schedule with a job and its arguments, as it was declared: in Python, or in the
configuration. Its id tells it from all others, in every process.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from cogworker._hints import did_you_mean
from cogworker.schedules import Cron, Every, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A periodic entry as it was declared.

    ``job`` is the job's name. ``queue`` and ``retry`` are None where the job's own count, and
    ``catch_up`` where the setting does. ``name`` is what people call it.
    """

    schedule: Schedule
    job: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    retry: Any = None
    unique: Literal["until_executed"] | None = None
    name: str = ""
    catch_up: bool | None = None

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.name or f"{self.schedule.text} {self.job}"


OPTIONS = ("cron", "every", "timezone", *(each.name for each in fields(Entry)[1:]))


def entry_of(given: Mapping[str, Any]) -> Entry:
    """Check what was given for an entry: the fields of ``Entry``, and its schedule.

    That is ``cron``, with a ``timezone`` or without, or ``every``. Raises ValueError, which begins
    with what the entry is called.
    """
    options = {name: value for name, value in given.items() if value is not None}
    when = options.get("cron") or options.get("every") or "without a time:"
    called = options.get("name") or f"{when} {given['job']}"
    try:
        for name in options:
            _check_option(name)
        if not isinstance(options.get("name", ""), str):
            raise ValueError(f"name must be a text, not {options['name']!r:.100}")
        return Entry(schedule=_schedule(options), **_others(options))
    except ValueError as error:
        raise ValueError(f"{called!s:.200}: {error}") from None


def id_of(schedule: Schedule, job: str, args: bytes, kwargs: bytes | None) -> str:
    """An entry's id, ``pjid``: the same in all processes, and in the Ruby system for plain ones."""
    words = [schedule.text.encode(), job.encode(), args]
    if kwargs is not None:
        words.append(b"kwargs=" + kwargs)
    if schedule.timezone is not None:
        words.append(b"timezone=" + schedule.timezone.encode())
    return hashlib.sha1(b"|".join(words)).hexdigest()  # noqa: S324 - a name, not a secret


def _schedule(options: Mapping[str, Any]) -> Schedule:
    if ("cron" in options) == ("every" in options):
        raise ValueError("needs a cron line or every=, and not both")
    if "cron" in options:
        return Cron(options["cron"], options.get("timezone"))
    if "timezone" in options:
        raise ValueError("every= has no time zone: it counts from the epoch on")
    return Every(options["every"])


def _others(options: Mapping[str, Any]) -> dict[str, Any]:
    others = {
        name: value for name, value in options.items() if name not in ("cron", "every", "timezone")
    }
    args, kwargs = others.get("args", ()), others.get("kwargs", {})
    if not isinstance(args, list | tuple):
        raise ValueError(f"args must be a list or a tuple, not {args!r:.100}")
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise ValueError(f"kwargs must map names to values, not {kwargs!r:.100}")
    if others.get("unique") not in (None, "until_executed"):
        raise ValueError(f"unique must be 'until_executed', not {others['unique']!r:.100}")
    if not isinstance(others.get("catch_up", True), bool):
        raise ValueError(f"catch_up must be True or False, not {others['catch_up']!r:.100}")
    return {**others, "args": tuple(args), "kwargs": dict(kwargs)}


def _check_option(name: str) -> None:
    if name not in OPTIONS:
        hint = did_you_mean(name, OPTIONS, f"there are {', '.join(OPTIONS)}")
        raise ValueError(f"there is no option {name}; {hint}")
