"""What a type checker knows of jobs. Checked by mypy, never run."""

from datetime import UTC, datetime, timedelta
from typing import assert_type

from cogworker import Cogworker, CurrentJob, Job, RetryPolicy, current_job

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


def takes_a_job(job: Job[[int], None]) -> None:
    job.enqueue(1)


takes_a_job(greet)  # type: ignore[arg-type]
