"""What the server says is told apart: not now, or no."""

import pytest
from redis.connection import DefaultParser

from cogworker import RedisRefused, RedisUnavailable
from cogworker._engine import presence
from cogworker._redis.connection import Connector
from cogworker._redis.keys import Keys
from cogworker._redis.runner import translate
from cogworker.config import Config


@pytest.fixture
def said():
    connector = Connector(Config())
    command = presence.listen(Keys("n"), ["default"], 5.0)
    return lambda text: translate(DefaultParser.parse_error(text), command, connector)


@pytest.mark.parametrize(
    "text",
    [
        "LOADING Valkey is loading the dataset in memory",
        "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "READONLY You can't write against a read only replica.",
        "MISCONF Valkey is configured to save RDB snapshots, but it's unable to persist to disk.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "NOREPLICAS Not enough good replicas to write.",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "UNBLOCKED force unblock from blocking operation, instance state changed",
        "ERR max number of clients reached",
        "ERR max number of clients + cluster connections reached",
    ],
)
def test_not_now(said, text):
    assert type(said(text)) is RedisUnavailable


@pytest.mark.parametrize(
    "text",
    [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "ERR unknown command 'EVALSHA'",
    ],
)
def test_no(said, text):
    error = said(text)
    assert type(error) is RedisRefused
    assert text.split(" ", 1)[1] in str(error)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("ERR max number of clients reached", "raise the server's maxclients"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "check the user name"),
        ("NOAUTH Authentication required.", "check the user name"),
        ("NOPERM User w has no permissions to run the 'evalsha' command", "+@scripting"),
        ("NOPERM No permissions to access a key", "for Cogworker's keys"),
        ("ERR ACL failure in script: User w has no permissions to run the 'hset' command", "@read"),
    ],
)
def test_it_is_said_what_to_do(said, text, advice):
    assert advice in str(said(text))
