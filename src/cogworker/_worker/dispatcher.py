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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cogworker import clock
from cogworker._engine import presence
from cogworker._engine.places import InFlight
from cogworker._engine.plan import Move
from cogworker._engine.replies import Stale, Turned
from cogworker._redis.command import Command
from cogworker._redis.doorbell import Doorbell
from cogworker._redis.runner import Runner
from cogworker._worker.alarm import Alarm
from cogworker._worker.deaths import Deaths
from cogworker._worker.delivery import Delivery
from cogworker._worker.fetch import Fetch
from cogworker._worker.gate import Gate
from cogworker._worker.notes import Notes
from cogworker._worker.order import QueueOrder
from cogworker._worker.outage import Outage
from cogworker._worker.performer import Performer
from cogworker._worker.readiness import LONGEST_WAIT_S, SPREAD_AFTER_S, Readiness
from cogworker._worker.settlements import Settlements
from cogworker._worker.slots import Slots
from cogworker._worker.wear import Wear
from cogworker.errors import RedisError
from cogworker.features.transitions import Transitions

logger = logging.getLogger("cogworker.worker")

MOST_TAKEN = 1000
LISTEN_S = 5.0
"""How long one question for a wake-up token lasts; then it is asked again."""
UNSTARTED_PAUSE_S = 1.0
"""How long nothing is taken after a job could not be started: another worker may run it."""
DEAF_S = 1.0
"""How long it does not listen for tokens after that has failed; it looks for jobs all the same."""


