"""Run a worker."""

import contextlib
import threading

from cogworker._worker.launcher import Launcher
from cogworker.app import Cogworker
from cogworker.errors import CogworkerError


class Worker:
    """A worker in this process, for the jobs and settings of an application. It runs once."""

    def __init__(self, app: Cogworker) -> None:
        self._launcher = Launcher(app.client, app.jobs)
        self._has_run = False

    @property
    def identity(self) -> str:
        """The worker's name, ``host:pid:random``."""
        return self._launcher.identity

    def run(self) -> None:
        """Run until a TERM or INT signal has stopped it; see ``_worker.launcher`` for the order.

        TSTP makes it quiet, CONT resumes, TTIN logs all stacks, a second TERM or INT does not
        wait for running jobs. In a thread other than the main one signals are left alone, and
        ``stop`` ends it.
        """
        if self._has_run:
            raise CogworkerError("this worker has run already; make another one")
        self._has_run = True
        requests = self._launcher.requests
        is_main = threading.current_thread() is threading.main_thread()
        with requests.from_signals() if is_main else contextlib.nullcontext():
            self._launcher.run()
        requests.close()

    def stop(self) -> None:
        """Ask it to stop, from any thread; ``run`` returns when it has."""
        self._launcher.requests.put("stop")
