"""What becomes of the jobs of a worker that is gone. Decisions only.

A dead worker's job goes back to its queue, once more than ``max_orphanings`` times to dead; one
that must not run twice goes to dead at once.
"""

import logging
from collections.abc import Sequence

from cogworker import payload
from cogworker._engine.moves import Waiting
from cogworker._engine.places import InFlight
from cogworker._engine.plan import KEEP, Move
from cogworker._engine.replies import Moved, Taken
from cogworker._worker import failure
from cogworker._worker.deaths import Deaths
from cogworker.errors import CogworkerError, InvalidPayload, JobAbandoned, JobOrphaned
from cogworker.features.transitions import Transitions
from cogworker.payload import NOT_A_JOB, Envelope

logger = logging.getLogger("cogworker.worker")


class Orphans:
    """Decides for one installation."""

    def __init__(self, transitions: Transitions, max_orphanings: int, deaths: Deaths) -> None:
        self._deaths = deaths
        self._transitions = transitions
        self._max_orphanings = max_orphanings

    def of_dead(self, worker: InFlight, jobs: Sequence[Taken], at_most_once: bool) -> list[Move]:
        """The moves for what a worker held when it died; ``at_most_once`` as it fetched."""
        self._deaths.forget_all()  # of a call that got no answer
        back: list[Waiting] = []
        moves: list[Move] = []
        for job in jobs:
            try:
                envelope = payload.parse(job.payload)
                times = _count(envelope.orphaned) + 1
                if at_most_once or envelope.at_most_once is True:
                    moves.append(self._bury(worker, job, envelope, JobAbandoned("died")))
                elif times > self._max_orphanings:
                    error = JobOrphaned(times, self._max_orphanings)
                    moves.append(self._bury(worker, job, envelope, error, orphaned=times))
                else:
                    counted = payload.amend(job.payload, {"orphaned": times})
                    back.append(self._transitions.waiting(job.tag, counted, envelope, job.queue))
            except InvalidPayload as error:  # it could not be counted, and come back for ever
                moves.append(self._bury(worker, job, NOT_A_JOB, error))
        return [*self._transitions.back(worker, back), *moves]

    def of_stopped(self, worker: InFlight, jobs: Sequence[Taken], at_most_once: bool) -> list[Move]:
        """The moves for what is left in the name of a worker that stops."""
        self._deaths.forget_all()
        back: list[Waiting] = []
        moves: list[Move] = []
        for job in jobs:
            envelope = _read(job.payload)
            if at_most_once or envelope.at_most_once is True:
                moves.append(self._bury(worker, job, envelope, JobAbandoned("had to stop")))
            else:
                back.append(self._transitions.waiting(job.tag, KEEP, envelope, job.queue))
        return [*self._transitions.back(worker, back), *moves]

    def moved(self, moved: Moved) -> None:
        """The server has carried out the last moves, but for what is named there."""
        but = {*moved.lost, *(tag for tag, _ in moved.failed)}
        self._deaths.confirm(list(self._deaths.expected), but=but)

    def _bury(
        self,
        worker: InFlight,
        job: Taken,
        envelope: Envelope,
        error: CogworkerError,
        **changes: int,
    ) -> Move:
        logger.error("moved to dead: %s error=%s", _label(job.payload), error)
        described = failure.describe(error)
        kept = failure.record(job.payload, job.queue, described, **changes)
        if envelope is not NOT_A_JOB:
            self._deaths.expect(job.tag, envelope.class_, envelope.jid, kept, error)
        return self._transitions.bury(worker, job.tag, kept, envelope, job.queue, reason=described)


def _label(job: bytes) -> str:
    try:
        return payload.label(payload.parse(job))
    except InvalidPayload:
        return f"payload={payload.excerpt(job)}"


def _read(job: bytes) -> Envelope:
    try:
        return payload.parse(job)
    except InvalidPayload:  # whoever takes it says what is wrong with it
        return NOT_A_JOB


def _count(orphaned: object) -> int:
    """How often a job's worker has died, whoever wrote the payload."""
    return orphaned if type(orphaned) is int and orphaned > 0 else 0
