"""Every feature and every move: what each feature's keys hold after each thing that can happen.

``MOVES`` is the whole of it, and is meant to be read. A job that has all features is brought to
where a row begins, the move is made by the real engine, and each column is compared with what is.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from cogworker import Discard, Reschedule
from cogworker.inspector import Inspector
from cogworker.retry import RetryPolicy

from support.inline import InlineWorker
from support.times import all_workers_are_dead, everything_is_due

DELAY_S = 1000
TTL_S = 86400
MODES = ("until_executed", "until_executing", "while_executing")


class Locks(NamedTuple):
    """Seconds for which the lock of each mode is held by the job, counted from now; None: free."""

    until_executed: int | None = None
    until_executing: int | None = None
    while_executing: int | None = None


FREE = Locks()
WAITS = Locks(TTL_S, TTL_S, None)
PUT_OFF = Locks(TTL_S + DELAY_S, TTL_S + DELAY_S, None)
RUNS = Locks(TTL_S, None, TTL_S)

BEFORE = {  # where a row begins: the locks, and what came there in the attempts and the run log
    "queued": (WAITS, ""),
    "scheduled": (PUT_OFF, ""),
    "running": (RUNS, ""),
    "retrying": (PUT_OFF, "retrying"),
    "dead": (FREE, "dead"),
}


class Row(NamedTuple):
    """A move; ``attempts`` and ``log`` are what it adds there, ``counts`` what it adds to counters.

    ``expiry`` is what it does to the payload's.
    """

    begins: str
    move: str
    ends: str
    locks: Locks
    attempts: str = ""
    counts: str = ""
    log: str = ""
    expiry: str = "stays"


MOVES = [
    # What a worker does.
    # begins     move                  ends         locks    attempts     counts      log
    Row("queued", "take", "running", RUNS),
    Row("running", "succeed", "nowhere", FREE, "", "processed", "done"),
    Row("running", "fail", "retrying", PUT_OFF, "retrying", "failed", "retrying"),
    Row("running", "fail for good", "dead", FREE, "dead", "failed", "dead"),
    Row("running", "fail late", "nowhere", FREE, "discarded", "failed discarded", "discarded"),
    Row("running", "discard itself", "nowhere", FREE, "", "discarded", "discarded"),
    Row("running", "reschedule itself", "scheduled", PUT_OFF, "", "", "rescheduled"),
    Row("queued", "take too late", "nowhere", FREE, "", "discarded"),
    Row("scheduled", "promote", "queued", WAITS),
    Row("retrying", "promote", "queued", WAITS),
    # What becomes of it when its worker stops or dies.
    Row("running", "give back", "queued", WAITS),
    Row("running", "sign off", "queued", WAITS),
    Row("running", "rescue", "queued", WAITS),
    Row("running", "rescue too often", "dead", FREE, "", "failed"),
    # What a person does.
    Row("queued", "delete", "nowhere", FREE, "forgotten"),
    Row("scheduled", "delete", "nowhere", FREE, "forgotten"),
    Row("retrying", "delete", "nowhere", FREE, "forgotten"),
    Row("dead", "delete", "nowhere", FREE, "forgotten"),
    Row("queued", "clear", "nowhere", FREE, "forgotten"),
    Row("dead", "clear", "nowhere", FREE, "forgotten"),
    Row("queued", "discard", "nowhere", FREE, "", "discarded"),
    Row("retrying", "discard", "nowhere", FREE, "", "discarded"),
    Row("dead", "discard", "nowhere", FREE, "", "discarded"),
    Row("queued", "kill", "dead", FREE, "killed"),
    Row("scheduled", "kill", "dead", FREE, "killed"),
    Row("retrying", "kill", "dead", FREE, "killed"),
    Row("scheduled", "retry now", "queued", WAITS),
    Row("retrying", "retry now", "queued", WAITS),
    Row("dead", "revive", "queued", WAITS),
    Row("scheduled", "reschedule", "scheduled", PUT_OFF, expiry="moves along"),
    Row("retrying", "reschedule", "retrying", PUT_OFF),
]
COUNTERS = ("processed", "failed", "discarded")
STATUS_S = 500
STATES = {  # the status after a move; where nothing else stands, it is that of the place
    **dict.fromkeys(("discard itself", "fail late", "take too late", "discard"), "cancelled"),
    **dict.fromkeys(("delete", "clear", "kill"), "cancelled"),
    **dict.fromkeys(("fail for good", "rescue too often"), "failed"),
    "succeed": "complete",
    "take": "queued",  # it is working as soon as it runs
}


class Life:
    """One job with all features, and the steps of its life."""

    def __init__(self, app: Any, redis: Any, mode: str) -> None:
        self.app, self.redis, self.keys = app, redis, app.client.keys
        self.look = Inspector(app)
        self.worker = InlineWorker(app, run_jobs=False)
        self.outcome: BaseException | None = None

        @app.job(
            retry=RetryPolicy(delay=[DELAY_S]),
            unique=mode,
            history=True,
            tags=["a", "b"],
            expires_in=3 * DELAY_S,
            status=STATUS_S,
            name="job",
        )
        def job() -> None:
            if self.outcome is not None:
                raise self.outcome

        self.job = job
        self.jid = ""

    # Where a row begins.

    def begin(self, row: Row) -> None:
        job = self.job
        if row.move == "fail for good" or row.begins == "dead":
            job = job.using(retry=False)
        if row.move == "fail late":
            job = job.using(expires_in=DELAY_S / 2)
        if row.move == "take too late":
            job = job.using(expires_in=1e-6)
        self.jid = job.enqueue_in(DELAY_S) if row.begins == "scheduled" else job.enqueue()
        if row.begins in ("running", "retrying", "dead"):
            self.take()
        if row.begins in ("retrying", "dead"):
            self.fail()
            self.outcome = None
        # A lock's time counts from when it was touched last: not yet in this row.
        for lock in self.locks():
            self.redis.persist(lock)

    # What a worker does.

    def take(self) -> None:
        self.worker.beat()
        while not self.worker.started:
            self.worker.turn()

    def take_too_late(self) -> None:
        self.worker.work_off()

    def succeed(self) -> None:
        self.worker.perform(self.worker.started[0])
        self.worker.turn()

    def fail(self) -> None:
        self.outcome = ValueError("no")
        self.succeed()

    fail_for_good = fail_late = fail

    def discard_itself(self) -> None:
        self.outcome = Discard("not needed")
        self.succeed()

    def reschedule_itself(self) -> None:
        self.outcome = Reschedule(in_=DELAY_S)
        self.succeed()

    def promote(self) -> None:
        everything_is_due(self.redis, self.keys)
        self.worker.promote()

    def give_back(self) -> None:
        dispatcher = self.worker.dispatcher
        self.worker.started[0].begin()
        dispatcher.abandon(30)
        dispatcher.step()
        dispatcher.settle_rest()

    def sign_off(self) -> None:
        self.worker.leave()

    def rescue(self) -> None:
        all_workers_are_dead(self.redis, self.keys)
        other = InlineWorker(self.app)
        other.beat()
        other.rescue()
        other.leave()

    def rescue_too_often(self) -> None:
        flight = self.keys.in_flight(self.worker.worker.worker)
        tag = self.worker.started[0].tag
        fields = json.loads(self.redis.hget(flight, tag)) | {"orphaned": 3}
        self.redis.hset(flight, tag, json.dumps(fields))
        self.rescue()

    # What a person does.

    def by_hand(self, begins: str, action: str) -> None:
        jobs = self.look.jobs_in("default") if begins == "queued" else self.look.jobs(begins)
        if action == "clear":
            assert jobs.clear() == 1
            return
        more = ()
        if action == "reschedule":
            more = (datetime.now(UTC) + timedelta(seconds=DELAY_S),)
        word = getattr(jobs, action.replace(" ", "_"))(self.jid, *more).word
        assert word not in ("gone", "invalid", "duplicate", "refused")

    # What there is.

    def payloads(self) -> dict[str, Sequence[bytes]]:
        redis, keys = self.redis, self.keys
        flights = (
            value
            for worker in (self.worker.worker.worker,)
            for field, value in redis.hgetall(keys.in_flight(worker)).items()
            if field != b"@turn"
        )
        return {
            "queued": redis.lrange(keys.queue("default"), 0, -1),
            "running": list(flights),
            "scheduled": redis.zrange(keys.schedule, 0, -1),
            "retrying": redis.zrange(keys.retry, 0, -1),
            "dead": redis.zrange(keys.dead, 0, -1),
        }

    def place(self) -> tuple[str, dict[str, Any] | None]:
        """Where the job is, and what it says."""
        found = [(name, entry) for name, entries in self.payloads().items() for entry in entries]
        assert len(found) <= 1, f"it lies in more than one place: {found}"
        for name, entry in found:
            return name, json.loads(entry)
        return "nowhere", None

    def locks(self) -> dict[bytes, bytes]:
        pattern = self.keys.lock("*").replace("{", "\\{").replace("}", "\\}")
        return {key: self.redis.get(key) for key in self.redis.scan_iter(pattern)}

    def lock_s(self) -> int | None:
        """For how long the job holds its lock; -1 for ever, that is: as long as before."""
        locks = self.locks()
        assert set(locks.values()) <= {self.jid.encode()}, "somebody else has it"
        assert len(locks) <= 1
        return next((self.redis.ttl(key) for key in locks), None)

    def status(self) -> tuple[str, int]:
        """The job's status, and for how long it is kept."""
        return self.app.status(self.jid).state, self.redis.ttl(self.keys.status(self.jid))

    def counts(self) -> Counter[str]:
        stats = self.look.stats()
        counts = Counter({name: getattr(stats, name) for name in COUNTERS})
        assert stats.lost_claims == 0
        hours = self.look.throughput()
        ran = Counter(
            {name: sum(getattr(hour, name) for hour in hours) for name in ("processed", "failed")}
        )
        assert ran == Counter({name: counts[name] for name in ran}), "throughput and totals differ"
        return counts

    def attempts(self) -> list[str]:
        return [attempt.outcome for attempt in self.look.attempts(self.jid)]

    def log(self) -> list[str]:
        runs = self.look.history(jid=self.jid).runs
        assert all(run.tags == ("a", "b") for run in runs)
        return [run.outcome for run in reversed(runs)]


