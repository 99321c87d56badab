"""``cogworker health``: whether this machine's or container's workers live.

It asks Redis, where each worker says every few seconds that it lives: a process that hangs, or has
lost its way to Redis, is there but does not count. Nor does one that is listed but has ended. It
answers with one line and an exit code.
"""

import contextlib
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from cogworker._kinds import Refusal, redacted, seconds
from cogworker._worker.facts import hostname
from cogworker.app import Cogworker
from cogworker.cli import application
from cogworker.cli.options import CONFIG
from cogworker.config import Config
from cogworker.errors import ConfigError
from cogworker.inspector import Inspector
from cogworker.live import WorkerInfo

BEATS_MISSED = 3
REDIS_TIMEOUT_S = 2.0
"""With the four tries that a call gets, an answer comes within nine seconds."""


@click.command()
@click.option(
    "-r",
    "--require",
    "modules",
    multiple=True,
    metavar="MODULE[:APP]",
    help="What to import, if only the application itself knows where Redis is. Repeatable.",
)
@CONFIG
@click.option(
    "--workers",
    "wanted",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="How many workers there have to be on this host.  [1]",
)
@click.option(
    "--max-age",
    metavar="SECONDS",
    help="How long ago a worker may have given its last sign of life, as in 15 or 1m.  "
    "[3 heartbeat intervals]",
)
def health(
    modules: tuple[str, ...], config_file: Path | None, wanted: int, max_age: str | None
) -> None:
    """Tell whether the workers of this host live: exit code 0, or 1 and the reason.

    What can't be used, such as a mistyped setting or an application with an error in it, is exit
    code 2.
    """
    logging.disable()
    code, line, where = 1, "", ""
    try:
        max_age_s = None if max_age is None else _duration(max_age)
        app = _application(modules, config_file)
        where = f" redis={_server(app.config)} namespace={app.config.namespace}"
        if max_age_s is None:
            max_age_s = BEATS_MISSED * app.config.heartbeat_interval
        healthy, line = judge(Inspector(app).workers(), hostname(), wanted, max_age_s, exists)
        code = 0 if healthy else 1
    except (ConfigError, application.Unimportable) as error:
        code, line = 2, f"can't tell: {error}".partition("\n")[0]
    except Exception as error:
        line = f"can't tell: {type(error).__name__}: {error}"
    click.echo(" ".join((line + where if code else line).split()))
    sys.exit(code)


def judge(
    workers: Sequence[WorkerInfo],
    host: str,
    wanted: int,
    max_age_s: float,
    exists: Callable[[str], bool],
) -> tuple[bool, str]:
    """Whether enough workers of a host have beaten lately and still exist, and what to say.

    Those that do not exist are ``stale``, and not missed as such: a worker that was killed is
    listed until its jobs are rescued, and another one may be in its place.
    """
    mine = [worker for worker in workers if worker.host == host]
    ages_s = sorted(each.beat_age_s for each in mine if exists(each.identity))
    # A beat from far in the future is left from before a clock was set back.
    fresh_s = [age_s for age_s in ages_s if abs(age_s) <= max_age_s]
    facts = f"workers={len(fresh_s)} host={host}"
    if len(ages_s) < len(mine):
        facts += f" stale={len(mine) - len(ages_s)}"
    if len(fresh_s) >= wanted:
        return True, f"ok: {facts} oldest_beat_s={fresh_s[-1]:.1f}"
    line = f"too few workers: {facts} wanted={wanted} max_age_s={max_age_s:g}"
    return False, line + (f" last_beat_s={ages_s[0]:.1f}" if ages_s else "")


def exists(worker: str) -> bool:
    """Whether a worker of this host, by its identity, still has a process."""
    try:
        pid = int(worker.rsplit(":", 2)[1])
        os.kill(max(pid, 1), 0)
    except PermissionError:  # it is another user's
        return True
    except (OSError, ValueError, IndexError, OverflowError):
        return False
    return True


def _server(config: Config) -> str:
    if config.redis_sentinels:
        return ",".join(f"{host}:{port}" for host, port in config.redis_sentinels)
    return redacted(config.redis_url)


def _duration(text: str) -> float:
    kind = seconds()
    try:
        return float(kind.check(kind.read(text)))
    except Refusal as refusal:
        raise ConfigError("--max-age", str(refusal), "the command line") from None


def _application(modules: tuple[str, ...], config_file: Path | None) -> Cogworker:
    if not modules:
        app = Cogworker(config_file=config_file)
    else:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            app = application.load(modules)
    app.configure(config_file=config_file, flags={"redis_timeout": REDIS_TIMEOUT_S})
    return app
