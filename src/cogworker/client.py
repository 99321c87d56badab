"""Enqueueing: from a draft to a job in Redis.

Every way to enqueue comes through here: number the job, build its payload, refuse what is too
large, push it. A push is sent again when its reply is lost and still makes one job: see ``Lane``.
"""

import os
import secrets
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from cogworker import clock
from cogworker._engine.moves import Moves, NewJob
from cogworker._engine.replies import Moved, Refused
from cogworker._redis.command import Command
from cogworker._redis.connection import Connector
from cogworker._redis.keys import Keys
from cogworker._redis.runner import AsyncRunner, Runner
from cogworker.config import Config
from cogworker.errors import (
    BulkRefused,
    CogworkerError,
    DuplicateJob,
    EnqueueError,
    PayloadTooLarge,
    RedisError,
    RedisRefused,
)
from cogworker.features import Features
from cogworker.features.transitions import Transitions
from cogworker.hooks import Hooks
from cogworker.middleware import Middleware
from cogworker.payload import encode, new_jid, parse

MOST_JOBS_A_CALL = 1000
MOST_BYTES_A_CALL = 4 * 1024 * 1024


class Draft(NamedTuple):
    """A job without an id. ``at`` is in epoch seconds, ``delay_s`` counts from the server's now.

    ``fields`` are what features need in its payload; ``expires_in_s`` counts from when it is due.
    """

    name: str
    queue: str
    retry: bool | int
    args: bytes
    kwargs: bytes | None
    fields: Mapping[str, Any] = MappingProxyType({})
    at: float | None = None
    delay_s: float | None = None
    raises_duplicate: bool = False
    expires_in_s: float | None = None


class Prepared(NamedTuple):
    """A job that is ready to be pushed."""

    jid: str
    name: str
    job: NewJob
    raises_duplicate: bool = False

    def duplicate(self, refused: Refused) -> None:
        """Say that it is there already, as it was declared."""
        if self.raises_duplicate:
            raise DuplicateJob(self.name, refused.why)


class Lane:
    """Numbers one producer's pushes, one at a time.

    The server remembers the last number of each lane. That tells a push which is sent again from a
    new one, and costs one small key a lane instead of one a job.
    """

    __slots__ = ("name", "number")

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self.number = 0


class Client:
    """Pushes jobs, from any thread and any event loop.

    ``middleware`` and ``hooks`` are the application's, for whoever works for it.
    """

    def __init__(self, config: Config) -> None:
        self.middleware = Middleware()
        self.hooks = Hooks()
        self._lanes: deque[Lane] = deque()
        self.use(config)
        _clients.add(self)

    def use(self, config: Config) -> None:
        """Take over a configuration. Nothing is connected before the first call."""
        connector = Connector(config)
        self.config = config
        self.keys = Keys(config.namespace)
        self.moves = Moves(
            self.keys, dead_max_jobs=config.dead_max_jobs, dead_max_age_s=config.dead_max_age
        )
        self.transitions = Transitions(self.moves, Features(self.keys, config))
        self.runner = Runner(connector)
        self.async_runner = AsyncRunner(connector)

    def enqueue(self, draft: Draft | None) -> str | None:
        """Push one job; answers with its id, or None for a duplicate and for no job."""
        return self.push(None if draft is None else self.prepare(draft))

    async def aenqueue(self, draft: Draft | None) -> str | None:
        """Push one job; answers with its id, or None for a duplicate and for no job."""
        return await self.apush(None if draft is None else self.prepare(draft))

    def push(self, prepared: Prepared | None) -> str | None:
        """Push one prepared job; answers with its id, or None for a duplicate and for no job."""
        return None if prepared is None else self._answer(prepared, self._send((prepared,)))

    async def apush(self, prepared: Prepared | None) -> str | None:
        """Push one prepared job; answers with its id, or None for a duplicate and for no job."""
        return None if prepared is None else self._answer(prepared, await self._asend((prepared,)))

    def enqueue_many(self, drafts: Iterable[Callable[[], Draft | None]]) -> list[str | None]:
        """Push jobs, a thousand at most in one call. Raises BulkRefused after the last one."""
        bulk = _Bulk(self, drafts)
        for jobs in bulk.chunks():
            with bulk.telling():
                bulk.note(self._send(jobs))
        return bulk.answer()

    async def aenqueue_many(self, drafts: Iterable[Callable[[], Draft | None]]) -> list[str | None]:
        """Push jobs, a thousand at most in one call. Raises BulkRefused after the last one."""
        bulk = _Bulk(self, drafts)
        for jobs in bulk.chunks():
            with bulk.telling():
                bulk.note(await self._asend(jobs))
        return bulk.answer()

    def prepare(self, draft: Draft) -> Prepared:
        """Number a job and build its payload. Raises PayloadTooLarge."""
        now = clock.wall()
        jid = new_jid()
        fields: dict[str, Any] = {
            "class": draft.name,
            "args": msgspec.Raw(draft.args),
            "jid": jid,
            "queue": draft.queue,
            "retry": draft.retry,
            "created_at": now,
        }
        if draft.kwargs is not None:
            fields["kwargs"] = msgspec.Raw(draft.kwargs)
        if draft.fields:
            fields.update(draft.fields)
        if draft.at is not None:
            fields["at"] = draft.at
        elif draft.delay_s is not None:
            fields["at"] = now + draft.delay_s
        else:
            fields["enqueued_at"] = now
        if draft.expires_in_s is not None:
            due = max(now, fields.get("at", now))
            fields.setdefault("expires_at", due + draft.expires_in_s)
        prepared = self.seal(fields, draft.at, draft.delay_s)
        return prepared._replace(raises_duplicate=True) if draft.raises_duplicate else prepared

    def seal(self, fields: dict[str, Any], at: float | None, delay_s: float | None) -> Prepared:
        """Encode a payload whose fields are complete. Raises PayloadTooLarge."""
        payload = encode(fields)
        name, limit = fields["class"], self.config.max_payload_bytes
        if len(payload) > limit:
            raise PayloadTooLarge(name, len(payload), limit)
        queue = fields["queue"]
        if "unique" not in fields and "status" not in fields:
            return Prepared(fields["jid"], name, NewJob(queue, payload, at, delay_s))
        wait_s = delay_s if at is None else max(0.0, at - clock.wall())
        job = self.transitions.push(payload, parse(payload), queue, at, wait_s)
        return Prepared(fields["jid"], name, job)

    def _send(self, jobs: Sequence[Prepared]) -> Moved:
        while True:
            lane = self._take_lane()
            moved = self.runner.run(self._push_command(lane, jobs))
            if moved is not None:
                self._lanes.append(lane)
                return moved

    async def _asend(self, jobs: Sequence[Prepared]) -> Moved:
        while True:
            lane = self._take_lane()
            moved = await self.async_runner.run(self._push_command(lane, jobs))
            if moved is not None:
                self._lanes.append(lane)
                return moved

    def _push_command(self, lane: Lane, jobs: Sequence[Prepared]) -> Command[Moved | None]:
        return self.moves.push(
            lane.name, lane.number, jobs[0].jid, [prepared.job for prepared in jobs]
        )

    def _take_lane(self) -> Lane:
        # A lane whose push failed is not put back: a late packet of it can still arrive.
        try:
            lane = self._lanes.pop()
        except IndexError:
            lane = Lane()
        lane.number += 1
        return lane

    def _answer(self, prepared: Prepared, moved: Moved) -> str | None:
        if moved.failed:
            raise RedisRefused(f"{prepared.name}: the job was not enqueued: {moved.failed[0][1]}")
        for refused in moved.refused:
            return prepared.duplicate(refused)
        return prepared.jid

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        self.runner.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop's calls."""
        await self.async_runner.close()


