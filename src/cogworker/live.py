"""What there is now: queues, workers, and the jobs that they have. Never used by a worker.

Whatever other software, or a fault, has left in Redis is shown as far as it can be read.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from cogworker import payload
from cogworker._engine import control, look
from cogworker._engine.control import Pause
from cogworker._engine.replies import text
from cogworker._worker.facts import host_of
from cogworker.app import Cogworker
from cogworker.errors import InvalidPayload

T = TypeVar("T")

QUEUES_A_CALL = 500
WORKERS_A_CALL = 100


class QueueInfo(NamedTuple):
    """A queue. ``latency_s`` is how long its oldest job waits, in seconds; 0 when it is empty.

    It is None when the oldest job does not tell. ``workers`` is how many live workers, not quiet,
    take from it; ``paused`` who has paused it.
    """

    name: str
    size: int
    latency_s: float | None
    paused: Pause | None
    workers: int


class Told(NamedTuple):
    """A worker's last order, by whom it was given, and when, epoch seconds, if that is known."""

    order: str
    by: str
    at: float | None


class WorkerInfo(NamedTuple):
    """A worker. Times are in epoch seconds; what it does not tell is None, or empty.

    ``beat_age_s``: how long ago it said that it lives, on the server's clock. ``present`` is False
    when that was so long ago that it may be dead. ``busy`` is how many jobs it ran at that time,
    ``held`` how many it has now, those included that it has not begun. ``quiet``: it takes none.
    ``queues`` have weights. ``rss_kb`` is its memory in KiB.
    """

    identity: str
    host: str
    pid: int | None
    beat_age_s: float
    present: bool
    quiet: bool
    busy: int
    held: int
    concurrency: int | None
    queues: dict[str, int]
    labels: tuple[str, ...]
    started_at: float | None
    version: str
    rss_kb: int | None
    told: Told | None


class RunningJob(NamedTuple):
    """A job that a worker has. ``began_at`` is when it began, epoch seconds, by the worker's clock.

    It is None for a job that was not begun at the worker's last beat, which may be
    ``heartbeat_interval`` ago. ``raw`` is empty when it was too large to be read.
    """

    worker: str
    tag: str
    queue: str
    raw: bytes
    began_at: float | None

    @property
    def job(self) -> payload.Envelope | None:
        """What a worker reads of it; None when it can't be read."""
        try:
            return payload.parse(self.raw)
        except InvalidPayload:
            return None

    @property
    def payload(self) -> dict[str, Any] | None:
        """The payload; None when it can't be read."""
        return look.decoded(self.raw)


class _Info(msgspec.Struct):
    """What a beat says in ``info``."""

    pid: int | None = None
    concurrency: int | None = None
    queues: dict[str, int] = {}
    labels: tuple[str, ...] = ()
    started_at: float | None = None
    version: str = ""
    rss_kb: int | None = None


class _Times(msgspec.Struct):
    """Since when a payload waits."""

    enqueued_at: float | None = None
    created_at: float | None = None


_infos = msgspec.json.Decoder(_Info)
_times = msgspec.json.Decoder(_Times)
_began = msgspec.json.Decoder(dict[str, float])


class Live:
    """Reads what there is now in one installation.

    Every method raises RedisUnavailable and RedisRefused.
    """

    def __init__(self, app: Cogworker) -> None:
        self._run = app.client.runner.run
        self._keys = app.client.keys

    def queues(self) -> list[QueueInfo]:
        """All queues that were ever used, are paused, or are taken from, by their names."""
        paused = self.paused_queues()
        taken_from = [
            name for worker in self.workers() if not worker.quiet for name in worker.queues
        ]
        names = sorted({*self._run(look.queues(self._keys)), *paused, *taken_from})
        queues = []
        for part in _parts(names, QUEUES_A_CALL):
            now, backlogs = self._run(look.backlogs(self._keys, part))
            for name, backlog in zip(part, backlogs, strict=True):
                latency_s = _latency_s(backlog, now)
                pause, workers = paused.get(name), taken_from.count(name)
                queues.append(QueueInfo(name, backlog.size, latency_s, pause, workers))
        return queues

    def paused_queues(self) -> dict[str, Pause]:
        """The paused queues, with who paused them and when, as far as that is known."""
        known = self._run(control.pauses(self._keys))
        names = self._run(control.paused_queues(self._keys))
        return {name: known.get(name, Pause("", None)) for name in names}

    def intake(self) -> Pause | None:
        """Who paused the intake of all workers, and when; None while it is open."""
        return self._run(control.intake(self._keys))

    def workers(self) -> list[WorkerInfo]:
        """All workers that are alive or not yet rescued, by their identities."""
        workers = []
        beats = sorted((text(name), age_s) for name, age_s in self._run(look.beats(self._keys)))
        for part in _parts(beats, WORKERS_A_CALL):
            fleet = self._run(look.fleet(self._keys, [name for name, _ in part]))
            for (name, age_s), said in zip(part, fleet, strict=True):
                workers.append(_worker(name, age_s, said))
        return workers

    def running(self, worker: str | None = None) -> Iterator[RunningJob]:
        """The jobs that workers have, or one worker, by its identity: those that run come first."""
        names = self._run(look.workers(self._keys)) if worker is None else [worker]
        for part in _parts(names, WORKERS_A_CALL):
            fleet = self._run(look.held(self._keys, part))
            for name, held in zip(part, fleet, strict=True):
                began = _decoded(_began, held.began) or {}
                jobs = [
                    RunningJob(name, text(tag), _queue_of(tag), raw, began.get(text(tag)))
                    for tag, raw in held.jobs
                ]
                yield from sorted(jobs, key=_running_first)


def _running_first(job: RunningJob) -> tuple[bool, float, str]:
    return job.began_at is None, job.began_at or 0.0, job.tag


def _worker(identity: str, age_s: float, said: look.Said) -> WorkerInfo:
    info = _decoded(_infos, said.info) or _Info()
    told = Told(said.order, said.by, _number(said.at)) if said.order else None
    return WorkerInfo(
        identity=identity,
        host=host_of(identity),
        pid=info.pid,
        beat_age_s=age_s,
        present=bool(said.info),
        quiet=said.quiet == b"true",
        busy=int(_number(text(said.busy)) or 0),
        held=said.held,
        concurrency=info.concurrency,
        queues=info.queues,
        labels=info.labels,
        started_at=info.started_at,
        version=info.version,
        rss_kb=info.rss_kb,
        told=told,
    )


def _latency_s(backlog: look.Backlog, now: float) -> float | None:
    if not backlog.size:
        return 0.0
    times = _decoded(_times, backlog.oldest)
    since = None if times is None else times.enqueued_at or times.created_at
    return None if since is None else max(0.0, now - since)


def _queue_of(tag: bytes) -> str:
    """The queue in a delivery's tag; empty in what is no such tag."""
    return text(tag.split(b".", 2)[-1]) if tag.count(b".") >= 2 else ""


def _decoded(decoder: msgspec.json.Decoder[T], raw: bytes) -> T | None:
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
