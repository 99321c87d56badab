"""The small parts of a worker, each by itself."""

import logging
import os
import signal
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import msgspec
import pytest

from cogworker import JobInterrupted, RedisRefused, RedisUnavailable, clock
from cogworker._engine.places import InFlight
from cogworker._redis.keys import Keys
from cogworker._worker import facts
from cogworker._worker.alarm import Alarm
from cogworker._worker.claims import Claims
from cogworker._worker.delivery import Delivery
from cogworker._worker.executors.threads import ThreadExecutor
from cogworker._worker.loops.base import Loop
from cogworker._worker.loops.guard import Guard
from cogworker._worker.loops.heartbeat import Heartbeat
from cogworker._worker.order import QueueOrder
from cogworker._worker.outage import REPEAT_S, Outage
from cogworker._worker.signals import Requests
from cogworker._worker.slots import Slots
from cogworker._worker.watch import Watch
from cogworker._worker.wear import Wear
from cogworker.config import Config
from cogworker.payload import Envelope, one_line, parse

from support.processes import eventually


def delivery(number, ready_at=0.0):
    return Delivery(f"1.{number}.q".encode(), b"{}", Envelope("x", str(number)), None, ready_at)


class TestSlots:
    def test_starts_what_fits_and_keeps_the_rest_ready(self):
        slots = Slots(2, lambda: None)

        started = slots.offer([delivery(number) for number in range(5)], sparing=False)

        assert [each.tag for each in started] == [b"1.0.q", b"1.1.q"]
        assert (slots.free, slots.busy, slots.ready) == (0, 2, 3)

    def test_a_finished_slot_takes_the_next_by_itself(self):
        slots = Slots(1, lambda: None)
        [one] = slots.offer([delivery(1), delivery(2)], sparing=False)

        two = slots.finish(one, None)
        assert two.tag == b"1.2.q"
        assert slots.finish(two, None) is None

        assert slots.free == 1
        assert [each.tag for each, _ in slots.collect().deliveries] == [b"1.1.q", b"1.2.q"]
        assert slots.collect().deliveries == []

    def test_sparing_puts_one_slot_to_work(self):
        slots = Slots(4, lambda: None)

        assert len(slots.offer([delivery(1), delivery(2)], sparing=True)) == 1
        assert slots.offer([delivery(3)], sparing=True) == []
        assert slots.ready == 2

    def test_what_has_waited_is_spread_over_the_free_slots(self, monkeypatch):
        now = 100.0
        monkeypatch.setattr("cogworker.clock.monotonic", lambda: now)
        slots = Slots(3, lambda: None)
        slots.offer([delivery(number, now) for number in range(5)], sparing=True)

        assert slots.spread(0.001) == []
        now += 0.002
        assert len(slots.spread(0.001)) == 2
        assert (slots.free, slots.ready) == (0, 2)

    def test_what_has_waited_without_a_free_slot_is_reclaimed(self, monkeypatch):
        now = 100.0
        monkeypatch.setattr("cogworker.clock.monotonic", lambda: now)
        slots = Slots(1, lambda: None)
        slots.offer([delivery(1, now), delivery(2, now)], sparing=False)

        assert slots.reclaim(0.005) == []
        now += 0.006
        assert [each.tag for each in slots.reclaim(0.005)] == [b"1.2.q"]
        assert slots.ready == 0


class TestQueueOrder:
    def test_weights_are_the_chance_to_be_first(self):
        order = QueueOrder(Config(queues=(("a", 3), ("b", 1))))

        first = [order.draw()[0] for _ in range(4000)]

        assert 2800 < first.count("a") < 3200

    def test_each_queue_is_drawn_once(self):
        order = QueueOrder(Config(queues=(("a", 9), ("b", 1), ("c", 2))))

        assert all(sorted(order.draw()) == ["a", "b", "c"] for _ in range(50))

    def test_strict_is_always_the_same(self):
        order = QueueOrder(Config(queues=(("b", 1), ("a", 9)), queue_order="strict"))

        assert {tuple(order.draw()) for _ in range(50)} == {("b", "a")}


