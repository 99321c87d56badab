"""The code of docs/jobs.md is run as a reader would run it."""

from cogworker.options import JobOptions

from support.pages import DOCS, blocks, run_program

PAGE = DOCS / "jobs.md"


def test_the_code_runs_as_told(tmp_path, settings):
    declare, steer = blocks(PAGE)
    (tmp_path / "newsletters.py").write_text(declare)
    (tmp_path / "steer.py").write_text(steer)

    run_program(tmp_path / "newsletters.py", settings)
    lines = run_program(tmp_path / "steer.py", settings).splitlines()

    assert lines[0] == "2 1"
    assert lines[1].endswith("newsletters.send_newsletter ('mail', 'nightly') [1]")
    assert lines[2] == "killed"
    assert "word='requeued'" in lines[3]
    assert lines[4:] == ["rescheduled", "1 deleted"]


def test_all_options_are_told():
    for option in JobOptions.__annotations__:
        assert f"`{option}`" in PAGE.read_text("utf-8")
