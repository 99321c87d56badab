"""A swarm's worker: how it is forked, and how it lives.

1. The parent makes two pipes: one on which the worker tells it how it fares, and a *lifeline*, of
   which the parent holds the writing end as long as it lives. It forks with its signals blocked.
2. The child lets go of all that is the parent's: handlers, files, the service manager. From then
   on a TERM ends it at once, until its worker takes the signals; a TSTP waits for the worker.
3. It imports the application and runs a worker, which stops when the lifeline breaks.
4. It tells by its exit status whether somebody should come after it, and never returns.
"""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple, NoReturn

from cogworker._worker.host import Host
from cogworker._worker.leave import leave
from cogworker.app import Cogworker
from cogworker.errors import CogworkerError
from cogworker.swarm.signals import SIGNALS
from cogworker.worker import Worker

logger = logging.getLogger("cogworker.swarm")

Work = Callable[[], AbstractContextManager[Cogworker]]
"""Has an application ready as long as a block lasts; called in the child."""

CRASHED = 1
UNUSABLE = 2
"""Exit status of a child whose application or settings can't be used."""
RETIRED = 86
"""Exit status of a worker that was told from afar to go, and has no successor."""

_WAIT_FOR_WORKER = {signal.SIGTSTP, signal.SIGTTIN}
"""Their default is to stop the process, in the middle of whatever it imports."""


class Child(NamedTuple):
    """A child as its parent sees it: its messages come on one pipe, the other is its lifeline."""

    pid: int
    messages: int
    lifeline: int


class Reporter(Host):
    """Tells the parent how a worker fares, a line a message."""

    def __init__(self, pipe: int, shutdown_timeout_s: float) -> None:
        self._pipe = pipe
        self._shutdown_timeout_s = shutdown_timeout_s

    def ready(self) -> None:
        """Say that it works, and how long its stop may take, which the parent can't know."""
        self._tell(f"ready {self._shutdown_timeout_s}")

    def worn_out(self, reason: str) -> bool:
        """Say so and go on: the parent replaces one worker at a time."""
        self._tell(f"worn {reason}")
        return False

    def _tell(self, words: str) -> None:
        with contextlib.suppress(OSError):  # the parent is dead: the lifeline tells
            os.write(self._pipe, f"{words}\n".encode())


def fork(work: Work, parent_files: Iterable[int]) -> Child:
    """Fork a worker, which closes the parent's files. Raises OSError."""
    messages, reports = os.pipe()
    lifeline, held = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or both would write what is in the buffer
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _live(work, [*parent_files, messages, held], reports, lifeline)
    except OSError:
        os.close(messages)
        os.close(held)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(reports)
        os.close(lifeline)
    os.set_blocking(messages, False)
    return Child(pid, messages, held)


def _live(work: Work, parent_files: Iterable[int], reports: int, lifeline: int) -> NoReturn:
    status = CRASHED
    try:
        _let_go(parent_files)
        status = _work(work, reports, lifeline)
    except BaseException:
        logger.exception("can't run a worker")
    finally:
        leave(status)


def _let_go(parent_files: Iterable[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    # It is for the parent, but whoever looks for processes by their command finds the workers, too.
    signal.signal(signal.SIGUSR2, lambda *_: None)
    for file in parent_files:
        os.close(file)
    os.environ.pop("NOTIFY_SOCKET", None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS - _WAIT_FOR_WORKER)


def _work(work: Work, reports: int, lifeline: int) -> int:
    with contextlib.ExitStack() as stack:
        try:
            app = stack.enter_context(work())
        except CogworkerError as error:
            logger.error("can't start a worker: error=%s", error)
            return UNUSABLE
        host = Reporter(reports, app.config.shutdown_timeout)
        ending = Worker(app.client, app.jobs, app.config, host).run(lifeline=lifeline)
        # What is left is to write out what was printed.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    return RETIRED if ending == "retire" else 0
