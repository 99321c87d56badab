"""Hooks: functions of an application that a worker calls when something has happened.

They only listen: what becomes of a job is decided without them. ``_worker/hook_thread.py`` calls
them, and says when.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from cogworker.errors import DeclarationError
from cogworker.middleware import JobRun

Hook = Callable[[], Any]
DeathHook = Callable[[dict[str, Any], BaseException], Any]
"""Gets the dead job's payload, a copy of its own, and what it died of."""
ErrorHook = Callable[[BaseException, JobRun, bool], Any]
"""Gets what a run failed with, the run, and whether it will be retried."""

H = TypeVar("H", bound=Callable[..., Any])


class Hooks:
    """An application's hooks, each kind in the order of its declarations."""

    def __init__(self) -> None:
        self.startup: list[Hook] = []
        self.quiet: list[Hook] = []
        self.shutdown: list[Hook] = []
        self.death: list[DeathHook] = []
        self.error: list[ErrorHook] = []


def declared(hooks: list[Any], hook: H, arguments: int) -> H:
    """Add a hook to those of its kind, which get so many arguments. Raises DeclarationError."""
    try:
        check_hook("a hook", hook, arguments)
    except ValueError as error:
        raise DeclarationError(str(error)) from None
    hooks.append(hook)
    return hook


def check_hook(what: str, hook: object, arguments: int) -> None:
    """Raise ValueError for what is no function of so many arguments."""
    if not callable(hook):
        raise ValueError(f"{what} is a function, not {hook!r:.100}")
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):  # written in C, and does not tell
        return
    try:
        signature.bind(*range(arguments))
    except TypeError:
        raise ValueError(
            f"{what} gets {arguments} arguments, and {getattr(hook, '__name__', hook)} is declared "
            f"as {signature}"
        ) from None
