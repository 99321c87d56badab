"""Periodic entries as workers have published them: to show, to switch off and on, to run now.

It needs nothing of the application that has them: what they push lies in Redis, too.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from cogworker._engine import control, look, timetable
from cogworker._engine.control import Pause
from cogworker._engine.timetable import Noted
from cogworker.client import Client, Draft
from cogworker.errors import CogworkerError, DuplicateJob
from cogworker.features.periodic import Slots
from cogworker.schedules import EVERY, Cron, Every, Schedule

GONE_S = 300.0
"""An entry is left out when no worker has written it for so long, though workers live."""
ALIVE_S = 60.0


class PeriodicEntry(NamedTuple):
    """A periodic entry, and how it stands. Times are in epoch seconds.

    ``pjid`` is its id, ``cron`` its line, or ``@every`` and seconds. ``last_slot`` is the last time
    slot that it has fired for, with the job ``last_jid``; ``last_skipped`` the last one at which
    the job ``skipped_for`` was in the way. ``registered_by`` is the worker that has published it
    last. ``next_slot`` is None when its line can't be used here.
    """

    pjid: str
    name: str
    job: str
    cron: str
    timezone: str
    args: Any
    kwargs: Any
    queue: str
    unique: str | None
    next_slot: int | None
    disabled: Pause | None
    registered_by: str
    registered_at: float
    last_slot: int | None = None
    last_jid: str | None = None
    last_skipped: int | None = None
    skipped_for: str | None = None


class _Told(msgspec.Struct):
    """What is needed of a published entry to run it; its arguments stay as they are."""

    class_: str = msgspec.field(name="class")
    queue: str
    retry: bool | int
    args: msgspec.Raw
    kwargs: msgspec.Raw | None = None
    expires_in: float | None = None
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


_told = msgspec.json.Decoder(_Told)


class RunNow(NamedTuple):
    """The answer to a run that was asked for: the new job's id, or that of the one in the way."""

    jid: str | None
    held_by: str | None = None


class Published:
    """The published entries of one installation."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._keys = client.keys
        self._run = client.runner.run
        self._slots = Slots(client.keys)

    # Looking.

    def entries(self) -> list[PeriodicEntry]:
        """All entries that a worker has, by what they are called."""
        keys, run = self._keys, self._run
        found, seen = run(timetable.entries(keys)), run(timetable.seen(keys))
        now, oldest = run(timetable.server_time()), float("-inf")
        if any(age_s < ALIVE_S for _, age_s in run(look.beats(keys))):
            oldest = now - GONE_S
        runs, skips = run(timetable.runs(keys)), run(timetable.skips(keys))
        disabled, by_whom = run(control.disabled_entries(keys)), run(control.disablings(keys))
        shown = []
        for pjid, raw in found.items():
            told, registered = look.decoded(raw), seen.get(pjid, Noted(0.0, ""))
            if told is None or registered.at < oldest:
                continue
            off = by_whom.get(pjid, Pause("", None)) if pjid in disabled else None
            entry = _entry(pjid, told, now, off, registered)
            shown.append(_with_slots(entry, runs.get(pjid), skips.get(pjid)))
        return sorted(shown, key=lambda entry: (entry.name or entry.job, entry.cron, entry.pjid))

    # Steering. An entry is called by its id, or by its name when only one has it.

    def disable(self, entry: str, by: str) -> bool:
        """Have an entry fire no more; answers whether that changed anything."""
        return self._run(control.disable_entry(self._keys, self._id_of(entry), True, by))

    def enable(self, entry: str, by: str) -> bool:
        """Have an entry fire again, from its next time slot on."""
        pjid = self._id_of(entry)
        told = look.decoded(self._run(timetable.entries(self._keys)).get(pjid, b""))
        schedule = None if told is None else _schedule(told)
        if schedule is not None:
            # What came up meanwhile was not missed. Until the entry is enabled nobody else decides.
            slot = schedule.latest(self._run(timetable.server_time()))
            if slot is not None:
                note = self._client.moves.note(self._slots.decide(pjid, slot))
                self._run(self._client.moves.move([note]))
        return self._run(control.disable_entry(self._keys, pjid, False, by))

    def run_now(self, entry: str, by: str) -> RunNow:
        """Push an entry's job, whether it is due, disabled or not, with its lock if it has one."""
        pjid = self._id_of(entry)
        raw = self._run(timetable.entries(self._keys)).get(pjid)
        draft = None if raw is None else _draft(raw, by)
        if draft is None:
            raise CogworkerError(f"what is published of the periodic entry {entry} can't be read")
        try:
            return RunNow(self._client.enqueue(draft))
        except DuplicateJob as error:
            return RunNow(None, error.holder)

    def _id_of(self, entry: str) -> str:
        found = self._run(timetable.entries(self._keys))
        if entry in found or entry in self._run(control.disabled_entries(self._keys)):
            return entry
        named = [
            pjid
            for pjid, raw in found.items()
            if entry and (look.decoded(raw) or {}).get("name") == entry
        ]
        if len(named) == 1:
            return named[0]
        if named:
            raise CogworkerError(
                f"{len(named)} periodic entries are called {entry!r}; "
                f"say which one by its id: {', '.join(sorted(named))}"
            )
        raise CogworkerError(f"no worker has published a periodic entry {entry!r:.100}")


def _entry(
    pjid: str, told: Mapping[str, Any], now: float, off: Pause | None, registered: Noted
) -> PeriodicEntry:
    schedule = _schedule(told)
    return PeriodicEntry(
        pjid=pjid,
        name=str(told.get("name", "")),
        job=str(told.get("class", "")),
        cron=str(told.get("cron", "")),
        timezone=str(told.get("timezone", "UTC")),
        args=told.get("args", []),
        kwargs=told.get("kwargs", {}),
        queue=str(told.get("queue", "default")),
        unique=told.get("unique"),
        next_slot=None if schedule is None else schedule.next(now),
        disabled=off,
        registered_by=registered.what,
        registered_at=registered.at,
    )


def _with_slots(entry: PeriodicEntry, run: Noted | None, skip: Noted | None) -> PeriodicEntry:
    if run is not None:
        entry = entry._replace(last_slot=int(run.at), last_jid=run.what)
    if skip is not None:
        entry = entry._replace(last_skipped=int(skip.at), skipped_for=skip.what)
    return entry


def _schedule(told: Mapping[str, Any]) -> Schedule | None:
    """The schedule of a published entry; None when it can't be used here."""
    text = told.get("cron")
    try:
        if isinstance(text, str) and text.startswith(EVERY):
            return Every(int(text.removeprefix(EVERY)))
        return Cron(text, told.get("timezone"))
    except ValueError:
        return None


def _draft(raw: bytes, by: str) -> Draft | None:
    """What a published entry pushes; None when it can't be read."""
    try:
        told = _told.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    fields = {**told.fields, "periodic_by": by} if by else told.fields
    return Draft(
        *(told.class_, told.queue, told.retry, bytes(told.args)),
        None if told.kwargs is None else bytes(told.kwargs),
        fields,
        raises_duplicate=True,
        expires_in_s=told.expires_in,
    )
