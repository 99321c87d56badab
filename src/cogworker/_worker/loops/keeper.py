"""Keeps what belongs to a job, such as its lock, from expiring while the job is there.

For what this worker holds, with every heartbeat: fenced, so that a worker which was frozen can't
bring back the lock of a job that has ended elsewhere. For jobs that have waited for long, now and
then, and by one worker of all: see ``_keep_waiting``. It has a thread of its own, since reading a
long queue must hold up neither beats nor rescues.
"""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from cogworker import clock, payload
from cogworker._engine import look
from cogworker._engine.places import InFlight
from cogworker._engine.plan import Move, merged
from cogworker._kinds import printable
from cogworker._redis.runner import Runner
from cogworker._worker.delivery import Delivery
from cogworker._worker.loops.base import Loop
from cogworker._worker.outage import REPEAT_S, Outage
from cogworker.errors import InvalidPayload, RedisRefused
from cogworker.features.transitions import Transitions

logger = logging.getLogger("cogworker.worker")

ROUNDS_A_TTL = 8
"""So three rounds in a row may be missed before the lock of a waiting job runs out."""
FIRST_PAGE = 20
MOST_A_PAGE = 500
PAGE_BYTES = 512 * 1024


class _Times(msgspec.Struct):
    """When a waiting job was put in its queue, by the clock of the host that did it."""

    enqueued_at: float = 0.0


_times = msgspec.json.Decoder(_Times)


class Keeper(Loop):
    """Keeps. ``ttl_s`` is how long what it keeps lasts; ``deliveries`` what this worker holds."""

    name = "keeper"

    def __init__(
        self,
        outage: Outage,
        runner: Runner,
        transitions: Transitions,
        worker: InFlight,
        deliveries: Callable[[], Sequence[Delivery]],
        interval_s: float,
        ttl_s: float,
    ) -> None:
        super().__init__(outage)
        self._runner = runner
        self._transitions = transitions
        self._keys = transitions.moves.keys
        self._worker = worker
        self._deliveries = deliveries
        self._interval_s = interval_s
        self._ttl_s = ttl_s
        self._round_at = float("-inf")
        self._told: dict[str, float] = {}

    def tick(self) -> float:
        """Keep what is held; when it is time, what waits, too."""
        self._keep(self._held())
        now = clock.monotonic()
        if now >= self._round_at:
            self._keep_waiting()
            spread = random.uniform(0.75, 1.0)  # noqa: S311 - only spreads the load
            self._round_at = now + self._ttl_s / ROUNDS_A_TTL * spread
        return min(self._interval_s, self._ttl_s / ROUNDS_A_TTL)

    def _held(self) -> Iterator[Move]:
        features = self._transitions.features
        for each in self._deliveries():
            if each.admitted and not features.is_plain(each.envelope):
                move = self._transitions.keep(self._worker, each.tag, each.envelope, each.queue)
                if move is not None:
                    yield move

    def _keep_waiting(self) -> None:
        """A round: all jobs that have waited for half of ``ttl_s``, in queues and in the sets.

        The first of all workers, by name, goes round. Should that one be dead, and not rescued yet,
        the next round comes early enough.
        """
        workers = self._runner.run(look.workers(self._keys))
        if workers and workers[0] != self._worker.worker:
            return
        before = clock.wall() - self._ttl_s / 2
        queues = self._runner.run(look.queues(self._keys))
        for moves in (
            *(self._of_queue(name, before) for name in queues),
            self._of_set(self._keys.schedule, before),
            self._of_set(self._keys.retry, before),
        ):
            try:
                for page in moves:
                    self._keep(page)
            except RedisRefused as error:  # a damaged key, which the guard moves aside
                logger.error("can't read waiting jobs: error=%s", error)

    def _of_queue(self, name: str, before: float) -> Iterator[Iterable[Move]]:
        """Its old jobs in pages, from the oldest to the first page without one.

        Counted from the newest, so that none is passed over when jobs are taken or come meanwhile.
        """
        end, size = self._runner.run(look.length(self._keys, name)), FIRST_PAGE
        while end > 0 and not self.stopping:
            start = max(0, end - size)
            page = self._runner.run(look.stretch(self._keys, name, start, end - 1))
            if page and not any(_is_old(entry, before) for entry in page):
                return
            yield self._moves_of(page, name)
            end, size = start, _next_size(page)

    def _of_set(self, key: str, before: float) -> Iterator[Iterable[Move]]:
        """What should have gone to its queue long ago; all workers may be quiet."""
        skip, size = 0, FIRST_PAGE
        while not self.stopping:
            page = self._runner.run(look.overdue(key, before, skip, size))
            if not page:
                return
            yield self._moves_of(page)
            skip, size = skip + len(page), _next_size(page)

    def _moves_of(self, entries: Iterable[bytes], queue: str = "") -> Iterator[Move]:
        for entry in entries:
            try:
                job, to = (payload.parse(entry), queue) if queue else payload.destination(entry)
            except InvalidPayload:  # whoever takes it says what is wrong with it
                continue
            if not self._transitions.features.is_plain(job):
                move = self._transitions.keep_waiting(job, to)
                if move is not None:
                    yield move

    def _keep(self, moves: Iterable[Move]) -> None:
        if together := merged(moves):
            moved = self._runner.run(self._transitions.moves.move(together))
            now = clock.monotonic()
            for key, error in moved.problems:
                if now - self._told.get(key, float("-inf")) >= REPEAT_S:
                    self._told[key] = now
                    logger.error("a key is damaged: key=%s error=%s", printable(key), error)


def _is_old(entry: bytes, before: float) -> bool:
    try:
        return _times.decode(entry).enqueued_at < before
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return True


def _next_size(page: Sequence[bytes]) -> int:
    """How many entries to read next, from the size of the last ones."""
    mean = sum(map(len, page)) // len(page) + 1 if page else PAGE_BYTES // FIRST_PAGE
    return max(1, min(MOST_A_PAGE, PAGE_BYTES // mean))
