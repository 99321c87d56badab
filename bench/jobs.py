"""The application that the benchmarks' workers run, and what it tells the harness.

``BENCH_OUT`` names a file that jobs append a number to. ``BENCH_WAITS`` names one that gets a line
for each delivery that this worker held: when it was ready, took a slot, began and ended. All on the
monotonic clock, which the processes of a machine share. With ``BENCH_MIDDLEWARE`` a worker's jobs
go through a middleware that does nothing.
"""

import asyncio
import contextlib
import os
import threading
import time

from cogworker import Cogworker, JobRun, current_job

cog = Cogworker()
_out = os.open(os.environ.get("BENCH_OUT", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _tell(number: float) -> None:
    os.write(_out, b"%.6f\n" % number)


@cog.job
def noop() -> None:
    pass


@cog.job
def numbered(number: int) -> None:
    pass


@cog.job(status=True)
def reports(number: int) -> float:
    began, job = time.perf_counter(), current_job()
    for done in range(number):
        job.at(100 * done / number, "going on")
    return time.perf_counter() - began


@cog.job
async def anoop() -> None:
    pass


@cog.job
def nap(tells: bool = False) -> None:
    if tells:
        _tell(time.time())
    time.sleep(0.01)


@cog.job
async def anap(tells: bool = False) -> None:
    if tells:
        _tell(time.time())
    await asyncio.sleep(0.01)


@cog.job
def ping(sent_at: float) -> None:
    _tell(time.time() - sent_at)


@cog.job
def mixed(sleep_s: float, cpu_s: float) -> None:
    if sleep_s:
        time.sleep(sleep_s)
    until = cpu_s and time.thread_time() + cpu_s
    while until and time.thread_time() < until:
        pass


def _watch_waits(path: str) -> None:
    from cogworker._worker.performer import Performer
    from cogworker._worker.slots import Slots

    perform, finish, reclaim = Performer.perform, Slots.finish, Slots.reclaim
    clock = time.monotonic
    begun: dict[bytes, float] = {}
    notes: list[tuple[float, float, float, float]] = []

    def noting_perform(self, delivery):
        begun[delivery.tag] = clock()
        return perform(self, delivery)

    def noting_finish(self, delivery, move):
        began_at = begun.pop(delivery.tag, delivery.started_at)
        notes.append((delivery.ready_at, delivery.started_at, began_at, clock()))
        return finish(self, delivery, move)

    def noting_reclaim(self, waited_s):
        reclaimed = reclaim(self, waited_s)
        notes.extend((delivery.ready_at, clock(), 0.0, 0.0) for delivery in reclaimed)
        return reclaimed

    def write_often():  # and not at exit: a worker may leave by os._exit
        with open(path, "a", encoding="ascii") as file:
            while True:
                time.sleep(0.1)
                count = len(notes)
                file.writelines(f"{a} {b} {c} {d}\n" for a, b, c, d in notes[:count])
                file.flush()
                del notes[:count]

    Performer.perform, Slots.finish, Slots.reclaim = noting_perform, noting_finish, noting_reclaim
    threading.Thread(target=write_often, name="bench-waits", daemon=True).start()


def _go_through_middleware() -> None:
    @cog.middleware.server.add
    def around(run: JobRun) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


if os.environ.get("BENCH_MIDDLEWARE"):
    _go_through_middleware()
if waits := os.environ.get("BENCH_WAITS"):
    _watch_waits(waits)
