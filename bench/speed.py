"""How fast jobs come in and go out, and the memory that takes."""

import asyncio
import time

from bench import jobs
from bench.report import Metric, case
from bench.rig import Rig, Worker
from cogworker.job import Job

JOBS = 100_000
SINGLE = 10_000
NAPS = 2_000


@case(
    Metric("no-op jobs", "jobs/s", 40_000, at_least=True, raw="decode and call"),
    Metric("round trips", "calls/job", 0.15),
    Metric("resident after 100,000 jobs", "MB", 50),
    Metric("growth over the last half", "KB"),
)
def throughput(rig: Rig) -> tuple[float, ...]:
    """From the first settled to the last, enqueued before; one worker with default settings."""
    return _drain(rig, jobs.noop)


@case(
    Metric("async no-op jobs", "jobs/s", raw="decode and call"),
    Metric("round trips", "calls/job"),
    Metric("resident after 100,000 jobs", "MB"),
    Metric("growth over the last half", "KB"),
)
def async_throughput(rig: Rig) -> tuple[float, ...]:
    return _drain(rig, jobs.anoop)


def _drain(rig: Rig, job: Job) -> tuple[float, ...]:
    job.enqueue_many([()] * JOBS)
    calls = rig.script_calls()
    with Worker(rig) as worker:
        first = rig.wait(rig.processed, "the first job")
        began = time.perf_counter()
        rig.wait(lambda: rig.processed() >= JOBS // 2, "half of the jobs")
        half_kb = worker.resident_kb()
        rig.wait(lambda: rig.processed() >= JOBS, "the last job")
        pace = (JOBS - first) / (time.perf_counter() - began)
        calls = rig.script_calls() - calls
        resident_kb = worker.resident_kb()
    return pace, calls / JOBS, resident_kb / 1024, resident_kb - half_kb


@case(
    Metric("enqueue", "jobs/s", 10_000, at_least=True, raw="SET"),
    Metric("enqueue_many", "jobs/s", 80_000, at_least=True, raw="pipelined SETs"),
    Metric("aenqueue", "jobs/s", raw="SET"),
)
def producer(rig: Rig) -> tuple[float, ...]:
    """One thread, or one task, that waits for each call."""
    jobs.noop.enqueue()
    began = time.perf_counter()
    for _ in range(SINGLE):
        jobs.noop.enqueue()
    single = SINGLE / (time.perf_counter() - began)
    began = time.perf_counter()
    jobs.noop.enqueue_many([()] * JOBS)
    bulk = JOBS / (time.perf_counter() - began)
    return single, bulk, asyncio.run(_produce())


async def _produce() -> float:
    await jobs.noop.aenqueue()
    began = time.perf_counter()
    for _ in range(SINGLE):
        await jobs.noop.aenqueue()
    took = time.perf_counter() - began
    await jobs.cog.aclose()
    return SINGLE / took


@case(Metric("2,000 of 10 ms, 50 threads", "s", 0.5))
def sleepers(rig: Rig) -> tuple[float, ...]:
    """From the first start to the last settled; 0.4 would be ideal."""
    return _sleep(rig, jobs.nap)


@case(Metric("2,000 of 10 ms, 50 tasks", "s", 0.5))
def async_sleepers(rig: Rig) -> tuple[float, ...]:
    return _sleep(rig, jobs.anap)


def _sleep(rig: Rig, job: Job) -> tuple[float, ...]:
    rig.hold()
    with Worker(rig, "default", "kick", concurrency=50) as worker:
        job.enqueue_many([(True,)] + [()] * (NAPS - 1))
        expected = NAPS + rig.release()
        rig.wait(lambda: rig.processed() >= expected, "the last sleeper")
        return (time.time() - worker.told()[0],)
