"""Again, or dead: the decisions."""

import logging
from datetime import timedelta

import pytest

from cogworker import retry
from cogworker.retry import (
    Outcome,
    RetryPolicy,
    Verdict,
    budget,
    decide,
    default_delay,
    policy_of,
    takes_run,
)


@pytest.mark.parametrize(
    ("number", "least", "most"),
    [(1, 16, 74), (2, 31, 118), (5, 640, 814), (10, 10_015, 10_334), (25, 390_640, 391_394)],
)
def test_the_default_delay_stays_in_its_band(number, least, most):
    delays = [default_delay(number) for _ in range(2000)]

    assert min(delays) >= least
    assert max(delays) <= most
    assert len(set(delays)) > 20


@pytest.mark.parametrize(
    ("wire", "retries"),
    [
        (True, 25), (None, 25), (False, 0), (0, 0), (3, 3), (-1, 0), (2.9, 2), ("4", 4), ("4.5", 4),
        ("many", 0), ([], 0), ({}, 0), (float("inf"), 0), (float("nan"), 0), ("inf", 0),
        (10**30, 10**30),
    ],
)  # fmt: skip
def test_a_payload_s_budget_is_read_cautiously(wire, retries):
    assert budget(wire) == retries


@pytest.mark.parametrize(
    ("option", "retries"), [(True, 25), (False, 0), (0, 0), (7, 7), (RetryPolicy(2), 2)]
)
def test_what_the_retry_option_means(option, retries):
    assert policy_of(option).max_retries == retries


@pytest.mark.parametrize("option", [-1, 1.5, "3", [], object()])
def test_a_retry_option_that_means_nothing_is_refused(option):
    with pytest.raises(ValueError, match="retry must be True, False, a number of retries"):
        policy_of(option)


@pytest.mark.parametrize(
    "delay", [(), (-1,), (float("nan"),), ("5",), (True,), (10**400,), 5, {1, 2}, "5"]
)
def test_a_list_of_delays_must_hold_seconds(delay):
    with pytest.raises(ValueError, match="delay must be a function or a list of seconds"):
        RetryPolicy(delay=delay)


def test_delays_may_be_timedeltas():
    minute = timedelta(minutes=1)
    error = ValueError()

    listed = RetryPolicy(delay=(minute, 5, 2 * minute), max_delay=timedelta(seconds=90))
    asked = RetryPolicy(delay=lambda retry, error: retry * minute)

    assert [listed.delay_before(retry, error) for retry in (1, 2, 3)] == [60, 5, 90]
    assert asked.delay_before(2, error) == 120
    with pytest.raises(ValueError, match="delay must be"):
        RetryPolicy(delay=(-minute,))
    with pytest.raises(ValueError, match="max_delay must be"):
        RetryPolicy(max_delay=-minute)


@pytest.mark.parametrize("retries", [-1, 2.5, True, "1"])
def test_max_retries_must_be_a_whole_number(retries):
    with pytest.raises(ValueError, match="max_retries must be 0 or more"):
        RetryPolicy(max_retries=retries)


def test_the_last_of_a_list_serves_all_later_retries():
    policy = RetryPolicy(delay=(0.5, 60))

    assert [policy.delay_before(n, ValueError()) for n in (1, 2, 3, 9)] == [0.5, 60, 60, 60]


def test_a_delay_function_gets_number_and_error():
    asked = []

    def delay(number, error):
        asked.append((number, type(error)))
        return 0

    assert RetryPolicy(delay=delay).delay_before(4, KeyError()) == 0.0
    assert asked == [(4, KeyError)]


@pytest.mark.parametrize("answer", [-1, float("inf"), float("nan"), None, "soon", True])
def test_nonsense_from_a_delay_function_takes_the_default_and_a_warning(answer, caplog):
    delay = RetryPolicy(delay=lambda number, error: answer).delay_before(1, ValueError())

    assert 16 <= delay <= 74
    assert "instead of seconds" in caplog.text


