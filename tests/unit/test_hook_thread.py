"""Hooks are called one after another, and nothing that they do gets out."""

import asyncio
import threading

import pytest

from cogworker import Cogworker, DeclarationError
from cogworker._worker import hook_thread
from cogworker._worker.hook_thread import HookThread

from support.processes import eventually


@pytest.fixture
def hooks():
    thread = HookThread(asyncio.run)
    yield thread
    thread.end(5)
    eventually(lambda: not any(t.name == "cogworker-hooks" for t in threading.enumerate()))


def test_calls_come_in_order_plain_and_async(hooks):
    seen = []

    async def coroutine(value):
        await asyncio.sleep(0)
        seen.append(value)

    for value in range(10):
        hooks.call(coroutine if value % 2 else seen.append, lambda value=value: (value,))
    hooks.end(5)

    assert seen == list(range(10))


@pytest.mark.parametrize("error", [ValueError("oh"), SystemExit("oh"), KeyboardInterrupt("oh")])
def test_what_a_hook_raises_is_logged_and_the_next_one_is_called(error, hooks, caplog):
    def fails():
        raise error

    async def fails_too():
        raise error

    seen = []
    calls = [hooks.call(fails, about="event=test"), hooks.call(fails_too)]
    hooks.call(lambda: seen.append(1))
    hooks.end(5)

    assert [call.error for call in calls] == [error, error]
    assert seen == [1]
    assert caplog.text.count("a hook failed: hook=") == 2
    assert "event=test" in caplog.text


def test_arguments_that_can_t_be_made_are_the_hook_s_error(hooks):
    call = hooks.call(print, lambda: 1 / 0)
    hooks.end(5)

    assert isinstance(call.error, ZeroDivisionError)


def test_the_end_does_not_wait_for_ever(hooks, caplog):
    go = threading.Event()
    seen = []
    hooks.call(go.wait)
    hooks.call(seen.append, lambda: (1,))

    hooks.end(0.05)

    assert "hooks take too long for a stop: running=(hook=" in caplog.text
    assert "not_called=1" in caplog.text
    go.set()
    eventually(lambda: not any(t.name == "cogworker-hooks" for t in threading.enumerate()))
    assert seen == []


def test_not_too_many_wait(hooks, caplog, monkeypatch):
    monkeypatch.setattr(hook_thread, "MOST_WAITING", 3)
    go, running = threading.Event(), threading.Event()
    seen = []

    def block():
        running.set()
        go.wait()

    hooks.call(block)
    running.wait(5)
    calls = [hooks.call(seen.append, lambda value=value: (value,)) for value in range(5)]

    assert [call.over.is_set() for call in calls] == [False] * 3 + [True] * 2
    go.set()
    hooks.end(5)
    assert seen == [0, 1, 2]
    assert caplog.text.count("too many hooks wait") == 2


def test_without_hooks_there_is_no_thread():
    HookThread(asyncio.run).end(0)

    assert not any(t.name == "cogworker-hooks" for t in threading.enumerate())


def test_a_hook_with_other_arguments_is_refused():
    app = Cogworker()

    with pytest.raises(DeclarationError, match="gets 2 arguments"):
        app.on_death(lambda: None)
    with pytest.raises(DeclarationError, match="gets 0 arguments"):
        app.on_startup(lambda worker: None)
    with pytest.raises(DeclarationError, match="is a function"):
        app.on_error("me")
    with pytest.raises(DeclarationError, match="on_death gets 2 arguments"):
        app.job(on_death=lambda payload: None)(lambda: None)
    with pytest.raises(DeclarationError, match="retry_in"):
        app.job(retry_in=lambda: 1)(lambda: None)
    with pytest.raises(DeclarationError, match="skip_middleware"):
        app.job(skip_middleware=["audit"])(lambda: None)


def test_a_filter_of_the_log_that_raises_does_not_keep_the_next_hook_from_being_called(hooks):
    def raises(record):
        raise RuntimeError("a filter of the application")

    seen = []
    hook_thread.logger.addFilter(raises)
    try:
        hooks.call(lambda: 1 / 0)
        hooks.call(lambda: seen.append(1))
        hooks.end(5)
    finally:
        hook_thread.logger.removeFilter(raises)

    assert seen == [1]
