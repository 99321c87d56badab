"""What is kept of runs that are over: the run log, throughput, attempts. Never used by a worker."""

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Any, NamedTuple

from cogworker import clock
from cogworker._engine import books
from cogworker._kinds import checked, whole
from cogworker.app import Cogworker
from cogworker.errors import CogworkerError
from cogworker.features import figures
from cogworker.features.figures import JobClass, RunsOfDay, Throughput
from cogworker.features.history import RunStatus
from cogworker.features.logged import (
    RANKS,
    UNREADABLE,
    Attempt,
    LoggedRun,
    Place,
    raw_runs,
    read_attempt,
    read_run,
)
from cogworker.job import Job, name_of_job
from cogworker.payload import encode

MOST_RUNS_A_PAGE = 1000
MOST_DECODED = 5_000
MOST_BYTES = 8 * 1024 * 1024
"""A page is cut short when that many runs, or bytes of the log, were looked through for it."""
FEWEST_ENTRIES, MOST_ENTRIES = 10, 500
"""How many entries of the log are read in one call; more of them while they are small."""
MOST_BYTES_A_CALL = 1024 * 1024
MOST_HOURS = 24
MOST_DAYS = 400


class RunPage(NamedTuple):
    """Some runs of the run log, the newest first.

    ``before`` is what to pass for the next page, None when there is none; a page may have fewer
    runs than were asked for, or none, and still not be the last one.
    """

    runs: list[LoggedRun]
    before: str | None


class HistorySize(NamedTuple):
    """How many runs the run log keeps."""

    success: int
    failed: int


