"""A periodic entry that may not meet itself, whatever happens to the workers that run it."""

import signal
from itertools import groupby

import pytest

from support.processes import eventually, lines
from support.swarms import QUICK

SWEEP = """
import os, pathlib, time
from cogworker import RetryPolicy, current_job
here = pathlib.Path({folder!r})
def note(word):
    with open(here / "ran", "a") as file:
        file.write(f"{{word}} {{current_job().jid}} {{os.getpid()}}\\n")
@cog.periodic(every=1, unique="until_executed")
@cog.job(retry=RetryPolicy(1, delay=(2,)))
def sweep():
    note("begins")
    try:
        (here / "fail").unlink()
    except FileNotFoundError:
        pass
    else:
        note("fails")
        raise ValueError("once")
    until, hold = time.monotonic() + 0.3, here / f"hold-{{os.getpid()}}"
    while time.monotonic() < until:
        time.sleep(0.01)
    if hold.exists():
        note("holds")
        while hold.exists():
            time.sleep(0.01)
    note("ends")
"""


@pytest.mark.long
def test_no_two_runs_of_an_entry_meet_though_workers_die_freeze_and_fail(workers, tmp_path, look):
    workers.write(SWEEP.format(folder=str(tmp_path)))
    ran, alive = tmp_path / "ran", [workers.start(**QUICK) for _ in range(2)]

    def running():
        """The job that runs now, held, and its worker."""
        for worker in alive:
            (tmp_path / f"hold-{worker.pid}").touch()
        eventually(lambda: lines(ran) and lines(ran)[-1].startswith("holds "))
        _, jid, pid = lines(ran)[-1].split()
        holder = next(worker for worker in alive if worker.pid == int(pid))
        return jid, holder

    def let_go(but=None):
        for worker in alive:
            if worker is not but:
                (tmp_path / f"hold-{worker.pid}").unlink(missing_ok=True)

    def ends_elsewhere(jid, pid):
        eventually(lambda: any(f"ends {jid} " in line and pid not in line for line in lines(ran)))

    killed_jid, killed = running()
    killed.kill()
    alive.remove(killed)
    let_go()
    alive.append(workers.start(**QUICK))
    ends_elsewhere(killed_jid, str(killed.pid))

    (tmp_path / "fail").touch()
    eventually(lambda: any(line.startswith("fails ") for line in lines(ran)))
    failed_jid = next(line for line in lines(ran) if line.startswith("fails ")).split()[1]
    eventually(lambda: any(line.startswith(f"ends {failed_jid} ") for line in lines(ran)))

    frozen_jid, frozen = running()
    frozen.freeze()
    let_go(but=frozen)
    ends_elsewhere(frozen_jid, str(frozen.pid))
    frozen.signal(signal.SIGCONT)
    frozen.wait_for(f"away: jid={frozen_jid}")
    let_go()
    before = len(lines(ran))
    eventually(lambda: len(lines(ran)) > before + 4)  # it goes on
    for worker in alive:
        assert worker.stop() == 0

    jids = [jid for jid, _ in groupby(line.split()[1] for line in lines(ran))]
    assert len(jids) == len(set(jids)), "a run began before the one of another time slot was over"
    words = [line.split()[0] for line in lines(ran)]
    assert words.count("begins") == words.count("ends") + 3, "killed, failed, frozen"
    assert list(look.locks()) == []
