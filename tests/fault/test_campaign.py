"""Two hundred thousand jobs through two swarms whose workers, parents and server are killed."""

import os
import random
import signal
from collections import Counter

import msgspec
import pytest

from cogworker import Cogworker
from cogworker.inspector import Inspector

from support.processes import eventually
from support.server import server
from support.swarms import children, is_alive

JOBS = 200_000
ROUNDS = 13
KILLS_A_ROUND = 12
SERVER_KILLS = 3
SETTINGS = {
    "heartbeat_interval": 0.5,  # presence lasts six seconds: a starved worker must not look dead
    "orphan_threshold": 6,
    "orphan_check_interval": 0.5,
    "poll_interval": 0.1,
    "max_orphanings": 1000,  # the innocent die with the guilty
    "dead_max_jobs": JOBS,
    "redis_timeout": 5,
}
FAILS_FOR_GOOD, FAILS_ONCE = 0, 1
"""The last digit of the numbers of jobs that do."""


class Campaign:
    """What is killed, and what was in flight then: only that may run again."""

    def __init__(self, workers, own, app):
        self.workers = workers
        self.own = own
        self.app = app
        self.look = Inspector(app)
        self.chance = random.Random(20261201)
        self.in_flight_at_a_kill = Counter()
        self.kills = 0
        self.swarms = []

    def start_swarms(self):
        self.swarms = [self.workers.swarm("-n", "2", **SETTINGS, ready=False) for _ in range(2)]

    def kill_a_worker(self):
        """Kill one that has beaten, if there is one; nobody else ends them meanwhile."""
        alive = [pid for swarm in self.swarms for pid in children(swarm.pid)]
        ready = [(pid, name) for pid in alive if is_alive(pid) and (name := self.identity(pid))]
        if not ready:
            return False
        pid, identity = self.chance.choice(ready)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_alive(pid))
        flight = self.own.client.hgetall(self.app.client.keys.in_flight(identity))
        flight.pop(b"@turn", None)
        for payload in flight.values():
            self.in_flight_at_a_kill[msgspec.json.decode(payload)["args"][0]] += 1
        self.kills += 1
        return True

    def identity(self, pid):
        return next((name for name in self.look.identities() if f":{pid}:" in name), None)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_job_is_lost_and_only_those_in_flight_at_a_kill_run_again(
    workers, tmp_path, namespace, record_property
):
    workers.write(
        f"""
import os, threading, time
from cogworker import RetryPolicy
local = threading.local()
@cog.job(retry=RetryPolicy(1, delay=(0.05,)))
def job(number):
    if not hasattr(local, "file"):
        path = {str(tmp_path)!r} + f"/ran-{{os.getpid()}}-{{threading.get_ident()}}"
        local.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(local.file, f"{{number}} {{current_job().attempt}}\\n".encode())
    time.sleep(0.001)
    if number % 10 == {FAILS_FOR_GOOD}:
        raise ValueError(number)
    if number % 10 == {FAILS_ONCE} and current_job().attempt == 1:
        raise ValueError(number)
"""
    )
    with server(tmp_path) as own:
        own.start()
        app = Cogworker(redis_url=own.url, namespace=namespace)
        workers.settings = {"redis_url": own.url, "namespace": namespace, "log_level": "error"}
        job = app.job(name="tasks.job", retry=1)(lambda number: None)
        campaign = Campaign(workers, own, app)
        per_round = JOBS // ROUNDS
        server_kills = set(campaign.chance.sample(range(1, ROUNDS), SERVER_KILLS))
        pushed = 0
        for number in range(ROUNDS):
            last = number == ROUNDS - 1
            end = JOBS if last else pushed + per_round
            job.enqueue_many([(each,) for each in range(pushed, end)])
            pushed = end
            campaign.start_swarms()
            for kill in range(KILLS_A_ROUND):
                before = campaign.look.stats().processed
                aim = min(before + campaign.chance.randrange(1, 300), pushed * 8 // 10)
                eventually(lambda aim=aim: campaign.look.stats().processed >= aim, 60)
                eventually(campaign.kill_a_worker, 60)
                if number in server_kills and kill == KILLS_A_ROUND // 2:
                    own.kill()
                    own.start()
            if not last:
                orphans = [pid for swarm in campaign.swarms for pid in children(swarm.pid)]
                for swarm in campaign.swarms:
                    swarm.kill()
                # They notice that they have no parent, and stop.
                eventually(lambda pids=orphans: not any(map(is_alive, pids)), 60)

        look = campaign.look
        eventually(lambda: look.stats().processed + look.stats().dead == JOBS, 300)
        for swarm in campaign.swarms:
            assert swarm.stop(60) == 0

        for_good = JOBS // 10
        stats = look.stats()
        assert stats == (JOBS - for_good, 2 * for_good + for_good, 0, 0, 0, 0, 0, 0, for_good)
        assert look.workers() == []
        runs = Counter()
        for path in tmp_path.glob("ran-*"):
            runs.update(line for line in path.read_text().splitlines() if line)
        again = check_runs(runs, campaign.in_flight_at_a_kill)
        record_property(
            "seen",
            f"{campaign.kills} workers, {2 * (ROUNDS - 1)} parents and "
            f"{SERVER_KILLS} times the server killed; {again} second runs",
        )
        assert campaign.kills >= 150
        app.close()


def check_runs(runs, in_flight_at_a_kill):
    """Each job has run, and an attempt ran again only if it was in flight at a kill."""
    ran = Counter()
    again = Counter()
    for line, times in runs.items():
        number, attempt = map(int, line.split())
        ran[number] = max(ran[number], attempt)
        again[number] += times - 1
    fails = (FAILS_FOR_GOOD, FAILS_ONCE)
    assert ran == {number: 2 if number % 10 in fails else 1 for number in range(JOBS)}
    unexplained = {
        number: times for number, times in again.items() if times > in_flight_at_a_kill[number]
    }
    assert unexplained == {}, "a job ran twice that was not in flight at a kill"
    return sum(again.values())
