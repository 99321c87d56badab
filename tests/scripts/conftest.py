"""Seed the database, run one command, compare all keys."""

from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_client

from cogworker import Cogworker
from cogworker._engine.moves import Moves
from cogworker._engine.places import InFlight
from cogworker._redis.command import Command
from cogworker._redis.keys import Keys

from support.counting import CountingMoves


@pytest.fixture
def keys(app: Cogworker) -> Keys:
    return app.client.keys


@pytest.fixture
def moves(keys: Keys) -> Moves:
    return CountingMoves(keys, dead_max_jobs=3, dead_max_age_s=1000)


@pytest.fixture
def run(app: Cogworker) -> Callable[[Command[Any]], Any]:
    return app.client.runner.run


@pytest.fixture
def worker() -> InFlight:
    return InFlight("w1")


@pytest.fixture
def server_time(redis: redis_client.Redis) -> Callable[[], float]:
    def read() -> float:
        seconds, micros = redis.time()
        return seconds + micros / 1e6

    return read
