"""The decisions of a swarm's parent, without processes."""

import math

import pytest

from cogworker import clock
from cogworker._worker.systemd import Systemd
from cogworker.swarm.back_off import BackOff
from cogworker.swarm.notices import Notices, status
from cogworker.swarm.restarts import Restarts, State
from cogworker.swarm.supervisor import Supervisor

VACANT, STARTING, READY, STOPPING, LEAVING, RETIRED = State


class TestBackOff:
    def test_a_crash_loop_slows_down_to_a_minute(self):
        back_off = BackOff()

        assert [back_off.after(29.9) for _ in range(10)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]

    def test_a_healthy_run_begins_anew(self):
        back_off = BackOff()
        for _ in range(5):
            back_off.after(0.0)

        assert [back_off.after(30.0), back_off.after(1.0), back_off.after(1.0)] == [0, 0, 1]

    def test_what_crashed_can_be_forgotten(self):
        back_off = BackOff()
        for _ in range(5):
            back_off.after(0.0)
        back_off.forget()

        assert [back_off.after(0.0), back_off.after(0.0)] == [0, 1]

    def test_a_loop_that_goes_on_for_weeks_does_not_overflow(self):
        back_off = BackOff()

        assert {back_off.after(0.0) for _ in range(5000)} >= {60.0}


class TestRestarts:
    def test_one_after_the_other_and_only_when_all_others_work(self):
        restarts = Restarts()
        restarts.start_over(range(3))

        assert restarts.next([READY, READY, READY]) == 0
        assert restarts.next([STOPPING, READY, READY]) is None
        assert restarts.next([VACANT, READY, READY]) is None
        assert restarts.next([STARTING, READY, READY]) is None
        assert restarts.next([READY, READY, READY]) == 1
        assert restarts.next([READY, READY, READY]) == 2
        assert restarts.next([READY, READY, READY]) is None

    def test_a_retired_worker_holds_up_nothing(self):
        restarts = Restarts()
        restarts.start_over([1])

        assert restarts.next([RETIRED, READY]) == 1

    def test_workers_that_do_not_work_yet_go_at_once_and_first(self):
        restarts = Restarts()
        restarts.start_over(range(3))

        assert restarts.next([READY, STARTING, STARTING]) == 1
        assert restarts.next([READY, STOPPING, STARTING]) == 2
        assert restarts.next([READY, STOPPING, STOPPING]) is None

    def test_a_worker_that_leaves_holds_up_the_others_but_not_itself(self):
        restarts = Restarts()
        restarts.start_over(range(2))

        assert restarts.next([READY, LEAVING]) == 1
        assert restarts.next([READY, STOPPING]) is None

    def test_starting_over_forgets_what_was_asked_before(self):
        restarts = Restarts()
        restarts.start_over(range(4))
        restarts.next([READY] * 4)
        restarts.start_over([1, 2])

        assert [restarts.next([READY] * 4) for _ in range(3)] == [1, 2, None]

    def test_what_has_ended_by_itself_need_not_be_replaced(self):
        restarts = Restarts()
        restarts.start_over(range(2))
        restarts.drop(0)
        restarts.drop(0)

        assert [restarts.next([READY] * 2), restarts.next([READY] * 2)] == [1, None]

    def test_a_worn_out_worker_is_replaced_once_and_in_its_turn(self):
        restarts = Restarts()
        restarts.add(2)
        restarts.add(0)
        restarts.add(2)

        assert len(restarts) == 2
        assert [restarts.next([READY] * 3) for _ in range(3)] == [2, 0, None]


class Told:
    """A worker that has said some words since the last time."""

    messages = None
    files = ()

    def __init__(self):
        self.words = []
        self.signals = []
        self.pid = 7

    def hear(self):
        said, self.words = self.words, []
        return [(word, fact) for word, _, fact in (line.partition(" ") for line in said)]

    def signal(self, number):
        self.signals.append(number)


