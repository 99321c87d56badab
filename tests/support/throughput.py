"""The counts of throughput, which must agree with one another and with the totals."""

from collections import Counter
from collections.abc import Mapping, MutableMapping
from typing import Any


def pop_throughput(dump: MutableMapping[str, Any]) -> Counter[str]:
    """Take the hours' and days' counts out of all keys; answers with the runs by outcome.

    An hour's count is there as a total, by minute and by class, and each day has its own.
    """
    totals, minutes, classes, days = Counter(), Counter(), Counter(), Counter()
    for name in [name for name in dump if name.startswith(("throughput:", "runs:"))]:
        hash_: Mapping[bytes, bytes] = dump.pop(name)
        for field, count in hash_.items():
            where, outcome = _place(field.decode())
            if name.startswith("runs:"):
                where = "day"
            sums = {"total": totals, "minute": minutes, "class": classes, "day": days}.get(where)
            if sums is not None:
                sums[outcome] += int(count)
    assert totals == minutes == classes == days
    return totals


def _place(field: str) -> tuple[str, str]:
    head, colon, _ = field.partition(":")
    if colon:
        return ("class", head) if head in ("processed", "failed") else ("bucket", head)
    minute, space, outcome = field.partition(" ")
    return ("minute", outcome) if space else ("total", minute)
