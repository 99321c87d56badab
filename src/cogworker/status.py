"""Reads the status of a job, and waits for its result.

Waiting is to look, and to look again when the job's end was heard (``waiters.py``); every few
seconds anyway, in case it was not heard, or the status has expired.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from cogworker import clock
from cogworker._engine import look
from cogworker.client import Client
from cogworker.codec import decode_json
from cogworker.errors import (
    CogworkerError,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    NoStatus,
    RedisUnavailable,
    ResultNotKept,
    ResultTimeout,
)
from cogworker.features.status import CANCELLED, ENDED, FAILED, RESERVED
from cogworker.job import Job
from cogworker.waiters import Waiters

LOOK_AGAIN_S = 5.0
MOST_LOOKS = 20
"""How many of an event loop's waits look at the same time: each look needs a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What is known of a job.

    ``state`` is queued, scheduled, working, retrying, complete, failed or cancelled; ``updated_at``
    is in epoch seconds; ``name`` is the job's. ``attempt`` is the last run's number; ``pct`` and
    ``message`` are what it has told of its progress, ``fields`` what it has stored. ``result`` is
    what it returned, or ``no_result`` says why that was not kept. An error stays until a run
    succeeds. What is not known is None.
    """

    jid: str
    state: str
    updated_at: float | None = None
    name: str | None = None
    queue: str | None = None
    attempt: int | None = None
    pct: float | None = None
    message: str | None = None
    error_class: str | None = None
    error_message: str | None = None
    result: Any = None
    no_result: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether it does not run again by itself."""
        return self.state in ENDED

    def outcome(self) -> Any:
        """The result of a job that has ended. Raises what ``cog.result`` raises."""
        if self.state == FAILED:
            raise JobFailed(self.jid, self.name, self.error_class, self.error_message)
        if self.state == CANCELLED:
            raise JobCancelled(self.jid, self.name, self.error_class, self.error_message)
        if self.no_result is not None:
            raise ResultNotKept(self.jid, self.name, self.no_result)
        return self.result


class Statuses:
    """The statuses of one application's jobs; ``jobs`` know of what type their results are."""

    def __init__(self, client: Client, jobs: Mapping[str, Job[..., Any]]) -> None:
        self._client = client
        self._jobs = jobs
        self._waiters = Waiters(client)
        self._looks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    def get(self, jid: str | None) -> JobStatus | None:
        """The status of a job; None when there is none."""
        if jid is None:
            return None
        return self._read(jid, self._client.runner.run(look.status(self._client.keys, jid)))

    async def aget(self, jid: str | None) -> JobStatus | None:
        """The status of a job; None when there is none."""
        if jid is None:
            return None
        command = look.status(self._client.keys, jid)
        return self._read(jid, await self._client.async_runner.run(command))

    def wait(self, jid: str | None, timeout_s: float | None) -> JobStatus:
        """Wait until a job has ended. Raises NoStatus and ResultTimeout."""
        if jid is None:
            raise NoStatus(None)
        wait = _Wait(jid, timeout_s)
        _not_on_an_event_loop()
        status = self.get(jid)
        if wait.goes_on(status):
            rung = threading.Event()
            with self._waiters.ringing(jid, rung.set):
                while True:
                    try:
                        status = self.get(jid)
                    except RedisUnavailable as error:
                        status = wait.through_outage(status, error)
                    if not wait.goes_on(status):
                        break
                    rung.wait(wait.pause_s())
                    rung.clear()
        return wait.answer(status)

    async def await_(self, jid: str | None, timeout_s: float | None) -> JobStatus:
        """Wait until a job has ended. Raises NoStatus and ResultTimeout."""
        if jid is None:
            raise NoStatus(None)
        wait = _Wait(jid, timeout_s)
        status = await self._alook(jid)
        if wait.goes_on(status):
            rung = asyncio.Event()
            with self._waiters.ringing(jid, _from_afar(rung.set)):
                while True:
                    try:
                        status = await self._alook(jid)
                    except RedisUnavailable as error:
                        status = wait.through_outage(status, error)
                    if not wait.goes_on(status):
                        break
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(rung.wait(), wait.pause_s())
                    rung.clear()
        return wait.answer(status)

    async def _alook(self, jid: str) -> JobStatus | None:
        loop = asyncio.get_running_loop()
        looks = self._looks.get(loop)
        if looks is None:
            looks = self._looks[loop] = asyncio.Semaphore(MOST_LOOKS)
        async with looks:
            return await self.aget(jid)

    def _read(self, jid: str, raw: dict[str, bytes]) -> JobStatus | None:
        if "status" not in raw:
            return None
        texts = {name: value.decode("utf-8", "backslashreplace") for name, value in raw.items()}
        job = self._jobs.get(texts.get("class", ""))
        return JobStatus(
            jid=jid,
            state=texts["status"],
            updated_at=_number(texts.get("update_time")),
            name=texts.get("class"),
            queue=texts.get("queue"),
            attempt=_whole(texts.get("attempt")),
            pct=_number(texts.get("pct")),
            message=texts.get("message"),
            error_class=texts.get("error_class"),
            error_message=texts.get("error_message"),
            result=_result(raw["result"], job) if "result" in raw else None,
            no_result=texts.get("no_result"),
            fields={name: _value(raw[name]) for name in raw if name not in RESERVED},
        )


