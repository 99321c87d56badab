"""What a worker still has to tell the server about its deliveries.

A move waits here until a turn carries it, and is known as *sent* until that turn is answered. What
the server refused, because a key is damaged say, is *stuck* and tried again a second later.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from cogworker import clock, payload
from cogworker._engine.moves import Waiting, in_order
from cogworker._engine.places import InFlight, Place, Queue, Trimmed
from cogworker._engine.plan import KEEP, Move, merged
from cogworker._engine.quarantine import is_wrong_type
from cogworker._engine.replies import Moved, queue_of
from cogworker._kinds import printable
from cogworker._worker.deaths import Deaths
from cogworker._worker.delivery import Delivery
from cogworker._worker.outage import REPEAT_S
from cogworker._worker.slots import Finished
from cogworker.features.transitions import Transitions

logger = logging.getLogger("cogworker.worker")

STUCK_PAUSE_S = 1.0
"""How long a settlement that the server refused waits before it is tried again."""


class Settlements:
    """The moves of one worker's deliveries, until the server has carried them out.

    ``on_damage`` is called when the server speaks of a key of the wrong type.
    """

    def __init__(
        self,
        transitions: Transitions,
        worker: InFlight,
        on_damage: Callable[[], None],
        deaths: Deaths,
    ) -> None:
        self._deaths = deaths
        self._transitions = transitions
        self._worker = worker
        self._on_damage = on_damage
        self._pending: list[Move] = []
        self._sent: Sequence[Move] = ()
        self._stuck: list[Move] = []
        self._told: dict[str, float] = {}
        self.stuck_until = 0.0

    @property
    def pending(self) -> bool:
        """Whether something waits for the next turn."""
        return bool(self._pending)

    @property
    def stuck(self) -> int:
        """How many settlements the server has refused."""
        return len(self._stuck)

    def add(self, moves: Iterable[Move]) -> None:
        """Have the next turn carry moves."""
        self._pending += moves

    def finish(self, finished: Finished) -> None:
        """The moves of finished runs: one for successes that are alike, one each for the others."""
        is_plain = self._transitions.features.is_plain
        plain: list[Delivery] = []
        for delivery, move in finished.deliveries:
            if move is not None:
                self._pending.append(move)
            elif is_plain(delivery.envelope):
                plain.append(delivery)
            else:
                self._pending.append(self._done(delivery))
        if plain:
            self._pending += self._transitions.done_alike(self._worker, plain)

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Deliveries that have not begun go back to their queues."""
        back = [
            self._transitions.waiting(each.tag, KEEP, each.envelope, each.queue)
            for each in deliveries
        ]
        self._pending += self._transitions.back(self._worker, back)

    def give_back_unread(self, tag: bytes) -> None:
        """A delivery that nobody could do anything with goes back as it is."""
        waiting = Waiting(tag, KEEP, queue_of(tag))
        self._pending += self._transitions.back(self._worker, [waiting])

    def _done(self, delivery: Delivery) -> Move:
        return self._transitions.done(
            self._worker, delivery.tag, delivery.envelope, delivery.queue, delivery.run()
        )

    def is_due(self, now: float) -> bool:
        """Whether a turn has something to carry."""
        return bool(self._pending) or (bool(self._stuck) and now >= self.stuck_until)

    def send(self, now: float) -> Sequence[Move]:
        """The moves for a turn, known as sent from now on."""
        moves, self._pending = self._pending, []
        if self._stuck and now >= self.stuck_until:
            moves += self._stuck
            self._stuck = []
        moves = self._in_order(moves)
        self._sent = moves
        return merged(moves)

    def send_again(self) -> None:
        """The turn that carried the moves was not carried out: the next one must."""
        self._pending += self._sent
        self._sent = ()

    def answered(self, moved: Moved, held: dict[bytes, Delivery]) -> None:
        """Take what the server has carried out, or lost, out of ``held``; keep what it refused."""
        failed = dict(moved.failed)
        ended: dict[bytes, Move] = {}
        for move in self._sent:
            if move.target is not Place.SAME:
                ended |= dict.fromkeys(_tags(move), move)
        self._sent = ()
        for tag in moved.lost:
            delivery = held.get(tag)
            if tag not in ended and delivery is not None and delivery.admitted:
                delivery.stop_telling()  # its end is still to come, and will be lost, too
            else:
                _log_lost(tag, held.pop(tag, None))
        for tag, move in ended.items():
            if tag in failed:
                self._stick(tag, move, failed[tag])
            else:
                held.pop(tag, None)
        if self._deaths.expected:
            self._deaths.forget(moved.lost)
            dead = [tag for tag, move in ended.items() if isinstance(move.target, Trimmed)]
            self._deaths.confirm(dead, but=failed)
        for key, problem in moved.problems:
            self._tell(key, problem, f"a key is damaged and was left out: key={printable(key)}")

    def tags(self) -> set[bytes]:
        """The deliveries whose end is decided, though the server has not carried it out."""
        waiting = (*self._pending, *self._stuck, *self._sent)
        return {tag for move in waiting if move.target is not Place.SAME for tag in _tags(move)}

    def _stick(self, tag: bytes, move: Move, error: str) -> None:
        self._stuck.append(_only(move, tag))
        self.stuck_until = clock.monotonic() + STUCK_PAUSE_S
        self._tell(error, error, "the server refuses to settle jobs, trying again:")

    def _tell(self, subject: str, error: str, what: str) -> None:
        """Log what is wrong with the server's data, once a minute."""
        if is_wrong_type(error):
            self._on_damage()
        now = clock.monotonic()
        if now - self._told.get(subject, float("-inf")) >= REPEAT_S:
            self._told[subject] = now
            logger.error("%s error=%s", what, error)

    def _in_order(self, moves: list[Move]) -> list[Move]:
        """All that goes back to the front of queues as one, so that it keeps its order there."""
        back = [move for move in moves if _goes_to_front(move)]
        if len(back) < 2:
            return moves
        others = [move for move in moves if not _goes_to_front(move)]
        return [*others, *in_order(back)]


def _log_lost(tag: bytes, delivery: Delivery | None) -> None:
    logger.warning(
        "lost claim: the job was rescued meanwhile, its end here changes nothing: %s tag=%s",
        payload.label(delivery.envelope) if delivery else "",
        tag.decode("utf-8", "backslashreplace"),
    )


def _goes_to_front(move: Move) -> bool:
    return isinstance(move.target, Queue) and move.target.front


def _tags(move: Move) -> Sequence[bytes]:
    """The deliveries that a move settles."""
    return cast("Sequence[bytes]", move.items[:: move.width])


def _only(move: Move, tag: bytes) -> Move:
    """A move reduced to one of its deliveries."""
    return next(single for single in move.singles() if single.ref == tag)
