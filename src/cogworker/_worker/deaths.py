"""Deaths that the server has yet to confirm, and then the hooks that are told of them.

A hook runs after the answer to the call that put the job in dead, so it is never told of a death
that has not happened, and once a death. If the process dies in between, nobody is told.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from cogworker._worker.hook_thread import HookThread
from cogworker.hooks import DeathHook, Hooks
from cogworker.job import Job


class Death(NamedTuple):
    """What is told of one: the payload as it lies in dead, and what the job died of."""

    hooks: tuple[DeathHook, ...]
    payload: bytes
    error: BaseException
    jid: str

    def arguments(self) -> tuple[dict[str, Any], BaseException]:
        """A copy for each hook."""
        return msgspec.json.decode(self.payload), self.error


class Deaths:
    """The deaths of one worker's deliveries, or those of the jobs that it rescues."""

    def __init__(self, hooks: Hooks, jobs: Mapping[str, Job[..., Any]], thread: HookThread) -> None:
        self._hooks = hooks
        self._jobs = jobs
        self._thread = thread
        self.expected: dict[bytes, Death] = {}

    def expect(self, tag: bytes, name: str, jid: str, payload: bytes, error: BaseException) -> None:
        """A job's move to dead is under way."""
        job = self._jobs.get(name)
        own = None if job is None else job.options.on_death
        hooks = (own, *self._hooks.death) if own is not None else tuple(self._hooks.death)
        if hooks:
            self.expected[tag] = Death(hooks, payload, error, jid)

    def confirm(self, tags: Iterable[bytes], *, but: Collection[bytes] = ()) -> None:
        """The server has carried out the moves of deliveries: their own hooks, then the app's."""
        for tag in tags:
            death = None if tag in but else self.expected.pop(tag, None)
            if death is not None:
                for hook in death.hooks:
                    self._thread.call(hook, death.arguments, f"event=death jid={death.jid}")

    def forget(self, tags: Iterable[bytes]) -> None:
        """Somebody else has decided about deliveries."""
        for tag in tags:
            self.expected.pop(tag, None)

    def forget_all(self) -> None:
        """The call has got no answer: whether they are dead is unknown."""
        self.expected.clear()
