"""An exception, whatever it does, becomes a record of bounded size."""

import pytest

from cogworker._worker import failure
from cogworker._worker.failure import describe


class Unreadable(Exception):
    def __str__(self):
        raise SystemExit("not even this")


def deep(levels):
    if levels:
        deep(levels - 1)
    raise ValueError("at the bottom")


def caught(action):
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_builtins_are_named_without_their_module_and_others_with_it():
    assert describe(ValueError("x"))["error_class"] == "ValueError"
    assert describe(Unreadable())["error_class"] == f"{__name__}.Unreadable"


def test_a_message_that_raises_is_replaced():
    assert "__str__ raised SystemExit" in describe(Unreadable())["error_message"]


def test_a_huge_message_is_cut():
    assert describe(ValueError("é" * 10_000_000))["error_message"] == "é" * 10_000


def test_lone_surrogates_are_escaped():
    assert describe(ValueError("a\ud800b"))["error_message"] == "a\\ud800b"


def test_the_stack_trace_says_where():
    backtrace = describe(caught(lambda: deep(0)))["error_backtrace"]

    assert any("test_failure.py" in line for line in backtrace)
    assert any("raise ValueError" in line for line in backtrace)


def test_a_long_stack_trace_is_cut_to_its_end():
    backtrace = describe(caught(lambda: deep(500)))["error_backtrace"]

    assert len(backtrace) <= failure.MOST_BACKTRACE_LINES
    assert any("raise ValueError" in line for line in backtrace)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit, MemoryError, RecursionError])
def test_every_kind_of_exception_is_described(kind):
    def act():
        raise kind("why")

    assert describe(caught(act))["error_message"] == "why"
