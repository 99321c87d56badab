"""What the machine gives at most: a client that does nothing else, and a loop without Redis."""

import time
from collections.abc import Callable

import msgspec

from bench.report import Metric, case
from bench.rig import Rig

CALLS = 10_000
BATCH = 100
BATCHES = 300
LOOPS = 200_000
PAYLOAD = (
    b'{"class":"bench.jobs.noop","args":[],"jid":"0123456789abcdef01234567","queue":"default",'
    b'"retry":true,"created_at":1700000000.123456,"enqueued_at":1700000000.123456}'
)


class Fields(msgspec.Struct):
    class_: str = msgspec.field(name="class")
    jid: str
    args: list[object]


@case(
    Metric("PING", "calls/s"),
    Metric("SET", "calls/s"),
    Metric("pipelined SETs", "commands/s"),
    Metric("decode and call", "loops/s"),
    Metric("ms a PING", "ms"),
)
def raw(rig: Rig) -> tuple[float, ...]:
    """Round trips one by one, 100 at a time, and msgspec with a call of nothing."""
    connection = rig.connect()
    decode = msgspec.json.Decoder(Fields).decode

    def call(*commands: tuple[object, ...]) -> None:
        connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        for _ in commands:
            connection.read_response()

    def noop() -> None:
        pass

    put = ("SET", "raw", PAYLOAD)
    pings = _pace(lambda: call(("PING",)), CALLS)
    sets = _pace(lambda: call(put), CALLS)
    pipelined = BATCH * _pace(lambda: call(*[put] * BATCH), BATCHES)
    loops = _pace(lambda: noop(*decode(PAYLOAD).args), LOOPS)
    connection.disconnect()
    return pings, sets, pipelined, loops, 1000 / pings


def _pace(call: Callable[[], None], times: int) -> float:
    call()
    began = time.perf_counter()
    for _ in range(times):
        call()
    return times / (time.perf_counter() - began)