def test_a_delay_function_that_raises_takes_the_default_and_is_logged(caplog):
    def delay(number, error):
        raise RuntimeError("no idea")

    assert 16 <= RetryPolicy(delay=delay).delay_before(1, ValueError()) <= 74
    assert "no idea" in caplog.text


def test_a_delay_of_more_than_a_year_is_used_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, retry.logger.name):
        assert RetryPolicy(delay=(4e7,)).delay_before(1, ValueError()) == 4e7
        assert RetryPolicy(delay=lambda n, e: 4e7).delay_before(1, ValueError()) == 4e7

    assert caplog.text.count("more than a year") == 1


def test_no_delay_is_longer_than_max_delay():
    policy = RetryPolicy(delay=(10, 100, 1000), max_delay=60)

    assert [policy.delay_before(n, ValueError()) for n in (1, 2, 3)] == [10, 60, 60]
    assert RetryPolicy(max_delay=5).delay_before(20, ValueError()) == 5


def test_jitter_spreads_downwards_also_what_was_cut():
    policy = RetryPolicy(delay=(100,), max_delay=50, jitter=0.2)
    delays = {policy.delay_before(1, ValueError()) for _ in range(1000)}

    assert min(delays) >= 40
    assert max(delays) <= 50
    assert len(delays) > 900
    assert max(delays) - min(delays) > 9


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"max_delay": -1}, "max_delay must be seconds"),
        ({"max_delay": "1m"}, "max_delay must be seconds"),
        ({"jitter": 1.1}, "jitter must be between 0 and 1"),
        ({"jitter": True}, "jitter must be between 0 and 1"),
        ({"retry_on": "OSError"}, "retry_on must be exception classes"),
        ({"give_up_on": (OSError, "x")}, "give_up_on must be exception classes"),
        ({"give_up_on": None}, "give_up_on must be exception classes"),
        ({"discard_on": int}, "discard_on must be exception classes"),
        ({"discard_on": [ValueError()]}, "discard_on must be exception classes"),
    ],
)
def test_what_a_policy_can_t_be_is_refused(option, complaint):
    with pytest.raises(ValueError, match=complaint):
        RetryPolicy(**option)


@pytest.mark.parametrize(
    ("policy", "error", "outcome"),
    [
        ({}, ValueError(), Outcome.RETRY),
        ({"retry_on": OSError}, TimeoutError(), Outcome.RETRY),
        ({"retry_on": [OSError, KeyError]}, ValueError(), Outcome.KILLED),
        ({"retry_on": ()}, ValueError(), Outcome.KILLED),
        ({"give_up_on": LookupError}, KeyError(), Outcome.KILLED),
        ({"give_up_on": {LookupError}}, ValueError(), Outcome.RETRY),
        ({"discard_on": (SystemExit,)}, SystemExit(), Outcome.DISCARD),
        ({"discard_on": KeyError, "give_up_on": LookupError}, KeyError(), Outcome.DISCARD),
        ({"retry_on": OSError, "give_up_on": TimeoutError}, TimeoutError(), Outcome.KILLED),
    ],
)
def test_a_policy_judges_by_the_error_s_class(policy, error, outcome):
    assert RetryPolicy(**policy).judge(error) is outcome


def test_an_error_whose_class_can_t_be_told_is_retried(caplog):
    class Odd(type):
        def __instancecheck__(cls, instance):
            raise RuntimeError("odd")

    class OddError(Exception, metaclass=Odd):
        pass

    assert RetryPolicy(give_up_on=OddError).judge(ValueError()) is Outcome.RETRY
    assert "odd" in caplog.text


FIXED = RetryPolicy(delay=(7,))


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (0, Verdict(Outcome.RETRY, 0.0)),
        (2.5, Verdict(Outcome.RETRY, 2.5)),
        (timedelta(minutes=1), Verdict(Outcome.RETRY, 60.0)),
        ("dead", Verdict(Outcome.KILLED)),
        ("discard", Verdict(Outcome.DISCARD)),
        ("default", Verdict(Outcome.RETRY, 7.0)),
        (None, Verdict(Outcome.RETRY, 7.0)),
    ],
)
def test_the_answers_of_retry_in(answer, verdict, caplog):
    assert decide(FIXED, 1, 3, ValueError(), lambda: answer) == verdict
    assert caplog.text == ""


