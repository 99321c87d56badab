"""Settings: where they come from, what is refused and in which words, and that nothing leaks."""

import dataclasses
import logging
import pickle
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cogworker.config import Config, describe, load, redacted
from cogworker.errors import ConfigError

NAMES = [name for name, *_ in describe()]


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes) -> Path:
        path = tmp_path / "cogworker.yml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refused(**sources: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(**{"environ": {}, **sources})
    assert str(caught.value).isprintable(), "one line, whatever the value"
    return caught.value


# Where a value comes from


def test_without_any_source_all_settings_have_their_defaults():
    config = load(environ={})
    assert config == Config()
    assert (config.redis_url, config.queues) == ("redis://localhost:6379/0", (("default", 1),))
    assert (config.dead_max_age, config.max_payload_bytes) == (15_552_000.0, 1_048_576)


@pytest.mark.parametrize("given_in", range(1, 6))
def test_a_later_source_beats_an_earlier_one(write, given_in):
    sources: dict[str, Any] = {"environ": {"REDIS_URL": "redis://one"}}
    if given_in >= 2:
        sources["environ"]["COGWORKER_REDIS_URL"] = "redis://two"
    if given_in >= 3:
        sources["file"] = write("redis_url: redis://three")
    if given_in >= 4:
        sources["arguments"] = {"redis_url": "redis://four"}
    if given_in >= 5:
        sources["flags"] = {"redis_url": "redis://five"}
    hosts = ["one", "two", "three", "four", "five"]
    assert load(**sources).redis_url == f"redis://{hosts[given_in - 1]}"


def test_each_setting_is_decided_by_itself(write):
    config = load(
        environ={"COGWORKER_CONCURRENCY": "2", "COGWORKER_POLL_INTERVAL": "7"},
        file=write("concurrency: 3\nnamespace: file"),
        arguments={"concurrency": 4, "namespace": None},
        flags={"concurrency": None, "namespace": None, "queues": (), "labels": ()},
    )
    assert (config.concurrency, config.namespace, config.poll_interval) == (4, "file", 7.0)


def test_a_bad_value_that_is_overridden_does_no_harm():
    config = load(environ={"COGWORKER_CONCURRENCY": "ten"}, arguments={"concurrency": 3})
    assert config.concurrency == 3


def test_the_environment_can_name_the_file(write):
    path = write("concurrency: 3")
    assert load(environ={"COGWORKER_CONFIG": str(path)}).concurrency == 3
    assert load(environ={"COGWORKER_CONFIG": "/nowhere"}, file=path).concurrency == 3
    assert load(environ={"COGWORKER_CONFIG": ""}).concurrency == 10


def test_the_name_of_the_environment_falls_back_to_app_env(write):
    assert load(environ={"APP_ENV": "test"}).environment == "test"
    both = {"APP_ENV": "test", "COGWORKER_ENVIRONMENT": "production"}
    assert load(environ=both).environment == "production"
    assert load(environ={"APP_ENV": "test"}, file=write("environment: x")).environment == "x"


def test_an_empty_variable_is_not_given():
    environ = {"COGWORKER_REDIS_URL": "", "REDIS_URL": "redis://one", "COGWORKER_CONCURRENCY": ""}
    assert load(environ=environ) == Config(redis_url="redis://one")


def test_the_default_environment_is_that_of_the_process(monkeypatch):
    monkeypatch.setenv("COGWORKER_CONCURRENCY", "17")
    assert load().concurrency == 17


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("COGWORKER_CONCURENCY", "COGWORKER_CONCURRENCY"),
        ("COGWORKER_QUEUE", "COGWORKER_QUEUES"),
        ("COGWORKER_REDIS_PASS", "COGWORKER_REDIS_PASSWORD"),
    ],
)
def test_a_misspelled_variable_is_warned_of_once(caplog, monkeypatch, variable, meant):
    monkeypatch.setattr("cogworker.config._told", set())
    assert load(environ={variable: "secret"}) == Config()
    assert load(environ={variable: "secret"}) == Config()
    [record] = caplog.records
    assert (record.name, record.levelno) == ("cogworker.config", logging.WARNING)
    text = f"{variable} is not a setting and is ignored; did you mean {meant}?"
    assert record.getMessage() == text


