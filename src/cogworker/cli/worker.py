"""``cogworker worker``: run a worker until it is told to stop."""

import sys
import threading
from pathlib import Path

import click

from cogworker._worker.leave import leave
from cogworker._worker.systemd import Systemd
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
from cogworker.swarm.watcher import watcher_of
from cogworker.worker import Worker


@click.command(epilog=EPILOG)
@worker_options
@click.option(
    "--reload", is_flag=True, help="For development: start anew when a Python file changes."
)
@elsewhere("-n", "--count", says="a worker is one process; several are: cogworker swarm -n {0}")
def worker(options: Options, reload: bool) -> None:
    """Run the jobs of an application.

    TERM or INT stops it: running jobs get the time-out, the rest go back to their queues. TSTP
    makes it quiet, CONT resumes, TTIN logs all stacks.
    """
    if reload:
        sys.exit(_run_anew_at_changes(options))
    with serving(load(options), options) as app:
        Worker(app.client, app.jobs, app.timetable, app.config, Systemd()).run()
    if threading.active_count() > 1:
        leave(0)


def _run_anew_at_changes(options: Options) -> int:
    config = settings_without_application(options)
    files = (Path(name).resolve() for name in options.modules if name.endswith(".py"))
    here = Path.cwd()
    others = {file.parent for file in files if not file.is_relative_to(here)}
    supervisor = Supervisor(
        lambda: serving(load(options), options),
        1,
        shutdown_timeout_s=config.shutdown_timeout,
        phased=False,
        watch=watcher_of([here, *sorted(others)]),
    )
    with embedded_server(options):
        return supervisor.run()
