"""What one run says of itself, until it is recorded: how far it is, and fields of its own.

A run may say it a million times. Saying only changes this; the worker's dispatcher takes what has
changed a few times a second (``_worker/notes.py``), and the end of the run what is left.
"""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from cogworker.codec import encode_json
from cogworker.errors import InvalidArguments, InvalidProgress
from cogworker.features.status import RESERVED

MOST_FIELDS = 50
MOST_FIELD_BYTES = 10_000
MOST_NAME_CHARACTERS = 100
MOST_MESSAGE_CHARACTERS = 1000


class Progress:
    """The progress of one run of the job named ``job``; ``tell`` is called when there is news.

    There is no lock: JobInterrupted may end the job's thread at any instruction, and would leave it
    locked. Instead what is said is always complete, and is compared with what was taken.
    """

    __slots__ = ("_closed", "_job", "_message", "_pct", "_stored", "_taken", "_tell", "_told")

    def __init__(self, job: str, tell: Callable[[], None]) -> None:
        self._job = job
        self._tell = tell
        self._pct: float | None = None
        self._message: str | None = None
        self._stored: dict[str, bytes] = {}
        self._taken: dict[str, bytes] = {}
        self._told = False
        self._closed = False

    # What the job says, from any of its threads.

    def at(self, pct: float, message: str | None = None) -> None:
        """Note how far the run is. Raises InvalidProgress."""
        if type(pct) is not float and type(pct) is not int:
            pct = self._number(pct)
        if not 0 <= pct <= 100:  # false for NaN
            raise InvalidProgress(self._job, f"at(): progress goes from 0 to 100, not to {pct!r}")
        if message is not None:
            if not isinstance(message, str):
                problem = f"at(): the message must be a text, not {message!r:.100}"
                raise InvalidProgress(self._job, problem)
            self._message = message
        self._pct = pct
        if not self._told:
            self.news()

    def store(self, fields: Mapping[str, Any]) -> None:
        """Note fields of its own, all of them or none. Raises InvalidProgress."""
        encoded = {name: self._encoded(name, value) for name, value in fields.items()}
        stored = self._stored
        if len(stored) + len(encoded) > MOST_FIELDS and len(stored | encoded) > MOST_FIELDS:
            problem = f"store(): a run has {MOST_FIELDS} fields at most; put several into one"
            raise InvalidProgress(self._job, problem)
        stored.update(encoded)
        if not self._told:
            self.news()

    def news(self) -> None:
        """Have it recorded, though nothing was said, that the run goes on."""
        self._told = True
        self._tell()

    # What the worker asks.

    def take(self) -> dict[str, bytes] | None:
        """What has changed since the last time; None once the run is over."""
        if self._closed:
            return None
        self._told = False  # first: what is said from now on is told again
        changes = self._changes()
        self._taken |= changes
        return changes

    def close(self) -> dict[str, bytes]:
        """What was never taken, at the run's end; what is said later is not recorded."""
        self._closed = self._told = True
        return self._changes()

    def _changes(self) -> dict[str, bytes]:
        said = self._stored.copy()
        if self._pct is not None:
            said["pct"] = b"%.10g" % self._pct
        if self._message is not None:
            message = self._message[:MOST_MESSAGE_CHARACTERS]
            said["message"] = message.encode("utf-8", "backslashreplace")
        return {name: value for name, value in said.items() if self._taken.get(name) != value}

    def _number(self, pct: object) -> float:
        if isinstance(pct, Real) and not isinstance(pct, bool):  # such as numpy's
            return float(pct)
        raise InvalidProgress(self._job, f"at(): progress is a number, not {pct!r:.100}")

    def _encoded(self, name: str, value: Any) -> bytes:
        if name in RESERVED:
            raise InvalidProgress(self._job, f"store(): {name!r} is no field of its own; rename it")
        if not (isinstance(name, str) and 0 < len(name) <= MOST_NAME_CHARACTERS):
            problem = f"store(): a field's name has 1 to {MOST_NAME_CHARACTERS} characters"
            raise InvalidProgress(self._job, f"{problem}, unlike {name!r:.120}")
        if not name.isprintable():
            raise InvalidProgress(self._job, f"store(): a field's name is printable, not {name!r}")
        try:
            encoded = encode_json(value, name, self._job)
        except InvalidArguments as error:
            raise InvalidProgress(self._job, f"store(): {error.path} {error.problem}") from None
        if len(encoded) > MOST_FIELD_BYTES:
            problem = f"store(): {name} has {len(encoded):,} bytes, over {MOST_FIELD_BYTES:,}"
            raise InvalidProgress(self._job, f"{problem}; store the data elsewhere")
        return encoded
