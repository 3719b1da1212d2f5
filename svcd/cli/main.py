"""The command ``svc``: the tree of commands, how their failures are printed, and the real reactor and terminal."""

import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import react
from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

from svcd.chain.errors import RuleViolation
from svcd.cli import options
from svcd.cli.chain_commands import balance, block, status, tx
from svcd.cli.core_dumps import forbid_core_dumps
from svcd.cli.errors import CommandError
from svcd.cli.export import export
from svcd.cli.http_client import tcp_agent, unix_socket_agent
from svcd.cli.merchant.payments import confirmations, pay_request, verify
from svcd.cli.merchant.webhooks import webhook
from svcd.cli.operator.backup import backup
from svcd.cli.operator.database import db, move, restored
from svcd.cli.operator.devnet import devnet
from svcd.cli.operator.key import key
from svcd.cli.operator.node import node
from svcd.cli.operator.peers import peers
from svcd.cli.operator.reload import merchants, reload_configuration
from svcd.cli.rendering import escape, property_table
from svcd.cli.session import DEFAULT_DATA_DIR, DEFAULT_URL, Runtime, Session
from svcd.cli.wallet.history import history
from svcd.cli.wallet.keys import wallet
from svcd.cli.wallet.page_check import page_check
from svcd.cli.wallet.refund import refund
from svcd.cli.wallet.send import pay_uri, send
from svcd.keyfile_errors import KeyfileError

PAGES: Final = Path(__file__).with_name("docs")
"""The pages of `svc help`: a link to docs/ in a clone, a folder with its pages in an installed svcd."""

T = TypeVar("T")


class ErrorPrintingGroup(click.Group):
    """A group that prints the failure of a command as one sentence and exits with status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; raises click.ClickException."""
        try:
            return super().invoke(ctx)
        except (CommandError, KeyfileError, RuleViolation) as error:
            raise click.ClickException(escape(str(error))) from error


@click.group(cls=ErrorPrintingGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--url",
    metavar="URL",
    default=DEFAULT_URL,
    envvar="SVCD_URL",
    show_envvar=True,
    show_default=True,
    callback=options.validated(options.url),
    help="The node to ask.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    default=DEFAULT_DATA_DIR,
    envvar="SVCD_DATA_DIR",
    show_envvar=True,
    show_default=True,
    help="The data directory of a node on this computer, for `svc node` and `svc db`.",
)
@click.version_option(package_name="svcd")
@click.pass_context
def svc(context: click.Context, url: str, data_dir: str) -> None:
    """Read the chain from a node, keep a wallet, watch for payments, and operate a node.

    Every command has --help with an example, and --json for programs. The exit status is 0 if the command succeeded,
    1 if it failed, and 2 if it was called incorrectly.

    \b
    Example:
      svc devnet
      svc status
      svc wallet new --network devnet
    """
    context.obj = Session(context.find_object(Runtime) or system_runtime(), url, data_dir)


def _pages() -> dict[str, Path]:
    """The pages of the documentation by topic."""
    return {page.stem: page for page in sorted(PAGES.glob("*.md"))}


def _topics(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """The topics that begin with what has been typed, for the shell."""
    return [topic for topic in _pages() if topic.startswith(typed)]


@click.command("help")
@click.argument("topic", required=False, shell_complete=_topics)
@click.pass_context
def show_help(context: click.Context, topic: str | None) -> None:
    """Show a page of the documentation, or list the TOPICs.

    \b
    Example:
      svc help
      svc help payments
    """
    pages = _pages()
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


for command in (status, block, balance, tx, export, pay_request, verify, confirmations, wallet, webhook):
    svc.add_command(command)
for command in (devnet, node, db, show_help):
    svc.add_command(command)
for command in (peers, backup, reload_configuration, merchants, key):
    node.add_command(command)
webhook.add_command(move)
webhook.add_command(restored)
for command in (send, pay_uri, refund, history, page_check):
    wallet.add_command(command)


def main() -> None:
    """Run ``svc`` and end the process with its exit status."""
    svc(prog_name="svc")


def system_runtime() -> Runtime:
    """The real network, randomness and terminal."""
    return Runtime(
        run=run_in_reactor,
        run_twistd=run_twistd,
        agent=tcp_agent,
        operator_agent=unix_socket_agent,
        random=os.urandom,
        environ=os.environ,
        stderr_is_terminal=sys.stderr.isatty,
        interactive=_is_interactive,
        forbid_core_dumps=forbid_core_dumps,
        terminal_width=_terminal_width,
    )


def run_in_reactor(work: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
    """Run ``work(reactor)`` to its end; raises what it raises, or click.Abort if a signal stops it by cancelling it."""
    results: list[T] = []
    failures: list[Exception] = []

    async def keep_outcome(reactor: Any) -> None:
        running = Deferred.fromCoroutine(work(reactor))
        ended: Deferred[None] = Deferred()

        def cancel() -> "Deferred[None]":
            # The connections are closed next: the work would report them as failures of the node.
            running.cancel()
            return ended

        reactor.addSystemEventTrigger("before", "shutdown", cancel)
        try:
            results.append(await running)
        except CancelledError:
            pass
        except Exception as error:
            failures.append(error)
        finally:
            ended.callback(None)

    # react() exits the process at the end, but the command still has to print its result.
    with suppress(SystemExit):
        react(keep_outcome)
    for failure in failures:
        raise failure
    if not results:
        raise click.Abort
    return results[0]


def run_twistd(arguments: Sequence[str]) -> None:
    """Run `twistd` with ``arguments`` in this process until it is stopped."""
    options = ServerOptions()  # type: ignore[no-untyped-call]
    options.parseOptions(arguments)  # type: ignore[no-untyped-call]
    runApp(options)  # type: ignore[no-untyped-call]


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
