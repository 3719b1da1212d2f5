"""The table of commands in docs/command-line.md, made of the commands' own help.

`python -m tests.docs.command_line_page` writes it again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from svcd.cli.lazy_commands import LazyCommand
from svcd.cli.main import svc

PAGE: Final = Path(__file__).parents[2] / "docs" / "command-line.md"
_HEADING: Final = "| command | what it does |\n|---|---|\n"


def table() -> str:
    """The table of the page: each command, with what it must be given, and the first sentence of its help."""
    return _HEADING + "".join(_row(name, command) for name, command in _commands(svc, "svc"))


def _commands(group: click.Group, called: str) -> Iterator[tuple[str, click.Command]]:
    """The commands below a group that do something, those without commands of their own first."""
    loaded = {
        f"{called} {name}": command.load() if isinstance(command, LazyCommand) else command
        for name, command in sorted(group.commands.items())
    }
    for name, command in sorted(loaded.items(), key=lambda item: isinstance(item[1], click.Group)):
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name, command
        if isinstance(command, click.Group):
            yield from _commands(command, name)


def _row(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    words = [name]
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            words += [parameter.make_metavar(context)]
        elif isinstance(parameter, click.Option) and parameter.required:
            words += [f"{parameter.opts[0]} {parameter.make_metavar(context)}"]
    sentence = (command.help or "").split("\n\n")[0].replace("\n", " ").strip()
    return f"| `{' '.join(words)}` | {sentence} |\n".replace("|off", "\\|off")


def page(text: str) -> str:
    """The page with the table of now."""
    before, _, after = text.partition(_HEADING)
    return before + table() + after[after.index("\n\n") + 1 :]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
