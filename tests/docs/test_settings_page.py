"""docs/settings.md is what the code says."""

from pathlib import Path

from cogworker.config import describe

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def table():
    lines = ["| setting | in the environment | default | meaning |", "|---|---|---|---|"]
    for name, variable, default, doc in describe():
        shown = "" if default in (None, ()) else f"`{default!r}`"
        lines.append(f"| `{name}` | `{variable}` | {shown} | {doc} |")
    return "\n".join(lines)


def test_the_table_of_settings_is_current():
    assert table() in PAGE.read_text("utf-8"), f"the table should be:\n\n{table()}"
