"""The options that ``worker`` and ``swarm`` have in common, and what becomes of them.

1. ``worker_options`` puts them on a command, which gets them as one value.
2. ``load`` imports the application, configures it, and sets up the log.
   ``settings_without_application`` does so for a parent that leaves the import to its children.
3. ``serving`` has the application ready for a worker, with its embedded server if it wants one.
"""

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cogworker import config as configuration
from cogworker.app import Cogworker
from cogworker.cli import application, logs
from cogworker.config import Config
from cogworker.embedded import EmbeddedServer

logger = logging.getLogger("cogworker.worker")

CONFIG = click.option(
    "-C",
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="YAML file.  [that which COGWORKER_CONFIG names]",
)
EPILOG = (
    "Every setting may stand in the environment as well, as COGWORKER_ and its name, or in the "
    "YAML file: see docs/settings.md."
)

_OPTIONS = (
    click.option(
        "-r",
        "--require",
        "modules",
        multiple=True,
        required=True,
        metavar="MODULE[:APP]",
        help="What to import: package.module:app, package.module or a Python file. Repeatable.",
    ),
    CONFIG,
    click.option("-c", "--concurrency", metavar="N", help="Jobs to run at the same time.  [10]"),
    click.option(
        "-q",
        "--queue",
        "queues",
        multiple=True,
        metavar="NAME[,WEIGHT]",
        help="A queue to take jobs from. Repeatable; replaces the file's queues.  [default]",
    ),
    click.option(
        "-t", "--timeout", metavar="SECONDS", help="How long running jobs get at a stop.  [25]"
    ),
    click.option("--max-jobs", metavar="N", help="Stop, or be replaced, after so many jobs."),
    click.option(
        "--max-rss", metavar="SIZE", help="Stop, or be replaced, over so much memory, as in 512M."
    ),
    click.option(
        "-L", "--logfile", type=click.Path(path_type=Path), help="Append the log to a file."
    ),
    click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.  [info]"),
    click.option("--log-format", metavar="FORM", help="text or json.  [text]"),
    click.option(
        "-e", "--environment", metavar="NAME", help="Set as APP_ENV before anything is imported."
    ),
    click.option(
        "--embedded",
        is_flag=False,
        flag_value=".cogworker",
        metavar="[DIR]",
        help="Use a private server whose data lie in DIR.  [.cogworker]",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line says of a worker; ``flags`` are settings."""

    modules: tuple[str, ...]
    config_file: Path | None
    logfile: Path | None
    embedded: str | None
    flags: dict[str, Any]


def _refuse(says: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def refuse(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            context.fail(says.format(value[0] if isinstance(value, tuple) else value))

    return refuse


def elsewhere(*names: str, says: str, is_flag: bool = False) -> Callable[..., Any]:
    """An option of another command, which says so."""
    return click.option(
        *names,
        hidden=True,
        expose_value=False,
        is_eager=True,
        is_flag=is_flag,
        callback=_refuse(says),
    )


_NO_ARGUMENTS = click.argument(
    "arguments",
    nargs=-1,
    metavar="",
    expose_value=False,
    is_eager=True,
    callback=_refuse("{0!r} needs an option; to name the application: -r {0}"),
)


def worker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options, as its first argument; those of its own are keywords."""

    @functools.wraps(command)
    def called(
        modules: tuple[str, ...],
        config_file: Path | None,
        logfile: Path | None,
        embedded: str | None,
        environment: str | None,
        queues: tuple[str, ...],
        concurrency: str | None,
        timeout: str | None,
        max_jobs: str | None,
        max_rss: str | None,
        log_level: str | None,
        log_format: str | None,
        **own: Any,
    ) -> None:
        if environment is not None:
            os.environ["APP_ENV"] = environment
        flags = {
            "environment": environment,
            "concurrency": concurrency,
            "shutdown_timeout": timeout,
            "max_jobs": max_jobs,
            "max_rss": max_rss,
            "log_level": log_level,
            "log_format": log_format,
            "queues": list(queues) or None,
        }
        options = Options(
            modules=modules,
            config_file=config_file,
            logfile=logfile,
            embedded=embedded,
            flags=flags,
        )
        command(options, **own)

    options = (*_OPTIONS, _NO_ARGUMENTS)
    return functools.reduce(lambda decorated, option: option(decorated), options[::-1], called)


def load(options: Options) -> Cogworker:
    """Import and configure the application; its settings say how the log looks.

    Raises ConfigError and Unimportable.
    """
    # Jobs that compute let the dispatcher and other jobs in five times as often. Measured: idle
    # pick-up p99 1.2 ms instead of 3.1, no-op throughput 6 % less. An application may set its own.
    sys.setswitchinterval(0.001)
    app = application.load(options.modules)
    app.configure(config_file=options.config_file, flags=options.flags)
    logs.set_up(app.config.log_level, app.config.log_format, options.logfile)
    return app


def settings_without_application(options: Options) -> Config:
    """As much as can be known before the application is imported; sets up the log.

    Raises ConfigError.
    """
    config = configuration.load(file=options.config_file, flags=options.flags)
    logs.set_up(config.log_level, config.log_format, options.logfile)
    return config


def embedded_server(options: Options) -> AbstractContextManager[object]:
    """Keep the embedded server, if there is to be one, while all workers are replaced."""
    if options.embedded is None:
        return contextlib.nullcontext()
    return EmbeddedServer(options.embedded)


@contextlib.contextmanager
def serving(app: Cogworker, options: Options) -> Iterator[Cogworker]:
    """Have an application ready for a worker, as long as the block lasts."""
    if options.embedded is None:
        yield app
        return
    with EmbeddedServer(options.embedded) as server:
        flags = {**options.flags, "redis_url": server.url}
        app.configure(config_file=options.config_file, flags=flags)
        logger.info("embedded server: REDIS_URL=%s", server.url)
        yield app
