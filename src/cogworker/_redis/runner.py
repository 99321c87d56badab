"""Sends commands. Nothing else in the package does, but for the doorbell.

Every command may be sent twice, so a call whose reply is lost is simply sent again, on a new
connection: first at once, then after the pauses. What the server says about itself (loading,
read-only, busy …) counts as no answer; what it says about the call is raised.
"""

import asyncio
import os
import time
import weakref
from collections.abc import Iterator
from typing import Any, TypeVar

import redis.asyncio.connection as aio
import redis.connection as sync
from redis import exceptions as redis_errors

from cogworker._redis.command import Command
from cogworker._redis.connection import Connector
from cogworker.errors import RedisError, RedisRefused, RedisUnavailable

T = TypeVar("T")

PATIENT = (0.0, 0.1, 0.5)
"""Pauses before sending again, in seconds: what a caller of ``enqueue`` is made to wait."""
ONCE = (0.0,)
"""For callers that have a loop of their own: once more, on a fresh connection."""

_NO_ANSWER = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ReadOnlyError,
    redis_errors.AskError,  # and MovedError
    redis_errors.TryAgainError,
    redis_errors.ClusterDownError,
    redis_errors.InvalidResponse,
    OSError,
)
_NO_ROOM = "max number of clients"
"""Such an error ends the connection; a cluster says it in words that the client library lacks."""
_IN_SCRIPT = "ACL failure in script"
RIGHTS = "+@scripting +@read +@write +@connection +time"
"""Of EVALSHA and EVAL, of what the scripts call, of BLPOP, and of CLIENT SETNAME and SELECT."""
_NOT_NOW = {
    *("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "READONLY"),
    *("TRYAGAIN", "UNBLOCKED"),
}


def translate(error: Exception, command: Command[Any], connector: Connector) -> RedisError:
    """Our error for one of the client library's: the server is away, or it says no."""
    connector.learn(error)
    said = f"{command.name}: {error}"
    if isinstance(error, redis_errors.AuthenticationError | redis_errors.AuthorizationError):
        return RedisRefused(f"{said}; check the user name and the password")
    if _NO_ROOM in str(error):
        return RedisUnavailable(f"{said}; raise the server's maxclients, or have fewer connections")
    if isinstance(error, _NO_ANSWER) or _NOT_NOW.intersection(str(error).split()):
        return RedisUnavailable(f"{said}; is the server running, and is redis_url right?")
    if isinstance(error, redis_errors.NoPermissionError) or _IN_SCRIPT in str(error):
        return RedisRefused(f"{said}; the server's user needs, for Cogworker's keys: {RIGHTS}")
    return RedisRefused(said)


def _judge(error: BaseException, command: Command[Any], connector: Connector) -> RedisUnavailable:
    """The error to raise when sending again does not help; raises what it can't help against."""
    if not isinstance(error, redis_errors.RedisError | OSError):
        raise error  # the caller was interrupted: whether the call was carried out is unknown
    problem = translate(error, command, connector)
    if not isinstance(problem, RedisUnavailable):
        raise problem from error
    return problem


class Runner:
    """Runs commands from any thread, each on a connection of its own for the time of the call."""

    def __init__(self, connector: Connector, pauses: tuple[float, ...] = PATIENT) -> None:
        self.connector = connector
        self._pauses = pauses
        self._idle: list[sync.AbstractConnection] = []
        _runners.add(self)

    def run(self, command: Command[T]) -> T:
        """Send a command and read its answer.

        Raises RedisUnavailable when there is none, and RedisRefused when the server says no.
        """
        pauses = iter(self._pauses)
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self.connector.connect()
            try:
                reply = _exchange(connection, command, self.connector.clock())
            except BaseException as error:
                connection.disconnect()
                time.sleep(self._pause_after(error, command, pauses))
                continue
            self._idle.append(connection)
            return command.read(reply)

    def _pause_after(
        self, error: BaseException, command: Command[Any], pauses: Iterator[float]
    ) -> float:
        """How long to wait before sending again; raises what must be raised."""
        if isinstance(error, redis_errors.ResponseError) and self.connector.loses_clock(error):
            return 0.0
        problem = _judge(error, command, self.connector)
        self.close()  # where one connection was lost, the idle ones are lost, too
        pause = next(pauses, None)
        if pause is None:
            raise problem from error
        return pause

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().disconnect()


def _exchange(connection: sync.AbstractConnection, command: Command[Any], clock: str) -> Any:
    words = connection.pack_command(*command.words(clock))
    connection.send_packed_command(words, check_health=False)
    try:
        return connection.read_response()
    except redis_errors.NoScriptError:
        connection.send_command(*command.words_with_source(clock), check_health=False)
        return connection.read_response()


class AsyncRunner:
    """Runs commands from any event loop, on connections that belong to that loop."""

    def __init__(self, connector: Connector, pauses: tuple[float, ...] = PATIENT) -> None:
        self.connector = connector
        self._pauses = pauses
        self._loops: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, list[aio.AbstractConnection]
        ] = weakref.WeakKeyDictionary()
        _runners.add(self)

    async def run(self, command: Command[T]) -> T:
        """Send a command and read its answer.

        Raises RedisUnavailable when there is none, and RedisRefused when the server says no.
        """
        idle = self._idle_of(asyncio.get_running_loop())
        pauses = iter(self._pauses)
        while True:
            connection = idle.pop() if idle else self.connector.connect_async()
            try:
                reply = await _exchange_async(connection, command, self.connector.clock())
            except BaseException as error:
                await connection.disconnect(nowait=True)
                await asyncio.sleep(await self._pause_after(error, command, pauses))
                continue
            idle.append(connection)
            return command.read(reply)

    def _idle_of(self, loop: asyncio.AbstractEventLoop) -> list[aio.AbstractConnection]:
        idle = self._loops.get(loop)
        if idle is None:
            # Connections refer to their loop: those of a closed one would stay for ever.
            for other in [other for other in self._loops if other.is_closed()]:
                del self._loops[other]
            idle = self._loops[loop] = []
        return idle

    async def _pause_after(
        self, error: BaseException, command: Command[Any], pauses: Iterator[float]
    ) -> float:
        """How long to wait before sending again; raises what must be raised."""
        if isinstance(error, redis_errors.ResponseError) and self.connector.loses_clock(error):
            return 0.0
        problem = _judge(error, command, self.connector)
        await self.close()
        pause = next(pauses, None)
        if pause is None:
            raise problem from error
        return pause

    async def close(self) -> None:
        """Close the running loop's connections that are not in use."""
        idle = self._loops.get(asyncio.get_running_loop(), [])
        while idle:
            await idle.pop().disconnect()


async def _exchange_async(
    connection: aio.AbstractConnection, command: Command[Any], clock: str
) -> Any:
    words = connection.pack_command(*command.words(clock))
    await connection.send_packed_command(words, check_health=False)
    try:
        return await connection.read_response()
    except redis_errors.NoScriptError:
        await connection.send_command(*command.words_with_source(clock), check_health=False)
        return await connection.read_response()


_runners: weakref.WeakSet[Runner | AsyncRunner] = weakref.WeakSet()


def _forget_connections() -> None:
    """A forked child must not talk over its parent's sockets."""
    for runner in _runners:
        if isinstance(runner, Runner):
            runner._idle = []
        else:
            runner._loops = weakref.WeakKeyDictionary()


os.register_at_fork(after_in_child=_forget_connections)
