"""Which silent workers have been silent under our own eyes.

A worker is dead when its presence has expired and its last beat is old, on the server's clock. When
that clock jumps, or the server was away, all workers look dead for a moment, until they have beaten
again. So nobody is rescued before a rescuer has itself seen no new beat for a while, on a clock of
its own, during which its own beats were answered.
"""

from collections.abc import Mapping


class Watch:
    """Remembers since when the beats of silent workers have not changed."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._seen: dict[str, tuple[float, float]] = {}
        self._dead: list[str] = []

    def look(
        self, beats: Mapping[str, float], answered_since: float | None, now: float
    ) -> list[str]:
        """Those that are dead, of all whose last beat is old.

        ``answered_since`` is the time since when our own beats have been answered, None when the
        last one was not.
        """
        if answered_since is None:
            self._seen, self._dead = {}, []
            return []
        before, self._seen = self._seen, {}
        for name, beat in beats.items():
            seen = before.get(name, (beat, now))
            self._seen[name] = seen if seen[0] == beat else (beat, now)
        since = {name: max(seen[1], answered_since) for name, seen in self._seen.items()}
        self._dead = [name for name, begin in since.items() if now - begin >= self._least_s]
        return self._dead

    @property
    def undecided(self) -> bool:
        """Whether some that were silent at the last look are not known to be dead."""
        return len(self._dead) < len(self._seen)
