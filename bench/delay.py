"""How long a job waits for an idle worker, what that worker costs, and what the schedule does."""

import random
import re
import time

from bench import jobs
from bench.raw import PAYLOAD
from bench.report import Metric, case, percentile
from bench.rig import Rig, Worker

PUSHES = 1_000
QUEUES = ("a", "b", "c")
IDLE_S = 20
DUE = 100_000


@case(
    Metric("pick-up p50", "ms", 0.8, raw="ms a PING"),
    Metric("pick-up p99", "ms", 2.5),
    Metric("pick-up max", "ms"),
)
def pickup(rig: Rig) -> tuple[float, ...]:
    """From just before enqueue to the job's first line; three queues, an idle worker."""
    pings = [jobs.ping.using(queue=name) for name in QUEUES]
    with Worker(rig, *QUEUES) as worker:
        for number in range(PUSHES + len(QUEUES)):
            time.sleep(random.uniform(0.002, 0.008))
            pings[number % len(pings)].enqueue(time.time())
        rig.wait(lambda: len(worker.told()) == PUSHES + len(QUEUES), "the last job")
        waits_ms = [1000 * wait for wait in worker.told()[len(QUEUES) :]]  # the first ones connect
    return percentile(waits_ms, 50), percentile(waits_ms, 99), max(waits_ms)


@case(
    Metric("commands of an idle worker", "a second", 3),
    Metric("script calls among them", "a second"),
)
def idle(rig: Rig) -> tuple[float, ...]:
    """As clients send them. INFO counts what scripts call as well, MONITOR tells them apart."""
    names: list[bytes] = []
    with Worker(rig):
        time.sleep(2)
        monitor = rig.connect()
        monitor.send_command("MONITOR")
        monitor.read_response()
        until = time.monotonic() + IDLE_S
        while (left := until - time.monotonic()) > 0:
            if monitor.can_read(left):
                said = re.match(rb'\S+ \[\d+ (\S+)\] "(\w+)"', monitor.read_response())
                if said and said[1] != b"lua":
                    names.append(said[2].upper())
        monitor.disconnect()
    return len(names) / IDLE_S, names.count(b"EVALSHA") / IDLE_S


@case(
    Metric("promoted by one worker", "jobs/s", raw="pipelined SETs"),
    Metric("pick-up meanwhile p50", "ms"),
    Metric("pick-up meanwhile p99", "ms"),
)
def scheduled(rig: Rig) -> tuple[float, ...]:
    """100,000 due jobs go to a queue that nobody reads, ordinary ones to the worker's."""
    _schedule(rig)
    left: list[tuple[float, int]] = []
    with Worker(rig) as worker:
        deadline = time.monotonic() + 120
        while not left or (left[-1][1] and time.monotonic() < deadline):
            jobs.ping.enqueue(time.time())
            time.sleep(0.01)
            left.append((time.perf_counter(), rig.ask("ZCARD", rig.keys.schedule)))
        rig.wait(lambda: len(worker.told()) == len(left), "the last ordinary job")
        waits_ms = [1000 * wait for wait in worker.told()]
    if (arrived := rig.ask("LLEN", rig.keys.queue("later"))) != DUE - left[-1][1]:
        rig.notes.append(f"{arrived} jobs arrived in the queue, of {DUE} that were due")
    (began, most), (ended, least) = left[0], left[-1]
    pace = (most - least) / (ended - began) if len(left) > 1 else 0.0
    return pace, percentile(waits_ms, 50), percentile(waits_ms, 99)


def _schedule(rig: Rig) -> None:
    payload = PAYLOAD.replace(b'"queue":"default"', b'"queue":"later"')
    for start in range(0, DUE, 1000):
        words: list[float | bytes] = []
        for number in range(start, start + 1000):
            words += [1.7e9 + number, payload.replace(b"0123456789", b"%010d" % number)]
        rig.ask("ZADD", rig.keys.schedule, *words)
