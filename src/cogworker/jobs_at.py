"""The jobs at one place: find them, go through them, and move them by hand.

Looking costs the server little at a time, however many there are: a look through a million jobs is
a thousand calls. A job is addressed by its place and its id. An action finds it, and moves it in
one call, which answers as the first time when it has to be sent again.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, get_args

from cogworker import clock
from cogworker._engine import browse, timetable
from cogworker._engine.browse import START, Cursor
from cogworker._engine.places import Place, Queue, Source, Within
from cogworker._engine.plan import Move, merged
from cogworker._engine.replies import Moved
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

MOST_STEPS = 200_000
"""Over how many entries of queues one call may step to find what it moves: 12 to 24 ms."""
ActionName = Literal["delete", "discard", "kill", "retry_now", "revive", "reschedule"]
ACTIONS: tuple[ActionName, ...] = get_args(ActionName)
Tally = Counter[str]
"""How many jobs came to which ``Outcome.word``, or ``failed``: the server could not move them."""
_Action = tuple[Word, Callable[[JobEntry], Move]]

_AS_IT_IS = re.compile(r"[\w.:-]+", re.ASCII)
"""A text that no JSON writes in another way."""


class Filter(TypedDict, total=False):
    """Which entries are wanted: those that have all that is given.

    ``job`` is a job or its name, ``queue`` the queue that it is in or goes to, ``tag`` one of its
    tags, ``jid`` its id, ``error`` the class of the error it has failed with, as in its payload,
    and ``text`` a part of its payload, as it is written there.
    """

    job: str | Job[..., Any] | None
    queue: str | None
    tag: str | None
    jid: str | None
    error: str | None
    text: str | None


class _Wanted(NamedTuple):
    """A filter, checked."""

    job: str | None
    queue: str | None
    tag: str | None
    jid: str | None
    error: str | None
    text: str | None

    def texts(self) -> list[bytes]:
        """What the bytes of such an entry must have, as far as that is certain."""
        jid = None if self.jid is None or self.jid.startswith(NO_JID) else self.jid
        given = (self.job, self.tag, jid, self.error)
        texts = [value for value in given if value and _AS_IT_IS.fullmatch(value)]
        return [text.encode("utf-8", "surrogatepass") for text in (*texts, self.text) if text]

    def fits(self, entry: JobEntry) -> bool:
        """Whether an entry that has these texts is one."""
        return (
            (self.job is None or entry.name == self.job)
            and (self.queue is None or entry.queue == self.queue)
            and (self.tag is None or self.tag in entry.tags)
            and (self.jid is None or entry.jid == self.jid)
            and (self.error is None or (entry.payload or {}).get("error_class") == self.error)
        )


def _wanted(given: Filter) -> _Wanted:
    """Check a filter. Raises CogworkerError."""
    for name, value in given.items():
        if name not in _Wanted._fields:
            raise CogworkerError(f"jobs can't be filtered by {name}, only by {_FILTERS}")
        if name != "job" and not isinstance(value, str | None):
            raise CogworkerError(f"{name} must be a text, not {value!r:.100}")
    job = given.get("job")
    called = None if job is None else name_of_job(job)
    return _Wanted(
        *(called, given.get("queue"), given.get("tag")),
        *(given.get("jid"), given.get("error"), given.get("text")),
    )


_FILTERS = ", ".join(_Wanted._fields)


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

    def __str__(self) -> str:
        if isinstance(self._place, Queue):
            return f"the queue {self._place.name}"
        return self._place.value

    def now(self) -> float:
        """The server's clock, epoch seconds."""
        return self._run(timetable.server_time())

    def __iter__(self) -> Iterator[JobEntry]:
        return self.each()

    def each(self, **wanted: Unpack[Filter]) -> Iterator[JobEntry]:
        """Go through the entries that fit. Raises CogworkerError for what can't be wanted."""
        end: Cursor | None = START
        while end is not None:
            entries, end = self.page(end, **wanted)
            yield from entries

    def page(self, start: Cursor = START, limit: int = 100, **wanted: Unpack[Filter]) -> JobPage:
        """The entries that fit of a part of the place, ``limit`` at most, in one call.

        ``start`` is the ``end`` of the page before. Raises CogworkerError when one of them can't be
        that.
        """
        if not isinstance(start, Cursor):
            raise CogworkerError(f"start must be the end of the page before, not {start!r:.100}")
        checked(whole(1, browse.MOST_FOUND), "limit", limit)
        want = _wanted(wanted)
        part = self._run(browse.page(self._keys, self._place, start, limit, want.texts()))
        entries = (read(self._place, found) for found in part.found)
        return JobPage([entry for entry in entries if want.fits(entry)], part.end)

    def find(self, jid: str) -> JobEntry | None:
        """The job with an id; None when there is none."""
        return next(self.each(jid=jid), None)

    # Each of these takes a job's id, or an entry, for which it need not look.

    def delete(self, job: str | JobEntry) -> Outcome:
        """Remove a job, or what is none, with all that is kept of it."""
        return self._act(job, self._action("delete"))

    def discard(self, job: str | JobEntry) -> Outcome:
        """Drop a job; what is kept of it stays, and it counts as discarded."""
        return self._act(job, self._action("discard"))

    def kill(self, job: str | JobEntry) -> Outcome:
        """Put a waiting job in dead."""
        return self._act(job, self._action("kill"))

    def retry_now(self, job: str | JobEntry) -> Outcome:
        """Put a scheduled or retrying job in its queue, as if it were due."""
        return self._act(job, self._action("retry_now"))

    def revive(self, job: str | JobEntry) -> Outcome:
        """Put a dead job in its queue, as if it had never failed: with all its retries."""
        return self._act(job, self._action("revive"))

    def reschedule(self, job: str | JobEntry, when: datetime) -> Outcome:
        """Have a scheduled or retrying job be due at another time, an aware datetime."""
        return self._act(job, self._action("reschedule", when))

    # Several at once.

    def act(
        self, action: ActionName, entries: Iterable[JobEntry], when: datetime | None = None
    ) -> Tally:
        """Do the same to entries that were found here, ``when`` for ``reschedule``.

        Answers with how many came to which ``Outcome.word``. They are moved some hundred at a time,
        fewer where they lie deep in a queue.
        """
        word, decide = self._action(action, when)
        tally: Tally = Counter()
        for portion in _portions(entries):
            moves: list[Move] = []
            for entry in portion:
                self._check_place(entry)
                try:
                    moves.append(decide(entry))
                except InvalidPayload:
                    tally["invalid"] += 1
            if moves:
                moved = self._run(self._moves.move(merged(moves), answer_again=True))
                tally += _tally(moved, word, len(moves))
        return tally

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
        logger.info("cleared: place=%s jobs=%d", printable(str(self)), deleted)
        return deleted

    def _portion(self) -> tuple[browse.Part, Source]:
        """Some entries to delete next, and where they are."""
        if not isinstance(self._place, Queue):
            return self._run(browse.page(self._keys, self._place, START, PORTION)), self._place
        part = self._run(browse.oldest(self._keys, self._place, PORTION_OF_QUEUE))
        return part, Within(self._place.name, -2 * PORTION_OF_QUEUE)

    def _action(self, name: ActionName, when: datetime | None = None) -> _Action:
        """What an action does here. Raises CogworkerError when it is not for these jobs."""
        by_hand, now = self._by_hand, clock.wall
        if name not in ACTIONS:
            raise CogworkerError(f"there is no action {name!r:.100}, only {', '.join(ACTIONS)}")
        if not self.allows(name):
            raise CogworkerError(f"{name} is not for jobs in {self}")
        if name == "delete":
            return "deleted", by_hand.delete
        if name == "discard":
            return "discarded", by_hand.discard
        if name == "kill":
            return "killed", lambda entry: by_hand.kill(entry, now())
        if name == "retry_now":
            return "requeued", lambda entry: by_hand.promote(entry, now())
        if name == "revive":
            return "requeued", lambda entry: by_hand.revive(entry, now())
        if not isinstance(when, datetime) or when.tzinfo is None:
            raise CogworkerError(f"a time is a datetime with a time zone, not {when!r:.100}")
        at = when.timestamp()
        return "rescheduled", lambda entry: by_hand.reschedule(entry, at, now())

    def check(
        self, action: ActionName, when: datetime | None = None, **wanted: Unpack[Filter]
    ) -> None:
        """Raises CogworkerError for an action that is not for these jobs, and a wrong filter."""
        self._action(action, when)
        _wanted(wanted)

    def allows(self, action: ActionName) -> bool:
        """Whether an action is for the jobs at this place."""
        if action in ("retry_now", "reschedule"):
            return self._place in (Place.SCHEDULE, Place.RETRY)
        return (self._place is Place.DEAD) == (action == "revive") or action in (
            "delete",
            "discard",
        )

    def _act(self, job: str | JobEntry, action: _Action) -> Outcome:
        """Find a job and move it; look again when it is not where, or what, it was."""
        word, decide = action
        if not isinstance(job, str | JobEntry):
            raise CogworkerError(f"a job is named by its id, or by its entry, not by {job!r:.100}")
        if isinstance(job, JobEntry):
            self._check_place(job)
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
            logger.info("%s: jid=%s place=%s", word, printable(jid), printable(str(self)))
        return came

    def _check_place(self, entry: JobEntry) -> None:
        if entry.place != self._place:
            raise CogworkerError(f"the entry {entry.jid} is not one of {self}")


def _portions(entries: Iterable[JobEntry]) -> Iterator[list[JobEntry]]:
    """As many entries as one call may move without holding up the server for long."""
    portion: list[JobEntry] = []
    cost = 0.0
    for entry in entries:
        portion.append(entry)
        cost += abs(entry.where) if isinstance(entry.place, Queue) else 0.0
        if len(portion) == PORTION_OF_QUEUE or cost > MOST_STEPS:
            yield portion
            portion, cost = [], 0.0
    if portion:
        yield portion


def _tally(moved: Moved, word: Word, jobs: int) -> Tally:
    """What has come of so many moves."""
    tally: Tally = Counter(gone=len(moved.lost), failed=len(moved.failed))
    tally.update("duplicate" if each.verb == "claim" else "refused" for each in moved.refused)
    tally[word] = jobs - tally.total()
    return +tally
