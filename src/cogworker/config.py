"""Every setting: its default, its meaning and unit, and where its value comes from.

The fields of ``Config`` are the one table of settings; parsing, the names of environment variables,
documentation and error texts are made from them. ``load`` collects values from the environment, a
YAML file, the arguments of ``Cogworker()`` and the command line, where a later source beats an
earlier one and only the winner is looked at. ``Config`` then checks each value by itself, puts
together the settings that say where the server is, and checks what must fit together.

What a setting may hold is a *kind*: one function that checks a value, and one that reads a text.
No message shows a password.
"""

import difflib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from cogworker import _config_file as config_file
from cogworker import _kinds as kinds
from cogworker._hints import did_you_mean
from cogworker._kinds import (
    DAY,
    Kind,
    Refusal,
    choice,
    printable,
    redacted,
    seconds,
    sentinel_settings,
    shown,
    whole,
)
from cogworker.errors import ConfigError
from cogworker.periodic import Entry

__all__ = ["Config", "describe", "load", "redacted"]

_log = logging.getLogger(__name__)

_PREFIX = "COGWORKER_"
_told: set[str] = set()
"""Misspelt environment variables that were logged."""


def _setting(default: Any, kind: Kind, doc: str, fallback: str | None = None) -> Any:
    """Declare a field; ``fallback`` is an environment variable lower than the setting's own."""
    return field(default=default, metadata={"kind": kind, "doc": doc, "fallback": fallback})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Config:
    """All settings, checked.

    ``redis_url`` contains ``redis_host``, ``_port``, ``_username``, ``_password`` and ``_db`` where
    they were given; a ``sentinel://`` URL has been taken apart into the settings it stands for.
    Raises ConfigError.
    """

    # fmt: off
    redis_url: str = _setting("redis://localhost:6379/0", kinds.URL,
        "The server, a URL: redis, valkey, rediss or valkeys (TLS), unix, sentinel.", "REDIS_URL")
    namespace: str = _setting("cogworker", kinds.NAMESPACE,
        "What all keys begin with; for a Redis Cluster in braces: {cogworker}.")
    concurrency: int = _setting(10, whole(1, 1000),
        "How many jobs a worker runs at the same time.")
    queues: tuple[tuple[str, int], ...] = _setting((("default", 1),), kinds.QUEUES,
        "Queues to take from, each name or name,weight; a name given twice adds to its weight.")
    queue_order: Literal["weighted", "strict"] = _setting("weighted", choice("weighted", "strict"),
        "weighted: random by weight; strict: from a queue only when those before it are empty.")
    fetch: Literal["reliable", "basic"] = _setting("reliable", choice("reliable", "basic"),
        "What becomes of a job whose worker died: reliable: it runs again; basic: it is dead.")
    fetch_idle_max_interval: float = _setting(1.0, seconds(),
        "Longest time between two looks of an idle worker for jobs, in seconds.")
    orphan_threshold: float = _setting(300.0, seconds(),
        "Time without a heartbeat, 12 intervals at least, that makes a worker dead, in seconds.")
    max_orphanings: int = _setting(3, whole(0, 1_000_000),
        "How many times a job may lose its worker; once more, and the job is put in dead.")
    heartbeat_interval: float = _setting(5.0, seconds(),
        "Time between two heartbeats of a worker, in seconds.")
    orphan_check_interval: float = _setting(60.0, seconds(),
        "Time between two searches for the jobs of dead workers, in seconds.")
    poll_interval: float = _setting(5.0, seconds(),
        "Longest time between two looks for scheduled and retrying jobs, in seconds.")
    shutdown_timeout: float = _setting(25.0, seconds(zero=True),
        "Time that running jobs have to finish when their worker stops, in seconds.")
    max_jobs: int | None = _setting(None, whole(1, 1_000_000_000_000),
        "Number of jobs after which a worker stops, or a swarm replaces it.")
    max_rss: int | None = _setting(None, kinds.SIZE,
        "Memory over which a worker stops, or a swarm replaces it, in bytes or as in 512M.")
    count: int | None = _setting(None, whole(1, 1000),
        "How many workers a swarm has (not as an argument); by default one for each processor.")
    phased_restart: bool = _setting(True, kinds.FLAG,
        "Whether a swarm restarts its workers singly, or all at once (not as an argument).")
    unique_lock_ttl: float = _setting(DAY, seconds(),
        "How long a unique job's lock outlasts a job that has vanished, in seconds.")
    periodic: tuple[Entry, ...] = _setting((), kinds.PERIODIC,
        "Periodic entries beside those in the code, each a mapping (not in the environment).")
    periodic_catch_up: bool = _setting(True, kinds.FLAG,
        "Whether periodic entries fire the latest time slot that was missed before their first.")
    status_ttl: float = _setting(1800.0, seconds(),
        "How long a job's status is kept after its last change, in seconds.")
    max_payload_bytes: int = _setting(1_048_576, whole(1, 536_870_912),
        "Largest job that can be enqueued, in bytes.")
    dead_max_jobs: int = _setting(10_000, whole(1, 1_000_000_000),
        "How many dead jobs are kept; the oldest go first.")
    dead_max_age: float = _setting(180 * DAY, seconds(),
        "How long dead jobs are kept, in seconds.")
    history: bool = _setting(False, kinds.FLAG,
        "Whether each run is written to the run log; a job may say otherwise for itself.")
    history_max_runs: int = _setting(50_000, whole(1, 1_000_000_000),
        "How many runs the run log keeps, about, of those that succeeded and of the others.")
    history_max_age: float = _setting(30 * DAY, seconds(),
        "How long the run log keeps a run, in seconds.")
    redis_timeout: float = _setting(5.0, seconds(),
        "How long a call waits for a connection or an answer, in seconds.")
    redis_username: str | None = _setting(None, kinds.LINE,
        "User name, in place of the one in redis_url.")
    redis_password: str | None = _setting(None, kinds.PASSWORD,
        "Password, in place of the one in redis_url.")
    redis_db: int | None = _setting(None, kinds.DATABASE,
        "Number of the database, in place of the one in redis_url.")
    redis_host: str | None = _setting(None, kinds.HOST,
        "Host, in place of the one in redis_url.")
    redis_port: int | None = _setting(None, kinds.PORT,
        "Port, in place of the one in redis_url.")
    redis_sentinels: tuple[tuple[str, int], ...] = _setting((), kinds.SENTINELS,
        "Sentinels to ask for the server, each host:port; redis_url is then not used.")
    redis_sentinel_master: str | None = _setting(None, kinds.WORD,
        "Name by which the sentinels know the server.")
    redis_ca_file: str | None = _setting(None, kinds.FILE,
        "PEM file of the authorities that may sign the server's certificate, for TLS.")
    redis_cert_file: str | None = _setting(None, kinds.FILE,
        "PEM file of this client's certificate, for TLS.")
    redis_key_file: str | None = _setting(None, kinds.FILE,
        "PEM file of this client's key, if it is not in redis_cert_file, for TLS.")
    labels: tuple[str, ...] = _setting((), kinds.LABELS,
        "Words that are shown with this worker.")
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", choice("debug", "info", "warning", "error"),
        "Least important messages that are logged.")
    log_format: Literal["text", "json"] = _setting("text", choice("text", "json"),
        "How messages are written: as text, or as one JSON object a line.")
    environment: str = _setting("development", kinds.WORD,
        "Name of the environment, such as production.", "APP_ENV")
    # fmt: on

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if value is None and setting.default is None:
                continue
            try:
                self._put(setting.name, setting.metadata["kind"].check(value))
            except Refusal as refusal:
                raise ConfigError(setting.name, str(refusal)) from None
        self._check_timing()
        self._check_server()
        self._check_tls()

    def __repr__(self) -> str:
        """Show what differs from the defaults, without passwords."""
        changed = [
            f"{setting.name}={'***' if setting.name == 'redis_password' else shown(value)}"
            for setting in fields(self)
            if (value := getattr(self, setting.name)) != setting.default
        ]
        return f"Config({', '.join(changed)})"

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_timing(self) -> None:
        pairs = ("orphan_threshold", "heartbeat_interval"), ("unique_lock_ttl", "orphan_threshold")
        for name, of in pairs:  # or one late beat means death, and locks end before the rescue
            value, least = getattr(self, name), 2 * getattr(self, of)
            if value < least:
                raise ConfigError(name, f"must be at least 2 * {of} ({least:g}), not {value:g}")

    def _check_server(self) -> None:
        if self.redis_url.startswith("sentinel://"):
            for name, value in sentinel_settings(self.redis_url).items():
                if getattr(self, name) in (None, ()):
                    self._put(name, value)
        elif given := self._given("username", "password", "host", "port", "db"):
            self._put("redis_url", _joined_url(self.redis_url, given))
        if self.redis_sentinels and not self.redis_sentinel_master:
            raise ConfigError("redis_sentinel_master", "must be given with redis_sentinels")
        if self.redis_sentinel_master and not self.redis_sentinels:
            raise ConfigError("redis_sentinels", "must be given with redis_sentinel_master")
        if self.redis_sentinels or self.redis_url.startswith("unix://"):
            for name in self._given("host", "port"):
                other = "redis_sentinels" if self.redis_sentinels else "a unix:// redis_url"
                raise ConfigError(f"redis_{name}", f"can't be used with {other}; remove one")

    def _check_tls(self) -> None:
        if self.redis_key_file and not self.redis_cert_file:
            raise ConfigError("redis_cert_file", "must be given with redis_key_file")
        if not self.redis_sentinels and not self.redis_url.startswith(("rediss://", "valkeys://")):
            for name in self._given("ca_file", "cert_file"):
                problem = "is for TLS; use a redis_url that begins with rediss://"
                raise ConfigError(f"redis_{name}", problem)

    def _given(self, *names: str) -> dict[str, Any]:
        values = {name: getattr(self, f"redis_{name}") for name in names}
        return {name: value for name, value in values.items() if value is not None}


