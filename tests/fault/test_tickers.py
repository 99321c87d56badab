"""Two hundred workers' tickers on one server: each time slot fires exactly once.

Their clock is simulated, and passes as fast as the server answers; which of them wake up for a
minute, and in what order, is drawn by lot. What must have been fired is found by looking at a clock
on the wall (``support.wall``).
"""

import json
import random
import threading
from collections import Counter
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cogworker import Cogworker
from cogworker._redis.runner import ONCE, Runner
from cogworker._worker.board import Board
from cogworker._worker.loops.ticker import Ticker
from cogworker._worker.outage import Outage
from cogworker._worker.parts import logger

from support.wall import due

TICKERS = 200
THREADS = 4
MINUTE = 60
CHANGES = (
    ("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"), ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"), ("Australia/Lord_Howe", "2026-10-04"),
    ("Africa/Casablanca", "2026-02-15"), ("Africa/Casablanca", "2026-03-22"),
)  # fmt: skip
LINES = ("* * * * *", "0 * * * *", "30 2 * * *", "*/10 1-3 * * *", "15,45 1-3 * * *", "0 0 * * *")


class Fleet:
    """Tickers that share a clock; each thread has its share of them, and a connection."""

    def __init__(self, app: Cogworker, tickers: int, now: int) -> None:
        self.app = app
        self.now = now
        self.shares = [
            [self._ticker(number, runner) for number in range(tickers // THREADS)]
            for runner in (Runner(app.client.runner.connector, ONCE) for _ in range(THREADS))
        ]
        self._barrier = threading.Barrier(THREADS, self._pass_time)

    def _ticker(self, number: int, runner: Runner) -> Ticker:
        ticker = Ticker(
            *(
                Outage(logger),
                runner,
                self.app.client,
                Board(runner, self.app.client, f"w{number}"),
            ),
            entries=self.app.timetable.declared,
            server_time=lambda: self.now + random.random(),
            may_fire=lambda: True,
            on_damage=lambda: None,
        )
        ticker._board._publish_at = float("inf")
        return ticker

    def live_until(self, end: int, chance: float) -> None:
        """Each minute some of each thread's tickers wake, at least one, all threads at once."""
        problems: list[BaseException] = []

        def live(share: list[Ticker], lots: random.Random) -> None:
            try:
                while self.now < end:
                    awake = [ticker for ticker in share if lots.random() < chance]
                    for ticker in awake or [lots.choice(share)]:
                        ticker.tick()
                    self._barrier.wait()
            except BaseException as error:
                problems.append(error)
                self._barrier.abort()

        threads = [
            threading.Thread(target=live, args=(share, random.Random(seed)))
            for seed, share in enumerate(self.shares)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for share in self.shares:
            share[0]._runner.close()
        assert not problems

    def _pass_time(self) -> None:
        self.now += MINUTE


def fired(app, redis):
    """How often each entry fired for each time slot, by what the pushed jobs say."""
    jobs = [json.loads(raw) for raw in redis.lrange(app.client.keys.queue("default"), 0, -1)]
    return Counter((job["args"][0], job["periodic_slot"]) for job in jobs)


def declare(app, line, zone):
    name = f"{line} {zone}"
    app.periodic(line, app.jobs["job"], timezone=zone, args=[name])
    return name


@pytest.fixture
def simulate(app, redis):
    """Have entries, called by line and zone, fired from a moment up to another one."""

    @app.job(name="job")
    def job(name):
        pass

    def simulate(entries, start, end, chance):
        names = {declare(app, line, zone): (line, zone) for line, zone in entries}
        Fleet(app, TICKERS, start).live_until(end, chance)
        found = fired(app, redis)
        expected = Counter(
            (name, slot) for name, of in names.items() for slot in due(*of, start, end)
        )
        before = {key for key in found if key[1] < start}  # the latest ones before the start
        assert {name for name, _ in before} == names.keys()
        for key in before:
            assert found.pop(key) == 1
        return found, expected

    return simulate


def around(zone, day, hours):
    noon = datetime.fromisoformat(day + "T03:00").replace(tzinfo=ZoneInfo(zone))
    middle = int(noon.timestamp()) // MINUTE * MINUTE
    return middle - hours * 3600, middle + hours * 3600


@pytest.mark.parametrize(("zone", "day"), CHANGES[::3])
def test_each_time_slot_fires_once_while_clocks_change(simulate, zone, day):
    entries = [(line, zone) for line in LINES]
    start, end = around(zone, day, 2)

    found, expected = simulate(entries, start + 1, end, 0.02)

    assert found == expected


@pytest.mark.long
@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_each_time_slot_fires_once_in_the_days_around_a_change(simulate, zone, day):
    entries = [(line, zone) for line in LINES]
    start, end = around(zone, day, 24)

    found, expected = simulate(entries, start + 1, end, 0.02)

    assert found == expected


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_minute_of_a_week_fires_once(simulate):
    start = int(datetime(2026, 6, 1, tzinfo=ZoneInfo("UTC")).timestamp())
    end = start + int(timedelta(days=7).total_seconds())

    found, expected = simulate([("* * * * *", "UTC")], start + 1, end, 0.05)

    assert len(expected) == 7 * 24 * 60 - 1
    assert found == expected


@pytest.mark.long
def test_each_minute_of_an_hour_fires_once_though_all_wake(simulate):
    start = int(datetime(2026, 6, 1, tzinfo=ZoneInfo("UTC")).timestamp())

    found, expected = simulate([("* * * * *", "UTC")], start + 1, start + 3600, 1.0)

    assert found == expected
