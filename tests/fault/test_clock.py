"""The clock of a host is set back or forward by an hour, under the server or under a worker."""

import glob
import os
import time

import pytest

from cogworker import Cogworker
from cogworker.inspector import Inspector

from support.processes import eventually
from support.server import server

pytestmark = pytest.mark.long

QUICK = {
    "heartbeat_interval": 0.4,
    "orphan_threshold": 10,
    "orphan_check_interval": 0.2,
    "poll_interval": 0.1,
    "shutdown_timeout": 20,
}
HOUR = 3600


class Clock:
    """The wall clock of the processes started with ``environment``; their waits are not faked."""

    def __init__(self, file):
        found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        assert found, "install libfaketime (Debian: faketime)"
        self._file = file
        self.environment = {
            "LD_PRELOAD": found[0],
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.set(0)

    def set(self, seconds):
        """Let it go wrong by that much."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+}s\n")
        os.replace(new, self._file)  # a half written file would be another time


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path / "clock")


@pytest.fixture
def own(tmp_path, clock, monkeypatch):
    with server(tmp_path) as own:
        with monkeypatch.context() as patch:
            for name, value in clock.environment.items():
                patch.setenv(name, value)
            own.start()
        yield own


@pytest.fixture
def held(own, workers, tmp_path, namespace):
    """An application with a worker whose job runs until the file ``hold`` goes."""
    workers.write(
        f"""
import os, time
@cog.job
def job():
    with open({str(tmp_path / "ran")!r}, "a") as file:
        file.write("x\\n")
    while os.path.exists({str(tmp_path / "hold")!r}):
        time.sleep(0.01)
"""
    )
    (tmp_path / "hold").touch()
    app = Cogworker(redis_url=own.url, namespace=namespace)
    settings = {**QUICK, "redis_url": own.url}
    for _ in range(2):
        workers.start("-c", "1", **settings)
    app.push({"class": "tasks.job"})
    eventually((tmp_path / "ran").exists)
    yield app
    app.close()


def beats_again(look, own, app):
    """Wait until all workers have beaten twice since now, and have searched for dead ones."""
    names = [name.encode() for name in look.identities()]
    for _ in range(2):
        before = {name: own.client.zscore(app.client.keys.workers, name) for name in names}
        eventually(
            lambda before=before: all(
                own.client.zscore(app.client.keys.workers, name) not in (None, beat)
                for name, beat in before.items()
            )
        )


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_when_the_server_s_clock_jumps_no_live_worker_is_taken_for_dead(
    jump, held, own, clock, workers, tmp_path
):
    look = Inspector(held)
    assert len(look.workers()) == 2
    beats_again(look, own, held)  # so that both have watched each other
    clock.set(jump)
    eventually(lambda: abs(own.client.time()[0] - time.time()) > HOUR / 2)
    beats_again(look, own, held)
    clock.set(0)
    beats_again(look, own, held)
    held.push({"class": "tasks.job"})
    (tmp_path / "hold").unlink()
    eventually(lambda: look.stats().processed == 2)

    assert (tmp_path / "ran").read_text() == "x\nx\n", "a job ran twice though nobody died"
    assert look.stats() == (2, 0, 0, 0, 0, 0, 0, 0, 0)
    for worker in workers.started:
        assert "rescued" not in worker.log
        assert worker.stop() == 0
    assert look.workers() == []


def test_a_worker_that_dies_before_the_clock_is_set_back_is_rescued_when_it_has_caught_up(
    held, own, clock, workers, tmp_path
):
    look = Inspector(held)
    [doomed] = [
        worker
        for worker in workers.started
        if any(f":{worker.pid}:" in name and look.held(name) for name in look.identities())
    ]
    [other] = [worker for worker in workers.started if worker is not doomed]
    doomed.kill()
    clock.set(-HOUR)
    own.client.ping()
    assert look.stats().in_flight == 1, "its job is where it was"
    (tmp_path / "hold").unlink()
    clock.set(0)
    other.wait_for("rescued: jobs=1")
    eventually(lambda: look.stats().processed == 1)

    assert (tmp_path / "ran").read_text() == "x\nx\n", "once when its worker was killed, and again"
    assert other.stop() == 0
    assert look.stats() == (1, 0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_worker_s_own_clock_decides_nothing(jump, own, clock, workers, tmp_path, namespace):
    workers.write(
        f"""
from cogworker import RetryPolicy
@cog.job(retry=RetryPolicy(1, delay=(0.3,)))
def job():
    with open({str(tmp_path / "ran")!r}, "a") as file:
        file.write("x\\n")
    if current_job().attempt == 1:
        raise ValueError
"""
    )
    app = Cogworker(redis_url=own.url, namespace=namespace)
    settings = {**QUICK, "redis_url": own.url}
    clock.set(0)
    wrong = Clock(tmp_path / "wrong")
    wrong.set(jump)
    one = workers.start(**settings, environ=wrong.environment)
    two = workers.start("-q", "none", **settings)
    look = Inspector(app)
    app.push({"class": "tasks.job"})
    eventually(lambda: look.stats().processed == 1)
    beats_again(look, own, app)

    assert (tmp_path / "ran").read_text() == "x\nx\n"
    assert look.stats() == (1, 1, 0, 0, 0, 0, 0, 0, 0)
    assert "rescued" not in one.log + two.log
    assert one.stop() == 0
    assert two.stop() == 0
    app.close()
