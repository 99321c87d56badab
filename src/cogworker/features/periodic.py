"""Time slots of periodic entries, and what is told of the entries, as effects.

To claim a time slot is a condition of the push of its job: an entry that is disabled claims none,
and one that was decided before is decided once. After it comes the job's own lock, if it has one;
when that is held, the time slot stays decided: it is skipped.
"""

from collections.abc import Mapping

from cogworker._engine.effects import Effects, advance, record, same, unless
from cogworker._redis.keys import Keys


class Slots:
    """The effects of one installation. An entry is called by its id, ``pjid``."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def fire(self, pjid: str, slot: int, jid: str, *, catch_up: bool) -> Effects:
        """A time slot's job is pushed, if nobody has decided the slot and it may be.

        Without ``catch_up`` the first one ever is only remembered.
        """
        return (
            unless(self._keys.periodic_disabled, pjid),
            advance(self._keys.periodic_slots, pjid, slot, seed=not catch_up),
            record(self._keys.periodic_runs, {pjid: f"{slot} {jid}"}, 0),
        )

    def decide(self, pjid: str, slot: int) -> Effects:
        """A time slot, and all before it, will not fire any more."""
        return (advance(self._keys.periodic_slots, pjid, slot),)

    def skipped(self, pjid: str, slot: int, holder: str) -> Effects:
        """A time slot was skipped, because the job ``holder`` was in the way."""
        return (record(self._keys.periodic_skips, {pjid: f"{slot} {holder}"}, 0),)

    def publish(self, entries: Mapping[str, bytes], now: float, worker: str) -> Effects:
        """A worker tells which entries it has."""
        seen = f"{now:.3f} {worker}"
        return (
            record(self._keys.periodic_entries, entries, 0),
            record(self._keys.periodic_seen, dict.fromkeys(entries, seen), 0),
        )

    def forget(self, pjid: str, seen: bytes) -> Effects:
        """What is kept of an entry is dropped, but for who has disabled it.

        Not when a worker has published it since it was ``seen`` last.
        """
        keys = self._keys
        everywhere = (
            *(keys.periodic_entries, keys.periodic_seen),
            *(keys.periodic_slots, keys.periodic_runs, keys.periodic_skips),
        )
        return (
            same(keys.periodic_seen, pjid, seen),
            *(record(key, {}, 0, drop=(pjid,)) for key in everywhere),
        )
