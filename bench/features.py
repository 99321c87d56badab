"""What each feature costs a no-op job, and all of them together. Throughput is always counted."""

import time
from statistics import median

from bench import jobs
from bench.report import Metric, case
from bench.rig import Rig, Worker
from cogworker.job import Job

JOBS = 50_000
ROUNDS = 3

UNIQUE = {"unique": "until_executed"}
HISTORY = {"history": True}


@case(
    Metric("without features", "jobs/s"),
    Metric("unique", "jobs/s"),
    Metric("history", "jobs/s"),
    Metric("all", "jobs/s"),
    Metric("round trips with all", "calls/job", 0.15),
)
def features(rig: Rig) -> tuple[float, ...]:
    """Each in a worker of its own, with jobs that differ in their argument."""
    none, _ = _drain(rig, jobs.numbered)
    unique, _ = _drain(rig, jobs.numbered.using(**UNIQUE))
    history, _ = _drain(rig, jobs.numbered.using(**HISTORY))
    everything, calls = _drain(rig, jobs.numbered.using(**UNIQUE, **HISTORY))
    return none, unique, history, everything, calls


@case(
    Metric("no-op jobs, history off", "jobs/s"),
    Metric("no-op jobs, history on", "jobs/s"),
    Metric("what it costs", "%", 25),
)
def history(rig: Rig) -> tuple[float, ...]:
    """In turns, since the machine is not always equally fast."""
    paces = [
        (_drain(rig, jobs.numbered)[0], _drain(rig, jobs.numbered.using(**HISTORY))[0])
        for _ in range(ROUNDS)
    ]
    off, on = (median(pace) for pace in zip(*paces, strict=True))
    return off, on, 100 * (1 - median(on / off for off, on in paces))


def _drain(rig: Rig, job: Job) -> tuple[float, float]:
    """Jobs a second, and calls a job, from the first settled to the last."""
    rig.ask("FLUSHALL")
    job.enqueue_many([(number,) for number in range(JOBS)])
    with Worker(rig):
        first = rig.wait(rig.processed, "the first job")
        began, calls = time.perf_counter(), rig.script_calls()
        rig.wait(lambda: rig.processed() >= JOBS, "the last job")
        took = time.perf_counter() - began
        calls = rig.script_calls() - calls
    return (JOBS - first) / took, calls / (JOBS - first)