def test_variables_of_others_are_none_of_its_business(caplog):
    names = "EMBEDDED_SERVER TEST_SERVER SESSION_SECRET CONFIG_DIR REDIS_PORT_6379_TCP"
    assert load(environ={f"COGWORKER_{name}": "1" for name in names.split()}) == Config()
    assert (
        load(environ={"CONCURENCY": "1", "OTHER_CONCURENCY": "1", "concurrency": "1"}) == Config()
    )
    assert not caplog.records


# What a value may be

GOOD: list[tuple[str, Any, Any]] = [
    # setting, value as an argument, value in the configuration
    ("concurrency", 1, 1),
    ("concurrency", 1000, 1000),
    ("max_orphanings", 0, 0),
    ("shutdown_timeout", 0, 0.0),
    ("redis_timeout", 2, 2.0),
    ("dead_max_age", timedelta(days=2), 172_800.0),
    ("queues", ["mail"], (("mail", 1),)),
    ("queues", ["mail", "x", "mail"], (("mail", 2), ("x", 1))),
    ("queues", ["mail,3", ("low", 2), ["last", 1]], (("mail", 3), ("low", 2), ("last", 1))),
    ("queues", ("mail,3", "mail"), (("mail", 4),)),
    ("queues", {"mail": 3, "low": 1}, (("mail", 3), ("low", 1))),
    ("queues", [{"mail": 3}, {"low": 1}], (("mail", 3), ("low", 1))),
    ("queues", ["a b/c", "✉️ mail", "x" * 200], (("a b/c", 1), ("✉️ mail", 1), ("x" * 200, 1))),
    ("queue_order", "strict", "strict"),
    ("log_level", "WARNING", "warning"),
    ("namespace", "{cogworker}", "{cogworker}"),
    ("namespace", "app:{cog}:x", "app:{cog}:x"),
    ("labels", ["eu west", "big"], ("eu west", "big")),
    ("redis_url", "rediss://host", "rediss://host"),
    ("redis_url", "valkey://user:pw@host:1/3?socket_keepalive=yes", None),
    ("redis_url", "valkeys://[::1]:6380/3", "valkeys://[::1]:6380/3"),
    ("redis_url", "unix:///run/redis.sock?db=3", "unix:///run/redis.sock?db=3"),
    ("redis_url", "unix://user:pw@/run/redis.sock", "unix://user:pw@/run/redis.sock"),
]


@pytest.mark.parametrize(("setting", "value", "kept"), GOOD)
def test_good_values(setting, value, kept):
    expected = value if kept is None else kept
    config = load(environ={}, arguments={setting: value})
    assert getattr(config, setting) == expected
    assert type(getattr(config, setting)) is type(expected)
    assert dataclasses.replace(config) == config, "what was checked once passes again"


@pytest.mark.parametrize(
    ("setting", "text", "kept"),
    [
        ("concurrency", "12", 12),
        ("concurrency", " 12 ", 12),
        ("phased_restart", "no", False),
        ("phased_restart", " True", True),
        ("phased_restart", "0", False),
        ("redis_timeout", "0.5", 0.5),
        ("redis_timeout", "3", 3.0),
        ("redis_timeout", "30s", 30.0),
        ("orphan_threshold", "5m", 300.0),
        ("orphan_threshold", "2h", 7200.0),
        ("dead_max_age", "180d", 15_552_000.0),
        ("dead_max_age", "0.5 d", 43_200.0),
        ("queues", "mail,3  low mail", (("mail", 4), ("low", 1))),
        ("labels", "eu big", ("eu", "big")),
        ("redis_db", "0", 0),
        ("namespace", "12", "12"),
    ],
)
def test_texts_are_read_wherever_only_texts_can_be(write, setting, text, kept):
    environ = {f"COGWORKER_{setting.upper()}": text}
    for config in (
        load(environ=environ),
        load(environ={"V": text}, file=write(f"{setting}: ${{V}}")),
        load(environ={}, flags={setting: text}),
    ):
        assert getattr(config, setting) == kept
        assert type(getattr(config, setting)) is type(kept)


