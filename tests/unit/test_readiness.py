"""How many jobs a worker keeps ready."""

from cogworker._worker.readiness import CALM_S, MOST_READY, SHORT_S, Readiness


def learn(readiness: Readiness, turns: int, *, start: float, every: float, finished: int) -> float:
    now = start
    for _ in range(turns):
        now += every
        readiness.learn(finished, SHORT_S / 10, now)
    return now


def test_short_jobs_at_a_high_pace_grow_to_the_limit():
    readiness = Readiness()

    learn(readiness, 10, start=0.0, every=0.001, finished=60)

    assert readiness.limit == MOST_READY


def test_never_more_than_is_finished_in_a_few_milliseconds():
    readiness = Readiness()

    learn(readiness, 10, start=0.0, every=0.001, finished=2)  # two thousand a second

    assert 7 <= readiness.limit <= 8


def test_one_long_job_ends_it_at_once_and_for_a_while():
    readiness = Readiness()
    now = learn(readiness, 10, start=0.0, every=0.001, finished=60)

    readiness.learn(60, 2 * SHORT_S, now + 0.001)
    assert readiness.limit == 0

    learn(readiness, 10, start=now, every=CALM_S / 20, finished=600)
    assert readiness.limit == 0

    learn(readiness, 3, start=now + 2 * CALM_S, every=0.001, finished=60)
    assert readiness.limit > 0


def test_nothing_is_kept_ready_before_anything_has_finished():
    readiness = Readiness()

    learn(readiness, 10, start=0.0, every=0.001, finished=0)

    assert readiness.limit == 0
