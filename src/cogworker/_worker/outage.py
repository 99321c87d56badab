"""Says once that Redis is away or refuses, and once that it is back, not a line a second."""

import logging
import threading
from collections.abc import Callable

from cogworker import clock
from cogworker._engine.quarantine import is_wrong_type
from cogworker.errors import RedisUnavailable

REPEAT_S = 60.0


class Outage:
    """The state of one worker's way to the server, as far as its log has told it.

    ``on_damage`` is called when the server has refused a call because of a key of the wrong type.
    """

    def __init__(
        self, logger: logging.Logger, on_damage: Callable[[], None] = lambda: None
    ) -> None:
        self._logger = logger
        self._on_damage = on_damage
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._told: dict[tuple[str, str], float] = {}

    def is_on(self, site: str) -> bool:
        """Whether the last call of ``site`` got no answer, or a refusal."""
        return site in self._since

    def failed(self, site: str, error: Exception) -> None:
        """A call of ``site`` got no answer, or a refusal.

        Logged the first time, then once a minute; each of both, since one may follow the other.
        """
        now = clock.monotonic()
        what = "is away" if isinstance(error, RedisUnavailable) else "refuses"
        with self._lock:
            since = self._since.setdefault(site, now)
            tell = now - self._told.get((site, what), float("-inf")) >= REPEAT_S
            if tell:
                self._told[site, what] = now
        if is_wrong_type(error):
            self._on_damage()
        if tell:
            self._logger.warning(
                "redis %s, trying again: site=%s for_s=%.0f error=%s",
                what,
                site,
                now - since,
                error,
            )

    def worked(self, site: str) -> None:
        """A call of ``site`` was answered."""
        if site not in self._since:
            return
        with self._lock:
            since = self._since.pop(site, None)
            self._told = {told: at for told, at in self._told.items() if told[0] != site}
        if since is not None:
            self._logger.info(
                "redis is back: site=%s after_s=%.1f", site, clock.monotonic() - since
            )