def _joined_url(url: str, given: Mapping[str, Any]) -> str:
    """Put the parts that were given apart into the URL, which the client library listens to most.

    (Redis-py prefers what a URL says to arguments, and the ``db`` of its query to its path.)
    """
    parts = urlsplit(url)
    account, _, place = parts.netloc.rpartition("@")
    user, _, password = (unquote(text) for text in account.partition(":"))
    user = quote(given.get("username", user), safe="")
    password = quote(given.get("password", password), safe="")
    account = f"{user}:{password}@" if user or password else ""
    if "host" in given or "port" in given:
        host, port = given.get("host", parts.hostname or "localhost"), parts.port
        host = f"[{host}]" if ":" in host else host
        port = given.get("port", port)
        place = f"{host}:{port}" if port else host
    path, query = parts.path, parse_qsl(parts.query, keep_blank_values=True)
    if "db" in given:
        query = [(name, value) for name, value in query if name != "db"]
        if parts.scheme == "unix":
            query.append(("db", str(given["db"])))
        else:
            path = f"/{given['db']}"
    return f"{parts.scheme}://{account}{place}{path}" + (f"?{urlencode(query)}" if query else "")


_OF_A_WORKER = frozenset(
    {
        *("concurrency", "queues", "queue_order", "fetch", "fetch_idle_max_interval", "labels"),
        *("orphan_threshold", "max_orphanings", "orphan_check_interval", "heartbeat_interval"),
        *("poll_interval", "shutdown_timeout", "max_jobs", "max_rss"),
    }
)
"""What a worker can have otherwise than its application."""