class Dispatcher:
    """The only part of a worker that takes and settles jobs."""

    def __init__(
        self,
        runner: Runner,
        transitions: Transitions,
        worker: InFlight,
        order: QueueOrder,
        performer: Performer,
        start: Callable[[Delivery], None],
        *,
        concurrency: int,
        idle_s: float,
        longest_step_s: float,
        outage: Outage,
        wear: Wear,
        fetch: Fetch,
        notes: Notes,
        on_damage: Callable[[], None],
        deaths: Deaths,
    ) -> None:
        self._runner = runner
        self._doorbell = Doorbell(runner.connector)
        self._transitions = transitions
        self._moves = transitions.moves
        self._worker = worker
        self._order = order
        self._performer = performer
        self._start = start
        self._idle_s = idle_s
        self._longest_step_s = longest_step_s
        self._outage = outage
        self._wear = wear
        self._fetch = fetch
        self._notes = notes
        self.settlements = Settlements(transitions, worker, on_damage, deaths)
        self._stepped_at = clock.monotonic()
        self.alarm = Alarm()
        self.slots = Slots(concurrency, self.alarm.ring)
        self._readiness = Readiness()
        self._gate = Gate(transitions, worker)
        self._held: dict[bytes, Delivery] = {}
        self._number = 0
        self._command: Command[Turned | Stale] | None = None
        self._taken: Sequence[bytes] = ()
        """What is being digested, by tag."""
        self._unstarted: deque[Delivery] = deque()
        self._closed = False
        self._wanted = 0
        self._told_basic = fetch.basic
        """How the server knows that this worker fetches; when that changes it must be told."""
        self._hungry = True
        self._look_again_at = 0.0
        self._take_again_at = 0.0
        self._deaf_until = 0.0
        self._paused: frozenset[str] = frozenset()
        self.taking = True
        self._abandon_by: float | None = None
        self._gave_up = False
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

    def look(self) -> None:
        """Look for jobs now: a queue that was paused may not be any more."""
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
        while self._command is not None or self.settlements.pending:
            self.turn()

    @property
    def goes_on(self) -> bool:
        """Whether it has done a step lately."""
        return clock.monotonic() - self._stepped_at < self._longest_step_s

    @property
    def held(self) -> int:
        """How many jobs this worker holds, running, ready or waiting to be settled."""
        return len(self._held)

    def deliveries(self) -> list[Delivery]:
        """The jobs that this worker holds; for other threads."""
        return list(self._held.copy().values())

    # The loop.

    def run(self) -> None:
        """Dispatch until ``abandon``; the body of the dispatcher's thread."""
        pause_s = 0.05
        while not self._is_over():
            self._stepped_at = clock.monotonic()
            try:
                self.step()
            except RedisError as error:
                self._outage.failed("dispatcher", error)
                self._rest(pause_s)
                pause_s = min(2 * pause_s, 1.0)
            except Exception:
                logger.exception("the dispatcher failed, and goes on")
                if self._command is None:  # it failed while it made a turn, or digested one
                    self.settlements.send_again()
                    self._give_back_stranded()
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
            self.settlements.give_back([self._unstarted.popleft()])
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
            or self.settlements.is_due(now)
            or self._notes.is_due(now)
            or self._fetch.basic != self._told_basic
            or (self._hungry and self._want() > 0)
        )

    def _want(self) -> int:
        if not self.taking or clock.monotonic() < self._take_again_at:
            return 0
        if self.settlements.stuck >= self.slots.size:
            return 0  # jobs that can't be settled must not pile up
        waiting = self.slots.ready + len(self._gate)
        want = min(self.slots.free + self._ahead - waiting, MOST_TAKEN)
        return min(want, self._wear.jobs_left - len(self._held))

    @property
    def _ahead(self) -> int:
        """How many jobs to keep ready; what may not run again is not taken before it can begin."""
        return 0 if self._fetch.basic else self._readiness.limit

    # A turn.

    def turn(self) -> None:
        """Send one call, or the last one again when it was not answered, and digest its reply."""
        if self._command is None:
            self._command = self._compose(clock.monotonic())
        turned = self._runner.run(self._command)
        self._command = None
        self._outage.worked("dispatcher")
        if isinstance(turned, Stale):
            logger.error("a later turn was answered already: worker=%s", self._worker.worker)
            self._number = turned.last
            self.settlements.send_again()
            return
        self.settlements.answered(turned.moved, self._held)
        self._digest_taken(turned)

    def _compose(self, now: float) -> Command[Turned | Stale]:
        finished = self.slots.collect()
        self.settlements.finish(finished)
        self.settlements.add(self._notes.take(now))
        self._wear.ran(len(finished.deliveries))
        self._readiness.learn(len(finished.deliveries), finished.ran_s, now)
        self._number += 1
        self._wanted = max(0, self._want())
        self._told_basic = self._fetch.basic
        return self._moves.turn(
            self._worker,
            self._number,
            self.settlements.send(now),
            self._wanted,
            self._order.draw() if self._wanted else (),
            at_most_once=self._told_basic,
        )

    def _give_back_stranded(self) -> None:
        """What was taken, and is neither to be run nor settled, would be held for ever."""
        known = self.slots.tags() | self.settlements.tags() | self._gate.tags()
        for tag in {*self._held, *self._taken} - known:
            if tag in self._held:
                self.settlements.add([self._performer.not_run(self._held[tag])])
            else:
                self.settlements.give_back_unread(tag)

    def _digest_taken(self, turned: Turned) -> None:
        now = clock.monotonic()
        self._taken = [taken.tag for taken in turned.taken]
        if self._wanted:
            self._note_paused(frozenset(turned.paused))
        begun, refused = self._gate.answered(turned.moved)
        self.settlements.add(refused)
        deliveries: list[Delivery] = []
        for taken in turned.taken:
            accepted = self._performer.accept(taken, now)
            if isinstance(accepted, Move):
                self.settlements.add([accepted])
            else:
                self._held[taken.tag] = accepted
                deliveries.append(accepted)
        if self._wanted:
            self._hungry = len(turned.taken) == self._wanted
            self._look_again_at = now + self._idle_pause()
        if not self.taking:
            self.settlements.give_back([*begun, *deliveries])
            return
        free, asked = self._gate.enter(deliveries)
        self.settlements.add(asked)
        starting = self.slots.offer([*begun, *free], sparing=self._ahead > 0)
        self._taken = ()
        for delivery in starting:
            self._start(delivery)

    def _note_paused(self, paused: frozenset[str]) -> None:
        if paused != self._paused:
            self._paused = paused
            logger.info("paused queues: %s", ",".join(sorted(paused)) or "none")

    # Giving back.

    def _tend_ready(self, now: float) -> None:
        """Start ready jobs that have waited in free slots, or give them back."""
        for delivery in self.slots.spread(SPREAD_AFTER_S) if self.taking else ():
            self._start(delivery)
        reclaimed = self.slots.reclaim(LONGEST_WAIT_S if self.taking else 0.0)
        if reclaimed:
            self._readiness.retreat(now)
            self.settlements.give_back(reclaimed)

    def _close(self) -> None:
        """At the end: settle what has finished, and give back everything else."""
        self._closed = True
        self._unstarted.clear()  # they are among the held
        self._gate.clear()
        self.settlements.finish(self.slots.close())
        ended = self.settlements.tags()
        unfinished = [each for tag, each in self._held.items() if tag not in ended]
        for delivery in unfinished:
            delivery.interrupted = True  # before it is asked whether it has begun
        self.settlements.add([self._performer.not_run(delivery) for delivery in unfinished])

    # Waiting.

    def _wait(self, now: float) -> None:
        until = min(now + self._idle_s, self._notes.due_at)
        if self.slots.ready:
            until = min(until, now + SPREAD_AFTER_S)
        elif self.settlements.stuck:
            until = min(until, self.settlements.stuck_until)
        if self.taking and not self._hungry and self._want() > 0:
            until = min(until, self._look_again_at)
            if now >= self._deaf_until:
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
        with self._at_the_bell():
            self._doorbell.listen(presence.listen(self._moves.keys, names, LISTEN_S), LISTEN_S)

    def _hear(self) -> None:
        with self._at_the_bell():
            token = self._doorbell.answer()
            if token is None:
                pass  # the time was up; when to look anyway is decided by _look_again_at
            elif self._want() <= 0:
                # Meant for somebody who can take a job: the token goes back, for another worker.
                self._runner.run(presence.pass_on(token))
            else:
                self._hungry = True
            self._outage.worked("doorbell")

    @contextmanager
    def _at_the_bell(self) -> Iterator[None]:
        """Tokens only make it faster: a worker that can't get any looks for jobs anyway."""
        try:
            yield
        except RedisError as error:
            self._outage.failed("doorbell", error)
            self._deaf_until = clock.monotonic() + DEAF_S

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
        if not self._held and not self.settlements.pending and self._command is None:
            return True
        if clock.monotonic() < self._abandon_by:
            return False
        if self._gave_up:
            return True
        self._gave_up = True
        logger.error(
            "ending before all is settled: %d jobs stay in flight and will be rescued: worker=%s",
            len(self._held),
            self._worker.worker,
        )
        return True
