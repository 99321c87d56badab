"""What surrounds a worker, and wants to know how it fares.

A worker tells its host when it is ready, that it is well, that it stops, and when it is worn out.
The host of an embedded worker is this one, which does not care; ``systemd.py`` has the one of the
command line, and a swarm's parent hears of its workers through another one.
"""

import logging

logger = logging.getLogger("cogworker.worker")


class Host:
    """A host that does not care."""

    pulse_s: float | None = None
    """How often it wants to hear ``well``, in seconds; None for never."""

    def ready(self) -> None:
        """The worker has beaten for the first time and takes jobs."""

    def well(self) -> None:
        """The worker's duties go on."""

    def stopping(self) -> None:
        """The worker has begun to stop."""

    def worn_out(self, reason: str) -> bool:
        """The worker has reached ``max_jobs`` or ``max_rss``; answers whether it should stop."""
        logger.warning("a worker that is worn out ends, and nobody here replaces it: %s", reason)
        return True
