"""A job on its way through the client middlewares.

``Job.enqueue`` and ``Cogworker.push`` come through here when there are any, before arguments are
encoded and a lock is named: what a middleware has changed is what is checked, locked and pushed.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cogworker import clock
from cogworker._kinds import Refusal, check_queue_name
from cogworker.codec import encode_json
from cogworker.errors import EnqueueError
from cogworker.middleware import Link, OutgoingJob, name_of
from cogworker.retry import policy_of

logger = logging.getLogger("cogworker.middleware")


def send_through(links: Sequence[Link], job: OutgoingJob) -> OutgoingJob | None:
    """A job as client middlewares have changed it; None when one of them has stopped it.

    Raises EnqueueError: that of a middleware, or one caused by what else a middleware raised.
    """
    for link in links:
        try:
            answer = link(job)
        except EnqueueError:
            raise
        except Exception as error:
            raise EnqueueError(
                f"{job.name}: the client middleware {name_of(link.middleware)} failed: {error}"
            ) from error
        if answer is None:
            logger.info(
                "stopped by a client middleware: jid=%s job=%s middleware=%s",
                *(job.jid, job.name, name_of(link.middleware)),
            )
            return None
        _check(job, answer, link)
        job = answer
    return job


_NOT_SHOWN = ("class", "created_at", "enqueued_at")
_OWN_FIELDS = frozenset({*("jid", "queue", "retry", "args", "kwargs", "at"), *_NOT_SHOWN})


def encoded_fields(job: OutgoingJob, before: Mapping[str, Any]) -> dict[str, Any]:
    """A job's fields, as JSON where they are not as before. Raises InvalidArguments."""
    return {
        key: value
        if key in before and before[key] is value
        else msgspec.Raw(encode_json(value, key, job.name))
        for key, value in job.fields.items()
    }


def outgoing(fields: Mapping[str, Any]) -> OutgoingJob:
    """A payload that is pushed as it is, as client middlewares see it."""
    own = {key: fields[key] for key in ("jid", "queue", "retry", "args", "at") if key in fields}
    rest = {key: value for key, value in fields.items() if key not in _OWN_FIELDS}
    return OutgoingJob(name=fields["class"], kwargs=fields.get("kwargs") or {}, fields=rest, **own)


def payload_fields(job: OutgoingJob, before: Mapping[str, Any]) -> dict[str, Any]:
    """A payload after client middlewares."""
    fields = {key: before[key] for key in _NOT_SHOWN if key in before}
    fields |= {"jid": job.jid, "queue": job.queue, "retry": job.retry, "args": list(job.args)}
    if job.kwargs:
        fields["kwargs"] = dict(job.kwargs)
    if job.at is not None:
        fields["at"] = job.at
    return {**fields, **job.fields}


def _check(job: OutgoingJob, answer: Any, link: Link) -> None:
    problem = (
        _problem_of_call(job, answer) or _problem_of_payload(answer)
        if isinstance(answer, OutgoingJob)
        else f"answers with the job or None, not with {answer!r:.100}"
    )
    if problem:
        raise EnqueueError(
            f"{job.name}: the client middleware {name_of(link.middleware)} {problem}"
        )


def _problem_of_call(job: OutgoingJob, answer: OutgoingJob) -> str | None:
    if (answer.jid, answer.name) != (job.jid, job.name):
        return "may change neither jid nor name"
    if not isinstance(answer.args, list | tuple) or not isinstance(answer.kwargs, Mapping):
        return f"has set args={answer.args!r:.50} and kwargs={answer.kwargs!r:.50}"
    if not all(each is None or clock.is_seconds(each) for each in (answer.at, answer.delay_s)):
        return f"has set at={answer.at!r}, delay_s={answer.delay_s!r}; each is seconds or None"
    if answer.delay_s is not None and answer.delay_s < 0:
        return f"has set delay_s={answer.delay_s!r}; it is 0 or more"
    if answer.at is not None and answer.delay_s is not None:
        return "may set at or delay_s, not both"
    return None


def _problem_of_payload(answer: OutgoingJob) -> str | None:
    try:
        check_queue_name(answer.queue)
        policy_of(answer.retry)
    except (Refusal, ValueError) as error:
        return f"has set what can't be: {error}"
    if not isinstance(answer.fields, Mapping):
        return f"has set fields={answer.fields!r:.50}"
    for key in answer.fields:
        if not isinstance(key, str) or key in _OWN_FIELDS:
            return f"may not set {key!r:.50} among the fields"
    return None
