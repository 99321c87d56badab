"""The code of a page of the documentation, run as a reader would run it."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def blocks(page: Path, language: str = "python") -> list[str]:
    """The blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)


def run_program(program: Path, settings: Mapping[str, Any], *arguments: str) -> str:
    """Run a program in its folder, with the settings as variables; answers with what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(program.parent)}
    environment |= {f"COGWORKER_{name.upper()}": value for name, value in settings.items()}
    ran = subprocess.run(
        [sys.executable, "-W", "error", program.name, *arguments],
        cwd=program.parent,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return ran.stdout
