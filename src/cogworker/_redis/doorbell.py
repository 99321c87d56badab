"""Waits for a wake-up token without holding up the thread that waits.

The question is sent at once and the answer read when the socket has it, so a worker's dispatcher
can wait for new jobs and for finished ones at the same time.
"""

from typing import Any

from redis import exceptions as redis_errors
from redis.connection import AbstractConnection

from cogworker import clock
from cogworker._redis.command import Command
from cogworker._redis.connection import Connector
from cogworker._redis.runner import translate

GRACE_S = 5.0
"""How much later than promised an answer may come."""


class Doorbell:
    """One blocking command at a time, on a connection of its own."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._connection: AbstractConnection | None = None
        self._command: Command[Any] | None = None
        self._overdue_at = 0.0

    @property
    def listening(self) -> bool:
        """Whether an answer is outstanding.

        One that is overdue will never come, as on a connection that is dead without saying so:
        that connection is given up.
        """
        if self._command is not None and clock.monotonic() > self._overdue_at:
            self.close()
        return self._command is not None

    def listen(self, command: Command[bytes | None], timeout_s: float) -> None:
        """Send the question, which the server answers within ``timeout_s``.

        Raises RedisUnavailable and RedisRefused.
        """
        self._overdue_at = clock.monotonic() + timeout_s + GRACE_S
        if self._connection is None:
            self._connection = self._connector.connect()
        connection = self._connection
        self._ask(command, lambda: connection.send_command(*command.words(), check_health=False))
        self._command = command

    def fileno(self) -> int:
        """The socket to watch while ``listening``."""
        socket: Any = getattr(self._connection, "_sock", None)
        return int(socket.fileno())

    def answer(self) -> bytes | None:
        """Read the answer: the wake-up list that had a token, or None when the time was up.

        Raises RedisUnavailable and RedisRefused.
        """
        command, connection = self._command, self._connection
        assert command is not None  # noqa: S101 - the caller asks while listening
        assert connection is not None  # noqa: S101
        self._command = None
        reply: bytes | None = command.read(self._ask(command, connection.read_response))
        return reply

    def close(self) -> None:
        """Stop listening and close the connection."""
        self._command = None
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def _ask(self, command: Command[Any], step: Any) -> Any:
        try:
            return step()
        except (redis_errors.RedisError, OSError) as error:
            self.close()
            raise translate(error, command, self._connector) from error
