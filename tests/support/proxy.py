"""A TCP proxy between clients and a server, which does to connections what networks do.

It runs an event loop in a thread of its own; the test calls its methods meanwhile.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from support.server import free_port

REQUESTS, REPLIES = "requests", "replies"


class Proxy:
    """Listens on a port of the loopback address ``host`` and passes everything on.

    ``passed`` counts the bytes that were passed on each way, ``REQUESTS`` and ``REPLIES``. ``late``
    is the number of connections that a client has left before all it had sent was passed on.
    """

    def __init__(self, upstream: str, host: str = "127.0.0.1") -> None:
        self._upstream = urlsplit(upstream)
        self._host = host
        self._port = free_port(host)  # it is left and taken again by ``cut`` and ``heal``
        self.passed: Counter[str] = Counter()
        self.late = 0
        self._delay_s = 0.0
        self._piece: int | None = None
        self._to_drop = 0
        self._closes = False
        self._cut_after: dict[str, int] = {}
        self._gate = asyncio.Event()  # shut while connections stall
        self._links: dict[asyncio.Task[Any], asyncio.Event] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._open())

    @property
    def url(self) -> str:
        """Where clients find it."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"redis://{host}:{self._port}/0"

    # What a test does with it.

    def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        self._do(self._shut())

    def stall(self) -> None:
        """Keep all connections, even accept new ones, but pass nothing on until ``heal``.

        What was sent meanwhile arrives then, as a packet does that comes late.
        """
        self._do(self._stall())

    def renew(self) -> None:
        """Let new connections work, while those that stall go on to stall until ``heal``."""
        self._do(self._renew())

    def delay(self, seconds: float) -> None:
        """Let everything arrive that much later, in both directions."""
        self._delay_s = seconds

    def drop_replies(self, times: int = 1_000_000, *, close: bool) -> None:
        """Pass requests on, but not their replies; a connection is then closed, or says nothing."""
        self._closes, self._to_drop = close, times

    def cut_reply_after(self, n_bytes: int) -> None:
        """Once: close the connection whose reply would be the first to pass ``n_bytes``."""
        self._cut_after[REPLIES] = n_bytes

    def cut_request_after(self, n_bytes: int) -> None:
        """Once: close the connection whose request would be the first to pass ``n_bytes``."""
        self._cut_after[REQUESTS] = n_bytes

    def split(self, n_bytes: int) -> None:
        """Pass everything on in pieces of that many bytes."""
        self._piece = n_bytes

    def heal(self) -> None:
        """Be a good network again."""
        self._delay_s, self._piece, self._to_drop = 0.0, None, 0
        self._cut_after.clear()
        self._do(self._open())

    def close(self) -> None:
        """End it."""
        self._do(self._shut())
        self._do(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # Its event loop.

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        for gate in (self._gate, *self._links.values()):
            gate.set()
        if self._listener is None:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            self._listener = socket.create_server((self._host, self._port), family=family)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _stall(self) -> None:
        for gate in (self._gate, *self._links.values()):
            gate.clear()

    async def _renew(self) -> None:
        self._gate = asyncio.Event()
        self._gate.set()

    async def _shut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for link in self._links:
            link.cancel()
        if self._links:
            await asyncio.wait(self._links)

    async def _finish(self) -> None:
        """End everything; a connection that is closed waits until what it has to write is read."""
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        for _ in range(3):  # transports end in a later round of the loop
            await asyncio.sleep(0)

    def _accept(self, listener: socket.socket) -> None:
        """Not by asyncio's server: closed too soon, it forgets to close what it was accepting."""
        with suppress(OSError):  # whoever it was is gone
            near, _ = listener.accept()
            near.setblocking(False)
            unused = [near]
            task = self._loop.create_task(self._link(unused, self._gate))
            self._links[task] = self._gate
            task.add_done_callback(lambda task: self._links.pop(task))
            # A task that is cancelled before its first step closes nothing itself.
            task.add_done_callback(lambda _: [each.close() for each in unused])

    async def _link(self, unused: list[socket.socket], gate: asyncio.Event) -> None:
        writers: list[asyncio.StreamWriter] = []
        try:
            reader, writer = await asyncio.open_connection(sock=unused[0])
            unused.clear()
            writers.append(writer)
            self._writers.add(writer)
            await gate.wait()
            far_reader, far_writer = await self._connect()
            writers.append(far_writer)
            self._writers.add(far_writer)
            ways = [
                asyncio.create_task(self._pump(REQUESTS, reader, far_writer, gate)),
                asyncio.create_task(self._pump(REPLIES, far_reader, writer, gate)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the server is not there, or ``cut``
        finally:
            for each in writers:
                each.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._upstream.scheme == "unix":
            return await asyncio.open_unix_connection(unquote(self._upstream.path))
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port)

    async def _pump(
        self,
        way: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: asyncio.Event,
    ) -> None:
        """Pass on what comes, each chunk when its time has come, until an end or a cut."""
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            with suppress(OSError):
                while data := await reader.read(65536):
                    chunks.put_nowait((self._loop.time() + self._delay_s, data))
            chunks.put_nowait((0.0, b""))
            self.late += way == REQUESTS

        reading = asyncio.create_task(read())
        try:
            while True:
                due, data = await chunks.get()
                await asyncio.sleep(due - self._loop.time())
                await gate.wait()
                if not data or not await self._pass_on(way, data, writer):
                    return
        finally:
            if not reading.cancel():  # it had ended
                self.late -= way == REQUESTS

    async def _pass_on(self, way: str, data: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answers whether the connection may go on."""
        if way == REPLIES and self._to_drop > 0:
            self._to_drop -= 1
            return not self._closes
        left = self._cut_after.get(way)
        is_cut = left is not None and len(data) > left
        if is_cut:
            data = data[:left]
            del self._cut_after[way]
        elif left is not None:
            self._cut_after[way] = left - len(data)
        self.passed[way] += len(data)
        piece = self._piece or max(1, len(data))
        for start in range(0, len(data), piece):
            writer.write(data[start : start + piece])
            await writer.drain()
            await asyncio.sleep(0)  # the reader may have its turn
        return not is_cut


@contextmanager
def proxy(upstream: str, host: str = "127.0.0.1") -> Iterator[Proxy]:
    """A proxy that ends with the block."""
    between = Proxy(upstream, host)
    try:
        yield between
    finally:
        between.close()
