"""A child of the swarm's parent, above all a worker: how it is forked, and how it lives.

1. The parent makes two pipes: one on which the child tells it what happens, and a *lifeline*, of
   which the parent holds the writing end as long as it lives. It forks with its signals blocked.
2. The child lets go of all that is the parent's: handlers, files, the service manager. From then
   on a TERM ends it at once, until its worker takes the signals; a TSTP waits for the worker.
3. It imports the application and runs a worker, which stops when the lifeline breaks.
4. It tells by its exit status whether somebody should come after it, and never returns.
"""

import contextlib
import json
import logging
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NoReturn

from cogworker._worker.host import Host
from cogworker._worker.leave import leave, write_out
from cogworker.app import Cogworker
from cogworker.errors import CogworkerError
from cogworker.swarm.signals import SIGNALS, is_ignored
from cogworker.worker import Worker

logger = logging.getLogger("cogworker.swarm")

Work = Callable[[], AbstractContextManager[Cogworker]]
"""Has an application ready as long as a block lasts; called in the child."""

CRASHED = 1
UNUSABLE = 2
"""Exit status of a child whose application or settings can't be used."""
LONGEST_ERROR = 8000
"""Characters of an error that reach the parent, which logs it: less than a pipe holds."""
RETIRED = 86
"""Exit status of a worker that was told from afar to go, and has no successor."""
MEANINGS = {CRASHED: "crashed", UNUSABLE: "unusable", RETIRED: "retired"}

_WAIT_FOR_WORKER = {signal.SIGTSTP, signal.SIGTTIN}
"""Their default is to stop the process, in the middle of whatever it imports."""

Body = Callable[[int, int], int]
"""What a child does, given the files of its messages and of its lifeline; its exit status."""


class Child:
    """A child as its parent sees it."""

    def __init__(self, pid: int, messages: int, lifeline: int) -> None:
        os.set_blocking(messages, False)
        self.pid = pid
        self.messages: int | None = messages
        """The file that its messages are read from; None when there will be no more."""
        self.files = (messages, lifeline)
        self._lifeline = lifeline
        self._rest = b""

    def hear(self) -> Iterator[tuple[str, str]]:
        """What it has said since the last time: a word, and what belongs to it."""
        if self.messages is None:
            return
        try:
            said = os.read(self.messages, 65536)
        except BlockingIOError:
            return
        if not said:
            self.messages = None
        *lines, self._rest = (self._rest + said).split(b"\n")
        for line in lines:
            word, _, fact = line.decode("utf-8", "backslashreplace").partition(" ")
            yield word, fact

    def hurry(self) -> None:
        """Tell a worker that was told to stop not to wait any longer."""
        with contextlib.suppress(BrokenPipeError):  # it has just ended
            os.write(self._lifeline, b"!")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: it is not reaped yet, so its number is nobody else's."""
        os.kill(self.pid, number)

    def close(self) -> None:
        """Close the pipes, when it has ended."""
        for file in self.files:
            os.close(file)


class Reporter(Host):
    """Tells the parent how a worker fares, a line a message."""

    def __init__(self, pipe: int, shutdown_timeout_s: float) -> None:
        self._pipe = pipe
        self._shutdown_timeout_s = shutdown_timeout_s

    def ready(self) -> None:
        """Say that it works, and how long its stop may take, which the parent can't know."""
        self._tell(f"ready {self._shutdown_timeout_s}")

    def stopping(self) -> None:
        """Say that it stops: the parent may not have asked it to."""
        self._tell("stopping")

    def worn_out(self, reason: str) -> bool:
        """Say so and go on: the parent replaces one worker at a time."""
        self._tell(f"worn {reason}")
        return False

    def _tell(self, words: str) -> None:
        tell(self._pipe, words)


def tell(pipe: int, words: str) -> None:
    """Send the parent a message, one line."""
    with contextlib.suppress(OSError):  # the parent is dead: the lifeline tells
        os.write(pipe, f"{words}\n".encode())


def fork(body: Body, parent_files: Iterable[int]) -> Child:
    """Fork a child, which closes the parent's files. Raises OSError."""
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        messages, reports = _pipe(ours, theirs)
        lifeline, held = _pipe(theirs, ours)
        write_out()  # or both processes would write it
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                _live(body, [*parent_files, messages, held], reports, lifeline)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ours.pop_all()
    return Child(pid, messages, held)


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe; each end is closed with the stack of who does not need it."""
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


def reap() -> Iterator[tuple[int, int]]:
    """The processes that have ended, with an exit code or, negative, by a signal.

    As process 1 of a container the parent adopts every orphan, and sees its end, too.
    """
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def _live(body: Body, parent_files: Iterable[int], reports: int, lifeline: int) -> NoReturn:
    status = CRASHED
    try:
        _let_go(parent_files)
        status = body(reports, lifeline)
    except BaseException:
        logger.exception("can't go on")
    finally:
        leave(status)


def _let_go(parent_files: Iterable[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        if not is_ignored(number):
            signal.signal(number, signal.SIG_DFL)
    # They are for the parent, but who looks for processes by their command finds the workers, too.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)
    for file in parent_files:
        os.close(file)
    os.environ.pop("NOTIFY_SOCKET", None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS - _WAIT_FOR_WORKER)


def work_off(work: Work, reports: int, lifeline: int) -> int:
    """Run a worker; the body of a worker's process."""
    with contextlib.ExitStack() as stack:
        try:
            app = stack.enter_context(work())
            host = Reporter(reports, app.config.shutdown_timeout)
            worker = Worker(app.client, app.jobs, app.timetable, app.config, host)
            worker.prepare()
        except CogworkerError as error:
            tell(reports, f"unusable {json.dumps(str(error)[:LONGEST_ERROR])}")
            return UNUSABLE
        ending = worker.run(lifeline=lifeline)
        # What is left is to write out what was printed.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    return RETIRED if ending == "retire" else 0
