"""How long a seat stays empty after its worker ended though nobody had asked for it."""

LONGEST_S = 60.0
HEALTHY_S = 30.0
"""A worker that lived this long was no part of a crash loop."""


class BackOff:
    """The pauses of one seat: 0, 1, 2, 4 … at most 60 seconds; a healthy run begins anew."""

    def __init__(self) -> None:
        self._crashes = 0

    def after(self, lived_s: float) -> float:
        """Note that a worker ended unasked; answers with the seconds until its successor starts."""
        if lived_s >= HEALTHY_S:
            self._crashes = 0
            return 0.0
        self._crashes += 1
        return 0.0 if self._crashes == 1 else min(2.0 ** min(self._crashes - 2, 10), LONGEST_S)

    def forget(self) -> None:
        """Begin anew: what runs next is not what crashed."""
        self._crashes = 0
