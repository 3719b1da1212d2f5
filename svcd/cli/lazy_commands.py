"""Commands whose modules are imported when they are called, so that help and small commands start fast."""

from importlib import import_module

import click


class LazyCommand(click.Command):
    """The place of a command in the tree, and where it is defined."""

    def __init__(self, name: str, path: str, summary: str) -> None:
        """``path`` is a module below svcd.cli and a function in it: ``wallet.keys:new``.

        ``summary`` is the first sentence of the command's help, which the help of its group shows.
        """
        super().__init__(name, help=summary)
        self._path = path

    def load(self) -> click.Command:
        """The command itself."""
        module, _, function = self._path.partition(":")
        command: click.Command = getattr(import_module(f"svcd.cli.{module}"), function)
        return command


class LazyGroup(click.Group):
    """A group that loads a lazy command when it is called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The name of the called command, the command, and its arguments; raises click.UsageError."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest
