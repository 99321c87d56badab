"""What to ask of the server, as a value.

A command is made by pure functions and sent by a runner, so the same description serves
synchronous and asynchronous code, tests that compare it, and tests that make it fail.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from cogworker._redis.scripts import Script

T = TypeVar("T")

Word = str | bytes | int | float


class Command(NamedTuple, Generic[T]):
    """One call of a script, or of a plain Redis command when ``script`` is None.

    Every command may be sent twice: when a reply is lost, its runner sends it again.
    ``read`` turns the server's reply into the answer.
    """

    name: str
    script: Script | None
    keys: Sequence[str]
    args: Sequence[Word]
    read: Callable[[Any], T]

    def words(self, clock: str = "") -> tuple[Word, ...]:
        """The command as it goes over the wire.

        ``clock``, epoch seconds, is for scripts of a server that has no clock for them.
        """
        if self.script is None:
            return (*self.keys, *self.args)
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args, clock)

    def words_with_source(self, clock: str = "") -> tuple[Word, ...]:
        """The same with the script's text, for a server that does not have it yet."""
        assert self.script is not None  # noqa: S101 - only a script can be unknown to a server
        return ("EVAL", self.script.source, len(self.keys), *self.keys, *self.args, clock)
