"""Writes moves as the keys and arguments that ``include/groups.lua`` reads."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import NamedTuple, cast

from cogworker._engine.effects import Effects, Verb
from cogworker._engine.places import InFlight, Later, Place, Queue, Source, Target, Trimmed, Within
from cogworker._redis.command import Word
from cogworker._redis.keys import Keys

KEEP = b""
"""In place of a payload: the job's bytes stay as they are."""
MOST_LISTED_BYTES = 65_536
"""What is told in a list is stored as a whole, and read as a whole by who looks."""


class Move(NamedTuple):
    """Jobs that go from one place to another, and what changes with each of them.

    ``items`` is flat. For each job: its tag, or its payload in a queue or set, unless it comes from
    nowhere; its new payload, unless it goes nowhere or stays (``KEEP`` for the same bytes); its
    score, for the sets, as epoch seconds or as ``+seconds`` from the server's now; and its own
    words of each effect. ``jobs`` is their number.
    """

    source: Source
    target: Target
    jobs: int
    items: Sequence[Word]
    verbs: Sequence[Verb] = ()

    @property
    def width(self) -> int:
        """How many items each job has."""
        return len(self.items) // self.jobs

    @property
    def ref(self) -> bytes:
        """What the first of the jobs is called at its source."""
        ref = self.items[0]
        assert isinstance(ref, bytes)  # noqa: S101 - but for jobs from nowhere it is
        return ref

    def halves(self) -> Iterator["Move"]:
        """The same in two moves."""
        jobs = self.jobs // 2
        items = self.items[: jobs * self.width], self.items[jobs * self.width :]
        yield Move(self.source, self.target, jobs, items[0], self.verbs)
        yield Move(self.source, self.target, self.jobs - jobs, items[1], self.verbs)

    def singles(self) -> Iterator["Move"]:
        """The same, one move for each job."""
        for start in range(0, len(self.items), self.width):
            items = self.items[start : start + self.width]
            yield Move(self.source, self.target, 1, items, self.verbs)


def move(source: Source, target: Target, words: Iterable[Word], effects: Effects = ()) -> Move:
    """One job that goes from one place to another."""
    items, verbs = list(words), []
    for effect in effects:
        verbs.append(effect.verb)
        items += effect.own
    return Move(source, target, 1, items, tuple(verbs))


def merged(moves: Iterable[Move]) -> list[Move]:
    """The same with neighbours that differ only in their jobs as one: it is shorter to say."""
    result: list[Move] = []
    for (source, target, verbs), group in groupby(moves, _all_but_jobs):
        same = list(group)
        if len(same) == 1:
            result += same
        else:
            items = list(chain.from_iterable(each.items for each in same))
            result.append(Move(source, target, sum(each.jobs for each in same), items, verbs))
    return result


def _all_but_jobs(each: Move) -> tuple[Source, Target, Sequence[Verb]]:
    return each.source, each.target, each.verbs


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
        groups = [group for each in moves for group in _portions(each)]
        self.args.append(len(groups))
        for each in groups:
            items, lists = self._items(each)
            self.args += self._source(each.source)
            self.args += self._target(each.target)
            self.args.append(len(each.verbs))
            for verb in each.verbs:
                self.args.append(verb.name)
                if verb.key is not None:
                    self.args.append(self.key(verb.key))
                self.args += verb.words
                if verb.listed:
                    self.args.append(lists.pop())
            self.args.append(each.jobs)
            self.args += items

    def _items(self, each: Move) -> tuple[Sequence[Word], list[bytes]]:
        """The items, with the index of each key that a job has of its own; and lists, last first.

        What is told in a list is not among the items.
        """
        columns = [column for column in _columns(each.verbs) if column[1].keyed or column[1].listed]
        if not columns:
            return each.items, []
        items, lists, width = list(each.items), [], each.width
        places = [(width - right, verb) for right, verb in columns]
        for place, verb in places:  # from right to left, so that what is left stays where it is
            if verb.keyed:
                for at in range(place, len(items), width):
                    items[at] = self.key(str(items[at]))
            else:
                lists.append(b"[%b]" % b",".join(cast("list[bytes]", items[place::width])))
                del items[place::width]
                width -= 1
        return items, lists

    def _source(self, source: Source) -> Iterable[Word]:
        if isinstance(source, InFlight):
            return "flight", self.key(self._keys.in_flight(source.worker))
        if isinstance(source, Within):
            return "list", self.key(self._keys.queue(source.name)), source.reach
        if source is Place.NOWHERE:
            return ("none",)
        return "set", self.key(key_of_set(self._keys, source))

    def _target(self, target: Target) -> Iterable[Word]:
        if target is Place.NOWHERE:
            return ("gone",)
        if target is Place.SAME:
            return ("stay",)
        if isinstance(target, Queue):
            return "front" if target.front else "back", *self.queue(target.name)
        if isinstance(target, Later):
            return "later", self.key(self._keys.schedule), *self.queue(target.name)
        if isinstance(target, Trimmed):
            return "set", self.key(self._keys.dead), target.most, target.age_s
        return "set", self.key(key_of_set(self._keys, target)), 0, 0


def key_of_set(keys: Keys, place: Place) -> str:
    """Where the jobs of a set lie."""
    return {Place.SCHEDULE: keys.schedule, Place.RETRY: keys.retry, Place.DEAD: keys.dead}[place]


def _columns(verbs: Sequence[Verb]) -> list[tuple[int, Verb]]:
    """Where a job's own words of each verb begin among its items, from right to left.

    The place is counted from the items' end.
    """
    columns: list[tuple[int, Verb]] = []
    right = 0
    for verb in reversed(verbs):
        if verb.own:
            right += verb.own
            columns.append((right, verb))
    return columns


def _portions(each: Move) -> list[Move]:
    """The same in as many moves as are needed for no list to be too long."""
    for right, verb in _columns(each.verbs) if each.jobs > 1 else ():
        if verb.listed:
            told = cast("Sequence[bytes]", each.items[each.width - right :: each.width])
            if sum(map(len, told)) > MOST_LISTED_BYTES:
                return [part for half in each.halves() for part in _portions(half)]
    return [each]
