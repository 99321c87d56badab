"""What each feature costs a no-op job, and all of them together. Throughput is always counted."""

import time
from statistics import median
from typing import Any

from bench import jobs
from bench.report import Metric, case
from bench.rig import Rig, Worker

JOBS = 50_000
ROUNDS = 3

EACH: dict[str, dict[str, Any]] = {
    "unique": {"unique": "until_executed"},
    "status": {"status": True},
    "history": {"history": True},
    "expiry and tags": {"expires_in": 3600, "tags": ["bench"]},
    "middleware": {},
}
ALL = {name: value for options in EACH.values() for name, value in options.items()}
REPORTS = 1_000_000


@case(
    Metric("without features", "jobs/s"),
    *(Metric(name, "jobs/s") for name in EACH),
    Metric("all", "jobs/s"),
    Metric("round trips with all", "calls/job", 0.15),
)
def features(rig: Rig) -> tuple[float, ...]:
    """Each in a worker of its own, with jobs that differ in their argument."""
    none, _ = _drain(rig, {})
    paces = [_drain(rig, each, middleware=name == "middleware")[0] for name, each in EACH.items()]
    return none, *paces, *_drain(rig, ALL, middleware=True)


@case(
    Metric("no-op jobs, history off", "jobs/s"),
    Metric("no-op jobs, history on", "jobs/s"),
    Metric("what it costs", "%", 25),
)
def history(rig: Rig) -> tuple[float, ...]:
    """In turns, since the machine is not always equally fast."""
    paces = [(_drain(rig, {})[0], _drain(rig, EACH["history"])[0]) for _ in range(ROUNDS)]
    off, on = (median(pace) for pace in zip(*paces, strict=True))
    return off, on, 100 * (1 - median(on / off for off, on in paces))


@case(
    Metric("a million reports of progress", "s", 10),
    Metric("calls meanwhile", "calls/s", 8),
)
def progress(rig: Rig) -> tuple[float, ...]:
    """One job that tells in a loop how far it is."""
    jid = jobs.reports.enqueue(REPORTS)
    with Worker(rig):
        rig.wait(lambda: jobs.cog.status(jid).state == "working", "the job's start")
        began, calls = time.perf_counter(), rig.script_calls()
        took = jobs.cog.result(jid, timeout=120)
        calls = rig.script_calls() - calls
    return took, calls / (time.perf_counter() - began)


def _drain(rig: Rig, options: dict[str, Any], *, middleware: bool = False) -> tuple[float, float]:
    """Jobs a second, and calls a job, from the first settled to the last."""
    rig.ask("FLUSHALL")
    job = jobs.numbered.using(**options)
    job.enqueue_many([(number,) for number in range(JOBS)])
    with Worker(rig, middleware=middleware):
        first = rig.wait(rig.processed, "the first job")
        began, calls = time.perf_counter(), rig.script_calls()
        rig.wait(lambda: rig.processed() >= JOBS, "the last job")
        took = time.perf_counter() - began
        calls = rig.script_calls() - calls
    return (JOBS - first) / took, calls / (JOBS - first)
