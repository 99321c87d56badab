"""The command line: what it says when something is wrong, and what beats what."""

import json
import re
import signal
import subprocess
import sys

import pytest

from cogworker.inspector import Inspector

from support.processes import eventually


def cogworker(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "cogworker.cli", *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


APP = "from cogworker import Cogworker\ncog = Cogworker()\n"


@pytest.mark.parametrize(
    ("files", "arguments", "says"),
    [
        ({}, ["-r", "nowhere"], "-r/--require: there is no module nowhere; modules are looked for"),
        ({}, ["-r", "nowhere.py"], "there is no file nowhere.py"),
        ({}, ["-r", "a b"], "'a b' is not a module's name"),
        ({}, ["-r", ""], "is not a module's name"),
        ({"a.py": "x = 1"}, ["-r", "a"], "a has no Cogworker object; name the module that makes"),
        ({"a.py": APP}, ["-r", "a:x"], "'x' in a is no Cogworker object; it has cog"),
        ({"a.py": APP}, ["-r", "a.b:x"], "there is no module a.b"),
        ({"a.py": APP + "d = Cogworker()"}, ["-r", "a"], "has 2 Cogworker objects; say which one"),
        ({"a.py": APP}, ["-r", "a", "-c", "0"], "concurrency: must be a whole number from 1"),
        ({"a.py": APP}, ["-r", "a", "-c", "many"], "not 'many' (from the command line)"),
        ({"a.py": APP}, ["-r", "a", "-q", "mail,0"], "the weight of 'mail'"),
        ({"a.py": APP}, ["-r", "a", "-t", "-1"], "shutdown_timeout: must be a number of seconds"),
        ({"a.py": APP}, ["-r", "a", "--log-level", "loud"], "log_level: must be one of debug"),
        ({"a.py": APP}, ["-r", "a", "-C", "gone.yml"], "can't be read: No such file"),
        ({"a.py": APP, "c.yml": "concurency: 5"}, ["-r", "a", "-C", "c.yml"], "mean concurrency?"),
        ({"a.py": APP}, ["-r", "a", "-L", "/nowhere/log"], "-L/--logfile: can't write to"),
        ({"a.py": "from cogworker import Cogworker as C\nC(concurrency=0)"}, ["-r", "a"],
         "concurrency: must be a whole number from 1 to 1000, not 0 (from the arguments of"),
    ],
)  # fmt: skip
def test_what_can_t_be_used_is_one_line_and_exit_code_2(tmp_path, files, arguments, says):
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    ended = cogworker("worker", *arguments, cwd=tmp_path)

    assert ended.returncode == 2
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("cogworker: ")


def test_a_bad_environment_variable_is_named(tmp_path):
    (tmp_path / "a.py").write_text(APP)

    ended = cogworker("worker", "-r", "a", cwd=tmp_path, COGWORKER_CONCURRENCY="lots")

    assert ended.returncode == 2
    assert "COGWORKER_CONCURRENCY" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["worker"], ["swarm", "-n", "3"], ["swarm", "--preload"]])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("import gone", "ModuleNotFoundError: No module named 'gone'"),
        ("raise TypeError", "TypeError"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("x = (", "SyntaxError: '(' was never closed (b.py, line 1)"),
        ("import sys; sys.exit()", "SystemExit"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        (APP + "cog.job(retry='x')(print)", "DeclarationError: "),
    ],
)
def test_an_error_in_the_application_shows_what_and_where(tmp_path, text, says, command):
    (tmp_path / "a.py").write_text("import b")
    (tmp_path / "b.py").write_text(text)

    ended = cogworker(*command, "-r", "a", cwd=tmp_path)

    assert ended.returncode == 2
    assert f"can't import a: {says}" in ended.stderr
    assert ended.stderr.count("can't import a: ") == 1
    frames = re.findall(r'File "(.*)", line', ended.stderr)
    assert [frame.rpartition("/")[2] for frame in frames] == ["a.py", "b.py"]
    assert "Traceback" not in ended.stderr


