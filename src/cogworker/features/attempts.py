"""The attempts log: each failure of a job, with what came of it.

A list for each job that has failed, oldest first; it goes 30 days after the last failure, or when
the job is deleted.
"""

from collections.abc import Iterable
from typing import Any

from cogworker import clock
from cogworker._engine.effects import Effect, append, forget
from cogworker._redis.keys import Keys
from cogworker.features.event import Event, Kind
from cogworker.payload import encode, failures

MOST_ATTEMPTS = 25
KEPT_S = 30 * 86400
MOST_MESSAGE_CHARACTERS = 1000

_OUTCOMES = {Kind.RETRYING: "retrying", Kind.DEAD: "dead", Kind.DISCARDED: "discarded"}
_NO_ERROR = {"error_class": "", "error_message": ""}


class Attempts:
    """Notes failures. One that was killed by hand has the number of the last, and no error."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def effects(self, event: Event) -> Iterable[Effect]:
        """Append a failure, and that a job was killed; forget a deleted job's."""
        if event.kind is Kind.DELETED:
            return (forget(self._keys.attempts(event.job.jid)),)
        if event.kind is Kind.KILLED:
            entry = _entry(failures(event.job), "killed", _NO_ERROR)
            return (append(self._keys.attempts(event.job.jid), entry, MOST_ATTEMPTS, KEPT_S),)
        run, outcome = event.run, _OUTCOMES.get(event.kind)
        if run is None or run.error is None or outcome is None:
            return ()
        entry = _entry(run.attempt, "killed" if run.killed else outcome, run.error)
        return (append(self._keys.attempts(event.job.jid), entry, MOST_ATTEMPTS, KEPT_S),)


def _entry(attempt: int, outcome: str, error: dict[str, Any]) -> bytes:
    return encode(
        {
            "attempt": attempt,
            "failed_at": clock.wall(),
            "outcome": outcome,
            "error_class": error["error_class"],
            "error_message": error["error_message"][:MOST_MESSAGE_CHARACTERS],
        }
    )