def for_worker(config: Config, settings: Mapping[str, Any]) -> Config:
    """The configuration of one worker, which differs in some settings from its application's.

    Raises ConfigError, also for what an application and its workers must have in common.
    """
    source = "the arguments of worker()"
    given = {name: value for name, value, _ in _from_mapping(settings, source)}
    for name in given:
        if name not in _OF_A_WORKER:
            raise ConfigError(name, "belongs to the whole application; set it there", source)
    try:
        return replace(config, **given)
    except ConfigError as error:
        raise ConfigError(error.setting, error.problem, source) from None


_OPTIONS = ("embedded", "logfile", "preload", "reload", "require")
"""Options of the command line that are no settings."""
_KINDS: dict[str, Kind] = {setting.name: setting.metadata["kind"] for setting in fields(Config)}


def describe() -> list[tuple[str, str, Any, str]]:
    """For each setting, in order: its name, its environment variable, its default, its meaning."""
    return [
        (setting.name, _variable(setting.name), setting.default, setting.metadata["doc"])
        for setting in fields(Config)
    ]


def _variable(name: str) -> str:
    return _PREFIX + name.upper()


_Values = Iterator[tuple[str, Any, str]]
"""Setting, value, and the words that say where it comes from."""


def load(
    *,
    environ: Mapping[str, str] = os.environ,
    file: str | Path | None = None,
    arguments: Mapping[str, Any] = {},
    flags: Mapping[str, Any] = {},
) -> Config:
    """Put the settings together from environment, file, arguments and flags; the last one wins.

    ``arguments`` and ``flags`` map names of settings to values, None where none is given. Without
    ``file``, ``COGWORKER_CONFIG`` may name one. Raises ConfigError, which names the source.
    """
    _warn_of_misspellings(environ)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value, source in chain(
        _from_environment(environ),
        _from_file(file, environ),
        _from_mapping(arguments, "the arguments of Cogworker()"),
        _from_mapping(flags, "the command line", reads=True),
    ):
        values[name], sources[name] = value, source
    try:
        return Config(**values)
    except ConfigError as error:
        # A default can be wrong too, beside another setting, which is then named in the problem.
        involved = [error.setting, *re.findall(r"\w+", error.problem)]
        source = next((sources[name] for name in involved if name in sources), "")
        raise ConfigError(error.setting, error.problem, source) from None


