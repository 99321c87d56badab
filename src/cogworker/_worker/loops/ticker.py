"""Pushes the jobs of periodic entries when they are due.

Every worker ticks; none leads. A tick looks which entries have a time slot that this worker has not
seen decided, and claims the latest of each together with the push of its job, in one call for all
of them. It then sleeps until the next time slot of any entry.

A quiet worker goes on publishing but claims nothing, since it may be on its way out, with old
entries; the others do, or it does it itself when it resumes. While the intake of all workers is
paused they do claim: to push is not to take.
"""

import logging
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cogworker import clock
from cogworker._engine.effects import Effect, Effects
from cogworker._engine.plan import Move, merged
from cogworker._engine.quarantine import is_wrong_type
from cogworker._engine.replies import Moved, Refused
from cogworker._kinds import printable
from cogworker._redis.runner import Runner
from cogworker._worker.board import Board
from cogworker._worker.loops.base import Loop
from cogworker._worker.outage import Outage
from cogworker.client import MOST_BYTES_A_CALL, Client, Prepared
from cogworker.features.periodic import Slots
from cogworker.timetable import Planned

logger = logging.getLogger("cogworker.worker")

LONGEST_PAUSE_S = 15.0
"""The server's clock may jump, and entries may be declared later."""
SPREAD_S = 0.05
"""A whole fleet wakes for the same time slot, but not in the same millisecond."""
WAITING_PAUSE_S = 0.2
SHORTEST_BACK_OFF_S, LONGEST_BACK_OFF_S = 5.0, 300.0
MOST_CLAIMS_A_CALL = 200
AHEAD_S = 3600.0
"""A time slot that was decided so far ahead of the clock is no matter of late packets."""


class Claim(NamedTuple):
    """A time slot that is due, and the job for it."""

    planned: Planned
    slot: int
    prepared: Prepared


