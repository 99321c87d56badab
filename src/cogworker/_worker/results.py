"""Keeps what a run has returned, for its job's status.

A run that has succeeded is never undone by what comes after it: a value that can't be kept is left
out, and the status says why.
"""

import contextlib
import logging
from typing import Any

from cogworker import payload
from cogworker._worker import failure
from cogworker._worker.delivery import Delivery
from cogworker.errors import InvalidArguments

logger = logging.getLogger("cogworker.worker")

MOST_RESULT_BYTES = 65_536
"""A thousand runs may be settled in one call."""


def keep(delivery: Delivery, value: Any) -> None:
    """Note what a run has returned, or why that can't be kept."""
    problem = _encode(delivery, value)
    if not problem:
        return
    delivery.no_result = problem[: payload.MOST_MESSAGE_CHARACTERS]
    with contextlib.suppress(Exception):  # a filter of the application must not undo a run
        logger.warning(
            "the result is not kept: %s problem=%s",
            payload.label(delivery.envelope),
            payload.one_line(problem[:500]),
        )


def _encode(delivery: Delivery, value: Any) -> str:
    """Note the value as JSON; answers with why not, if not."""
    assert delivery.job is not None  # noqa: S101 - it has run
    try:
        encoded = delivery.job.codec.encode_result(value)
    except InvalidArguments as error:
        return f"{error.path} {error.problem}"
    except Exception as error:  # the value's own code, which may do anything
        return f"the result can't be written down: {failure.message_of(error)}"
    if len(encoded) > MOST_RESULT_BYTES:
        return (
            f"the result has {len(encoded):,} bytes, over the limit of {MOST_RESULT_BYTES:,}; "
            f"store the data elsewhere and return a reference"
        )
    delivery.result = encoded
    return ""
