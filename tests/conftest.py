"""What all tests share: a real server, a namespace of its own for each test, a look at all keys."""

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client

from cogworker import Cogworker
from cogworker.embedded import EmbeddedServer
from cogworker.inspector import Inspector

from support import processes
from support.dump import Dump, dump_of
from support.processes import Workers


@pytest.fixture(scope="session", autouse=True)
def _hang_ups_count() -> None:
    """Under nohup what the tests start would inherit that a hang-up is ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for this test process; nothing of it survives."""
    with EmbeddedServer(tmp_path_factory.mktemp("server"), durable=False) as server:
        yield server.url


@pytest.fixture
def namespace() -> str:
    return f"{{t{secrets.token_hex(6)}}}"


@pytest.fixture
def redis(server_url: str) -> Iterator[redis_client.Redis]:
    with redis_client.Redis.from_url(server_url) as client:
        yield client


@pytest.fixture
def settings(server_url: str, namespace: str) -> dict[str, Any]:
    return {"redis_url": server_url, "namespace": namespace}


@pytest.fixture
def app(settings: dict[str, Any]) -> Iterator[Cogworker]:
    app = Cogworker(**settings)
    yield app
    app.close()


@pytest.fixture
def look(app: Cogworker) -> Inspector:
    return Inspector(app)


@pytest.fixture
def dump(redis: redis_client.Redis, namespace: str) -> Callable[[], Dump]:
    """All keys of the test's namespace with what they hold, without the namespace."""

    return lambda: dump_of(redis, namespace)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("COGWORKER_") and name != "COGWORKER_EMBEDDED_SERVER":
            monkeypatch.delenv(name)
    monkeypatch.delenv("REDIS_URL", raising=False)


@pytest.fixture
def workers(tmp_path: Path, settings: dict[str, Any]) -> Iterator[Workers]:
    """Starts real worker processes; see ``support.processes``."""
    with processes.workers(tmp_path, settings) as started:
        yield started