class Ticker(Loop):
    """Ticks. ``entries`` are this worker's; ``server_time`` is now.

    ``may_fire`` tells whether it may claim time slots. It may not before dead workers' jobs were
    looked for once: after a long time without workers, the lock of a run that is still to be
    rescued may have run out.
    """

    name = "ticker"

    def __init__(
        self,
        outage: Outage,
        runner: Runner,
        client: Client,
        board: Board,
        *,
        entries: Callable[[], Sequence[Planned]],
        server_time: Callable[[], float],
        may_fire: Callable[[], bool],
        on_damage: Callable[[], None],
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._client = client
        self._board = board
        self._entries = entries
        self._server_time = server_time
        self._may_fire = may_fire
        self._on_damage = on_damage
        self._slots = Slots(client.keys)
        self._decided: dict[str, int] = {}
        self._next_at: dict[str, float] = {}
        self._back_off_s: dict[str, float] = {}
        self._paused = False

    def pause(self, paused: bool) -> None:
        """Claim nothing, or go on; from any thread."""
        resumed, self._paused = self._paused and not paused, paused
        if resumed:
            self.poke()

    def tick(self) -> float:
        """Claim what is due, and publish the entries."""
        entries = self._entries()
        if not entries:
            return LONGEST_PAUSE_S
        began = clock.monotonic()
        now = self._server_time()
        fires = self._may_fire() and not self._paused
        if fires:
            for claims in self._due(entries, now):
                self._fire(claims, now)
        self._board.publish(entries, now)
        if not fires:
            return LONGEST_PAUSE_S if self._paused else WAITING_PAUSE_S
        next_at = min(self._next_at.get(planned.pjid, 0.0) for planned in entries)
        spent_s = clock.monotonic() - began
        spread_s = random.uniform(0.0, SPREAD_S)  # noqa: S311 - only spreads the load
        return min(max(0.0, next_at - now - spent_s), LONGEST_PAUSE_S) + spread_s

    def _due(self, entries: Sequence[Planned], now: float) -> Iterator[list[Claim]]:
        """The time slots to claim, in portions that one call can carry."""
        claims: list[Claim] = []
        size = 0
        for planned in entries:
            if self.stopping or self._paused:
                return
            claim = self._claim(planned, now) if now >= self._next_at.get(planned.pjid, 0) else None
            if claim is None:
                continue
            claims.append(claim)
            size += len(claim.prepared.job.payload)
            if len(claims) == MOST_CLAIMS_A_CALL or size >= MOST_BYTES_A_CALL:
                yield claims
                claims, size = [], 0
        if claims:
            yield claims

    def _claim(self, planned: Planned, now: float) -> Claim | None:
        """The latest time slot of an entry, if this worker has not seen it decided."""
        try:
            slot = planned.schedule.latest(now)
            if slot is None or slot <= self._decided.get(planned.pjid, -math.inf):
                self._leave(planned, now)
                return None
            return Claim(planned, slot, planned.prepare(self._client, slot))
        except Exception as error:  # an entry that can't be pushed must not stand before others
            self._put_off(planned, now, error)
            return None

    def _fire(self, claims: Sequence[Claim], now: float) -> None:
        moves = self._client.moves
        fire = moves.move(merged(map(self._move, claims)), answer_again=True)
        moved = self._runner.run(fire)
        self._note_problems(moved)
        failed = {int(number): error for number, error in moved.failed}
        refused = {int(each.job): each for each in moved.refused}
        skipped: list[Effect] = []
        for number, claim in enumerate(claims, 1):
            error = failed.get(number)
            if error is not None:
                self._put_off(claim.planned, now, error)
            elif number in refused and refused[number].why == "damaged":
                self._on_damage()
                self._put_off(claim.planned, now, "its last time slot can't be read")
            else:
                skipped += self._decide(claim, now, refused.get(number))
        if skipped:
            self._note_problems(self._runner.run(moves.move([moves.note(skipped)])))

    def _move(self, claim: Claim) -> Move:
        pjid, catch_up = claim.planned.pjid, claim.planned.entry.catch_up
        if catch_up is None:
            catch_up = self._client.config.periodic_catch_up
        jid = claim.prepared.jid
        effects = self._slots.fire(pjid, claim.slot, jid, catch_up=catch_up)
        return self._client.moves.put(claim.prepared.job, effects)

    def _decide(self, claim: Claim, now: float, refused: Refused | None) -> Effects:
        """A time slot has fired, or never will; what is to be noted of it."""
        pjid = claim.planned.pjid
        self._decided[pjid] = claim.slot
        self._back_off_s.pop(pjid, None)
        self._leave(claim.planned, now)
        about = f"entry={printable(claim.planned.entry.label)} slot={claim.slot}"
        if refused is None:
            logger.debug("fired: %s jid=%s", about, claim.prepared.jid)
        elif refused.verb == "advance":
            self._tell_why_not(about, refused.why, now)
        elif refused.verb != "unless":  # that is, it is not disabled
            logger.info("skipped: %s held_by=%s", about, printable(refused.why))
            return self._slots.skipped(pjid, claim.slot, refused.why)
        return ()

    def _tell_why_not(self, about: str, last: str, now: float) -> None:
        if last == "seeded":
            logger.info("remembered, will fire from the next time slot on: %s", about)
        elif float(last) > now + AHEAD_S:  # the server's clock was wrong then, or is now
            logger.warning("fires no time slot before one far ahead: %s last=%s", about, last)

    def _leave(self, planned: Planned, now: float) -> None:
        due_at = planned.schedule.next(now)
        self._next_at[planned.pjid] = math.inf if due_at is None else due_at

    def _put_off(self, planned: Planned, now: float, error: object) -> None:
        """Try an entry again later, with a growing pause."""
        pause_s = self._back_off_s.get(planned.pjid, SHORTEST_BACK_OFF_S)
        self._back_off_s[planned.pjid] = min(2 * pause_s, LONGEST_BACK_OFF_S)
        self._next_at[planned.pjid] = now + pause_s
        logger.error(
            "can't fire, trying again in %.0f s: entry=%s error=%s",
            pause_s,
            printable(planned.entry.label),
            error,
            exc_info=error if isinstance(error, Exception) else None,
        )
        if is_wrong_type(error):
            self._on_damage()

    def _note_problems(self, moved: Moved) -> None:
        for key, error in moved.problems:
            logger.error("a key can't be used: key=%s error=%s", key, error)
            if is_wrong_type(error):
                self._on_damage()