class _Bulk:
    """The running account of one ``enqueue_many``."""

    def __init__(self, client: Client, drafts: Iterable[Callable[[], Draft | None]]) -> None:
        self._client = client
        self._drafts = drafts
        self._jids: list[str | None] = []
        self._refused: dict[int, CogworkerError] = {}
        self._sent: list[tuple[int, Prepared]] = []

    def chunks(self) -> Iterator[list[Prepared]]:
        """Prepared jobs, in portions that one call can carry."""
        size = 0
        for index, make in enumerate(self._drafts):
            try:
                draft = make()
                prepared = None if draft is None else self._client.prepare(draft)
            except EnqueueError as error:
                self._refused[index] = error
                prepared = None
            if prepared is None:
                self._jids.append(None)
                continue
            self._jids.append(prepared.jid)
            self._sent.append((index, prepared))
            size += len(prepared.job.payload)
            if len(self._sent) == MOST_JOBS_A_CALL or size >= MOST_BYTES_A_CALL:
                yield [prepared for _, prepared in self._sent]
                self._sent, size = [], 0
        if self._sent:
            yield [prepared for _, prepared in self._sent]

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Give an error of the server the ids of what was queued before it."""
        try:
            yield
        except RedisError as error:
            error.jids = self._jids[: self._sent[0][0]]
            raise

    def note(self, moved: Moved) -> None:
        """Keep what the server refused of the last portion."""
        for refused in moved.refused:
            index, prepared = self._sent[int(refused.job) - 1]
            self._jids[index] = None
            try:
                prepared.duplicate(refused)
            except DuplicateJob as error:
                self._refused[index] = error
        for number, reason in moved.failed:
            index, prepared = self._sent[int(number) - 1]
            self._jids[index] = None
            self._refused[index] = RedisRefused(
                f"{prepared.name}: the job was not enqueued: {reason}"
            )

    def answer(self) -> list[str | None]:
        """The job ids, in order, None for duplicates. Raises BulkRefused when some were refused."""
        if self._refused:
            raise BulkRefused(self._refused, self._jids)
        return self._jids


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _leave_lanes() -> None:
    """A forked child numbers its own pushes."""
    for client in _clients:
        client._lanes = deque()


os.register_at_fork(after_in_child=_leave_lanes)
