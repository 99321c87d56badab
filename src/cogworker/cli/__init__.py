"""The command ``cogworker``: one module a subcommand."""

import importlib
import sys

import click

from cogworker._hints import did_you_mean
from cogworker._version import __version__
from cogworker.errors import CogworkerError


class Subcommands(click.Group):
    """Imports a subcommand's module when it is called: a worker carries no other's weight."""

    NAMES = ("demo", "health", "swarm", "worker")

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, sorted."""
        return list(self.NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name: the function of that name in the module of that name."""
        if cmd_name not in self.NAMES:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"cogworker.cli.{cmd_name}"), cmd_name
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant, or an error that says which one may be."""
        if args[0] not in self.NAMES:
            hint = did_you_mean(args[0], self.NAMES, f"there are {', '.join(self.NAMES)}")
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=Subcommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cogworker")
def commands() -> None:
    """Background jobs for Python on Redis or Valkey."""


def main() -> None:
    """Run the command line; what can't be used is one line on standard error and exit code 2."""
    try:
        commands(prog_name="cogworker")
    except CogworkerError as error:
        click.echo(f"cogworker: {error}", err=True)
        sys.exit(2)