WHOLE = "must be a whole number from 1 to 1000, not "
ABOVE = "must be a number of seconds above 0 (100 years at most), not "
SCHEMES = "redis://, rediss://, valkey://, valkeys://, unix://, sentinel://"
URL = f"must be a URL without spaces, of {SCHEMES}, not "
PORT = "must be a URL with a valid host and a port from 1 to 65535, not "
DATABASE = "must be a URL that ends with the number of a database, such as /0, not "
SENTINEL = "must be sentinel://[user:password@]host:port,host:port/master[/database], not "
QUEUE = (
    "the name of a queue must have 1 to 200 characters, without comma and control characters, not "
)
QUEUES = "must be a list of queues, each 'name', 'name,weight' or [name, weight], not "
WEIGHT = "must be a whole number from 1 to 100, not "
NAMESPACE = (
    "must be 1 to 100 characters without spaces, with braces only around one part, "
    "as in {cogworker}, not "
)
HOST = "must be a host name or an IP address, without a port, not "
WORD = "must be a text of 1 to 200 characters without spaces, not "
PASSWORD = "must be a text (in YAML: in quotes); its value is not shown here"

BAD: list[tuple[str, Any, str]] = [
    ("phased_restart", "maybe", "must be true or false, not 'maybe'"),
    ("phased_restart", 1, "must be true or false, not 1"),
    ("concurrency", "10", WHOLE + "'10'"),
    ("concurrency", True, WHOLE + "True"),
    ("concurrency", 0, WHOLE + "0"),
    ("concurrency", 1001, WHOLE + "1001"),
    ("concurrency", 1.0, WHOLE + "1.0"),
    ("concurrency", 10**5000, WHOLE + "<int>"),
    ("concurrency", "x" * 100, WHOLE + f"'{'x' * 27}...{'x' * 28}'"),
    ("concurrency", "x" * 5000, WHOLE + "<5000 characters>"),
    ("concurrency", "a\nb", WHOLE + r"'a\nb'"),
    ("redis_timeout", 0, ABOVE + "0"),
    ("redis_timeout", -1.5, ABOVE + "-1.5"),
    ("redis_timeout", True, ABOVE + "True"),
    ("redis_timeout", "5", ABOVE + "'5'"),
    ("redis_timeout", float("nan"), ABOVE + "nan"),
    ("redis_timeout", float("inf"), ABOVE + "inf"),
    ("redis_timeout", 10**400, ABOVE + "1" + "0" * 59 + "..."),
    ("redis_timeout", timedelta(0), ABOVE + "datetime.timedelta(0)"),
    (
        "shutdown_timeout",
        -1,
        "must be a number of seconds of at least 0 (100 years at most), not -1",
    ),
    ("max_payload_bytes", 0, "must be a whole number from 1 to 536870912, not 0"),
    ("dead_max_jobs", 0, "must be a whole number from 1 to 1000000000, not 0"),
    ("queue_order", "random", "must be one of weighted, strict, not 'random'"),
    ("log_level", False, "must be one of debug, info, warning, error, not False"),
    ("log_format", "xml", "must be one of text, json, not 'xml'"),
    ("namespace", "", NAMESPACE + "''"),
    ("namespace", "x" * 101, NAMESPACE + f"'{'x' * 27}...{'x' * 28}'"),
    ("namespace", "a b", NAMESPACE + "'a b'"),
    ("namespace", "a\n", NAMESPACE + r"'a\n'"),
    ("namespace", "{a}{b}", NAMESPACE + "'{a}{b}'"),
    ("namespace", "{}", NAMESPACE + "'{}'"),
    ("namespace", "a}", NAMESPACE + "'a}'"),
    ("namespace", 12, NAMESPACE + "12"),
    ("queues", "mail", QUEUES + "'mail'"),
    ("queues", [("a", 1, 2)], QUEUES + "('a', 1, 2)"),
    ("queues", [3], QUEUES + "3"),
    ("queues", [], "must be at least one queue, not []"),
    ("queues", [""], QUEUE + "''"),
    ("queues", [("a,b", 1)], QUEUE + "'a,b'"),
    ("queues", ["a\tb"], QUEUE + r"'a\tb'"),
    ("queues", ["\udcff"], QUEUE + r"'\udcff'"),
    ("queues", ["x" * 201], QUEUE + f"'{'x' * 27}...{'x' * 28}'"),
    ("queues", [(None, 1)], QUEUE + "None"),
    ("queues", ["mail,0"], f"the weight of 'mail' {WEIGHT}0"),
    ("queues", ["mail,x"], f"the weight of 'mail' {WEIGHT}'x'"),
    ("queues", ["mail,"], f"the weight of 'mail' {WEIGHT}''"),
    ("queues", [("mail", 101)], f"the weight of 'mail' {WEIGHT}101"),
    ("queues", ["mail,60", "mail,60"], f"the weight of 'mail' {WEIGHT}120"),
    ("queues", {"mail": True}, f"the weight of 'mail' {WEIGHT}True"),
    ("labels", "eu", "must be a list of texts, not 'eu'"),
    ("labels", [""], "must be a text of 1 to 200 characters in one line, not ''"),
    ("labels", [7], "must be a text of 1 to 200 characters in one line, not 7"),
    ("environment", "a b", WORD + "'a b'"),
    ("redis_url", "http://localhost", URL + "'http://localhost'"),
    ("redis_url", "localhost:6379", URL + "'localhost:6379'"),
    ("redis_url", "redis://local host", URL + "'redis://local host'"),
    ("redis_url", "redis://host/0\n", URL + r"'redis://host/0\n'"),
    ("redis_url", 3, URL + "3"),
    ("redis_url", "redis://host:0", PORT + "'redis://host:0'"),
    ("redis_url", "redis://host:65536", PORT + "'redis://host:65536'"),
    ("redis_url", "redis://[::1", PORT + "'redis://[::1'"),
    ("redis_url", "redis://host/x", DATABASE + "'redis://host/x'"),
    (
        "redis_url",
        "unix://run/x.sock",
        "must be unix:///path/of/the/socket, not 'unix://run/x.sock'",
    ),
    ("redis_url", "unix:///", "must be unix:///path/of/the/socket, not 'unix:///'"),
    ("redis_url", "sentinel://host:1", SENTINEL + "'sentinel://host:1'"),
    ("redis_url", "sentinel://h:0/main", SENTINEL + "'sentinel://h:0/main'"),
    ("redis_url", "sentinel://h:1/main/x", SENTINEL + "'sentinel://h:1/main/x'"),
    ("redis_host", "host:6379", HOST + "'host:6379'"),
    ("redis_host", "", HOST + "''"),
    ("redis_port", 65_536, "must be a whole number from 1 to 65535, not 65536"),
    ("redis_db", -1, "must be a whole number from 0 to 999999999, not -1"),
    ("redis_username", "a\x00", r"must be a text of 1 to 200 characters in one line, not 'a\x00'"),
    ("redis_password", 1234, PASSWORD),
    ("redis_password", "\udcff", PASSWORD),
    ("redis_sentinels", "h:1", "must be a list of 'host:port', not 'h:1'"),
    ("redis_sentinels", ["h:x"], "must be a whole number from 1 to 65535, not 'x'"),
    ("redis_sentinels", [5], HOST + "None"),
    ("redis_ca_file", "/nowhere", "must be the path of a file that exists, not '/nowhere'"),
    ("redis_ca_file", "/", "must be the path of a file that exists, not '/'"),
    ("redis_ca_file", b"/x", "must be the path of a file that exists, not b'/x'"),
]


