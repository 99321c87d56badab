"""``cogworker swarm``: run several workers and keep them going until told to stop."""

import gc
import logging
import os
import signal
import sys
import threading
from contextlib import AbstractContextManager

import click

from cogworker.app import Cogworker
from cogworker.cli.options import (
    EPILOG,
    Options,
    elsewhere,
    embedded_server,
    load,
    serving,
    settings_without_application,
    worker_options,
)
from cogworker.swarm.supervisor import Supervisor

logger = logging.getLogger("cogworker.swarm")


@click.command(epilog=EPILOG)
@worker_options
@click.option("-n", "--count", metavar="N", help="How many workers.  [one for each processor]")
@click.option(
    "--phased/--no-phased",
    default=None,
    help="Whether USR2 restarts the workers one after another, or all at once.  [phased]",
)
@click.option(
    "--preload",
    is_flag=True,
    help="Import the application once, before the workers are forked: they share its memory, "
    "and new code needs a new swarm.",
)
@elsewhere("--reload", is_flag=True, says="--reload belongs to: cogworker worker")
def swarm(options: Options, count: str | None, phased: bool | None, preload: bool) -> None:
    """Run several workers, and replace those that end.

    TERM, INT or HUP stops all, USR2 restarts them one after another. TSTP makes them quiet, CONT
    resumes, TTIN logs all stacks.
    """
    for number in (signal.SIGUSR2, signal.SIGTSTP):  # which would end or stop it while it starts
        signal.signal(number, lambda *_: None)
    options.flags.update(count=count, phased_restart=phased)
    app = _preload(options) if preload else None
    config = settings_without_application(options) if app is None else app.config

    def work() -> AbstractContextManager[Cogworker]:
        return serving(load(options) if app is None else app, options)

    supervisor = Supervisor(
        work,
        config.count or os.cpu_count() or 1,
        shutdown_timeout_s=config.shutdown_timeout,
        phased=config.phased_restart,
        preloaded=preload,
    )
    with embedded_server(options):
        status = supervisor.run()
    sys.exit(status)


def _preload(options: Options) -> Cogworker:
    app = load(options)
    names = [thread.name for thread in threading.enumerate()]
    names.remove(threading.main_thread().name)
    if names:
        logger.warning(
            "importing the application has started threads, which no worker will have; start them "
            "later or leave out --preload: threads=%s",
            ",".join(names),
        )
    gc.freeze()  # a worker's collector would write to the memory that they share
    return app
