"""Settles what has finished and takes what is next: one call for both, as often as it is worth it.

A loop in one thread, which owns the hot connection:

1. If runs have finished, or jobs may be waiting and slots are free: take a *turn*. The call settles
   all deliveries that ended since the last one and takes jobs for the free slots, and, while
   jobs are short, some more to keep ready.
2. Otherwise listen for a wake-up token of the queues, and wait: for the token, for a finished run,
   or for the time to look again anyway.

A turn whose reply is lost is sent again, unchanged, until it is answered.
"""

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from cogworker import clock, payload
from cogworker._engine import presence
from cogworker._engine.moves import Moves
from cogworker._engine.places import InFlight, Queue
from cogworker._engine.plan import KEEP, Move
from cogworker._engine.replies import Moved, Turned
from cogworker._redis.command import Command
from cogworker._redis.doorbell import Doorbell
from cogworker._redis.runner import Runner
from cogworker._worker.alarm import Alarm
from cogworker._worker.delivery import Delivery
from cogworker._worker.order import QueueOrder
from cogworker._worker.outage import REPEAT_S, Outage
from cogworker._worker.performer import Performer
from cogworker._worker.readiness import LONGEST_WAIT_S, SPREAD_AFTER_S, Readiness
from cogworker._worker.slots import Finished, Slots
from cogworker._worker.wear import Wear
from cogworker.errors import RedisUnavailable

logger = logging.getLogger("cogworker.worker")

MOST_TAKEN = 1000
LISTEN_S = 5.0
"""How long one question for a wake-up token lasts; then it is asked again."""
UNSTARTED_PAUSE_S = 1.0
"""How long nothing is taken after a job could not be started: another worker may run it."""
STUCK_PAUSE_S = 1.0
"""How long a settlement that the server refused waits before it is tried again."""
LONGEST_STEP_S = 60.0
"""A step that takes longer than this does not go on: it waits for answers a few times at most."""


