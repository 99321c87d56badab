"""The server middlewares around a run.

In order: each is called with the run, and what it answers with is entered; the job is called in the
innermost; they are left in the reverse order. What can't be called, for an unknown name or for
arguments that can't be decoded, fails in the innermost, too, so all of them see it. An exception
that one of them swallows makes the run a success, one that it raises makes it a failure.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from cogworker._worker.delivery import Delivery
from cogworker.middleware import JobRun, Link, name_of
from cogworker.payload import NO_KWARGS, failures

logger = logging.getLogger("cogworker.worker")

_told: set[str] = set()
"""Middlewares of which it was said that they do not wrap plain jobs."""


def run_of(delivery: Delivery) -> JobRun:
    """What is told of a delivery's run, without its arguments."""
    envelope = delivery.envelope
    return JobRun(
        *(envelope.jid, envelope.class_, delivery.queue, failures(envelope) + 1),
        *(delivery.job, delivery.payload),
    )


def ended_run_of(delivery: Delivery) -> JobRun:
    """The same with its arguments, as they were when it began."""
    run, job, kwargs = run_of(delivery), delivery.job, delivery.envelope.kwargs
    if job is not None:
        with contextlib.suppress(Exception):  # it may have failed for them
            named = None if kwargs is NO_KWARGS else kwargs
            run.args, run.kwargs = job.codec.decode(delivery.envelope.args, named)
    return run


def run_inside(links: Sequence[Link], run: JobRun, call: Callable[[], Any]) -> Any:
    """Call a plain job inside middlewares; those that are only for ``async`` jobs are left out."""
    with ExitStack() as stack:
        for link in links:
            manager = link(run)
            if hasattr(type(manager), "__enter__"):
                stack.enter_context(manager)
            elif hasattr(type(manager), "__aenter__"):
                _tell_left_out(link, run)
            elif manager is not None:
                raise _not_a_manager(link, manager)
        return call()
    return None  # one of them has swallowed what the job raised


async def run_inside_async(
    links: Sequence[Link], run: JobRun, call: Callable[[], Awaitable[Any]]
) -> Any:
    """Call an ``async`` job inside middlewares, plain ones too."""
    async with AsyncExitStack() as stack:
        for link in links:
            manager = link(run)
            if hasattr(type(manager), "__aenter__"):
                await stack.enter_async_context(manager)
            elif hasattr(type(manager), "__enter__"):
                stack.enter_context(manager)
            elif manager is not None:
                raise _not_a_manager(link, manager)
        return await call()
    return None  # one of them has swallowed what the job raised


def _not_a_manager(link: Link, manager: object) -> TypeError:
    return TypeError(
        f"the server middleware {name_of(link.middleware)} must answer with a context manager "
        f"or None, not {type(manager).__qualname__}"
    )


def _tell_left_out(link: Link, run: JobRun) -> None:
    name = name_of(link.middleware)
    if name not in _told:
        _told.add(name)
        logger.warning(
            "a middleware for async jobs only is left out around plain ones, told once: "
            "middleware=%s job=%s",
            name,
            run.name,
        )
