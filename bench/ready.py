"""What keeping jobs ready costs: does one wait in a busy worker while another could run it?"""

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from bench import jobs
from bench.report import Metric, case, percentile
from bench.rig import Rig, Worker

JOBS = 20_000
LONG = JOBS // 100
LONG_S = 0.05
SLOTS = 10
METRICS = (
    Metric("wait for a slot p50", "ms"),
    Metric("wait for a slot p99", "ms"),
    Metric("wait for a slot max", "ms"),
    Metric("with a free slot elsewhere, max", "ms", 10),
    Metric("wait until it began, max", "ms"),
    Metric("given back unstarted", "jobs"),
)


class Held(NamedTuple):
    """A delivery as its worker noted it; ``ended`` is 0 when it was given back unstarted."""

    ready: float
    started: float
    began: float
    ended: float


@case(*METRICS)
def ready_sleep(rig: Rig) -> tuple[float, ...]:
    """No-op jobs with 1 % that sleep for 50 ms, in two workers."""
    return _mix(rig, (LONG_S, 0.0))


@case(*METRICS)
def ready_cpu(rig: Rig) -> tuple[float, ...]:
    """No-op jobs with 1 % that compute for 50 ms, in two workers."""
    return _mix(rig, (0.0, LONG_S))


def _mix(rig: Rig, long: tuple[float, float]) -> tuple[float, ...]:
    rig.hold()
    calls = [long] * LONG + [(0.0, 0.0)] * (JOBS - LONG)
    random.Random(1).shuffle(calls)
    jobs.mixed.enqueue_many(calls)
    first, second = (Worker(rig, "default", "kick", waits=True) for _ in range(2))
    with first, second:
        expected = JOBS + rig.release()
        rig.wait(lambda: rig.processed() >= expected, "the last job")
        rig.wait(lambda: len(_runs(first) + _runs(second)) >= expected, "the notes", 10)
        one, other = _read(first), _read(second)
    helds = one + other
    avoidable = max(chain(_avoidable(one, other), _avoidable(other, one)))
    waits_ms = [1000 * (held.started - held.ready) for held in helds]
    begins_ms = [1000 * (held.began - held.ready) for held in helds if held.ended]
    tail = (1000 * avoidable, max(begins_ms), len(waits_ms) - len(begins_ms))
    return percentile(waits_ms, 50), percentile(waits_ms, 99), max(waits_ms), *tail


def _read(worker: Worker) -> list[Held]:
    return [Held(*map(float, line.split())) for line in worker.waits.read_text().splitlines()]


def _runs(worker: Worker) -> list[Held]:
    return [held for held in _read(worker) if held.ended]


def _avoidable(helds: Sequence[Held], others: Sequence[Held]) -> list[float]:
    """How long of its wait each delivery spent while the other worker had a free slot."""
    free = _free_time([held for held in others if held.ended])
    return [free(held.started) - free(held.ready) for held in helds]


def _free_time(runs: Sequence[Held]) -> Callable[[float], float]:
    """A function of time: for how long a worker has had a free slot until then."""
    changes = sorted([(run.started, 1) for run in runs] + [(run.ended, -1) for run in runs])
    times = [at for at, _ in changes]
    free = [busy < SLOTS for busy in accumulate(change for _, change in changes)]
    spans = [(b - a) * f for a, b, f in zip(times, times[1:], free, strict=False)]
    totals = list(accumulate(spans, initial=0.0))

    def until(time: float) -> float:
        index = bisect_right(times, time) - 1
        if index < 0:
            return time - times[0]
        return totals[index] + (time - times[index]) * free[index]

    return until
