"""How many jobs a worker keeps ready."""

from cogworker._worker.readiness import CALM_S, MOST_READY, SHORT_S, Readiness


def learn(readiness, turns, *, start, every, finished, mean_s=SHORT_S / 10):
    now = start
    for _ in range(turns):
        now += every
        readiness.learn(finished, finished * mean_s, now)
    return now


def test_short_jobs_at_a_high_pace_grow_to_the_limit():
    readiness = Readiness()

    learn(readiness, 10, start=0.0, every=0.001, finished=60)

    assert readiness.limit == MOST_READY


def test_never_more_than_is_finished_in_a_few_milliseconds():
    readiness = Readiness()

    learn(readiness, 10, start=0.0, every=0.001, finished=2)  # two thousand a second

    assert 7 <= readiness.limit <= 8


def test_jobs_that_are_long_on_average_end_it():
    readiness = Readiness()
    now = learn(readiness, 10, start=0.0, every=0.001, finished=60)

    learn(readiness, 10, start=now, every=0.001, finished=60, mean_s=3 * SHORT_S)

    assert readiness.limit == 0


def test_one_long_job_among_many_does_not():
    readiness = Readiness()
    now = learn(readiness, 10, start=0.0, every=0.001, finished=60)

    readiness.learn(60, 0.005, now + 0.001)  # as a wait for the interpreter's lock makes it look

    assert readiness.limit == MOST_READY


def test_after_a_job_was_given_back_nothing_is_kept_for_a_while():
    readiness = Readiness()
    now = learn(readiness, 10, start=0.0, every=0.001, finished=60)

    readiness.retreat(now)
    assert readiness.limit == 0
    now = learn(readiness, 10, start=now, every=CALM_S / 20, finished=600)
    assert readiness.limit == 0

    learn(readiness, 3, start=now + CALM_S, every=0.001, finished=60)
    assert readiness.limit > 0


def test_nothing_is_kept_ready_before_anything_has_finished():
    readiness = Readiness()

    learn(readiness, 10, start=0.0, every=0.001, finished=0)

    assert readiness.limit == 0


def test_a_slow_pace_keeps_one_ready():
    readiness = Readiness()

    learn(readiness, 10, start=0.0, every=5.0, finished=1)

    assert readiness.limit == 1
