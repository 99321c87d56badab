"""The decisions of a swarm's parent, without processes."""

from cogworker.swarm.back_off import BackOff
from cogworker.swarm.restarts import Restarts, State

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