def test_what_has_caused_an_error_in_the_application_is_shown(tmp_path):
    (tmp_path / "a.py").write_text(
        "try:\n    {}['x']\nexcept KeyError as error:\n    raise RuntimeError('set x') from error"
    )

    ended = cogworker("worker", "-r", "a", cwd=tmp_path)

    assert ended.stderr.startswith("cogworker: can't import a: RuntimeError: set x\n")
    assert "\ncaused by: KeyError: 'x'\n" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["worker", "-n", "4"], "a worker is one process; several are: cogworker swarm -n 4"),
        (["worker", "-r", "a", "--count", "4"], "several are: cogworker swarm -n 4"),
        (["swarm", "--reload", "-r", "a"], "--reload belongs to: cogworker worker"),
        (["worker", "app:cog"], "'app:cog' needs an option; to name the application: -r app:cog"),
        (["swarm", "-r", "a", "more"], "to name the application: -r more"),
        (["wroker"], "there is no command 'wroker'; did you mean worker?"),
        (["swam"], "did you mean swarm?"),
        (["frobnicate"], "there is no command 'frobnicate'; there are demo, health"),
    ],
)
def test_what_belongs_elsewhere_is_told_where(tmp_path, arguments, says):
    ended = cogworker(*arguments, cwd=tmp_path)

    assert ended.returncode == 2
    assert says in ended.stderr


@pytest.mark.parametrize("key", ["preload", "reload", "require", "embedded", "logfile"])
def test_options_are_no_settings(tmp_path, key):
    (tmp_path / "c.yml").write_text(f"{key}: true")

    ended = cogworker("swarm", "-r", "a", "-C", "c.yml", cwd=tmp_path)

    assert ended.returncode == 2
    assert f"{key}: is an option of the command line: --{key} (from file c.yml)" in ended.stderr


def test_wear_may_be_told_by_flags(workers, app):
    workers.write("@cog.job\ndef job(): pass\n")
    worker = workers.start("--max-jobs", "2", "--max-rss", "1G", max_jobs=7)
    for _ in range(2):
        app.push({"class": "tasks.job"})

    assert worker.process.wait(30) == 0
    assert Inspector(app).stats().processed == 2
    refused = workers.run("worker", "-r", "tasks:cog", "--max-rss", "much")
    assert refused.process.wait(30) == 2
    assert "max_rss: must be a number of bytes" in refused.log


def test_an_unknown_flag_or_command_is_exit_code_2(tmp_path):
    assert cogworker("worker", "--loud", cwd=tmp_path).returncode == 2
    assert cogworker("wroker", cwd=tmp_path).returncode == 2
    assert cogworker("worker", cwd=tmp_path).returncode == 2


def test_help_and_version(tmp_path):
    text = cogworker("--help", cwd=tmp_path).stdout
    assert "demo" in text
    assert "worker" in text
    for command in ("worker", "swarm"):
        text = cogworker(command, "-h", cwd=tmp_path).stdout
        assert text.startswith(f"Usage: cogworker {command} [OPTIONS]")
        for word in ("--require", "--max-rss", "COGWORKER_CONFIG", "docs/settings.md"):
            assert word in text
        assert ("--reload" in text) == (command == "worker")
    assert re.fullmatch(r"cogworker, version [\d.]+\n", cogworker("--version", cwd=tmp_path).stdout)


def test_flags_beat_arguments_beat_file_beats_environment(workers, tmp_path, settings):
    (tmp_path / "tasks.py").write_text(
        "from cogworker import Cogworker\ncog = Cogworker(heartbeat_interval=4.0, concurrency=4)\n"
    )
    (tmp_path / "file.yml").write_text(
        "heartbeat_interval: 3\nconcurrency: 3\nqueues: [from_file]\nlabels: [from_file]\n"
    )
    worker = workers.start(
        "-C", "file.yml", "-c", "5", queues="from_environment", concurrency=2, labels="x"
    )

    assert "concurrency=5 queues=from_file*1" in worker.log
    assert worker.stop() == 0