# (Pytest can't name the cases: it would write out all digits of an enormous number.)
@pytest.mark.parametrize(("setting", "value", "problem"), BAD, ids=range(len(BAD)))
def test_bad_values(setting, value, problem):
    error = refused(arguments={setting: value})
    assert (error.setting, error.problem) == (setting, problem)
    assert str(error) == f"{setting}: {problem} (from the arguments of Cogworker())"
    with pytest.raises(ConfigError) as direct:
        Config(**{setting: value})
    assert str(direct.value) == f"{setting}: {problem}"


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "5 weeks", "s", "1e999", "1.2.3", "infd"])
def test_what_is_no_duration(text):
    assert refused(environ={"COGWORKER_REDIS_TIMEOUT": text}).problem.startswith(ABOVE)


def test_the_source_is_named(write):
    bad = {"concurrency": "ten"}
    path = write("concurrency: ten")
    problem = "concurrency: must be a whole number from 1 to 1000, not 'ten' (from "
    environ = {"COGWORKER_CONCURRENCY": "ten"}
    assert (
        str(refused(environ=environ)) == f"{problem}the environment variable COGWORKER_CONCURRENCY)"
    )
    assert str(refused(file=path)) == f"{problem}file {path})"
    assert str(refused(file=str(path))) == f"{problem}file {path})"
    assert str(refused(arguments=bad)) == f"{problem}the arguments of Cogworker())"
    assert str(refused(flags=bad)) == f"{problem}the command line)"
    assert refused(environ={"REDIS_URL": "x"}).source == "the environment variable REDIS_URL"
    assert refused(environ={"APP_ENV": "a b"}).source == "the environment variable APP_ENV"


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("concurency", "is not a setting; did you mean concurrency?"),
        ("redis-pasword", "is not a setting; did you mean redis_password?"),
        ("zzz", "is not a setting; remove it"),
    ],
)
def test_unknown_settings(write, key, problem):
    path = write(f"{key}: 1")
    assert str(refused(file=path)) == f"{key}: {problem} (from file {path})"
    assert refused(arguments={key: None}).source == "the arguments of Cogworker()"
    assert refused(flags={key: 1}).source == "the command line"


