"""The code of docs/unique.md is run as a reader would run it."""

import json
import re

from cogworker.features.unique import MODES

from support.pages import DOCS, blocks, run_program
from support.processes import eventually

PAGE = DOCS / "unique.md"


def test_duplicates_and_locks_are_as_told(workers, settings, app, look, redis):
    for name, block in zip(("tasks", "enqueue", "steer"), blocks(PAGE), strict=True):
        (workers.folder / f"{name}.py").write_text(block)
    queue = app.client.keys.queue("default")

    skipped, many, pushed, by_user, holder, skipped_again = run_program(
        workers.folder / "enqueue.py", settings
    ).splitlines()
    assert skipped == "None None"
    assert many.startswith("[None, '")
    assert many.endswith("', None]")
    assert [pushed, by_user, skipped_again] == ["None"] * 3
    [vanished] = [raw for raw in redis.lrange(queue, 0, -1) if json.loads(raw)["jid"] == holder]
    assert json.loads(vanished)["args"] == ["March"]

    redis.lrem(queue, 1, vanished)
    told = run_program(workers.folder / "steer.py", settings, holder).splitlines()
    assert len(told) == 4 + 1
    assert [line for line in told if line.startswith("Lock(") and f"holder='{holder}'" in line]
    assert len(list(look.locks())) == 3

    worker = workers.start(poll_interval=0.1)
    eventually(lambda: look.stats().processed == 5)
    assert list(look.locks()) == []
    assert worker.stop() == 0
    log = worker.log  # jobs print at the same time, so a line may have two texts
    for done in ("rebuilt 7", "rebuilt 8", "synced 1 signed up"):
        assert log.count(done) == 1
    assert "synced 1 renamed" not in log
    assert "closed" not in log
    assert log.count("not begun, its like is running: jid=") == 1
    bookings = re.findall("(begins|ends) (Ada|ada)", log)
    assert [word for word, _ in bookings] == ["begins", "ends"] * 2
    assert bookings[0][1] == bookings[1][1] != bookings[2][1]


def test_all_modes_are_told():
    for mode in MODES:
        assert f'`"{mode}"`' in PAGE.read_text("utf-8")