def test_queues_on_the_command_line_replace_others_and_have_weights(workers):
    workers.write("")
    worker = workers.start("-q", "mail,3", "-q", "slow", "-q", "mail", queues="other")

    assert "queues=mail*4,slow*1" in worker.log
    assert worker.stop() == 0


def test_the_environment_is_set_before_anything_is_imported(workers, tmp_path):
    workers.write("import os, sys\nprint('seen', os.environ.get('APP_ENV'), file=sys.stderr)\n")
    worker = workers.start("-e", "staging")

    assert "seen staging" in worker.log
    assert worker.stop() == 0


def test_modules_may_be_named_by_path_and_repeatedly(workers, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.py").write_text("import sys\nprint('more', file=sys.stderr)\n")
    workers.write("")
    worker = workers.start("-r", "sub/more.py")

    assert "more\n" in worker.log
    assert worker.stop() == 0


def test_the_log_in_a_file_as_json_with_job_ids(workers, tmp_path, app):
    workers.write(
        """
import logging
@cog.job
def job():
    logging.getLogger("mine").warning("héllo")
@cog.job(retry=0)
def bad():
    raise ValueError("a\\nb")
"""
    )
    log = tmp_path / "file.log"
    worker = workers.start(
        "-L", str(log), "--log-format", "json", "--log-level", "debug", ready=False
    )
    jid = app.push({"class": "tasks.job"})
    app.push({"class": "tasks.bad", "retry": 0})
    eventually(lambda: Inspector(app).stats()[:2] == (1, 1))
    assert worker.stop() == 0

    records = [json.loads(line) for line in log.read_text().splitlines()]
    [mine] = [record for record in records if record["logger"] == "mine"]
    assert (mine["message"], mine["level"], mine["jid"]) == ("héllo", "warning", jid)
    assert mine["job"] == "tasks.job"
    messages = [record["message"] for record in records]
    assert any(f"start: jid={jid}" in message for message in messages)
    assert any(f"done: jid={jid}" in message for message in messages)
    assert any(r"error=ValueError: a\nb" in message for message in messages)


def test_a_text_log_has_the_job_s_id_on_its_lines(workers, app):
    workers.write(
        """
import logging
@cog.job
def job():
    logging.getLogger("mine").warning("hello")
"""
    )
    worker = workers.start()
    jid = app.push({"class": "tasks.job"})
    worker.wait_for("hello")
    assert worker.stop() == 0

    [line] = [line for line in worker.log.splitlines() if "hello" in line]
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z pid={worker.pid} thread=cogworker-slot-1 "
        rf"WARNING hello jid={jid}",
        line,
    )


def test_a_job_that_prints_much_and_a_clean_stop_lose_no_output(workers, app, tmp_path):
    workers.write("@cog.job\ndef job():\n    print('x' * 100_000, 'end')\n")
    worker = workers.start(ready=True)
    app.push({"class": "tasks.job"})
    eventually(lambda: Inspector(app).stats().processed == 1)
    worker.signal(signal.SIGTERM)

    assert worker.process.wait(30) == 0
    assert "x end" in worker.log


def test_with_the_embedded_server(workers, tmp_path):
    workers.write("@cog.job\ndef job():\n    print('ran', flush=True)\n")
    worker = workers.start("--embedded", "data", redis_url="redis://127.0.0.1:1/0")
    [url] = re.findall(r"REDIS_URL=(\S+)", worker.log)

    from cogworker import Cogworker

    app = Cogworker(redis_url=url, namespace=workers.settings["namespace"])
    app.push({"class": "tasks.job"})
    worker.wait_for("ran")
    assert worker.stop() == 0
    app.close()
