"""``cogworker health``: one line and an exit code, whatever is wrong."""

import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from cogworker._worker.facts import hostname, new_identity
from cogworker.cli.health import exists, judge
from cogworker.inspector import Inspector

from support.processes import eventually, freeze
from support.server import free_port, server
from support.swarms import QUICK, started


@pytest.fixture
def health(tmp_path, settings):
    def ask(*options, **environment):
        known = {f"COGWORKER_{name.upper()}": str(value) for name, value in settings.items()}
        answer = subprocess.run(
            [sys.executable, "-m", "cogworker.cli", "health", *options],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", **known, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert answer.stdout.count("\n") == 1
        assert answer.stderr == ""
        return answer.returncode, answer.stdout.rstrip("\n")

    return ask


def test_judge_counts_the_fresh_workers_of_a_host():
    told = [("a", "h", 1.0), ("b", "h", 3.04), ("c", "h", 99.0), ("d", "i", 0.1)]
    workers = [
        SimpleNamespace(identity=name, host=host, beat_age_s=age_s) for name, host, age_s in told
    ]

    def judged(host, wanted, max_age_s, gone=""):
        return judge(workers, host, wanted, max_age_s, lambda worker: worker not in gone)

    assert judged("h", 2, 15) == (True, "ok: workers=2 host=h oldest_beat_s=3.0")
    assert judged("h", 3, 15) == (
        False, "too few workers: workers=2 host=h wanted=3 max_age_s=15 last_beat_s=1.0",
    )  # fmt: skip
    assert judged("h", 1, 0.5)[0] is False
    assert judged("h", 3, 100)[0] is True
    assert judged("j", 1, 15) == (
        False, "too few workers: workers=0 host=j wanted=1 max_age_s=15",
    )  # fmt: skip
    assert judged("h", 1, 15, gone="a") == (True, "ok: workers=1 host=h stale=1 oldest_beat_s=3.0")
    assert judged("h", 1, 15, gone="ab") == (
        False, "too few workers: workers=0 host=h stale=2 wanted=1 max_age_s=15 last_beat_s=99.0",
    )  # fmt: skip


def test_whether_a_worker_still_has_a_process(monkeypatch):
    assert exists(new_identity())
    assert exists(f"h:i:{os.getppid()}:ab")
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert not any(map(exists, (f"h:{ended.pid}:ab", "h:x:ab", "odd", f"h:{10**30}:ab")))

    def refused(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert exists("h:7:ab")


def test_workers_that_were_killed_a_moment_ago_do_not_count(workers, health):
    workers.write("")
    two = [workers.start(**{**QUICK, "orphan_threshold": 600}) for _ in range(2)]
    two[0].kill()

    code, line = health("--max-age", "1m")
    assert (code, line.partition(" oldest")[0]) == (0, f"ok: workers=1 host={hostname()} stale=1")
    assert health("--max-age", "60", "--workers", "2")[0] == 1
    assert two[1].stop() == 0


def test_what_can_t_be_used_is_exit_code_2(health):
    code, line = health(COGWORKER_HEARTBEAT_INTERVAL="often")
    assert code == 2
    assert line.startswith("can't tell: heartbeat_interval: must be a number of seconds above 0")
    for age in ("-1", "0", "soon"):
        code, line = health("--max-age", age)
        assert (code, line[:36]) == (2, "can't tell: --max-age: must be a num")


def test_what_fails_says_where_it_asked(health, settings):
    code, line = health(COGWORKER_REDIS_URL="redis://me:secret@127.0.0.1:1/0")
    assert code == 1
    assert line.endswith(f" redis=redis://me:***@127.0.0.1:1/0 namespace={settings['namespace']}")
    code, line = health()
    assert code == 1
    assert line.endswith(f" redis={settings['redis_url']} namespace={settings['namespace']}")


def test_a_swarm_is_healthy_until_its_workers_are_too_few(workers, health):
    workers.write("")
    assert health()[0] == 1
    swarm = workers.swarm("-n", "2", **{**QUICK, "orphan_threshold": 600})

    code, line = health("--workers", "2")
    assert code == 0
    assert re.fullmatch(rf"ok: workers=2 host={hostname()} oldest_beat_s=\d+\.\d", line)
    assert health("--workers", "3")[0] == 1

    freeze(started(swarm)[0])
    eventually(lambda: health("--workers", "2", "--max-age", "2")[0] == 1)
    assert health("--max-age", "2")[0] == 0, "one is enough by default"
    assert health("--workers", "2", COGWORKER_HEARTBEAT_INTERVAL="50")[0] == 0
    os.kill(started(swarm)[0], signal.SIGCONT)
    assert swarm.stop() == 0
    assert health()[0] == 1


def test_workers_of_another_host_do_not_count(workers, health):
    workers.write("")
    worker = workers.start(**QUICK)

    assert health()[0] == 0
    code, line = health(DYNO="worker.7")
    assert code == 1
    assert line.startswith("too few workers: workers=0 host=worker.7 wanted=1 max_age_s=15 redis=")
    assert worker.stop() == 0


def test_a_server_that_is_away_or_refuses(health, tmp_path):
    code, line = health(COGWORKER_REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert (code, line[:31]) == (1, "can't tell: RedisUnavailable: b")
    with server(tmp_path) as own:
        own.start()
        own.client.config_set("requirepass", "secret")
        code, line = health(COGWORKER_REDIS_URL=own.url)
        assert (code, line[:27]) == (1, "can't tell: RedisRefused: b")


@pytest.mark.long
def test_a_server_that_hangs_is_not_waited_for_long(health, tmp_path):
    with server(tmp_path) as own:
        own.start()
        freeze(own.pid)
        began = time.monotonic()
        code, line = health(COGWORKER_REDIS_URL=own.url)
        assert time.monotonic() - began < 20, "four tries of two seconds"
        os.kill(own.pid, signal.SIGCONT)
    assert (code, line[:31]) == (1, "can't tell: RedisUnavailable: b")


def test_where_redis_is_may_stand_in_a_file_or_in_the_application(
    workers, health, tmp_path, settings
):
    workers.write("")
    worker = workers.start(**QUICK)
    (tmp_path / "file.yml").write_text(
        f"redis_url: {settings['redis_url']}\nnamespace: '{settings['namespace']}'\n"
    )
    (tmp_path / "mine.py").write_text(
        "print('noise')\nimport sys\nprint('noise', file=sys.stderr)\n"
        f"from cogworker import Cogworker\ncog = Cogworker(**{settings!r})\n"
    )
    nowhere = {"COGWORKER_REDIS_URL": "redis://127.0.0.1:1/0", "COGWORKER_NAMESPACE": "x"}

    assert health(**nowhere)[0] == 1
    assert health("-C", "file.yml", **nowhere)[0] == 0
    assert health("-r", "mine", **nowhere)[0] == 0
    assert worker.stop() == 0


@pytest.mark.parametrize(
    "source", ["raise ValueError('a\\nb')", "import gone", "x = 1", "exit(3)", "def"]
)
def test_an_application_that_can_t_be_loaded_is_one_line(source, health, tmp_path):
    (tmp_path / "bad.py").write_text(source)

    code, line = health("-r", "bad")

    assert code == 2
    assert line.startswith("can't tell: ")


def test_misspelt_variables_add_no_line(health):
    assert health(COGWORKER_CONCURENCY="7")[0] == 1


def test_a_host_name_may_have_colons(monkeypatch, app, redis):
    monkeypatch.setenv("DYNO", "a:b")
    redis.zadd(app.client.keys.workers, {new_identity(): redis.time()[0] - 10})

    [worker] = Inspector(app).workers()

    assert worker.host == hostname() == "a:b"
    assert 9 < worker.beat_age_s < 60
