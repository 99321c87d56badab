"""The code of docs/periodic.md is run as a reader would run it."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "periodic.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)


def test_entries_fire_and_are_steered_as_told(workers, settings):
    tasks, look = blocks("python")
    [entries] = blocks("yaml")
    (workers.folder / "tasks.py").write_text(tasks)
    (workers.folder / "look.py").write_text(look)
    (workers.folder / "cogworker.yml").write_text(entries)
    worker = workers.start("-C", "cogworker.yml", "-q", "default", "-q", "slow")

    for line in ("swept", "report eu True", "report us False", "polled"):
        worker.wait_for(line)
    looked = subprocess.run(
        [sys.executable, "-W", "error", "look.py"],
        cwd=workers.folder,
        env={
            **os.environ,
            **{f"COGWORKER_{name.upper()}": value for name, value in settings.items()},
            "PYTHONPATH": str(workers.folder),
        },
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    worker.wait_for("swept", times=2)

    assert worker.stop() == 0
    assert looked.count("\n") == 8
    assert "sweep */5 * * * * UTC" in looked
    assert "RunNow(jid='" in looked
    assert "report all" not in worker.log
