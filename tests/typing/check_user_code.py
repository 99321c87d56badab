"""What a type checker knows of jobs. Checked by mypy, never run."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from cogworker import (
    Cogworker,
    CurrentJob,
    Discard,
    Job,
    JobRun,
    OutgoingJob,
    Reschedule,
    Retry,
    RetryPolicy,
    current_job,
)
from cogworker.async_inspector import AsyncInspector
from cogworker.by_hand import JobEntry
from cogworker.live import QueueInfo
from cogworker.records import RunPage

cog = Cogworker(redis_url="redis://localhost", concurrency=5)


@cog.job
def greet(name: str, *, loud: bool = False) -> str:
    return name


@cog.job(queue="slow", retry=RetryPolicy(3, delay=(1, 2)))
async def fetch(url: str, tries: int = 1) -> bytes:
    return b""


assert_type(greet("ada"), str)
assert_type(greet.enqueue("ada", loud=True), str | None)
assert_type(greet.enqueue_in(300, "ada"), str | None)
assert_type(greet.enqueue_in(timedelta(minutes=5), "ada", loud=True), str | None)
assert_type(greet.enqueue_at(datetime.now(UTC), "ada"), str | None)
assert_type(greet.enqueue_many([("ada",), ("bob",)]), list[str | None])
assert_type(greet.using(queue="other").enqueue("ada"), str | None)
assert_type(current_job(), CurrentJob)

greet.enqueue(1)  # type: ignore[arg-type]
greet.enqueue("ada", True)  # type: ignore[call-arg]
greet.enqueue("ada", noisy=True)  # type: ignore[call-arg]
greet.enqueue()  # type: ignore[call-arg]
greet.enqueue_in(300, 1)  # type: ignore[arg-type]
greet.enqueue_in("soon", "ada")  # type: ignore[arg-type]
greet.enqueue_at(300, "ada")  # type: ignore[arg-type]
fetch.enqueue(b"x")  # type: ignore[arg-type]


async def main() -> None:
    assert_type(await fetch("x"), bytes)
    assert_type(await fetch.aenqueue("x", tries=2), str | None)
    assert_type(await fetch.aenqueue_in(1.5, "x"), str | None)
    await fetch.aenqueue(1)  # type: ignore[arg-type]
    look = AsyncInspector(cog)
    assert_type(await look.queues(), list[QueueInfo])
    assert_type(await look.history(job=greet, limit=5), RunPage)
    async for lock in look.locks():
        assert_type(lock.holder, str)
    assert_type((await look.jobs("dead").page(limit=5)).entries, list[JobEntry])
    await look.history(before=5)  # type: ignore[arg-type]


def takes_a_job(job: Job[[int], None]) -> None:
    job.enqueue(1)


takes_a_job(greet)  # type: ignore[arg-type]


@cog.middleware.client.add
def add_a_field(job: OutgoingJob) -> OutgoingJob | None:
    return job.with_fields(trace="x") if job.args else None


@cog.middleware.server.add
@contextmanager
def around(run: JobRun) -> Iterator[None]:
    assert_type(run.attempt, int)
    yield


@cog.on_startup
async def startup() -> None: ...


@cog.on_death
def died(job: dict[str, Any], error: BaseException) -> None: ...


@cog.on_error
def failed(error: BaseException, run: JobRun, will_retry: bool) -> None: ...


@cog.job(
    retry=RetryPolicy(retry_on=OSError, discard_on=(KeyError, ValueError), jitter=0.5),
    retry_in=lambda retry, error: "dead",
    on_death=died,
    skip_middleware=[around, add_a_field],
)
def decides(when: datetime) -> None:
    raise Reschedule(at=when)


assert_type(decides.enqueue(datetime.now(UTC)), str | None)
cog.on_death(5)  # type: ignore[type-var]
Retry(5)  # type: ignore[call-arg]
Discard()