# Settings that must fit together


def test_two_missed_beats_may_not_make_a_worker_dead():
    problem = "must be at least 2 * heartbeat_interval (10), not 9"
    error = refused(arguments={"orphan_threshold": 9})
    assert str(error) == f"orphan_threshold: {problem} (from the arguments of Cogworker())"
    assert Config(orphan_threshold=10).orphan_threshold == 10


def test_locks_may_not_end_before_a_dead_worker_s_jobs_are_rescued():
    problem = "must be at least 2 * orphan_threshold (600), not 599"
    error = refused(arguments={"unique_lock_ttl": 599})
    assert str(error) == f"unique_lock_ttl: {problem} (from the arguments of Cogworker())"
    assert Config(unique_lock_ttl=600).unique_lock_ttl == 600


def test_when_a_default_does_not_fit_the_setting_beside_it_is_to_blame():
    error = refused(flags={"heartbeat_interval": "151"})
    assert error.setting == "orphan_threshold"
    assert error.problem == "must be at least 2 * heartbeat_interval (302), not 300"
    assert error.source == "the command line"


@pytest.mark.parametrize(
    ("arguments", "setting", "problem"),
    [
        ({"redis_sentinels": ["a"]}, "redis_sentinel_master", "must be given with redis_sentinels"),
        (
            {"redis_sentinel_master": "m"},
            "redis_sentinels",
            "must be given with redis_sentinel_master",
        ),
        (
            {"redis_url": "sentinel://a/m", "redis_port": 1},
            "redis_port",
            "can't be used with redis_sentinels; remove one",
        ),
        (
            {"redis_url": "unix:///x", "redis_host": "h"},
            "redis_host",
            "can't be used with a unix:// redis_url; remove one",
        ),
        (
            {"redis_url": "rediss://h", "redis_key_file": __file__},
            "redis_cert_file",
            "must be given with redis_key_file",
        ),
        (
            {"redis_url": "redis://h", "redis_ca_file": __file__},
            "redis_ca_file",
            "is for TLS; use a redis_url that begins with rediss://",
        ),
    ],
)
def test_settings_that_do_not_fit_together(arguments, setting, problem):
    error = refused(arguments=arguments)
    assert (error.setting, error.problem) == (setting, problem)
    assert error.source == "the arguments of Cogworker()"


@pytest.mark.parametrize("url", ["rediss://h", "valkeys://h", "sentinel://h/m"])
def test_tls_files(url):
    names = ("redis_ca_file", "redis_cert_file", "redis_key_file")
    config = Config(redis_url=url, **dict.fromkeys(names, Path(__file__)))
    assert [getattr(config, name) for name in names] == [__file__] * 3


# Where the server is