def moves_of(life: Life, row: Row) -> Callable[[], None]:
    """How to make a row's move."""
    own = getattr(life, row.move.replace(" ", "_"), None)
    return own if own is not None else lambda: life.by_hand(row.begins, row.move)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", MOVES, ids=lambda row: f"{row.begins}: {row.move}")
def test_what_goes_with_a_move(row, mode, app, redis):
    life = Life(app, redis, mode)
    life.begin(row)
    locks_before, outcomes_before = BEFORE[row.begins]
    counts_before, (place, before) = life.counts(), life.place()
    assert place == row.begins
    assert (life.lock_s() is None) == (getattr(locks_before, mode) is None)
    assert life.attempts() == life.log() == outcomes_before.split()

    moves_of(life, row)()

    place, after = life.place()
    assert place == row.ends
    lock_s = life.lock_s()
    wanted_s = getattr(row.locks, mode)
    kept_as_it_was = lock_s == -1 and wanted_s is not None and row.move == "take"
    assert kept_as_it_was or lock_s == (wanted_s and pytest.approx(wanted_s, abs=60))
    attempts = (
        [] if row.attempts == "forgotten" else [*outcomes_before.split(), *row.attempts.split()]
    )
    assert life.attempts() == attempts
    assert life.log() == [*outcomes_before.split(), *row.log.split()]
    waits_s = DELAY_S if row.ends in ("scheduled", "retrying") else 0
    kept_s = pytest.approx(STATUS_S + waits_s, abs=60)
    assert life.status() == (STATES.get(row.move, row.ends), kept_s)
    counts = life.counts()
    counts.subtract(counts_before)
    assert +counts == Counter(row.counts.split())
    if after is not None:
        assert after["tags"] == ["a", "b"]
        moved_s = after["expires_at"] - before["expires_at"]
        assert (moved_s == 0) == (row.expiry == "stays")


def test_all_moves_by_hand_are_in_the_matrix():
    from cogworker.jobs_at import ACTIONS

    assert {*ACTIONS, "clear"} <= {row.move.replace(" ", "_") for row in MOVES}
