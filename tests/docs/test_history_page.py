"""The code of docs/history.md, run as one program, with a worker where the page says so."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "history.md"
WORK = """
import time
with cog.worker():
    before_s = time.monotonic()
    while Inspector(cog).history_size() != (1, 1) and time.monotonic() < before_s + 30:
        time.sleep(0.01)
"""


def test_the_page_s_code_runs(tmp_path, settings):
    declare, enqueue, look = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S
    )
    imports = "from cogworker.inspector import Inspector\n"
    (tmp_path / "page.py").write_text(imports + declare + enqueue + WORK + look)

    ran = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "REDIS_URL": settings["redis_url"],
            "COGWORKER_NAMESPACE": settings["namespace"],
        },
        check=True,
        capture_output=True,
        text=True,
    )

    assert "HistorySize(success=1, failed=1)" in ran.stdout
    assert "fails [] 1 dead ValueError no" in ran.stdout
    assert "secret" not in ran.stdout