@pytest.mark.parametrize(
    ("url", "parts", "joined"),
    [
        ("redis://h:1/2", {}, "redis://h:1/2"),
        ("redis://h:1/2", {"host": "other"}, "redis://other:1/2"),
        ("redis://h:1/2", {"host": "::1"}, "redis://[::1]:1/2"),
        ("redis://[::1]:1/2", {"port": 7}, "redis://[::1]:7/2"),
        ("redis://h", {"port": 7, "db": 3}, "redis://h:7/3"),
        ("redis://", {"port": 7}, "redis://localhost:7"),
        ("redis://h/2?db=5&x=a%20b&y=", {"db": 0}, "redis://h/0?x=a+b&y="),
        ("redis://h", {"password": "p@:/?#%ü"}, "redis://:p%40%3A%2F%3F%23%25%C3%BC@h"),
        ("redis://u:a%40b@h", {"username": "v w"}, "redis://v%20w:a%40b@h"),
        ("redis://u:p@h", {"password": "q"}, "redis://u:q@h"),
        ("unix:///run/r.sock", {"db": 3, "password": "p"}, "unix://:p@/run/r.sock?db=3"),
        ("valkeys://h", {"username": "u", "password": "p"}, "valkeys://u:p@h"),
    ],
)
def test_separate_settings_override_the_url(url, parts, joined):
    settings = {f"redis_{name}": value for name, value in parts.items()}
    config = load(environ={"REDIS_URL": url}, arguments=settings)
    assert config.redis_url == joined
    assert {name: getattr(config, name) for name in settings} == settings
    assert dataclasses.replace(config) == config


def test_a_sentinel_url_is_taken_apart():
    config = Config(redis_url="sentinel://us%40er:p%3Aw@a:1,b,[::1]:3,[::2]/main/4")
    assert config.redis_sentinels == (("a", 1), ("b", 26379), ("::1", 3), ("::2", 26379))
    assert config.redis_sentinel_master == "main"
    assert (config.redis_username, config.redis_password) == ("us@er", "p:w")
    assert config.redis_db == 4
    assert dataclasses.replace(config) == config


def test_a_sentinel_url_leaves_out_what_it_does_not_say_and_can_be_overridden():
    config = Config(redis_url="sentinel://a/main")
    assert (config.redis_username, config.redis_password, config.redis_db) == (None, None, None)
    config = Config(redis_url="sentinel://:p@a/main/4", redis_db=0, redis_password="q")
    assert (config.redis_db, config.redis_password) == (0, "q")


@pytest.mark.parametrize("value", [["a:1", "b"], [["a", 1], ("b", 26379)], (("a", "1"), "b:26379")])
def test_sentinels_as_a_list(value):
    config = Config(redis_sentinels=value, redis_sentinel_master="main")
    assert config.redis_sentinels == (("a", 1), ("b", 26379))


@pytest.mark.parametrize("text", ["a:1,b", "a:1 b:26379", "a:1, b"])
def test_sentinels_as_a_text(text):
    environ = {"COGWORKER_REDIS_SENTINELS": text, "COGWORKER_REDIS_SENTINEL_MASTER": "main"}
    assert load(environ=environ).redis_sentinels == (("a", 1), ("b", 26379))


# The file


def test_a_whole_file(write):
    path = write(
        """
        redis-url: redis://:${PASSWORD}@${HOST:-localhost}/1
        concurrency: ${THREADS:-7}
        shutdown_timeout: 30s
        orphan-threshold: 600
        queues:
          - mail,3
          - [low, "${WEIGHT}"]
          - last: ${WEIGHT:-2}
          - ${QUEUE}
        labels: [eu, "${LABEL:-a b}"]
        namespace: null
        redis_username: ${NOBODY:-}
        """
    )
    environ = {"PASSWORD": "pw", "WEIGHT": "4", "QUEUE": "mail", "LABEL": ""}
    config = load(environ=environ, file=path)
    assert config == Config(
        redis_url="redis://:pw@localhost/1",
        concurrency=7,
        shutdown_timeout=30,
        orphan_threshold=600,
        queues=[("mail", 4), ("low", 4), ("last", 4)],
        labels=["eu", "a b"],
    )


@pytest.mark.parametrize("content", ["", "# concurrency: 3\n", "---\n"])
def test_a_file_may_be_empty(write, content):
    assert load(environ={}, file=write(content)) == Config()


def test_a_replaced_text_is_not_replaced_again(write):
    environ = {"A": "${B}", "B": "x"}
    assert load(environ=environ, file=write("namespace: a\nlabels: ['${A}']")).labels == ("${B}",)


def test_a_dollar_alone_is_kept(write):
    path = write("redis_password: 'a$b$${c $d {e}'")
    assert load(environ={}, file=path).redis_password == "a$b$${c $d {e}"


