"""Again, or dead: the decisions."""

import logging

import pytest

from cogworker import retry
from cogworker.retry import RetryPolicy, budget, default_delay, policy_of


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
