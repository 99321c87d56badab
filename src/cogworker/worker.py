"""Run a worker in this process: as its main purpose, or beside something else."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Mapping
from typing import Any, Self

from cogworker._worker.host import Host
from cogworker._worker.launcher import Ending, Launcher
from cogworker.client import Client
from cogworker.config import Config
from cogworker.errors import CogworkerError
from cogworker.job import Job
from cogworker.timetable import Timetable


class Worker:
    """A worker in this process, made by ``cog.worker()``. It runs once.

    Either ``run`` it in this thread, or have it run beside something else, in a thread of its
    own, without signal handlers::

        with cog.worker(concurrency=2):      # or: async with
            ...
    """

    def __init__(
        self,
        client: Client,
        jobs: Mapping[str, Job[..., Any]],
        timetable: Timetable,
        config: Config,
        host: Host | None = None,
    ) -> None:
        self._made_of = (client, jobs, timetable, config, host or Host())
        self._has_run = False
        self._asked_to_stop = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @functools.cached_property
    def _launcher(self) -> Launcher:
        """Made when it is needed: it must be this process's own, and a fork may come before."""
        return Launcher(*self._made_of)

    @property
    def identity(self) -> str:
        """The worker's name, ``host:pid:random``."""
        return self._launcher.identity

    def prepare(self) -> None:
        """Put it together. ``run`` and ``start`` do it, too. Raises ConfigError."""
        self._launcher  # noqa: B018 - it is made by being asked for

    def run(self, *, lifeline: int | None = None) -> Ending:
        """Run until a TERM or INT signal has stopped it; see ``_worker.launcher`` for the order.

        TSTP makes it quiet, CONT resumes, TTIN logs all stacks, a second TERM or INT does not
        wait for running jobs. In a thread other than the main one signals are left alone, and
        ``stop`` ends it. ``lifeline`` is the file number of a pipe's reading end, whose other end
        is a parent's: it stops when that is closed, by the parent's death for example. TERM and INT
        then ask for one stop together, and a byte in the pipe for not waiting any longer.
        """
        self._begin()
        requests = self._launcher.requests
        if lifeline is not None:
            requests.obey_parent(lifeline)
        is_main = threading.current_thread() is threading.main_thread()
        with contextlib.ExitStack() as stack:
            stack.callback(requests.close)
            if is_main:
                stack.enter_context(requests.from_signals())
            return self._launcher.run()

    def start(self) -> None:
        """Run in a thread of its own; the process's signals are left alone."""
        self._begin()
        self._thread = threading.Thread(target=self._run_beside, name="cogworker-main", daemon=True)
        self._thread.start()

    def wait_until_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until it takes jobs; False when the time was up first, or it has ended.

        Without Redis it does not get there, and goes on trying.
        """
        self._launcher.is_decided.wait(timeout_s)
        return self._launcher.is_ready

    def stop(self) -> None:
        """Ask it to stop, from any thread; a second time: not to wait for running jobs."""
        self._launcher.requests.put("hurry" if self._asked_to_stop else "stop", "stop()")
        self._asked_to_stop = True

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of one that was started; False when the time was up first.

        Raises what ended it, if that was an error.
        """
        if self._thread is None:
            raise CogworkerError("this worker was not started; call start() first")
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await asyncio.to_thread(self.join)

    def _begin(self) -> None:
        if self._has_run:
            raise CogworkerError("this worker has run already; make another one")
        self.prepare()
        self._has_run = True

    def _run_beside(self) -> None:
        try:
            self._launcher.run()
        except BaseException as error:  # raised again by ``join``
            self._error = error
        finally:
            self._launcher.is_decided.set()
            self._launcher.requests.close()