@pytest.mark.parametrize(
    "content", ["redis-password: 'x${SECRET}'", "redis-password: ['${SECRET}']"]
)
def test_an_unset_variable_in_the_file(write, content):
    path = write(content)
    assert str(refused(file=path)) == (
        "redis-password: needs the environment variable SECRET; set it or write ${SECRET:-default} "
        f"(from file {path})"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            "concurrency: 3\nqueues: [a\nlabels: b",
            "is not YAML: expected ',' or ']', but got ':' (line 3)",
        ),
        ("a: 'b'x", "is not YAML: expected <block end>, but found '<scalar>' (line 1)"),
        (
            "a: !x'y'hunter2 b",
            "is not YAML: could not determine a constructor for the tag '...' (line 1)",
        ),
        ("a: b: c", "is not YAML: mapping values are not allowed here (line 1)"),
        ("a:\n\tb", r"is not YAML: found character '\t' that cannot start any token (line 2)"),
        (b"a: \xff\xfe", "is not YAML: a character is not allowed"),
        ("a: \x00", "is not YAML: a character is not allowed"),
        ("redis_password: *hunter2", "is not YAML: found undefined alias '...' (line 1)"),
        (
            "\nredis_password: !hunter2",
            "is not YAML: could not determine a constructor for the tag '...' (line 2)",
        ),
        ("redis_password: 2024-99-99", "has a value that YAML can't read (ValueError)"),
        ("a: !!bool hunter2", "has a value that YAML can't read (KeyError)"),
        ("[" * 5000, "has a value that YAML can't read (RecursionError)"),
        ("- concurrency", "must be a mapping of settings, not a list"),
        ("hunter2", "must be a mapping of settings, not a str"),
    ],
)
def test_files_that_are_not_a_mapping(write, content, problem):
    path = write(content)
    error = refused(file=path)
    assert (error.setting, error.problem, error.source) == ("config", problem, f"file {path}")


def test_files_that_can_not_be_read(tmp_path):
    assert str(refused(file="/no/where")) == (
        "config: can't be read: No such file or directory (from file /no/where)"
    )
    assert str(refused(environ={"COGWORKER_CONFIG": "/no/where"})) == (
        "config: can't be read: No such file or directory (from file /no/where, named by the "
        "environment variable COGWORKER_CONFIG)"
    )
    assert "Is a directory" in str(refused(file=tmp_path))
    assert "null byte" in str(refused(file="a\0b"))


@pytest.mark.parametrize(
    ("content", "setting"),
    [
        ("queues: &a [*a]", "queues"),
        ("queues: &a {b: *a}", "queues"),
        ("labels: [[[[[[a]]]]]]", "labels"),
        ("concurrency: 2024-01-01", "concurrency"),
        ("queues: !!set {a, b}", "queues"),
        ("redis_password: 0123", "redis_password"),
        ("3: 4", "3"),
        ("null: 4", "None"),
        ('"a\\nb": 4', r"'a\nb'"),
    ],
)
def test_strange_yaml(write, content, setting):
    assert refused(file=write(content)).setting == setting


# Secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://[::1]:6379/0?x=1", "redis://[::1]:6379/0?x=1"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("sentinel://a:1,b:2/main", "sentinel://a:1,b:2/main"),
        ("redis://user:hunter2@host:1/0", "redis://user:***@host:1/0"),
        ("redis://:hunter2@host", "redis://:***@host"),
        ("redis://hunter2@host", "redis://***@host"),
        ("redis://:hunter2@hunter2@host", "redis://:***@host"),
        ("redis://:hunter2/hunter2#hunter2@host", "redis://:***@host"),
        ("redis://hunter2/hunter2:hunter2@host", "redis://***@host"),
        ("redis://:hunter2?hunter2@host", "redis://***"),
        ("redis://host/0?password=hunter2&x=1", "redis://host/0?password=***"),
        ("redis://host/0?password=hunter2@hunter2", "redis://***"),
        ("redis://host/0?x=1&ssl_Password=hunter2", "redis://host/0?x=1&ssl_Password=***"),
        ("redis://:hunter2", "redis://:***"),
        ("redis://host:hunter2/0", "redis://host:***"),
        ("sentinel://u:hunter2@a:1,b:2/main", "sentinel://u:***@a:1,b:2/main"),
        (":hunter2@host", ":***@host"),
        (":hunter2://@host", ":***@host"),
        ("", ""),
    ],
)
def test_redacted(url, shown):
    assert redacted(url) == shown


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("redis_url", f"http://user:{SECRET}@host"),
        ("redis_url", f"redis://user:{SECRET}@host:99999"),
        ("redis_url", f"redis://:{SECRET}[@host"),
        ("redis_url", f"redis://:ab#{SECRET}@host"),
        ("redis_url", f"redis://:℀{SECRET}@host"),
        ("redis_url", f"redis://:{SECRET}@{'h' * 100} "),
        ("redis_url", f"redis://{'u' * 100}:{SECRET}@host/x"),
        ("redis_url", f"redis://:{SECRET}"),
        ("redis_url", f":{SECRET}@host:6379"),
        ("redis_url", f"sentinel://:{SECRET}@/main"),
        ("redis_url", f"sentinel://a:{SECRET}/main"),
        ("redis_url", f"sentinel://:a@{SECRET}@a/main"),
        ("redis_url", f"redis://:{SECRET}@host".encode()),
        ("redis_url", [f"redis://:{SECRET}@host"]),
        ("redis_url", {"url": f"redis://:{SECRET}@host"}),
        ("redis_password", SECRET.encode()),
        ("redis_password", [SECRET]),
        ("redis_sentinels", [f"user:{SECRET}@host:1"]),
        ("redis_sentinels", [f"host:1:{SECRET}@x"]),
        ("namespace", f"redis://:{SECRET}@host/ {{"),
        ("redis_ca_file", f"redis://:{SECRET}@host"),
    ],
)
def test_no_error_shows_a_password(setting, value):
    assert SECRET not in str(refused(arguments={setting: value}))


