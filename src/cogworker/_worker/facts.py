"""What a worker tells of itself with each beat."""

import os
import resource
import secrets
import socket
import sys
from collections.abc import Sequence
from typing import Any

from cogworker import clock
from cogworker._engine.replies import text
from cogworker._version import __version__
from cogworker._worker.delivery import Delivery
from cogworker.config import Config
from cogworker.payload import encode


def new_identity() -> str:
    """A name for this process: ``host:pid:random``. Made after a fork, never before."""
    return f"{hostname()}:{os.getpid()}:{secrets.token_hex(6)}"


def hostname() -> str:
    """The name of this machine or container."""
    return os.environ.get("DYNO") or socket.gethostname()


def host_of(identity: str) -> str:
    """The host of a worker, which may have colons itself."""
    return identity.rsplit(":", 2)[0]


def fixed_facts(identity: str, config: Config) -> dict[str, Any]:
    """What does not change while a worker lives."""
    return {
        "identity": identity,
        "hostname": host_of(identity),
        "pid": int(identity.rsplit(":", 2)[1]),
        "concurrency": config.concurrency,
        "queues": dict(config.queues),
        "labels": list(config.labels),
        "started_at": clock.wall(),
        "version": __version__,
    }


def presence_facts(
    fixed: dict[str, Any], running: Sequence[Delivery], quiet: bool
) -> dict[str, str]:
    """The fields of a beat: ``info`` (JSON), ``busy``, ``quiet`` and ``began``.

    ``began`` is JSON, too: when each of the deliveries began that run now, by tag.
    """
    info = encode({**fixed, "rss_kb": resident_kb()}).decode()
    offset_s = clock.wall() - clock.monotonic()
    began = {text(each.tag): round(each.started_at + offset_s, 3) for each in running}
    return {
        "info": info,
        "busy": str(len(running)),
        "quiet": "true" if quiet else "false",
        "began": encode(began).decode(),
    }


def resident_kb() -> int | None:
    """Resident memory of the process in KiB; None when the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize() // 1024
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak
