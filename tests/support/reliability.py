"""A plugin of pytest that writes what the fault suite has seen into ``docs/reliability.md``.

    python -m pytest -p support.reliability tests/fault

The page's text is written by hand, its tables between the two marks by this. A case is a test: its
name says what holds, its module what happens; a test can add what it saw with ``record_property``.
"""

import ast
import datetime
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cogworker.embedded import find_server

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
CASES = ROOT / "tests" / "fault"
BEGIN, END = "<!-- The tables are written by make fault. -->", "<!-- The end of the tables. -->"

_outcomes: dict[str, list[bool]] = {}
_seen: dict[str, str] = {}


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """For each module of cases: its file, its title, and the names of its tests, in order."""
    for path in sorted(CASES.glob("test_*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        names = [
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        title = (ast.get_docstring(tree) or "").split("\n")[0].rstrip(".")
        yield f"tests/fault/{path.name}", title, names


def sentence(name: str) -> str:
    """What a test's name says."""
    words = name.removeprefix("test_").replace("_", " ")
    return re.sub(r"\b(\w+) (s|t)\b", r"\1'\2", words)


def tables() -> str:
    """All that was seen, as Markdown."""
    version = subprocess.check_output([find_server(), "--version"], text=True)
    server = re.search(r"(\w+) server v=([\d.]+)", version)
    assert server is not None
    parts = [
        f"{datetime.date.today():%-d %B %Y}, {server[1]} {server[2]}, "
        f"Python {platform.python_version()}, {platform.system()}."
    ]
    for file, title, names in cases():
        parts += ["", f"### {title}", "", "| case | result |", "|---|---|"]
        parts += [f"| {sentence(name)} | {_result(f'{file}::{name}')} |" for name in names]
    return "\n".join(parts)


def _result(case: str) -> str:
    outcomes = _outcomes.get(case, [])
    if not outcomes:
        return "not run"
    held = "holds" if all(outcomes) else f"**holds {sum(outcomes)} times**"
    times = f", {len(outcomes)} variants" if len(outcomes) > 1 else ""
    return f"{held}{times}" + (f": {_seen[case]}" if case in _seen else "")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a case ended."""
    case = report.nodeid.partition("[")[0]
    if report.when == "call":
        _outcomes.setdefault(case, []).append(report.passed)
        seen = [text for name, text in report.user_properties if name == "seen"]
        if seen:
            _seen[case] = str(seen[-1])
    elif report.failed:
        _outcomes.setdefault(case, []).append(False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the tables, in the process that has heard of all cases, when all were run."""
    if hasattr(session.config, "workerinput"):
        return
    if all(f"{file}::{name}" in _outcomes for file, _, names in cases() for name in names):
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}", "utf-8")
