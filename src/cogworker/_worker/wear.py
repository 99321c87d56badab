"""Notices when a worker has lived long enough: ``max_jobs`` and ``max_rss``.

A limit on memory below what the worker has when it begins would have it replaced for ever: such a
limit is an error in the log, and is ignored.
"""

import logging
from collections.abc import Callable

from cogworker._worker.facts import resident_kb
from cogworker.config import Config

logger = logging.getLogger("cogworker.worker")


NO_LIMIT = 10**18


class Wear:
    """Calls ``on_worn_out`` once, with the reason, when one of the two limits is reached.

    It answers whether the worker ends now, or goes on until somebody replaces it.
    """

    def __init__(self, config: Config, on_worn_out: Callable[[str], bool]) -> None:
        self._max_jobs = config.max_jobs
        self._ran = 0
        self._max_rss = config.max_rss
        self._on_worn_out = on_worn_out
        self._told = False
        self._has_checked = False
        self._ends = True

    def ran(self, jobs: int) -> None:
        """Note that runs have ended here."""
        self._ran += jobs
        if self._max_jobs is not None and self._ran >= self._max_jobs:
            self._tell(f"max_jobs jobs={self._ran} limit={self._max_jobs}")

    @property
    def jobs_left(self) -> int:
        """How many more may be begun; a worker that goes on though it is worn out has no limit."""
        if self._max_jobs is None or (self._told and not self._ends):
            return NO_LIMIT
        return max(0, self._max_jobs - self._ran)

    def check_memory(self) -> None:
        """Look at the process's memory; the first time before any job has run."""
        if self._max_rss is None:
            return
        rss = (resident_kb() or 0) * 1024
        is_first, self._has_checked = not self._has_checked, True
        if rss <= self._max_rss:
            return
        if is_first:
            logger.error(
                "max_rss is less than this worker needs to start, and is ignored; raise it: "
                "rss=%d max_rss=%d",
                rss,
                self._max_rss,
            )
            self._max_rss = None
        else:
            self._tell(f"max_rss rss={rss} limit={self._max_rss}")

    def _tell(self, reason: str) -> None:
        if not self._told:
            self._told = True
            logger.info("worn out: reason=%s", reason)
            self._ends = self._on_worn_out(reason)