def test_a_configuration_can_be_shown():
    config = Config(redis_url="redis://u:hunter2@h", concurrency=3, redis_password="hunter3")
    shown = "redis_url='redis://u:***@h', concurrency=3, redis_password=***"
    assert repr(config) == f"Config({shown})"
    assert repr(Config()) == "Config()"


# The whole


def test_describe_tells_of_every_setting():
    rows = {name: (env, default, doc) for name, env, default, doc in describe()}
    assert list(rows) == [field.name for field in dataclasses.fields(Config)]
    assert rows["concurrency"] == (
        "COGWORKER_CONCURRENCY",
        10,
        "How many jobs a worker runs at the same time.",
    )
    for name, (env, default, doc) in rows.items():
        assert env == f"COGWORKER_{name.upper()}"
        assert default == getattr(Config(), name)
        assert doc.endswith(".")
        assert "\n" not in doc
        if isinstance(default, float):
            assert doc.endswith("in seconds."), name


def test_a_configuration_is_a_value():
    config = Config(queues=["a", "b"])
    assert hash(config) == hash(Config(queues=[("a", 1), ("b", 1)]))
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.concurrency = 3


def test_yaml_is_imported_only_for_a_file(write):
    code = "import sys, cogworker.config as c; c.load(environ={}); print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


texts = st.one_of(
    st.text(),
    st.sampled_from(["nan", "${A}", "sentinel://", "redis://[", "a,b,c", "9" * 5000, "::1", "٣"]),
    st.builds(
        "{}://{}".format, st.sampled_from(["redis", "unix", "sentinel", "valkeys"]), st.text()
    ),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.timedeltas(),
    st.binary(),
    texts,
)
junk = scalars | st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(texts, inner, max_size=3),
    ),
    max_leaves=6,
)


def outcome(**sources: Any) -> None:
    problem = ""
    try:
        config = load(**{"environ": {}, **sources})
    except ConfigError as error:
        problem = str(error)
    else:
        assert dataclasses.replace(config) == config
        redacted(config.redis_url).encode()
    assert problem.isprintable()
    assert len(problem) < 1000


@given(st.sampled_from(NAMES), junk)
@hypothesis_settings(max_examples=600, deadline=None)
def test_any_argument_gives_a_configuration_or_an_error(name, value):
    outcome(arguments={name: value})


@given(st.sampled_from(NAMES), texts)
@hypothesis_settings(max_examples=400, deadline=None)
def test_any_text_gives_a_configuration_or_an_error(name, text):
    outcome(environ={f"COGWORKER_{name.upper()}": text})
    outcome(flags={name: text})


@given(st.sampled_from(NAMES) | texts, texts | st.binary())
@hypothesis_settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_file_gives_a_configuration_or_an_error(write, name, content):
    if isinstance(content, str):
        content = f"{name}: {content}".encode("utf-8", "surrogatepass")
    outcome(file=write(content))
