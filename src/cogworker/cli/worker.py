"""``cogworker worker``: run a worker until it is told to stop."""

import threading

import click

from cogworker._worker.leave import leave
from cogworker._worker.systemd import Systemd
from cogworker.cli.options import Options, load, serving, worker_options
from cogworker.worker import Worker


@click.command()
@worker_options
def worker(options: Options) -> None:
    """Run the jobs of an application.

    TERM or INT stops it: running jobs get the time-out, the rest go back to their queues. TSTP
    makes it quiet, CONT resumes, TTIN logs all stacks.
    """
    with serving(load(options), options) as app:
        Worker(app.client, app.jobs, app.config, Systemd()).run()
    if threading.active_count() > 1:
        leave(0)
