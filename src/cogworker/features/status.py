"""A job's status: what has become of it, how far it is, what it returned.

For a job whose payload has ``status``, the seconds that it is kept after its last change. A hash
for each such job, written with every move of the job; ``progress.py`` is what a run itself adds.
The ends of these jobs are told in one short stream, for those who wait for them (``waiters.py``).
"""

from collections.abc import Iterable
from math import ceil

from cogworker import clock
from cogworker._engine.effects import Effect, forget, log, record
from cogworker._redis.command import Word
from cogworker._redis.keys import Keys
from cogworker.features.event import ENDS, Event, Kind
from cogworker.payload import Envelope, encode

QUEUED, SCHEDULED, WORKING, RETRYING = "queued", "scheduled", "working", "retrying"
COMPLETE, FAILED, CANCELLED = "complete", "failed", "cancelled"
ENDED = frozenset({COMPLETE, FAILED, CANCELLED})

LONGEST_KEPT_S = 100 * 366 * 86400
MOST_ENDS = 10_000
ENDS_KEPT_S = 60.0
"""How much of the stream of ends is kept: whoever waits reads it all the time."""

_ERROR = ("error_class", "error_message")
_PROGRESS = ("pct", "message")
_RESULT = ("result", "no_result")
RESERVED = frozenset(
    {"status", "update_time", "class", "queue", "attempt", *_ERROR, *_PROGRESS, *_RESULT}
)
"""Fields that are not a job's own."""

_STATES = {
    Kind.PUSHED: QUEUED,
    Kind.QUEUED: QUEUED,
    Kind.REVIVED: QUEUED,
    Kind.WORKING: WORKING,
    Kind.DONE: COMPLETE,
    Kind.RETRYING: RETRYING,
    Kind.RESCHEDULED: SCHEDULED,
    Kind.DEAD: FAILED,
    Kind.KILLED: CANCELLED,
    Kind.DISCARDED: CANCELLED,
    Kind.DELETED: CANCELLED,
}
_AGAIN = frozenset({Kind.QUEUED, Kind.REVIVED, Kind.RESCHEDULED})
"""The job waits for another run, and what an earlier one said of its progress is no longer true."""
_ANEW = frozenset({Kind.PUSHED, Kind.DELETED})
"""Nothing that was known of a job of that id is to stay."""


class Status:
    """Keeps the status; ``ttl_s`` is for payloads that ask for one without saying how long."""

    def __init__(self, keys: Keys, ttl_s: float) -> None:
        self._keys = keys
        self._ttl_s = ttl_s

    def effects(self, event: Event) -> Iterable[Effect]:
        """Write the job's status, and tell of its end."""
        ttl_s, kind = self.ttl_of(event.job), event.kind
        if ttl_s is None:
            return ()
        key, state = self._keys.status(event.job.jid), _STATES.get(kind)
        if kind is Kind.HELD:  # a run may take longer than its status is kept
            return (record(key, {}, ceil(ttl_s)),)
        if state is None:
            return ()
        if kind is Kind.PUSHED and event.wait_s > 0:
            state = SCHEDULED
        drop = _PROGRESS if kind in _AGAIN else _ERROR if kind is Kind.DONE else ()
        kept = record(key, _fields(event, state), ceil(ttl_s + event.wait_s), drop=drop)
        effects = [forget(key), kept] if kind in _ANEW else [kept]
        if kind in ENDS:
            ended = encode(event.job.jid)
            effects.append(log(self._keys.status_ends, ended, MOST_ENDS, ENDS_KEPT_S))
        return effects

    def ttl_of(self, job: Envelope) -> float | None:
        """How long a job's status is kept; None when it has none, or asks for it in no known way.

        Other software may write ``true`` into a payload, for as long as ``status_ttl`` says.
        """
        wanted = job.status
        if wanted is True:
            return self._ttl_s
        if clock.is_seconds(wanted) and 0 < wanted <= LONGEST_KEPT_S:
            return float(wanted)
        return None


def _fields(event: Event, state: str) -> dict[str, Word]:
    run, job = event.run, event.job
    fields: dict[str, Word] = {
        "status": state,
        "update_time": repr(clock.wall()),
        "class": job.class_,
        "queue": event.queue,
    }
    if run is not None:
        own = run.notes.items()
        fields["attempt"] = run.attempt
        fields |= {k: v for k, v in own if not (event.kind in _AGAIN and k in _PROGRESS)}
    error = event.reason if run is None or run.error is None else run.error
    if error is not None:
        fields |= {name: str(error[name]) for name in _ERROR}
    if event.kind is Kind.DONE and run is not None:
        if run.result is not None:
            fields["result"] = run.result
        else:
            fields["no_result"] = run.no_result
    return fields
