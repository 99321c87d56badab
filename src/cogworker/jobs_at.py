"""The jobs at one place: find them, go through them, and move them by hand.

Looking costs the server little at a time, however many there are: a look through a million jobs is
a thousand calls. A job is addressed by its place and its id. An action finds it, and moves it in
one call, which answers as the first time when it has to be sent again.
"""

import logging
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from cogworker import clock
from cogworker._engine import browse
from cogworker._engine.browse import START, Cursor
from cogworker._engine.places import Place, Queue, Source, Within
from cogworker._engine.plan import Move, merged
from cogworker._kinds import checked, printable, whole
from cogworker.app import Cogworker
from cogworker.by_hand import NO_JID, ByHand, JobEntry, Outcome, Word, outcome, read
from cogworker.errors import CogworkerError, InvalidPayload
from cogworker.job import Job, name_of_job

logger = logging.getLogger("cogworker.by_hand")

MOST_LOOKS = 3
"""How often a job is looked for that has moved on, or was changed, since it was found."""
PORTION = 500
PORTION_OF_QUEUE = 200
"""Workers may take them meanwhile: then each is looked for in vain among twice as many."""

_AS_IT_IS = re.compile(r"[\w.:-]+", re.ASCII)
"""A text that no JSON writes in another way."""


class Filter(NamedTuple):
    """What entries are wanted: those that have all that is given.

    ``job`` is the job's name, ``tag`` one of its tags, ``jid`` its id, as in ``JobEntry``; ``text``
    is a part of its payload, as it is written there.
    """

    job: str | None = None
    tag: str | None = None
    jid: str | None = None
    text: str | None = None

    def texts(self) -> list[bytes]:
        """What the bytes of such an entry must have, as far as that is certain."""
        jid = None if self.jid is None or self.jid.startswith(NO_JID) else self.jid
        given = (self.job, self.tag, jid)
        texts = [value for value in given if value and _AS_IT_IS.fullmatch(value)]
        return [text.encode() for text in (*texts, self.text) if text]

    def fits(self, entry: JobEntry) -> bool:
        """Whether an entry that has these texts is one."""
        return (
            (self.job is None or entry.name == self.job)
            and (self.tag is None or self.tag in entry.tags)
            and (self.jid is None or entry.jid == self.jid)
        )


class JobPage(NamedTuple):
    """Some entries, or none; ``end`` is where to go on, None at the end."""

    entries: list[JobEntry]
    end: Cursor | None


