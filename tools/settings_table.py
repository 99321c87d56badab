"""Write the table of settings into docs/settings.md, from the settings themselves."""

from pathlib import Path

from cogworker.config import describe

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def table() -> str:
    """The table as the page should have it."""
    lines = ["| setting | in the environment | default | meaning |", "|---|---|---|---|"]
    for name, variable, default, doc in describe():
        shown = "" if default in (None, ()) else f"`{default!r}`"
        lines.append(f"| `{name}` | `{variable}` | {shown} | {doc} |")
    return "\n".join(lines)


def main() -> None:
    """Replace the page's table; it is the page's only one."""
    lines = PAGE.read_text("utf-8").split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith("| setting"))
    count = sum(line.startswith("|") for line in lines)
    lines[first : first + count] = table().split("\n")
    PAGE.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
