"""Notices when a worker has lived long enough: ``max_jobs`` and ``max_rss``."""

import logging
from collections.abc import Callable

from cogworker._worker.facts import resident_kb
from cogworker.config import Config

logger = logging.getLogger("cogworker.worker")


class Wear:
    """Calls ``on_worn_out`` once, with the reason, when one of the two limits is reached."""

    def __init__(self, config: Config, on_worn_out: Callable[[str], None]) -> None:
        self._jobs_left = config.max_jobs
        self._max_rss = config.max_rss
        self._on_worn_out = on_worn_out
        self._told = False

    def settled(self, jobs: int) -> None:
        """Note that jobs have ended here."""
        if self._jobs_left is not None:
            self._jobs_left -= jobs
            if self._jobs_left <= 0:
                self._tell("max_jobs")

    def check_memory(self) -> None:
        """Look at the process's memory."""
        if self._max_rss is None:
            return
        rss = (resident_kb() or 0) * 1024
        if rss > self._max_rss:
            self._tell(f"max_rss rss={rss} limit={self._max_rss}")

    def _tell(self, reason: str) -> None:
        if not self._told:
            self._told = True
            logger.info("worn out: reason=%s", reason)
            self._on_worn_out(reason)