class JobsAt:
    """The jobs in a queue, or those that are scheduled, retrying or dead.

    Scheduled and retrying jobs come by the time when they are due, dead ones the last to die first,
    those of a queue the newest first. What is there all the while is found; what comes and goes may
    be found, or be found twice. Every method raises RedisUnavailable and RedisRefused.
    """

    def __init__(self, app: Cogworker, place: Place | Queue) -> None:
        self._run = app.client.runner.run
        self._keys = app.client.keys
        self._moves = app.client.moves
        self._by_hand = ByHand(app.client.transitions)
        self._place = place

    def __len__(self) -> int:
        return self._run(browse.size(self._keys, self._place))

    def __iter__(self) -> Iterator[JobEntry]:
        return self.each()

    def each(
        self,
        *,
        job: str | Job[..., Any] | None = None,
        tag: str | None = None,
        jid: str | None = None,
        text: str | None = None,
    ) -> Iterator[JobEntry]:
        """Go through the entries that fit; see ``page``."""
        end: Cursor | None = START
        while end is not None:
            entries, end = self.page(end, job=job, tag=tag, jid=jid, text=text)
            yield from entries

    def page(
        self,
        start: Cursor = START,
        limit: int = 100,
        *,
        job: str | Job[..., Any] | None = None,
        tag: str | None = None,
        jid: str | None = None,
        text: str | None = None,
    ) -> JobPage:
        """The entries that fit of a part of the place, ``limit`` at most, in one call.

        ``start`` is the ``end`` of the page before. ``job`` is a job or its name, ``tag`` one of
        its tags, ``jid`` its id, ``text`` a part of its payload, as it is written there. Raises
        CogworkerError when one of them can't be that.
        """
        if not isinstance(start, Cursor):
            raise CogworkerError(f"start must be the end of the page before, not {start!r:.100}")
        checked(whole(1, browse.MOST_FOUND), "limit", limit)
        for name, value in (("tag", tag), ("jid", jid), ("text", text)):
            if not isinstance(value, str | None):
                raise CogworkerError(f"{name} must be a text, not {value!r:.100}")
        wanted = Filter(None if job is None else name_of_job(job), tag, jid, text)
        part = self._run(browse.page(self._keys, self._place, start, limit, wanted.texts()))
        entries = (read(self._place, found) for found in part.found)
        return JobPage([entry for entry in entries if wanted.fits(entry)], part.end)

    def find(self, jid: str) -> JobEntry | None:
        """The job with an id; None when there is none."""
        return next(self.each(jid=jid), None)

    # Each of these takes a job's id, or an entry, for which it need not look.

    def delete(self, job: str | JobEntry) -> Outcome:
        """Remove a job, or what is none, with all that is kept of it."""
        return self._act(job, "deleted", self._by_hand.delete)

    def discard(self, job: str | JobEntry) -> Outcome:
        """Drop a job; what is kept of it stays, and it counts as discarded."""
        return self._act(job, "discarded", self._by_hand.discard)

    def kill(self, job: str | JobEntry) -> Outcome:
        """Put a waiting job in dead."""
        self._only("kill", self._place is not Place.DEAD)
        return self._act(job, "killed", lambda entry: self._by_hand.kill(entry, clock.wall()))

    def retry_now(self, job: str | JobEntry) -> Outcome:
        """Put a scheduled or retrying job in its queue, as if it were due."""
        self._only("retry_now", self._place in (Place.SCHEDULE, Place.RETRY))
        return self._act(job, "requeued", lambda entry: self._by_hand.promote(entry, clock.wall()))

    def revive(self, job: str | JobEntry) -> Outcome:
        """Put a dead job in its queue, as if it had never failed: with all its retries."""
        self._only("revive", self._place is Place.DEAD)
        return self._act(job, "requeued", lambda entry: self._by_hand.revive(entry, clock.wall()))

    def reschedule(self, job: str | JobEntry, when: datetime) -> Outcome:
        """Have a scheduled or retrying job be due at another time, an aware datetime."""
        self._only("reschedule", self._place in (Place.SCHEDULE, Place.RETRY))
        if not isinstance(when, datetime) or when.tzinfo is None:
            raise CogworkerError(f"a time is a datetime with a time zone, not {when!r:.100}")
        at = when.timestamp()
        return self._act(
            job, "rescheduled", lambda entry: self._by_hand.reschedule(entry, at, clock.wall())
        )

    def clear(self) -> int:
        """Delete as many entries as there are now, in portions; answers with their number."""
        left, deleted = len(self), 0
        while left > 0:
            part, source = self._portion()
            if not part.found:
                break
            # From the end of a queue on, where they need not be looked for.
            entries = [read(self._place, found) for found in reversed(part.found)]
            moves = merged(self._by_hand.delete(entry, source) for entry in entries)
            moved = self._run(self._moves.move(moves, answer_again=True))
            deleted += len(entries) - len(moved.lost)
            left -= len(entries)
        logger.info("cleared: place=%s jobs=%d", printable(self._called), deleted)
        return deleted

    def _portion(self) -> tuple[browse.Part, Source]:
        """Some entries to delete next, and where they are."""
        if not isinstance(self._place, Queue):
            return self._run(browse.page(self._keys, self._place, START, PORTION)), self._place
        part = self._run(browse.oldest(self._keys, self._place, PORTION_OF_QUEUE))
        return part, Within(self._place.name, -2 * PORTION_OF_QUEUE)

    def _act(self, job: str | JobEntry, word: Word, decide: Callable[[JobEntry], Move]) -> Outcome:
        """Find a job and move it; look again when it is not where, or what, it was."""
        if not isinstance(job, str | JobEntry):
            raise CogworkerError(f"a job is named by its id, or by its entry, not by {job!r:.100}")
        if isinstance(job, JobEntry) and job.place != self._place:
            raise CogworkerError(f"the entry {job.jid} is not one of {self._called}")
        jid = job if isinstance(job, str) else job.jid
        entry = self.find(jid) if isinstance(job, str) else job
        came = Outcome("gone")
        for _ in range(MOST_LOOKS):
            if entry is None:
                break
            try:
                move = decide(entry)
            except InvalidPayload as error:
                return Outcome("invalid", str(error))
            came = outcome(self._run(self._moves.move([move], answer_again=True)), word)
            if came.word != "gone":
                break
            entry = self.find(jid)
        if came.word == word:
            logger.info("%s: jid=%s place=%s", word, printable(jid), printable(self._called))
        return came

    def _only(self, action: str, possible: bool) -> None:
        if not possible:
            raise CogworkerError(f"{action} is not for jobs in {self._called}")

    @property
    def _called(self) -> str:
        """The place in messages."""
        if isinstance(self._place, Queue):
            return f"the queue {self._place.name}"
        return self._place.value
