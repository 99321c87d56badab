"""Writes moves as the keys and arguments that ``include/groups.lua`` reads."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cogworker._engine.effects import Effect
from cogworker._engine.places import InFlight, Later, Place, Queue, Source, Target, Trimmed
from cogworker._redis.command import Word
from cogworker._redis.keys import Keys

KEEP = b""
"""In place of a payload: the job's bytes stay as they are."""


class Move(NamedTuple):
    """Jobs that go from one place to another, and what changes with each of them.

    ``items`` is flat. For each job: its tag or set member, unless it comes from nowhere; its
    payload, unless it goes nowhere (``KEEP`` for the same bytes); its score, for the sets, as
    epoch seconds or as ``+seconds`` from the server's now. ``jobs`` is their number.
    """

    source: Source
    target: Target
    jobs: int
    items: Sequence[Word]
    effects: Sequence[Effect] = ()


class Plan:
    """Collects the keys and arguments of one script call."""

    __slots__ = ("_index", "_keys", "args", "keys")

    def __init__(self, keys: Keys, fixed: Sequence[str], args: Sequence[Word] = ()) -> None:
        self._keys = keys
        self.keys: list[str] = list(fixed)
        self.args: list[Word] = list(args)
        self._index = {name: number for number, name in enumerate(fixed, 1)}

    def key(self, name: str) -> int:
        """The index under which the script finds a key."""
        index = self._index.get(name)
        if index is None:
            self.keys.append(name)
            index = self._index[name] = len(self.keys)
        return index

    def queue(self, name: str) -> tuple[int, int, str]:
        """A queue as the scripts know it: its list, its wake-up list, its name."""
        return self.key(self._keys.queue(name)), self.key(self._keys.wake(name)), name

    def moves(self, moves: Sequence[Move]) -> None:
        """Append the groups."""
        self.args.append(len(moves))
        for move in moves:
            self.args += self._source(move.source)
            self.args += self._target(move.target)
            self.args.append(len(move.effects))
            for effect in move.effects:
                self.args += ("count", self.key(effect.key), effect.amount)
            self.args.append(move.jobs)
            self.args += move.items

    def _source(self, source: Source) -> Iterable[Word]:
        if isinstance(source, InFlight):
            return "flight", self.key(self._keys.in_flight(source.worker))
        if source is Place.NOWHERE:
            return ("none",)
        return "set", self._set(source)

    def _target(self, target: Target) -> Iterable[Word]:
        if target is Place.NOWHERE:
            return ("gone",)
        if isinstance(target, Queue):
            return "front" if target.front else "back", *self.queue(target.name)
        if isinstance(target, Later):
            return "later", self.key(self._keys.schedule), *self.queue(target.name)
        if isinstance(target, Trimmed):
            return "set", self.key(self._keys.dead), target.most, target.age_s
        return "set", self._set(target), 0, 0

    def _set(self, place: Place) -> int:
        names = {
            Place.SCHEDULE: self._keys.schedule,
            Place.RETRY: self._keys.retry,
            Place.DEAD: self._keys.dead,
        }
        return self.key(names[place])
