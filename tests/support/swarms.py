"""What can be seen of a swarm from outside."""

import re
import signal
from pathlib import Path

from support.processes import WorkerProcess

QUICK = {
    "heartbeat_interval": 0.4,  # presence then lasts five seconds: a busy machine may be slow
    "orphan_threshold": 2,
    "orphan_check_interval": 0.2,
    "poll_interval": 0.1,
    "shutdown_timeout": 20,
}


def children(pid: int) -> list[int]:
    """The processes that a process has started and not reaped."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def started(swarm: WorkerProcess, seat: int | None = None) -> list[int]:
    """The workers that it has started so far, in a seat or in all."""
    number = r"\d+" if seat is None else seat
    return [
        int(pid) for pid in re.findall(rf"worker started: pid=(\d+) seat={number}\n", swarm.log)
    ]


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter when it ends while it is read
        return False


def restart(swarm: WorkerProcess) -> None:
    """USR2, and wait for the restart's end."""
    ends = swarm.log.count("restart ends: ")
    swarm.signal(signal.SIGUSR2)
    swarm.wait_for("restart ends: ", times=ends + 1)