class TestAlarm:
    def test_a_ring_before_the_wait_is_not_lost(self):
        alarm = Alarm()
        alarm.ring()

        alarm.wait(60)  # the test's time limit is the assertion
        alarm.close()

    def test_a_ring_ends_the_wait(self):
        alarm = Alarm()
        woken = threading.Event()

        def wait():
            alarm.wait(60)
            woken.set()

        thread = threading.Thread(target=wait)
        thread.start()
        alarm.ring()
        assert woken.wait(10)
        thread.join()
        alarm.close()

    def test_a_thousand_rings_do_not_fill_the_pipe(self):
        alarm = Alarm()
        alarm._waiting = True
        for _ in range(100_000):
            alarm.ring()
        alarm.wait(60)
        alarm.wait(60)
        alarm.close()


class TestRequests:
    def test_come_in_their_order(self):
        requests = Requests()
        requests.put("quiet")
        requests.put("stop")

        assert [requests.get(), requests.get(), requests.get(0.0)] == ["quiet", "stop", None]

    def test_a_request_ends_a_wait(self):
        requests = Requests()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(requests.get()))
        thread.start()
        requests.put("stop")
        thread.join(10)

        assert answers == ["stop"]


class TestRequestsOfAParent:
    @pytest.fixture
    def requests(self):
        requests = Requests()
        reader, self.parent = os.pipe()
        requests.obey_parent(reader)
        self.is_closed = False
        with requests.from_signals():
            yield requests
        requests.close()
        os.close(reader)
        if not self.is_closed:
            os.close(self.parent)

    def die(self):
        os.close(self.parent)
        self.is_closed = True

    def test_its_death_asks_for_a_stop_once(self, requests):
        self.die()

        assert [requests.get(), requests.get(0.0)] == ["stop", None]

    def test_its_death_during_a_stop_asks_for_nothing_more(self, requests):
        os.kill(os.getpid(), signal.SIGTERM)
        assert requests.get() == "stop"
        self.die()

        assert requests.get(0.0) is None

    def test_many_signals_ask_for_one_stop_and_a_byte_for_another(self, requests):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert [requests.get(), requests.get(0.0)] == ["stop", None]
        os.write(self.parent, b"!")

        assert [requests.get(0.0), requests.get(0.0)] == ["hurry", None]

    def test_signals_after_an_order_to_retire_ask_for_nothing_more(self, requests):
        requests.put("retire")
        os.kill(os.getpid(), signal.SIGTERM)

        assert [requests.get(), requests.get(0.0)] == ["retire", None]


@pytest.mark.parametrize(("before", "asked"), [(signal.SIG_DFL, "stop"), (signal.SIG_IGN, None)])
def test_a_hang_up_stops_unless_it_is_ignored_as_under_nohup(before, asked):
    default = signal.signal(signal.SIGHUP, before)
    requests = Requests()
    try:
        with requests.from_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert requests.get(0.0) == asked
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, default)
        requests.close()


def test_a_signal_that_was_blocked_before_comes_through():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)  # no other thread may get it
    requests = Requests()
    with requests.from_signals():
        assert requests.get(0.0) == "quiet"
    requests.close()


