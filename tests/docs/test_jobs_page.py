"""The code of docs/jobs.md is run as a reader would run it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from cogworker.options import JobOptions

PAGE = Path(__file__).parents[2] / "docs" / "jobs.md"


def test_the_code_runs_as_told(tmp_path, settings):
    declare, steer = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    (tmp_path / "newsletters.py").write_text(declare)
    (tmp_path / "steer.py").write_text(steer)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment |= {f"COGWORKER_{name.upper()}": value for name, value in settings.items()}

    def run(file):
        command = [sys.executable, "-W", "error", file]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    run("newsletters.py")
    lines = run("steer.py").splitlines()

    assert lines[0] == "2 1"
    assert lines[1].endswith("newsletters.send_newsletter ('mail', 'nightly') [1]")
    assert lines[2] == "killed"
    assert "word='requeued'" in lines[3]
    assert lines[4:] == ["rescheduled", "1 deleted"]


def test_all_options_are_told():
    for option in JobOptions.__annotations__:
        assert f"`{option}`" in PAGE.read_text("utf-8")
