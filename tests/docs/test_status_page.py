"""The code of docs/status.md is run as a reader would run it, with a worker beside it."""

import re

from cogworker.features.status import RESERVED

from support.pages import DOCS, blocks, run_program

PAGE = DOCS / "status.md"


def test_the_code_runs_as_told(workers, settings):
    tasks, *asking = blocks(PAGE)
    programs = [workers.folder / f"{name}.py" for name in ("ask", "tell", "in_async")]
    (workers.folder / "tasks.py").write_text(tasks)
    for program, source in zip(programs, asking, strict=True):
        program.write_text(source)
    worker = workers.start()

    asked, told, in_async = (run_program(each, settings).splitlines() for each in programs)

    *seen, made, at_its_end = asked
    assert all(
        re.fullmatch(r"(queued|working) (None|[\d.]+) (None|row \d+)", each) for each in seen
    )
    assert made == "Report(rows=50, table='sales')"
    assert at_its_end == "complete 1 100.0 row 50 {'table': 'sales'}"
    assert told[:3] == [
        "it returned Report(rows=1, table='sales')",
        "failed: ValueError no such table",
        "cancelled: nothing to report",
    ]
    assert re.fullmatch(r"not kept: the result is an? .*object.*", told[3])
    assert told[4] == "not yet: scheduled"
    assert re.fullmatch(r"unknown: [0-9a-f]{24}", told[5])
    assert in_async == ["tasks.report", "sales", "taxes"]
    assert len(told) == 6
    assert worker.stop() == 0


def test_all_names_that_are_taken_are_told():
    [taken] = re.findall(r"These names are taken: (.*?)\.", PAGE.read_text("utf-8"), re.S)
    assert set(re.findall(r"`(\w+)`", taken)) == RESERVED
