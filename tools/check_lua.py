"""Lint the Lua scripts as the server sees them: composed, with their includes.

Needs ``luacheck`` (Debian: lua-check). Also holds each file to 80 lines.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cogworker._redis import scripts

MOST_LINES = 80


def main() -> int:
    """Exit 1 when something is wrong, 0 otherwise."""
    folder = Path(scripts.__file__).parent / "lua"
    long = [
        f"{path}: {lines} lines, more than {MOST_LINES}"
        for path in folder.rglob("*.lua")
        if (lines := path.read_text("utf-8").count("\n")) > MOST_LINES
    ]
    print(*long, sep="\n", end="\n" if long else "")
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        print("luacheck is missing: install it (Debian: lua-check) to lint the scripts")
        return 1
    with tempfile.TemporaryDirectory() as composed:
        for path in folder.glob("*.lua"):
            (Path(composed) / path.name).write_text(scripts.load(path.stem).source, "utf-8")
        options = [
            "--std",
            "lua51",
            "--globals",
            "redis",
            "KEYS",
            "ARGV",
            "cjson",
            "cmsgpack",
            "-q",
        ]
        # 211, 221: a script may not need all that it includes.
        options += ["--ignore", "211", "221", "--max-line-length", "100"]
        found = subprocess.run([luacheck, composed, *options], check=False)
    return bool(long) or found.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
