"""The code of docs/middleware.md and docs/retries.md, each run as one program, with a worker."""

import pytest

from support.pages import DOCS, blocks, run_program

WORK = """
import time
from cogworker.inspector import Inspector
def count():
    stats = Inspector(cog).stats()
    return stats.processed, stats.failed, stats.retrying, stats.scheduled, stats.dead
with cog.worker(concurrency=1):
    before_s = time.monotonic()
    while count() != {wanted} and time.monotonic() < before_s + 30:
        time.sleep(0.01)
print(count())
"""


@pytest.mark.parametrize(
    ("page", "wanted", "said"),
    [
        (
            "middleware.md",
            (1, 1, 0, 0, 1),
            [
                "hello ada of acme", "charge failed: TimeoutError", "refunded 7",
                "reported: tests_page.charge TimeoutError for good",
                "died: charge [7] TimeoutError",
            ],
        ),
        ("retries.md", (1, 5, 2, 1, 2), []),
    ],
)  # fmt: skip
def test_the_page_s_code_runs(page, wanted, said, tmp_path, settings):
    program = tmp_path / "tests_page.py"
    program.write_text("\n".join(blocks(DOCS / page)) + WORK.format(wanted=wanted))

    printed = run_program(program, settings)

    assert f"{wanted}\n" in printed
    for line in said:
        assert line in printed
