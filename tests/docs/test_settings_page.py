"""docs/settings.md is what the code says."""

from settings_table import PAGE, table


def test_the_table_of_settings_is_current():
    assert table() in PAGE.read_text("utf-8"), "run tools/settings_table.py"
