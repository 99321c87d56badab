"""A connection that fails at its k-th command, in one of four ways, or finds the server full."""

from typing import Any

import redis as redis_client
from redis import exceptions

from cogworker._redis.connection import Connector
from cogworker.config import Config

MODES = ("dies before", "dies after", "loses request", "loses reply")
FULL = "finds the server full"


class Death(BaseException):
    """The process has died: nothing of it goes on."""


class Fault:
    """Which command fails, and how. ``count`` tells how many were sent.

    ``redis`` is a connection past the fault, by which the server is filled.
    """

    def __init__(
        self, at: int = 0, mode: str = "", redis: redis_client.Redis | None = None
    ) -> None:
        self.at = at
        self.mode = mode
        self.redis = redis
        self.count = 0

    def arm(self, call: int, mode: str) -> None:
        """From now on, the ``call``-th command fails."""
        self.at, self.mode, self.count = call, mode, 0

    def next(self) -> str:
        """The mode that hits the command about to be sent, if any."""
        self.count += 1
        return self.mode if self.count == self.at else ""


class FlakyConnector(Connector):
    """Makes connections that share one fault."""

    def __init__(self, config: Config, fault: Fault) -> None:
        self._fault = fault
        super().__init__(config)

    def connect(self) -> Any:
        return FlakyConnection(super().connect(), self._fault)


class FlakyConnection:
    """Passes everything on to a real connection, but for the fault."""

    def __init__(self, connection: Any, fault: Fault) -> None:
        self._connection = connection
        self._fault = fault
        self._mode = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        self._mode = self._fault.next()
        if self._mode == "dies before":
            raise Death
        if self._mode == "loses request":
            self._connection.disconnect()
            raise exceptions.ConnectionError("cut before it was sent")
        if self._mode == FULL:
            self._let_server_have(1)
        self._connection.send_packed_command(*args, **kwargs)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            reply = self._connection.read_response(*args, **kwargs)
        finally:
            if self._mode == FULL:
                self._let_server_have(0)
        if self._mode == "dies after":
            raise Death
        if self._mode == "loses reply":
            self._mode = ""
            self._connection.disconnect()
            raise exceptions.ConnectionError("cut before the answer came")
        return reply

    def _let_server_have(self, n_bytes: int) -> None:
        """Limit the server's memory; 0 is no limit."""
        assert self._fault.redis is not None
        self._fault.redis.config_set("maxmemory", n_bytes)