def _from_environment(environ: Mapping[str, str]) -> _Values:
    for setting in fields(Config):
        for variable in (_variable(setting.name), setting.metadata["fallback"]):
            # Empty is what "VARIABLE=" leaves in many a compose file: not given.
            if variable and (text := environ.get(variable)):
                value = setting.metadata["kind"].read(text)
                yield setting.name, value, f"the environment variable {variable}"
                break


def _warn_of_misspellings(environ: Mapping[str, str]) -> None:
    # Others use the prefix too (COGWORKER_TEST_SERVER, say), so this can't be an error.
    for variable in environ:
        name = variable.removeprefix(_PREFIX).lower()
        if variable.startswith(_PREFIX) and name not in _KINDS:
            for near in difflib.get_close_matches(name, _KINDS, n=1, cutoff=0.8):
                if variable not in _told:  # an application is configured twice in a worker
                    _told.add(variable)
                    text = "%s is not a setting and is ignored; did you mean %s?"
                    _log.warning(text, printable(variable), _variable(near))


def _from_mapping(values: Mapping[Any, Any], source: str, *, reads: bool = False) -> _Values:
    for key, value in values.items():
        name = key.replace("-", "_") if isinstance(key, str) else shown(key)
        if name not in _KINDS:
            if name in _OPTIONS:
                raise ConfigError(name, f"is an option of the command line: --{name}", source)
            hint = did_you_mean(name.lower(), _KINDS, "remove it")
            raise ConfigError(printable(key), f"is not a setting; {hint}", source)
        # A flag that may be repeated, and is not there, is an empty tuple.
        if value is not None and not (reads and value == ()):
            readable = reads and isinstance(value, str)
            yield name, _KINDS[name].read(value) if readable else value, source


def _from_file(file: str | Path | None, environ: Mapping[str, str]) -> _Values:
    path = file if file is not None else environ.get(f"{_PREFIX}CONFIG")
    if file is None and not path:
        return
    source = f"file {printable(str(path))}"
    named = "" if file is not None else f", named by the environment variable {_PREFIX}CONFIG"
    content = config_file.parse(path, source + named)
    yield from _from_mapping(config_file.filled(content, environ, source), source, reads=True)
