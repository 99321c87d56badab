"""The code of the README, and of docs/deploy.md, is run as a reader would run it."""

import json
import os
import re
import signal
import subprocess
import sys

from cogworker.embedded import EmbeddedServer

from support.pages import DOCS, ROOT, blocks
from support.processes import eventually

README = ROOT / "README.md"
DEPLOY = DOCS / "deploy.md"


def test_the_first_job_runs_as_told(tmp_path):
    tasks, enqueue, policies, look, results, steer, inside = blocks(README)
    (tmp_path / "tasks.py").write_text(tasks)
    (tmp_path / "enqueue.py").write_text(enqueue)
    (tmp_path / "policies.py").write_text(policies)
    (tmp_path / "look.py").write_text(look)
    (tmp_path / "results.py").write_text(results)
    (tmp_path / "steer.py").write_text(steer)
    (tmp_path / "inside.py").write_text(inside)
    [command] = re.findall(r"^cogworker (worker -r .*)$", "".join(blocks(README, "sh")), re.M)
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
        subprocess.run([*python, "inside.py"], cwd=tmp_path, env=environment, check=True)
        subprocess.run([*python, "steer.py"], cwd=tmp_path, env=environment, check=True)
        assert worker.wait(30) == 0  # the last line stops all workers
    finally:
        worker.kill()
        worker.wait()
    for page in ("policies.py", "results.py"):
        subprocess.run([*python, page], cwd=tmp_path, env=environment, check=True)


def test_the_swarm_runs_as_told(tmp_path):
    (tmp_path / "tasks.py").write_text(blocks(README)[0])
    [command] = re.findall(r"^cogworker (swarm -r .*)$", "".join(blocks(README, "sh")), re.M)
    [unit], [docker] = blocks(DEPLOY, "ini"), blocks(DEPLOY, "dockerfile")
    assert f"/cogworker {command}\n" in unit
    assert f"CMD {json.dumps(['cogworker', *command.split()])}\n" in docker
    log = tmp_path / "swarm.log"
    python = [sys.executable, "-W", "error", "-m", "cogworker.cli"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    with log.open("wb") as output:
        swarm = subprocess.Popen(
            [*python, *command.split()], cwd=tmp_path, env=environment, stdout=output, stderr=output
        )
    try:
        eventually(lambda: "swarm ready: workers=4" in log.read_text())
        [check] = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", docker, re.M)
        with EmbeddedServer(tmp_path / ".cogworker") as server:
            healthy = subprocess.run(
                [*python, *json.loads(check)[1:]],
                env={**os.environ, "REDIS_URL": server.url},
                check=True,
                capture_output=True,
            )
        assert healthy.stdout.startswith(b"ok: workers=4 ")
        swarm.send_signal(signal.SIGUSR2)
        eventually(lambda: "restart ends" in log.read_text())
        swarm.send_signal(signal.SIGTERM)
        assert swarm.wait(30) == 0
    finally:
        swarm.kill()
        swarm.wait()


def test_the_example_file_of_settings_is_accepted(tmp_path):
    from cogworker.config import load

    [text] = blocks(README, "yaml")
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