class Unshowable:
    def __repr__(self):
        raise SystemExit

    def __eq__(self, other):
        raise SystemExit

    __hash__ = None


@pytest.mark.parametrize(
    "answer",
    [-1, float("nan"), float("inf"), 10**400, True, False, "kill", "", b"dead", [], Unshowable()],
)
def test_nonsense_from_retry_in_leaves_it_to_the_policy_with_a_warning(answer, caplog):
    verdict = decide(FIXED, 1, 3, ValueError(), lambda: answer, "jid=abc")

    assert verdict == Verdict(Outcome.RETRY, 7.0)
    assert "instead of seconds" in caplog.text
    assert "jid=abc" in caplog.text


@pytest.mark.parametrize("error", [RuntimeError("no idea"), SystemExit("no idea")])
def test_a_retry_in_that_raises_leaves_it_to_the_policy(error, caplog):
    def ask():
        raise error

    assert decide(FIXED, 1, 3, ValueError(), ask) == Verdict(Outcome.RETRY, 7.0)
    assert "no idea" in caplog.text


def test_retry_in_may_answer_more_than_a_year_with_a_warning(caplog):
    verdict = decide(RetryPolicy(max_delay=5), 1, 3, ValueError(), lambda: 4e7)

    assert verdict == Verdict(Outcome.RETRY, 4e7)
    assert "more than a year" in caplog.text


@pytest.mark.parametrize(
    ("policy", "failures", "retries", "outcome"),
    [
        (RetryPolicy(), 3, 3, Outcome.RETRY),
        (RetryPolicy(), 4, 3, Outcome.DEAD),
        (RetryPolicy(), 1, 0, Outcome.DEAD),
        (RetryPolicy(give_up_on=ValueError), 1, 3, Outcome.KILLED),
        (RetryPolicy(give_up_on=ValueError), 4, 3, Outcome.DEAD),
        (RetryPolicy(discard_on=ValueError), 1, 3, Outcome.DISCARD),
        (RetryPolicy(discard_on=ValueError), 4, 3, Outcome.DISCARD),
    ],
)
def test_retry_in_is_asked_only_when_a_retry_would_follow(policy, failures, retries, outcome):
    asked = []

    verdict = decide(policy, failures, retries, ValueError(), lambda: asked.append(1))

    assert verdict.outcome is outcome
    assert bool(asked) == (outcome is Outcome.RETRY)


def test_what_a_retry_in_takes():
    assert not takes_run(lambda retry, error: 1)
    assert takes_run(lambda retry, error, run: 1)
    assert takes_run(lambda *everything: 1)
    assert takes_run(lambda retry, error, run=None: 1)


async def coroutine(retry, error):
    return 1


@pytest.mark.parametrize("retry_in", [5, "soon", lambda: 1, lambda a, b, c, d: 1, coroutine])
def test_a_retry_in_that_can_t_be_asked_is_refused(retry_in):
    with pytest.raises(ValueError, match="retry_in"):
        takes_run(retry_in)


@pytest.mark.parametrize("number", [10**5, 10**80, 10**400])
@pytest.mark.parametrize("jitter", [0, 0.5])
def test_no_number_of_failures_makes_a_delay_too_long_to_be_written_down(number, jitter):
    policy = RetryPolicy(jitter=jitter)
    verdict = decide(policy, number, 2 * number, ValueError())

    assert verdict.outcome is Outcome.RETRY
    assert 0 < verdict.delay_s <= retry.MOST_DELAY_S


def test_no_answer_makes_a_delay_too_long():
    verdict = decide(RetryPolicy(), 1, 5, ValueError(), lambda: 1e300)

    assert verdict == Verdict(Outcome.RETRY, retry.MOST_DELAY_S)
