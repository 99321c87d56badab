"""Twenty thousand jobs through workers that are killed at random: nothing is lost."""

import random
from itertools import islice

from cogworker.inspector import Inspector

from support.processes import eventually

JOBS = 20_000
KILLS = 30
WORKERS = 2
SETTINGS = {
    "heartbeat_interval": 0.2,  # presence then lasts two seconds
    "orphan_threshold": 1,
    "orphan_check_interval": 0.2,
    "poll_interval": 0.1,
    # The innocent die with the guilty: with thirty kills one job may be hit more than three times.
    "max_orphanings": 1000,
    "dead_max_jobs": JOBS,
}


def test_nothing_is_lost_and_done_and_dead_are_all_jobs(app, workers, tmp_path):
    # A job notes that it began; whether it ends is up to the killer. A tenth of the jobs fails for
    # good after a retry, a tenth only at its first attempt.
    workers.write(
        f"""
import os, threading, time
from cogworker import RetryPolicy
local = threading.local()
def note(line):
    if not hasattr(local, "file"):
        path = {str(tmp_path)!r} + f"/ran-{{os.getpid()}}-{{threading.get_ident()}}"
        local.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(local.file, line.encode())
@cog.job(retry=RetryPolicy(1, delay=(0.05,)))
def job(number):
    note(f"{{number}}\\n")
    time.sleep(0.001)
    if number % 10 == 0 or (number % 10 == 1 and current_job().attempt == 1):
        raise ValueError(number)
@cog.job(name="tasks.coroutine", retry=1)
async def coroutine(number):
    note(f"{{number}}\\n")
"""
    )
    look = Inspector(app)
    chance = random.Random(20261201)
    for _ in range(WORKERS):
        workers.start(**SETTINGS, ready=False)
    numbers = iter(range(0, JOBS, 2))
    for kill in range(KILLS):
        before = look.stats().processed
        # Each round has its own jobs, so that there is something to kill in the last one, too.
        for number in islice(numbers, JOBS // 2 // KILLS if kill < KILLS - 1 else None):
            app.push({"class": "tasks.job", "args": [number], "retry": 1})
            app.push({"class": "tasks.coroutine", "args": [number + 1], "retry": 1})
        aim = before + chance.randrange(1, 200)
        eventually(lambda aim=aim: look.stats().processed >= aim)
        chance.choice([w for w in workers.started if w.process.poll() is None]).kill()
        workers.start(**SETTINGS, ready=False)

    def over():
        stats = look.stats()
        return stats.processed + stats.dead == JOBS

    eventually(over, 120)
    for worker in workers.started:
        if worker.process.poll() is None:
            worker.wait_for("ready: worker=")  # before that, a TERM just ends it
            assert worker.stop() == 0

    expected_dead = sum(1 for number in range(0, JOBS, 2) if number % 10 == 0)
    stats = look.stats()
    assert (stats.processed, stats.dead) == (JOBS - expected_dead, expected_dead)
    assert stats[3:7] == (0, 0, 0, 0), "something is left over"
    assert stats.failed == 2 * expected_dead
    ran = {
        int(line)
        for path in tmp_path.glob("ran-*")
        for line in path.read_text().splitlines()
        if line
    }
    assert ran == set(range(JOBS))