class _Wait:
    """One wait: when it is over, and with what."""

    def __init__(self, jid: str, timeout_s: float | None) -> None:
        if timeout_s is not None and not clock.is_seconds(timeout_s):
            raise CogworkerError(f"a time-out is a number of seconds, not {timeout_s!r:.100}")
        self._jid = jid
        self._timeout_s = timeout_s
        self._until = None if timeout_s is None else clock.monotonic() + timeout_s

    def goes_on(self, status: JobStatus | None) -> bool:
        """Whether to look again."""
        return status is not None and not status.ended and self.pause_s() > 0

    def pause_s(self) -> float:
        """How long to wait before the next look."""
        if self._until is None:
            return LOOK_AGAIN_S
        return min(LOOK_AGAIN_S, self._until - clock.monotonic())

    def through_outage(self, last: JobStatus | None, error: RedisUnavailable) -> JobStatus | None:
        """What was known before, as long as there is time to look again; raises ``error`` then."""
        if self.pause_s() <= 0:
            raise error
        return last

    def answer(self, status: JobStatus | None) -> JobStatus:
        """The end, after the last look."""
        if status is None:
            raise NoStatus(self._jid)
        if not status.ended:
            assert self._timeout_s is not None  # noqa: S101 - without it the wait goes on
            raise ResultTimeout(self._jid, status.name, status.state, self._timeout_s)
        return status


def _not_on_an_event_loop() -> None:
    """To wait there would stop all that the loop does, perhaps the very job that is waited for."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise CogworkerError(
        "result and wait_for would stop the event loop that runs here; "
        "await aresult or await_for instead"
    )


def _from_afar(ring: Callable[[], None]) -> Callable[[], None]:
    """The same for calls from other threads than the running event loop's."""
    loop = asyncio.get_running_loop()

    def ring_there() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
            loop.call_soon_threadsafe(ring)

    return ring_there


def _result(raw: bytes, job: Job[..., Any] | None) -> Any:
    """A result as the job's annotation says, if it is declared here and that fits."""
    if job is not None:
        with contextlib.suppress(CogworkerError):
            return job.codec.decode_result(raw)
    return _value(raw)


def _value(raw: bytes) -> Any:
    """A JSON value; what other software has written in another way, as a text."""
    try:
        return decode_json(raw)
    except InvalidPayload:
        return raw.decode("utf-8", "backslashreplace")


def _number(text: str | None) -> float | None:
    with contextlib.suppress(ValueError):
        return None if text is None else float(text)
    return None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return int(number) if number is not None and number.is_integer() else None
