"""One taking of a job by this worker."""

from collections.abc import Mapping
from typing import Any

from cogworker import clock
from cogworker._engine.plan import Move
from cogworker._engine.replies import queue_of
from cogworker.errors import JobInterrupted
from cogworker.features.event import NO_RESULT_YET, Run
from cogworker.job import CurrentJob, Job
from cogworker.payload import Envelope, failures, tags
from cogworker.progress import Progress


class Delivery:
    """A job that this worker holds, until it is settled.

    ``job`` is None when no job of that name is declared here. ``begun`` is set just before its
    function is called; ``interrupted`` when the worker, at its end, has asked the run to stop, or
    will give it back; ``returned`` when the run is over, with ``move``, None for a success, as its
    outcome. ``ran_s`` is how long it ran. For a job with a status ``progress`` is what the run says
    of itself, ``result`` what it returned, as JSON, or ``no_result`` why that is not kept.
    ``admitted`` is False while it waits for the server's word, and after a refusal; ``lost`` is
    set when it is known that the job was rescued meanwhile.
    """

    __slots__ = (
        "_current",
        "_queue",
        "admitted",
        "begun",
        "envelope",
        "interrupted",
        "job",
        "lost",
        "move",
        "no_result",
        "payload",
        "progress",
        "ran_s",
        "ready_at",
        "result",
        "returned",
        "started_at",
        "tag",
    )

    def __init__(
        self, tag: bytes, payload: bytes, envelope: Envelope, job: Job[..., Any] | None, now: float
    ) -> None:
        self.tag = tag
        self.payload = payload
        self.envelope = envelope
        self.job = job
        self.ready_at = now
        self.started_at = 0.0
        self.ran_s = 0.0
        self.progress: Progress | None = None
        self.result: bytes | None = None
        self.no_result = NO_RESULT_YET
        self.admitted = True
        self.begun = False
        self.interrupted = False
        self.lost = False
        self.returned = False
        self.move: Move | None = None
        self._queue: str | None = None
        self._current: CurrentJob | None = None

    def begin(self) -> None:
        """Note that its function is called now. Raises JobInterrupted when it must not be.

        Who decides what becomes of it without waiting for its end does so in the other order: sets
        ``interrupted``, then looks at ``begun``. So none that was given back begins after all.
        """
        self.begun = True
        if self.interrupted:
            self.begun = False
            raise JobInterrupted

    def run(
        self,
        error: dict[str, Any] | None = None,
        notes: Mapping[str, bytes] | None = None,
    ) -> Run:
        """Its run, which has ended, with the error that it ended with.

        ``notes`` are what one says of itself that goes on.
        """
        ran_s = self.ran_s or clock.monotonic() - self.started_at
        attempt = failures(self.envelope) + 1
        started_at = clock.wall() - ran_s
        if self.progress is None:
            return Run(attempt, started_at, ran_s, error)
        said = self.progress.close() if notes is None else notes
        return Run(
            *(attempt, started_at, ran_s, error, self.result),
            no_result=self.no_result,
            notes=said,
        )

    def stop_telling(self) -> None:
        """Its job was rescued meanwhile: what the run says of itself is not true of the job."""
        if self.progress is not None:
            self.progress.close()

    @property
    def queue(self) -> str:
        """The queue that it was taken from."""
        if self._queue is None:
            self._queue = queue_of(self.tag)
        return self._queue

    @property
    def current(self) -> CurrentJob:
        """The job as it sees itself, made when it looks: most jobs don't."""
        if self._current is None:
            job = self.envelope
            self._current = CurrentJob(
                *(job.jid, job.class_, self.queue, failures(job) + 1),
                *(() if job.tags is None else tags(job), self.progress),
            )
        return self._current

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop."""
        return self.job is not None and self.job.is_async
