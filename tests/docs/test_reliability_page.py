"""docs/reliability.md names every case of the fault suite, and no other."""

import re

from support.reliability import BEGIN, END, PAGE, cases, sentence


def test_the_page_has_the_cases_of_the_suite():
    _, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    tables, _, _ = rest.partition(END)

    rows = re.findall(r"^\| (?!case )(.+?) \| .+ \|$", tables, re.MULTILINE)
    assert rows == [sentence(name) for _, _, names in cases() for name in names], "run make fault"
    assert "**" not in tables, "a case did not hold"
    assert "| not run |" not in tables