class Records:
    """Reads the books of one installation. Every method raises RedisUnavailable and RedisRefused.

    Those that get a number, a status or a place raise CogworkerError when it can't be one.
    """

    def __init__(self, app: Cogworker) -> None:
        self._run = app.client.runner.run
        self._keys = app.client.keys
        self._kept_s = app.config.history_max_age

    # The run log.

    def history(
        self,
        status: RunStatus | None = None,
        *,
        job: str | Job[..., Any] | None = None,
        jid: str | None = None,
        tag: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> RunPage:
        """A page of the run log: of the runs that succeeded, or failed, or all.

        ``job`` is a job or its name, ``jid`` the id of one, ``tag`` one of its tags. Runs that are
        logged meanwhile do not shift the pages.
        """
        if status not in (None, *RANKS):
            raise CogworkerError(f"status must be 'success', 'failed' or None, not {status!r:.100}")
        checked(whole(1, MOST_RUNS_A_PAGE), "limit", limit)
        job = None if job is None else name_of_job(job)
        place = None if before is None else _place(before)
        search = _Search(self._newest, place, _needles(job, jid, tag))
        ranks = [rank for rank, name in enumerate(RANKS) if status in (None, name)]
        runs: list[LoggedRun] = []
        for at, raw in search.runs(ranks):
            run = read_run(at, raw) if raw else None
            if run is not None and _matches(run, job, jid, tag):
                runs.append(run)
            search.decoded += raw != b""
            if len(runs) == limit or search.has_seen_enough:
                return RunPage(runs, str(at))
        return RunPage(runs, None)

    def history_size(self) -> HistorySize:
        """How many runs are kept. Some may be older than ``history_max_age``: nobody is shown them.

        Runs whose settlement came too late are not counted, nor logged.
        """
        return HistorySize(*(self._size(rank) for rank in range(len(RANKS))))

    def clear_history(self) -> None:
        """Forget all runs that are logged now."""
        self._run(books.forget(self._logs))

    # Throughput.

    def throughput(self, hours: int = 24) -> list[Throughput]:
        """A row for each of the last hours, the oldest first, the running one included."""
        wanted = self._hours(hours)
        rows = self._run(books.hashes(self._hashes_of(wanted), figures.OUTCOMES))
        return figures.by_hour(wanted, rows)

    def throughput_by_minute(self, minutes: int = 60) -> list[Throughput]:
        """A row for each of the last minutes, the oldest first, the running one included."""
        checked(whole(1, MOST_HOURS * 60), "minutes", minutes)
        now = clock.wall()
        first = (int(now) // 60 - minutes + 1) * 60
        wanted = list(range(first // 3600, int(now) // 3600 + 1))
        rows = self._run(books.hashes(self._hashes_of(wanted), figures.minute_fields()))
        return [row for row in figures.by_minute(wanted, rows) if first <= row.start <= now]

    def runs_by_day(self, days: int = 30) -> list[RunsOfDay]:
        """A row for each of the last days in UTC, the oldest first, today included."""
        checked(whole(1, MOST_DAYS), "days", days)
        wanted = figures.days_until(clock.wall(), days)
        names = [self._keys.runs_of_day(day.isoformat()) for day in wanted]
        rows = self._run(books.hashes(names, figures.OUTCOMES))
        return figures.by_day(wanted, rows)

    def job_classes(self, hours: int = 24) -> list[JobClass]:
        """What is known of the runs of each job in the last hours, the busiest first."""
        classes = figures.Classes()
        for name in self._hashes_of(self._hours(hours)):
            [hour] = self._run(books.hashes([name]))
            classes.add(hour)
        return classes.rows()

    # Attempts.

    def attempts(self, jid: str) -> list[Attempt]:
        """The failures of a job, the oldest first: the last 25, until 30 days after the last."""
        return [read_attempt(raw) for raw in self._run(books.entries(self._keys.attempts(jid)))]

    def clear_attempts(self, jid: str) -> None:
        """Forget the failures of a job."""
        self._run(books.forget([self._keys.attempts(jid)]))

    @property
    def _logs(self) -> tuple[str, ...]:
        return self._keys.logged_successes, self._keys.logged_failures

    def _newest(self, rank: int, until: str, limit: int) -> list[books.LogEntry]:
        since_ms = max(0, int(1000 * (clock.wall() - self._kept_s)))
        return self._run(books.newest(self._logs[rank], until, since_ms, limit))

    def _size(self, rank: int) -> int:
        log = self._logs[rank]
        oldest = self._run(books.oldest(log))
        newest = self._run(books.newest(log, "+", 0, 1))
        if not oldest or not newest:
            return 0
        first = sum(raw != b"" for _, raw in raw_runs(oldest[0], rank, ()))
        return max(0, newest[0].number - oldest[0].number + first)

    def _hours(self, hours: int) -> list[int]:
        checked(whole(1, MOST_HOURS), "hours", hours)
        return figures.hours_until(clock.wall(), hours)

    def _hashes_of(self, hours: list[int]) -> list[str]:
        return [self._keys.throughput(hour) for hour in hours]


class _Search:
    """Looks through the logs from the newest run, or from a place, to the oldest."""

    def __init__(
        self,
        read: Callable[[int, str, int], list[books.LogEntry]],
        before: Place | None,
        needles: tuple[bytes, ...],
    ) -> None:
        self._read = read
        self._before = before
        self._needles = needles
        self._bytes = 0
        self.decoded = 0

    @property
    def has_seen_enough(self) -> bool:
        return self.decoded >= MOST_DECODED or self._bytes >= MOST_BYTES

    def runs(self, ranks: list[int]) -> Iterator[tuple[Place, bytes]]:
        """Runs that are not read yet; at the end of each entry nothing, with its place."""
        return merge(*(self._runs_of(rank) for rank in ranks), reverse=True)

    def _runs_of(self, rank: int) -> Iterator[tuple[Place, bytes]]:
        before, limit = self._before, FEWEST_ENTRIES
        until = "+" if before is None else before.until(rank)
        while True:
            entries = self._read(rank, until, limit)
            size = sum(entry.size for entry in entries)
            self._bytes += size
            for entry in entries:
                for at, raw in raw_runs(entry, rank, self._needles):
                    if before is None or at < before:
                        yield at, raw
            if len(entries) < limit:
                return
            until = _just_before(entries[-1])
            if size < MOST_BYTES_A_CALL // 2:
                limit = min(2 * limit, MOST_ENTRIES)


def _just_before(entry: books.LogEntry) -> str:
    return f"{entry.ms}-{entry.number - 1}" if entry.number else str(entry.ms - 1)


def _needles(*wanted: str | None) -> tuple[bytes, ...]:
    """What must stand in the JSON of a run that is wanted."""
    return tuple(encode(text) for text in wanted if text is not None)


def _matches(run: LoggedRun, job: str | None, jid: str | None, tag: str | None) -> bool:
    if run.outcome == UNREADABLE and (job or jid or tag) is not None:
        return False
    return (
        (job is None or run.name == job)
        and (jid is None or run.jid == jid)
        and (tag is None or tag in run.tags)
    )


def _place(text: str) -> Place:
    try:
        return Place.read(text)
    except (ValueError, AttributeError):
        raise CogworkerError(
            f"before must be what the page before says, not {text!r:.100}"
        ) from None
