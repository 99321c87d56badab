"""A life of jobs in which each call that is made fails once, in each of the ways."""

from collections.abc import Callable
from typing import Any, NamedTuple

from support.dump import clear
from support.flaky import FULL, Death, Fault
from support.times import all_workers_are_dead


class Life(NamedTuple):
    """``live`` goes through it; ``finish`` is a healthy worker that does what is left.

    ``ledger`` makes what the test knows without looking into Redis: ``runs``, ``refused`` pushes
    and whatever ``check`` wants, which asserts that the books balance.
    """

    ledger: Callable[[], Any]
    make_app: Callable[..., Any]
    live: Callable[..., None]
    finish: Callable[..., None]
    check: Callable[..., None]

    def count_calls(self, settings, redis):
        clean = Fault()
        ledger = self.ledger()
        self.live(self.make_app(settings, clean, ledger), redis, ledger)
        assert clean.count > 20
        return clean.count

    def balances_whichever_call_fails(self, mode, settings, redis, dump):
        calls = self.count_calls(settings, redis)

        for at in range(1, calls + 1):
            clear(redis, settings["namespace"])
            ledger = self.ledger()
            fault = Fault(at, mode)
            app = self.make_app(settings, fault, ledger)
            died = False
            try:
                self.live(app, redis, ledger)
            except Death:
                died = True
                all_workers_are_dead(redis, app.client.keys)
                self.finish(self.make_app(settings, Fault(), ledger), redis)
            # Pauses are random, so that a life may be a call or two shorter than the counted one.
            assert died == (mode.startswith("dies") and fault.count >= at)
            fault.at = 0  # The life is over: who reads the books meets no fault.
            try:
                self.check(dump, ledger, died=died)
            except AssertionError as error:
                raise AssertionError(f"call {at} of {calls} {mode}: {error}") from error
            assert ledger.refused == []

    def balances_whichever_call_finds_the_server_full(self, settings, redis, dump):
        """Answers with the pushes that were refused, of which nothing is enqueued."""
        calls = self.count_calls(settings, redis)

        refused = []
        for at in range(1, calls + 1):
            clear(redis, settings["namespace"])
            ledger = self.ledger()
            fault = Fault(at, FULL, redis)
            try:
                self.live(self.make_app(settings, fault, ledger), redis, ledger)
                fault.at = 0
                assert not set(ledger.refused) & set(ledger.runs)
                self.check(dump, ledger, died=False)
            except Exception as error:
                raise AssertionError(f"call {at} of {calls} {FULL}: {error}") from error
            refused += ledger.refused
        return refused