class Dispatcher:
    """The only part of a worker that takes and settles jobs."""

    def __init__(
        self,
        runner: Runner,
        moves: Moves,
        worker: InFlight,
        order: QueueOrder,
        performer: Performer,
        start: Callable[[Delivery], None],
        *,
        concurrency: int,
        idle_s: float,
        outage: Outage,
        wear: Wear,
    ) -> None:
        self._runner = runner
        self._doorbell = Doorbell(runner.connector)
        self._moves = moves
        self._worker = worker
        self._order = order
        self._performer = performer
        self._start = start
        self._idle_s = idle_s
        self._outage = outage
        self._wear = wear
        self._stepped_at = clock.monotonic()
        self.alarm = Alarm()
        self.slots = Slots(concurrency, self.alarm.ring)
        self._readiness = Readiness()
        self._held: dict[bytes, Delivery] = {}
        self._number = 0
        self._command: Command[Turned | None] | None = None
        self._sent: dict[bytes, Move] = {}
        self._unstarted: deque[Delivery] = deque()
        self._told: dict[str, float] = {}
        self._closed = False
        self._wanted = 0
        self._pending: list[Move] = []
        self._stuck: list[Move] = []
        self._stuck_until = 0.0
        self._hungry = True
        self._look_again_at = 0.0
        self._take_again_at = 0.0
        self._paused: frozenset[str] = frozenset()
        self.taking = True
        self._abandon_by: float | None = None
        self.drained = threading.Event()
        self._ended = threading.Event()

    # What other threads say to it.

    def quiet(self) -> None:
        """Take no more jobs; those that are ready but have not begun are given back."""
        self.drained.clear()
        self.taking = False
        self.alarm.ring()

    def resume(self) -> None:
        """Take jobs again."""
        self.drained.clear()
        self.taking = True
        self._hungry = True
        self.alarm.ring()

    def abandon(self, within_s: float) -> None:
        """Give back what still runs and end; without Redis, end after ``within_s`` anyway."""
        self.taking = False
        self._abandon_by = clock.monotonic() + within_s
        self.alarm.ring()

    def return_unstarted(self, delivery: Delivery) -> None:
        """A delivery could not be started, for want of a thread, say: it is given back."""
        self.slots.drop(delivery)
        self._unstarted.append(delivery)
        self._take_again_at = clock.monotonic() + UNSTARTED_PAUSE_S
        self.alarm.ring()

    def wait_until_ended(self, timeout_s: float) -> bool:
        """Wait for the loop's end."""
        return self._ended.wait(timeout_s)

    def settle_rest(self) -> None:
        """Once more, after the loop's end: a run that has ended must not be given back."""
        while self._command is not None or self._pending:
            self.turn()

    @property
    def goes_on(self) -> bool:
        """Whether it has done a step lately: none takes longer than a call without an answer."""
        return clock.monotonic() - self._stepped_at < LONGEST_STEP_S

    @property
    def held(self) -> int:
        """How many jobs this worker holds, running, ready or waiting to be settled."""
        return len(self._held)

    # The loop.

    def run(self) -> None:
        """Dispatch until ``abandon``; the body of the dispatcher's thread."""
        pause_s = 0.05
        while not self._is_over():
            self._stepped_at = clock.monotonic()
            try:
                self.step()
            except RedisUnavailable as error:
                self._outage.failed("dispatcher", error)
                self._rest(pause_s)
                pause_s = min(2 * pause_s, 1.0)
            except Exception:
                logger.exception("the dispatcher failed, and goes on")
                self._rest(1.0)
            else:
                pause_s = 0.05
        self._doorbell.close()
        self.alarm.close()
        self._ended.set()

    def step(self) -> None:
        """One turn, or one wait."""
        now = clock.monotonic()
        if self._abandon_by is None:
            self._tend_ready(now)
        elif not self._closed:
            self._close()
        while self._unstarted and not self._closed:
            self._readiness.retreat(now)
            self._give_back([self._unstarted.popleft()])
        if self._has_work(now):
            self.turn()
            return
        if not self.taking and not self._held:
            self.drained.set()
        self._wait(now)

    def _has_work(self, now: float) -> bool:
        return bool(
            self._command
            or self.slots.has_finished
            or self._pending
            or (self._stuck and now >= self._stuck_until)
            or (self._hungry and self._want() > 0)
        )

    def _want(self) -> int:
        if not self.taking or clock.monotonic() < self._take_again_at:
            return 0
        if len(self._stuck) >= self.slots.size:
            return 0  # jobs that can't be settled must not pile up
        return min(self.slots.free + self._readiness.limit - self.slots.ready, MOST_TAKEN)

    # A turn.

    def turn(self) -> None:
        """Send one call, or the last one again when it was not answered, and digest its reply."""
        if self._command is None:
            self._command = self._compose(clock.monotonic())
        turned = self._runner.run(self._command)
        self._command = None
        self._outage.worked("dispatcher")
        if turned is None:
            logger.error("a later turn was answered already: worker=%s", self._worker.worker)
            self._pending += {id(move): move for move in self._sent.values()}.values()
            return
        self._digest_moved(turned.moved)
        self._wear.settled(len(self._sent) - len(turned.moved.failed))
        self._digest_taken(turned)

    def _compose(self, now: float) -> Command[Turned | None]:
        finished = self.slots.collect()
        self._readiness.learn(len(finished.deliveries), finished.ran_s, now)
        moves = self._pending
        self._pending = []
        if self._stuck and now >= self._stuck_until:
            moves += self._stuck
            self._stuck = []
        moves = self._in_order([*moves, *self._moves_of(finished)])
        self._sent = {tag: move for move in moves for tag in _tags(move)}
        self._number += 1
        self._wanted = max(0, self._want())
        return self._moves.turn(
            self._worker,
            self._number,
            moves,
            self._wanted,
            self._order.draw() if self._wanted else (),
        )

    def _in_order(self, moves: list[Move]) -> list[Move]:
        """All that goes back to the front of queues as one, so that it keeps its order there."""
        back = [move for move in moves if isinstance(move.target, Queue) and move.target.front]
        if len(back) < 2:
            return moves
        words = [word for move in back for word in move.items if isinstance(word, bytes)]
        pairs = zip(words[::2], words[1::2], strict=True)
        others = [move for move in moves if move not in back]
        return [*others, *self._moves.give_back(self._worker, pairs)]

    def _moves_of(self, finished: Finished) -> list[Move]:
        """The moves that settle finished runs: one for all successes, one each for the others."""
        done = [delivery.tag for delivery, move in finished.deliveries if move is None]
        moves = [move for _, move in finished.deliveries if move is not None]
        return [*moves, self._moves.done(self._worker, done)] if done else moves

    def _digest_moved(self, moved: Moved) -> None:
        refused = dict(moved.failed)
        for tag in moved.lost:
            delivery = self._held.get(tag)
            logger.warning(
                "lost claim: the job was rescued meanwhile, its end here changes nothing: "
                "%s tag=%s",
                payload.label(delivery.envelope) if delivery else "",
                tag.decode("utf-8", "backslashreplace"),
            )
        for tag, move in self._sent.items():
            if tag in refused:
                logger.error(
                    "the server refused to settle a job, trying again: tag=%s error=%s",
                    tag.decode("utf-8", "backslashreplace"),
                    refused[tag],
                )
                self._stuck.append(_only(move, tag))
                self._stuck_until = clock.monotonic() + STUCK_PAUSE_S
            else:
                self._held.pop(tag, None)
        for key, problem in moved.problems:
            self._tell(key, problem)

    def _tell(self, key: str, problem: str) -> None:
        """Log a damaged key, once a minute."""
        now = clock.monotonic()
        if now - self._told.get(key, float("-inf")) >= REPEAT_S:
            self._told[key] = now
            logger.error("a key is damaged and was left out: key=%s error=%s", key, problem)

    def _digest_taken(self, turned: Turned) -> None:
        now = clock.monotonic()
        self._paused = frozenset(turned.paused)
        deliveries: list[Delivery] = []
        for taken in turned.taken:
            accepted = self._performer.accept(taken, now)
            if isinstance(accepted, Move):
                self._pending.append(accepted)
            else:
                self._held[taken.tag] = accepted
                deliveries.append(accepted)
        if self._wanted:
            self._hungry = len(turned.taken) == self._wanted
            self._look_again_at = now + self._idle_pause()
        if not self.taking:
            self._give_back(deliveries)
            return
        for delivery in self.slots.offer(deliveries, sparing=self._readiness.limit > 0):
            self._start(delivery)

    # Giving back.

    def _tend_ready(self, now: float) -> None:
        """Start ready jobs that have waited in free slots, or give them back."""
        for delivery in self.slots.spread(SPREAD_AFTER_S) if self.taking else ():
            self._start(delivery)
        reclaimed = self.slots.reclaim(LONGEST_WAIT_S if self.taking else 0.0)
        if reclaimed:
            self._readiness.retreat(now)
            self._give_back(reclaimed)

    def _close(self) -> None:
        """At the end: settle what has finished, and give back everything else."""
        self._closed = True
        self._unstarted.clear()  # they are among the held
        finished = self.slots.close()
        self._pending += self._moves_of(finished)
        leaving = {delivery.tag for delivery, _ in finished.deliveries}
        leaving.update(tag for move in (*self._pending, *self._stuck) for tag in _tags(move))
        if self._command is not None:
            leaving.update(self._sent)
        unfinished = [each for tag, each in self._held.items() if tag not in leaving]
        for delivery in unfinished:
            logger.warning("given back, not finished: %s", payload.label(delivery.envelope))
        self._give_back(unfinished)

    def _give_back(self, deliveries: Iterable[Delivery]) -> None:
        jobs = [(delivery.tag, KEEP) for delivery in deliveries]
        self._pending += self._moves.give_back(self._worker, jobs)

    # Waiting.

    def _wait(self, now: float) -> None:
        until = now + self._idle_s
        if self.slots.ready:
            until = now + SPREAD_AFTER_S
        elif self._stuck:
            until = min(until, self._stuck_until)
        if self.taking and not self._hungry and self._want() > 0:
            until = min(until, self._look_again_at)
            self._listen()
        listening = self._doorbell.listening
        if self.alarm.wait(until - now, self._doorbell.fileno() if listening else None):
            self._hear()
        elif not self._hungry and clock.monotonic() >= self._look_again_at:
            self._hungry = True

    def _listen(self) -> None:
        names = [name for name in self._order.names if name not in self._paused]
        if self._doorbell.listening or not names:
            return
        self._doorbell.listen(presence.listen(self._moves.keys, names, LISTEN_S), LISTEN_S)

    def _hear(self) -> None:
        token = self._doorbell.answer()
        if token is None:
            return  # the time was up; when to look anyway is decided by _look_again_at
        if self._want() <= 0:
            # Meant for somebody who can take a job: the token goes back to wake another worker.
            self._runner.run(presence.pass_on(token))
        else:
            self._hungry = True

    def _idle_pause(self) -> float:
        return self._idle_s * random.uniform(0.75, 1.0)  # noqa: S311 - only spreads the load

    def _rest(self, pause_s: float) -> None:
        """Wait while Redis is away; finished runs go on piling up meanwhile."""
        until = clock.monotonic() + pause_s
        while (left := until - clock.monotonic()) > 0 and not self._is_over():
            self.alarm.wait(left)

    def _is_over(self) -> bool:
        if self._abandon_by is None:
            return False
        if not self._held and not self._pending and self._command is None:
            return True
        if clock.monotonic() < self._abandon_by:
            return False
        logger.error(
            "ending before all is settled: %d jobs stay in flight and will be rescued: worker=%s",
            len(self._held),
            self._worker.worker,
        )
        return True


def _tags(move: Move) -> Sequence[bytes]:
    """The deliveries that a move settles."""
    return [item for item in move.items[:: len(move.items) // move.jobs] if isinstance(item, bytes)]


def _only(move: Move, tag: bytes) -> Move:
    """A move reduced to one of its deliveries."""
    width = len(move.items) // move.jobs
    start = move.items.index(tag)
    return move._replace(jobs=1, items=move.items[start : start + width])
