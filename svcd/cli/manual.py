"""`svc help`: the pages of docs/ in the terminal; an installed svcd carries them with it."""

from pathlib import Path
from typing import Final

import click

from svcd.cli.rendering import property_table

PAGES: Final = Path(__file__).with_name("docs")
"""A link to docs/ in a clone, a folder with its pages in an installed svcd."""


@click.command("help")
@click.argument("topic", required=False)
@click.pass_context
def show_help(context: click.Context, topic: str | None) -> None:
    """Show a page of the documentation, or list the TOPICs.

    \b
    Example:
      svc help
      svc help payments
    """
    pages = {page.stem: page for page in sorted(PAGES.glob("*.md"))}
    if topic is None:
        rows = [(name, _title(page)) for name, page in pages.items()]
        click.echo(f"svc help TOPIC shows a page, svc COMMAND --help explains a command.\n\n{property_table(rows)}")
    elif topic in pages:
        text = pages[topic].read_text(encoding="utf-8").rstrip("\n")
        at_terminal = context.obj.runtime.terminal_width() is not None
        (click.echo_via_pager if at_terminal else click.echo)(text)
    else:
        sentence = f"there is no page {topic!r}; choose from {', '.join(pages)}"
        raise click.BadParameter(sentence, context, param_hint="'TOPIC'")


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("# ").strip()
