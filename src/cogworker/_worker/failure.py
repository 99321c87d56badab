"""An exception as it is kept in a payload. Nothing that an exception does can stop this."""

import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from cogworker import clock, payload
from cogworker.errors import InvalidPayload
from cogworker.payload import MOST_MESSAGE_CHARACTERS

MOST_BACKTRACE_LINES = 200
MOST_CHARACTERS_A_LINE = 1000
_OURS = str(Path(__file__).parents[1])


def describe(error: BaseException) -> dict[str, Any]:
    """The error's class, message and stack trace, each of bounded size."""
    return {
        "error_class": class_of(error),
        "error_message": message_of(error),
        "error_backtrace": _backtrace(error),
    }


def record(job: bytes, queue: str, described: dict[str, Any], **changes: Any) -> bytes:
    """A payload with the error that a job ended with; one that can't be read is wrapped."""
    now = clock.wall()
    try:
        return payload.amend(job, {**described, **changes}, missing={"failed_at": now})
    except InvalidPayload as problem:
        return payload.wrap_unparseable(job, queue, problem, now)


def class_of(error: BaseException) -> str:
    """The qualified name of the error's class, without ``builtins``."""
    try:
        return _clean(_qualified(type(error))[:MOST_CHARACTERS_A_LINE])
    except BaseException:  # a metaclass is the job's code, too
        return "(unknown)"


def _qualified(kind: type) -> str:
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def message_of(error: BaseException) -> str:
    """The error's text, cut to 10,000 characters."""
    try:
        return _clean(str(error)[:MOST_MESSAGE_CHARACTERS])
    except BaseException as second:  # its __str__ is the job's code: it may raise anything
        return f"(the message can't be read: its __str__ raised {type(second).__name__})"


def _backtrace(error: BaseException) -> list[str]:
    try:
        lines = [
            line
            for entry in traceback.format_tb(
                _of_application(error.__traceback__), limit=-MOST_BACKTRACE_LINES
            )
            for line in _clean(entry).rstrip("\n").split("\n")
        ]
    except BaseException as second:  # __traceback__ may be the job's code, a source file anything
        return [f"(the stack trace can't be shown: {type(second).__name__})"]
    return [line[:MOST_CHARACTERS_A_LINE] for line in lines[-MOST_BACKTRACE_LINES:]]


def _of_application(trace: TracebackType | None) -> TracebackType | None:
    """A trace without our own frames at its top: what the job did is of interest."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def _clean(text: str) -> str:
    """Without lone surrogates, which JSON in UTF-8 can't hold."""
    return text.encode("utf-8", "backslashreplace").decode()
