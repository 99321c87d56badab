"""The inspector for ``async`` code: each method of ``Inspector`` and ``JobsAt``, to be awaited.

They run in threads, on connections of their own: looking is rare, and one thing to maintain is
better than two. A call that is cancelled goes on in its thread, and an action is carried out.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack

from cogworker.app import Cogworker
from cogworker.bulk import Bulk
from cogworker.inspector import Inspector
from cogworker.jobs_at import ActionName, Filter, JobsAt, Tally

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)

PORTION = 100
"""How many items of an iterator are fetched at a time."""


class _Twin(Generic[S_co]):
    """Does in threads what another object does."""

    def __init__(self, sync: S_co) -> None:
        self._sync = sync


def _awaited(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[_Twin[S], P], Coroutine[Any, Any, R]]:
    """The twin of a method."""

    @functools.wraps(method)
    async def twin(self: _Twin[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self._sync, *args, **kwargs)

    return twin


def _iterated(
    method: Callable[Concatenate[S, P], Iterator[R]],
) -> Callable[Concatenate[_Twin[S], P], AsyncIterator[R]]:
    """The twin of a method that answers with an iterator: for ``async for``."""

    @functools.wraps(method)
    async def twin(self: _Twin[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        items = method(self._sync, *args, **kwargs)
        while portion := await asyncio.to_thread(lambda: list(islice(items, PORTION))):
            for item in portion:
                yield item

    return twin


class AsyncBulk(_Twin[Bulk]):
    """``Bulk`` for ``async`` code; ``AsyncJobsAt.bulk`` makes it."""

    count = _awaited(Bulk.count)

    async def run(self) -> AsyncIterator[Tally]:
        """Carry it out; see ``Bulk.run``."""
        tallies = self._sync.run()
        while (came := await asyncio.to_thread(next, tallies, None)) is not None:
            yield came


class AsyncJobsAt(_Twin[JobsAt]):
    """``JobsAt`` for ``async`` code; ``size`` is its length."""

    size = _awaited(JobsAt.__len__)
    each = _iterated(JobsAt.each)
    page = _awaited(JobsAt.page)
    find = _awaited(JobsAt.find)
    delete = _awaited(JobsAt.delete)
    discard = _awaited(JobsAt.discard)
    kill = _awaited(JobsAt.kill)
    retry_now = _awaited(JobsAt.retry_now)
    revive = _awaited(JobsAt.revive)
    reschedule = _awaited(JobsAt.reschedule)
    act = _awaited(JobsAt.act)
    clear = _awaited(JobsAt.clear)
    now = _awaited(JobsAt.now)

    def check(
        self, action: ActionName, when: datetime | None = None, **wanted: Unpack[Filter]
    ) -> None:
        """Raises CogworkerError for an action that is not for these jobs, and a wrong filter."""
        self._sync.check(action, when, **wanted)

    def allows(self, action: ActionName) -> bool:
        """Whether an action is for the jobs at this place."""
        return self._sync.allows(action)

    async def bulk(
        self, action: ActionName, *, when: datetime | None = None, **wanted: Unpack[Filter]
    ) -> AsyncBulk:
        """Prepare one action on all jobs here that a filter matches; see ``Bulk``."""
        make = partial(Bulk, self._sync, action, when=when, **wanted)
        return AsyncBulk(await asyncio.to_thread(make))


class AsyncInspector(_Twin[Inspector]):
    """``Inspector`` for ``async`` code."""

    def __init__(self, app: Cogworker) -> None:
        super().__init__(Inspector(app))

    def jobs(self, where: Literal["scheduled", "retrying", "dead"]) -> AsyncJobsAt:
        """The scheduled, retrying or dead jobs, to look at and to move by hand."""
        return AsyncJobsAt(self._sync.jobs(where))

    def jobs_in(self, queue: str) -> AsyncJobsAt:
        """The jobs in a queue, to look at and to move by hand."""
        return AsyncJobsAt(self._sync.jobs_in(queue))

    stats = _awaited(Inspector.stats)
    queues = _awaited(Inspector.queues)
    paused_queues = _awaited(Inspector.paused_queues)
    pause_queue = _awaited(Inspector.pause_queue)
    resume_queue = _awaited(Inspector.resume_queue)
    intake = _awaited(Inspector.intake)
    pause_intake = _awaited(Inspector.pause_intake)
    resume_intake = _awaited(Inspector.resume_intake)

    workers = _awaited(Inspector.workers)
    identities = _awaited(Inspector.identities)
    running = _iterated(Inspector.running)
    held = _awaited(Inspector.held)
    quiet_worker = _awaited(Inspector.quiet_worker)
    resume_worker = _awaited(Inspector.resume_worker)
    stop_worker = _awaited(Inspector.stop_worker)
    stop_workers = _awaited(Inspector.stop_workers)

    waiting = _awaited(Inspector.waiting)
    dead = _awaited(Inspector.dead)

    periodic = _awaited(Inspector.periodic)
    disable_periodic = _awaited(Inspector.disable_periodic)
    enable_periodic = _awaited(Inspector.enable_periodic)
    run_periodic_now = _awaited(Inspector.run_periodic_now)

    locks = _iterated(Inspector.locks)
    release_lock = _awaited(Inspector.release_lock)

    history = _awaited(Inspector.history)
    history_size = _awaited(Inspector.history_size)
    clear_history = _awaited(Inspector.clear_history)
    throughput = _awaited(Inspector.throughput)
    throughput_by_minute = _awaited(Inspector.throughput_by_minute)
    runs_by_day = _awaited(Inspector.runs_by_day)
    job_classes = _awaited(Inspector.job_classes)
    attempts = _awaited(Inspector.attempts)
    clear_attempts = _awaited(Inspector.clear_attempts)
