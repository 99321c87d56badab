"""The command ``cogworker``: one module a subcommand."""

import sys

import click

from cogworker import __version__
from cogworker.cli.demo import demo
from cogworker.cli.worker import worker
from cogworker.errors import CogworkerError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cogworker")
def commands() -> None:
    """Background jobs for Python on Redis or Valkey."""


commands.add_command(worker)
commands.add_command(demo)


def main() -> None:
    """Run the command line; what can't be used is one line on standard error and exit code 2."""
    try:
        commands(prog_name="cogworker")
    except CogworkerError as error:
        click.echo(f"cogworker: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
