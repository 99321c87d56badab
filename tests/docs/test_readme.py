"""The README's code is run as a reader would run it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from support.processes import eventually

README = Path(__file__).parents[2] / "README.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)


def test_the_first_job_runs_as_told(tmp_path):
    tasks, enqueue, policies, look = blocks("python")
    (tmp_path / "tasks.py").write_text(tasks)
    (tmp_path / "enqueue.py").write_text(enqueue)
    (tmp_path / "policies.py").write_text(policies)
    (tmp_path / "look.py").write_text(look)
    [command] = re.findall(r"^cogworker (worker -r .*)$", "".join(blocks("sh")), re.M)
    log = tmp_path / "worker.log"
    python = [sys.executable, "-W", "error"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    with log.open("wb") as output:
        worker = subprocess.Popen(
            [*python, "-m", "cogworker.cli", *command.split()],
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        producer = subprocess.run(
            [*python, "enqueue.py"], cwd=tmp_path, env=environment, check=True, capture_output=True
        )
        assert producer.stdout.startswith(b"hello you\nenqueued ")
        for text in ("HELLO ADA", "hello bob", "hello dora", "hello emil", "hello finn", "grace@"):
            eventually(lambda text=text: text in log.read_text())
        assert "hello cleo" not in log.read_text()
        looked = subprocess.run(
            [*python, "look.py"], cwd=tmp_path, env=environment, check=True, capture_output=True
        )
        assert b"scheduled=1" in looked.stdout
        worker.send_signal(signal.SIGINT)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()
    subprocess.run([*python, "policies.py"], cwd=tmp_path, env=environment, check=True)


def test_the_example_file_of_settings_is_accepted(tmp_path):
    from cogworker.config import load

    [text] = blocks("yaml")
    (tmp_path / "file.yml").write_text(text)

    config = load(environ={}, file=tmp_path / "file.yml")

    assert config.queues == (("default", 1), ("mail", 3))
    assert config.shutdown_timeout == 60
    assert config.redis_url == "redis://localhost:6379/0"


def test_links_lead_somewhere():
    for page in (README, *README.parent.glob("*.md"), *README.parent.glob("docs/*.md")):
        for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"