class TestOutage:
    @pytest.fixture
    def outage(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("cogworker.clock.monotonic", lambda: self.now)
        return Outage(logging.getLogger("test"))

    def test_says_it_once_then_once_a_minute_and_when_it_is_over(self, outage, caplog):
        caplog.set_level(logging.INFO)
        for _ in range(100):
            outage.failed("dispatcher", RedisUnavailable("gone"))
        assert caplog.text.count("redis is away") == 1

        self.now += REPEAT_S
        outage.failed("dispatcher", RedisUnavailable("gone"))
        outage.failed("dispatcher", RedisUnavailable("gone"))
        assert caplog.text.count("redis is away") == 2

        outage.worked("dispatcher")
        outage.worked("dispatcher")
        assert caplog.text.count("redis is back: site=dispatcher after_s=60.0") == 1

    def test_says_it_when_a_server_that_was_away_refuses(self, outage, caplog):
        """As one does that comes back with another password."""
        for _ in range(10):
            outage.failed("dispatcher", RedisUnavailable("gone"))
            outage.failed("dispatcher", RedisRefused("wrong password"))

        assert caplog.text.count("redis is away") == 1
        assert caplog.text.count("redis refuses") == 1

        outage.worked("dispatcher")
        outage.failed("dispatcher", RedisRefused("wrong password"))
        assert caplog.text.count("redis refuses") == 2

    def test_each_site_for_itself(self, outage, caplog):
        for error in (RedisUnavailable("gone"), RedisRefused("NOPERM")):
            for site in ("dispatcher", "poller", "poller"):
                outage.failed(site, error)
        assert caplog.text.count("redis is away") == 2
        assert caplog.text.count("redis refuses") == 2


class TestLoop:
    def test_a_tick_that_fails_is_logged_counted_and_tried_again(self, caplog, monkeypatch):
        done = threading.Event()

        class Flaky(Loop):
            name = "flaky"
            ticks = 0

            def tick(self):
                self.ticks += 1
                if self.ticks == 1:
                    raise RuntimeError("the first time")
                done.set()
                return 60.0

        loop = Flaky(Outage(logging.getLogger("test")))
        monkeypatch.setattr(loop._stopping, "wait", self.hurried(loop._stopping.wait))
        loop.start()
        assert done.wait(10)
        loop.stop(10)

        assert loop.failures == 1
        assert "the first time" in caplog.text

    def test_redis_being_away_is_no_failure_of_the_loop(self, caplog, monkeypatch):
        done = threading.Event()

        class Cut(Loop):
            name = "cut"
            ticks = 0

            def tick(self):
                self.ticks += 1
                if self.ticks < 3:
                    raise RedisUnavailable("gone")
                done.set()
                return 60.0

        loop = Cut(Outage(logging.getLogger("test")))
        monkeypatch.setattr(loop._stopping, "wait", self.hurried(loop._stopping.wait))
        loop.start()
        assert done.wait(10)
        loop.stop(10)

        assert loop.failures == 0
        assert caplog.text.count("redis is away") == 1

    @staticmethod
    def hurried(wait):
        """Time passes a hundred times as fast."""
        return lambda pause_s: wait(pause_s / 100)


class TestHeartbeat:
    def test_says_since_when_all_beats_were_answered(self, monkeypatch):
        now = 100.0
        monkeypatch.setattr("cogworker.clock.monotonic", lambda: now)
        away = False

        class Stub:
            @staticmethod
            def run(command):
                seen.append(heartbeat.answered_since)
                if away:
                    raise RedisUnavailable("gone")
                return now

        seen = []
        heartbeat = Heartbeat(
            Outage(logging.getLogger("test")),
            Stub(),
            Keys("n"),
            InFlight("w"),
            dict,
            5.0,
            Wear(Config(), lambda reason: False),
            lambda: None,
        )
        assert heartbeat.answered_since is None
        heartbeat.tick()
        now = 105.0
        heartbeat.tick()
        assert heartbeat.answered_since == 100

        away = True
        with pytest.raises(RedisUnavailable):
            heartbeat.tick()
        assert seen == [None, 100, 100], "a beat that is under way has not failed"
        assert heartbeat.answered_since is None

        away = False
        heartbeat.tick()
        assert heartbeat.answered_since == 105

    @pytest.mark.parametrize(("silent_s", "checks"), [(59.9, 0), (60, 1), (3600, 1)])
    def test_checks_claims_after_a_silence_that_its_presence_does_not_outlast(
        self, silent_s, checks
    ):
        at, checked, away = 1000.0, [], False

        class Stub:
            @staticmethod
            def run(command):
                return at

        def check():
            checked.append(at)
            if away:
                raise RedisUnavailable("gone")

        heartbeat = Heartbeat(
            Outage(logging.getLogger("test")),
            Stub(),
            Keys("n"),
            InFlight("w"),
            dict,
            5.0,
            Wear(Config(), lambda reason: False),
            check,
        )
        heartbeat.tick()
        at += silent_s
        away = True
        with pytest.raises(RedisUnavailable) if checks else nullcontext():
            heartbeat.tick()
        away = False
        for _ in range(3):
            at += 5
            heartbeat.tick()

        assert len(checked) == 2 * checks, "once more, since the first time got no answer"


class TestClaims:
    def test_interrupts_what_is_not_in_flight_any_more_and_was_when_it_was_asked(self):
        slots = Slots(2, lambda: None)
        lost, ended, *ready = deliveries = [delivery(number) for number in range(4)]
        slots.offer(deliveries, sparing=False)
        interrupted = []

        class Stub:
            @staticmethod
            def run(command):
                assert command.words() == ("HKEYS", "n:worker:w:in_flight")
                slots.finish(ended, None)  # and was settled; the next one takes its slot
                slots.offer([delivery(9)], sparing=False)
                return {b"@turn", ready[1].tag}

        Claims(Stub(), Keys("n"), InFlight("w"), slots, interrupted.append).check()

        assert interrupted == [lost, ready[0]]
        assert [each.lost for each in deliveries] == [True, False, True, False]

    def test_asks_nothing_when_it_runs_nothing(self):
        Claims(None, Keys("n"), InFlight("w"), Slots(1, lambda: None), None).check()


class TestDelivery:
    def test_one_that_was_given_back_does_not_begin(self):
        delivery = Delivery(b"1.1.q", b"{}", parse(b'{"class":"a","jid":"b"}'), None, 0.0)
        delivery.interrupted = True
        with pytest.raises(JobInterrupted):
            delivery.begin()
        assert not delivery.begun

    def test_one_that_begins_is_known_to_have_begun(self):
        delivery = Delivery(b"1.1.q", b"{}", parse(b'{"class":"a","jid":"b"}'), None, 0.0)
        delivery.begin()
        assert delivery.begun


class TestGuard:
    @pytest.fixture
    def guard(self, monkeypatch):
        self.now, self.asked = 100.0, []
        monkeypatch.setattr("cogworker.clock.monotonic", lambda: self.now)

        def run(command):
            self.asked.append(command.name)
            return [str(number) for number in range(10)] if command.name == "workers" else []

        runner = SimpleNamespace(run=run)
        outage = Outage(logging.getLogger("test"))
        return Guard(outage, runner, Keys("n"), "w", ["default"], 60.0)

    def test_an_alarm_just_after_a_look_is_not_forgotten(self, guard, monkeypatch):
        monkeypatch.setattr("random.random", lambda: 0.99)
        guard.tick()
        self.asked.clear()
        guard.alarm()
        self.now += 0.4
        assert guard.tick() == pytest.approx(0.6)
        assert self.asked == []
        self.now += 0.6
        guard.tick()
        assert "queues" in self.asked, "after an alarm all keys are checked"

    def test_all_keys_are_checked_by_one_worker_in_ten_of_ten(self, guard, monkeypatch):
        for draw, all_keys in ((0.09, True), (0.11, False)):
            self.now += 60
            self.asked.clear()
            monkeypatch.setattr("random.random", lambda draw=draw: draw)
            guard.tick()
            assert ("queues" in self.asked) == all_keys


class TestWatch:
    def test_a_silent_worker_is_dead_when_it_was_watched_long_enough(self):
        watch = Watch(15)
        assert watch.look({"w": 1.0}, answered_since=0, now=100) == []
        assert watch.undecided
        assert watch.look({"w": 1.0}, answered_since=0, now=114.9) == []
        assert watch.look({"w": 1.0}, answered_since=0, now=115) == ["w"]
        assert not watch.undecided

    def test_a_beat_between_two_looks_begins_the_watch_again(self):
        """As after a jump of the server's clock: all beats look old until the next ones."""
        watch = Watch(15)
        watch.look({"w": 1.0, "v": 1.0}, answered_since=0, now=100)
        assert watch.look({"w": 2.0, "v": 1.0}, answered_since=0, now=120) == ["v"]
        assert watch.look({"w": 2.0}, answered_since=0, now=134) == []
        assert watch.look({"w": 2.0}, answered_since=0, now=135) == ["w"]

    def test_one_that_beats_again_is_forgotten(self):
        watch = Watch(15)
        watch.look({"w": 1.0}, answered_since=0, now=100)
        assert watch.look({}, answered_since=0, now=110) == []
        assert not watch.undecided
        assert watch.look({"w": 1.0}, answered_since=0, now=120) == []

    def test_only_time_in_which_our_own_beats_were_answered_counts(self):
        watch = Watch(15)
        watch.look({"w": 1.0}, answered_since=0, now=100)
        assert watch.look({"w": 1.0}, answered_since=None, now=120) == []
        assert watch.look({"w": 1.0}, answered_since=121, now=121) == []
        assert watch.look({"w": 1.0}, answered_since=121, now=135) == []
        assert watch.look({"w": 1.0}, answered_since=121, now=136) == ["w"]

    def test_an_outage_that_was_over_before_the_next_look_counts(self):
        watch = Watch(15)
        watch.look({"w": 1.0}, answered_since=0, now=100)
        assert watch.look({"w": 1.0}, answered_since=118, now=120) == []


class TestWear:
    def test_says_once_that_the_jobs_are_done(self):
        said = []
        wear = Wear(Config(max_jobs=10), said.append)
        wear.ran(9)
        assert said == []
        assert wear.jobs_left == 1
        wear.ran(1)
        wear.ran(5)
        assert said == ["max_jobs jobs=10 limit=10"]
        assert wear.jobs_left > 10**6, "its parent decides when it is replaced"

    def test_one_that_ends_takes_no_more(self):
        wear = Wear(Config(max_jobs=10), lambda reason: True)
        wear.ran(12)
        assert wear.jobs_left == 0

    def test_says_once_that_it_needs_too_much_memory(self, monkeypatch):
        used = iter((50, 101, 120, 200))
        monkeypatch.setattr("cogworker._worker.wear.resident_kb", lambda: next(used))
        said = []
        wear = Wear(Config(max_rss=100 * 1024), said.append)
        wear.check_memory()
        assert said == []
        wear.check_memory()
        wear.check_memory()
        assert said == ["max_rss rss=103424 limit=102400"]

    def test_a_limit_below_what_it_begins_with_is_an_error_and_ignored(self, monkeypatch, caplog):
        monkeypatch.setattr("cogworker._worker.wear.resident_kb", lambda: 101)
        said = []
        wear = Wear(Config(max_rss=100 * 1024), said.append)
        for _ in range(3):
            wear.check_memory()
        assert said == []
        [record] = caplog.records
        assert "raise it: rss=103424 max_rss=102400" in record.getMessage()

    def test_without_limits_it_says_nothing(self):
        said = []
        wear = Wear(Config(max_rss=2**50), said.append)
        wear.ran(10**9)
        wear.check_memory()
        assert said == []


def test_identities_differ_and_name_host_and_process(monkeypatch):
    assert facts.new_identity() != facts.new_identity()
    monkeypatch.setenv("DYNO", "web.1")
    assert facts.new_identity().startswith(f"web.1:{os.getpid()}:")
    fixed = facts.fixed_facts(facts.new_identity(), Config())
    assert (fixed["hostname"], fixed["pid"]) == ("web.1", os.getpid())


def test_a_beat_tells_memory_what_runs_and_quiet():
    running = delivery(1)
    running.started_at = clock.monotonic() - 50

    fields = facts.presence_facts({"identity": "x"}, [running], True)

    assert fields["busy"] == "1"
    assert msgspec.json.decode(fields["began"]) == {"1.1.q": pytest.approx(time.time() - 50, abs=5)}
    assert fields["quiet"] == "true"
    assert '"rss_kb":' in fields["info"]
    assert facts.resident_kb() > 5000


class TestThreadExecutor:
    def make(self, slots, passed):
        return ThreadExecutor(slots, lambda delivery: None, lambda delivery: None, passed.append)

    def test_without_any_thread_it_says_so_and_with_one_it_goes_on(self, monkeypatch):
        done = threading.Event()
        slots = Slots(2, done.set)
        executor = self.make(slots, [])
        start, refused = threading.Thread.start, True

        def refuse(thread):
            if refused:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        [one] = slots.offer([delivery(1)], sparing=False)
        with pytest.raises(RuntimeError):
            executor.submit(one)

        refused = False
        executor.submit(one)
        assert done.wait(10)
        executor.stop(10)

    def test_an_idle_thread_serves_before_another_is_started(self):
        done = threading.Semaphore(0)
        slots = Slots(8, done.release)
        executor = self.make(slots, [])
        for number in range(20):
            [one] = slots.offer([delivery(number)], sparing=False)
            executor.submit(one)
            assert done.acquire(timeout=10)
            eventually(lambda: executor._load == 0)

        assert len(executor._threads) == 1
        executor.stop(10)


def test_signals_are_given_back_after_a_run():
    before = signal.getsignal(signal.SIGTERM)
    requests = Requests()
    with requests.from_signals():
        assert signal.getsignal(signal.SIGTERM) != before
        os.kill(os.getpid(), signal.SIGTERM)
        assert requests.get(10) == "stop"
    requests.close()

    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(-1) == -1
    requests.put("stop")  # harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe … C:\\temp \\d+ 🎉", "größe … C:\\temp \\d+ 🎉"),
        ("two\nlines\t\x1b[31m", "two\\nlines\\t\\x1b[31m"),
        ("half \ud800, \u2028 and \u202e", "half \\ud800, \\u2028 and \\u202e"),
    ],
)
def test_a_log_line_stays_one_and_can_be_read(text, shown):
    assert one_line(text) == shown