@pytest.fixture
def parent():
    parent = Supervisor(None, 1, shutdown_timeout_s=5, phased=True)
    [seat] = parent._seats
    seat.child, seat.state = Told(), State.STARTING

    def say(*words):
        seat.child.words += words
        parent._hear(seat, seat.child)
        return seat

    parent.say = say
    yield parent
    parent._signals.close()


class TestWhatWorkersSay:
    @pytest.mark.parametrize("words", [("ready 5.0", "stopping"), ("stopping",)])
    def test_one_that_leaves_by_itself_is_killed_when_it_hangs(self, parent, words):
        seat = parent.say(*words)

        assert seat.state is State.LEAVING
        assert seat.kill_at == pytest.approx(clock.monotonic() + 15, abs=2)
        seat.kill_if_late(clock.monotonic() + 16)
        assert seat.child.signals == [9]

    def test_one_that_was_told_to_stop_gets_no_more_time_by_saying_that_it_does(self, parent):
        seat = parent.say("ready 5.0")
        seat.stop(clock.monotonic() - 1)
        parent.say("stopping")

        assert seat.state is State.STOPPING
        assert seat.kill_at < clock.monotonic()

    def test_nor_does_one_that_was_leaving_already(self, parent):
        seat = parent.say("ready 5.0", "stopping")
        kill_at = seat.kill_at
        seat.stop(math.inf)

        assert seat.kill_at == kill_at

    def test_one_that_is_worn_out_before_it_is_ready_is_replaced_when_it_is(self, parent):
        parent.say("worn max_rss rss=9 limit=8")
        assert len(parent._restarts) == 0
        seat = parent.say("ready 5.0")

        assert len(parent._restarts) == 1
        assert parent._restarts.next([State.READY]) == 0
        parent.say("ready 5.0")
        assert len(parent._restarts) == 0, "once"
        assert seat.state is State.READY


class TestStop:
    def test_term_twice_in_a_moment_is_one(self, parent, monkeypatch):
        seat = parent.say("ready 5.0")
        seat.child.hurry = lambda: hurried.append(now[-1])
        hurried, now = [], []
        monkeypatch.setattr(clock, "monotonic", lambda: now[-1])
        for time in (100.0, 100.0, 100.4, 100.6):
            now.append(time)
            parent._stop()

        assert hurried == [100.6]


class TestNotices:
    @pytest.fixture
    def told(self, monkeypatch):
        told = []
        monkeypatch.setattr(Systemd, "say", lambda _, words: told.append(words))
        return told

    def test_a_start_is_extended_while_workers_start(self, told):
        notices = Notices()

        def tell(now, *states, is_up=False, is_stopping=False):
            del told[:]
            notices.tell(now, states, is_up=is_up, is_stopping=is_stopping)
            return [words for words in told if words.startswith("EXTEND")]

        assert tell(0.0, STARTING, READY) == ["EXTEND_TIMEOUT_USEC=30000000"]
        assert notices.next_at == 10.0
        assert tell(9.0, STARTING, READY) == []
        assert len(tell(10.0, STARTING, READY)) == 1
        assert tell(99.0, VACANT, READY) == [], "it crashes"
        assert notices.next_at == math.inf
        assert tell(99.0, STARTING, STOPPING, is_stopping=True) == []
        assert tell(99.0, STARTING, READY, is_up=True) == []
        assert len(tell(99.0, STARTING, READY)) == 1

    def test_how_it_fares_is_told_when_it_changes(self, told):
        notices = Notices()
        for states in ([STARTING, READY], [VACANT, READY], [READY, READY]):
            notices.tell(0.0, states, is_up=states == [READY, READY], is_stopping=False)

        assert [words for words in told if "STATUS" in words] == [
            "STATUS=starting, 1 of 2 workers are ready",
            "STATUS=running 2 of 2 workers",
        ]
        assert status([STOPPING], is_up=True, is_stopping=True) == "stopping"
