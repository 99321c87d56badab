"""A job as it lies in Redis: one JSON object, the Ruby system's wire format.

A worker decodes only what it needs to run a job (``Envelope``). Whoever changes a payload
(``amend``) keeps every key it does not know and every value it does not change, byte for byte.
"""

import secrets
from typing import Any

import msgspec

from cogworker import clock
from cogworker.errors import InvalidPayload

UNPARSEABLE = "(unparseable)"
"""The class under which something that is not a job is kept among the dead."""

MOST_RAW_CHARACTERS = 100_000
MOST_MESSAGE_CHARACTERS = 10_000
MOST_TAGS = 20
MOST_TAG_CHARACTERS = 100

_NO_ARGS = msgspec.Raw(b"[]")
NO_KWARGS = msgspec.Raw(b"{}")


class Envelope(msgspec.Struct, gc=False, frozen=True):
    """What a worker reads of a payload. Unknown keys are left alone."""

    class_: str = msgspec.field(name="class")
    jid: str
    args: msgspec.Raw = _NO_ARGS
    kwargs: msgspec.Raw = NO_KWARGS
    retry: Any = True
    retry_count: Any = 0
    orphaned: Any = 0
    at_most_once: Any = False
    unique: Any = None
    lock: Any = None
    lock_waits: Any = 0
    history: Any = None
    expires_at: Any = None
    tags: Any = None
    status: Any = None


NOT_A_JOB = Envelope(UNPARSEABLE, "")
"""Stands for what is no job, wherever one is told of."""

_NULL = msgspec.Raw(b"null")

_envelopes = msgspec.json.Decoder(Envelope)
_raw_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_routes = msgspec.json.Decoder(dict[str, Any])
_encoder = msgspec.json.Encoder()
encode = _encoder.encode


def new_jid() -> str:
    """A job id: 24 random hex digits."""
    return secrets.token_hex(12)


def parse(payload: bytes) -> Envelope:
    """Read a payload. Raises InvalidPayload with the reason."""
    try:
        return _envelopes.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidPayload(_reason(error)) from error


def destination(payload: bytes) -> tuple[Envelope, str]:
    """A waiting job, and the queue it goes to. Raises InvalidPayload when it can't be read."""
    return parse(payload), queue_of(payload)


def queue_of(payload: bytes) -> str:
    """The queue that a payload names. Raises InvalidPayload."""
    try:
        queue = msgspec.json.decode(_raw_objects.decode(payload)["queue"])
    except (KeyError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidPayload("it names no queue") from error
    if not isinstance(queue, str) or not queue:
        raise InvalidPayload(f"its queue is {queue!r}, not a name")
    return queue


def amend(
    payload: bytes,
    changes: dict[str, Any],
    *,
    missing: dict[str, Any] | None = None,
    drop: tuple[str, ...] = (),
) -> bytes:
    """The payload with some keys changed, set where ``missing``, or dropped.

    What is null is missing, and so is what is no text where one belongs. Raises InvalidPayload when
    some part, even one that nobody asked for, can't be read.
    """
    try:
        fields: dict[str, Any] = _raw_objects.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidPayload(_reason(error)) from error
    for key in drop:
        fields.pop(key, None)
    for key, value in (missing or {}).items():
        if _is_missing(bytes(fields.get(key, _NULL)), value):
            fields[key] = value
    fields.update(changes)
    return encode(fields)


def _is_missing(raw: bytes, value: Any) -> bool:
    return raw == b"null" or (isinstance(value, str) and (raw[:1] != b'"' or raw == b'""'))


def wrap_unparseable(payload: bytes, queue: str | None, problem: Exception, now: float) -> bytes:
    """What is kept among the dead in place of something that is not a job."""
    return encode(
        {
            "class": UNPARSEABLE,
            "args": [],
            "jid": new_jid(),
            "queue": queue,
            "retry": False,
            "retry_count": 0,
            "enqueued_at": now,
            "failed_at": now,
            **described(problem),
            "raw_payload": payload.decode("utf-8", "replace")[:MOST_RAW_CHARACTERS],
        }
    )


def described(problem: Exception) -> dict[str, str]:
    """What is kept of why something is no job."""
    return {
        "error_class": type(problem).__name__,
        "error_message": str(problem)[:MOST_MESSAGE_CHARACTERS],
    }


def failures(job: Envelope) -> int:
    """How often a job has failed, whoever wrote its payload."""
    count = job.retry_count
    return count if type(count) is int and count > 0 else 0


def expires_at(job: Envelope) -> float | None:
    """When it is too late to run a job, epoch seconds; None: never, or it says nothing sensible."""
    moment = job.expires_at
    return float(moment) if clock.is_seconds(moment) and moment > 0 else None


def is_over(job: Envelope, at: float) -> bool:
    """Whether it is too late, at a time, to run a job."""
    moment = expires_at(job)
    return moment is not None and moment <= at


def tags(job: Envelope) -> tuple[str, ...]:
    """A job's tags, whoever wrote its payload."""
    if not isinstance(job.tags, list):
        return ()
    return tuple(tag for tag in job.tags if isinstance(tag, str))


def label(envelope: Envelope) -> str:
    """A job's name and id for a log line, escaped."""
    return one_line(f"jid={envelope.jid} job={envelope.class_}")


def one_line(text: str) -> str:
    """A text for a log line: what can't be seen, as a line's end or half a character, escaped."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def excerpt(payload: bytes) -> str:
    """The first 200 characters of a payload, escaped, for a log line."""
    return ascii(payload[:800].decode("utf-8", "replace")[:200])


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"it is not a job's JSON object: {error}"
