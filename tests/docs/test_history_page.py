"""The code of docs/history.md, run as one program, with a worker where the page says so."""

from support.pages import DOCS, blocks, run_program

WORK = """
import time
with cog.worker():
    before_s = time.monotonic()
    while Inspector(cog).history_size() != (1, 1) and time.monotonic() < before_s + 30:
        time.sleep(0.01)
"""


def test_the_page_s_code_runs(tmp_path, settings):
    declare, enqueue, look = blocks(DOCS / "history.md")
    imports = "from cogworker.inspector import Inspector\n"
    program = tmp_path / "page.py"
    program.write_text(imports + declare + enqueue + WORK + look)

    printed = run_program(program, settings)

    assert "HistorySize(success=1, failed=1)" in printed
    assert "fails [] 1 dead ValueError no" in printed
    assert "secret" not in printed
