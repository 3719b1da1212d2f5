"""The command ``svc``: the tree of commands, how their failures are printed, and the real network and terminal."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.cli import options
from svcd.cli.clock import SystemClock
from svcd.cli.connections import connect
from svcd.cli.core_dumps import forbid_core_dumps
from svcd.cli.errors import CommandError
from svcd.cli.lazy_commands import LazyCommand, LazyGroup
from svcd.cli.rendering import property_table
from svcd.cli.session import DEFAULT_DATA_DIR, DEFAULT_URL, Runtime, Session
from svcd.cli.standard_output import checked_output
from svcd.keyfile_errors import KeyfileError, UnknownNetwork
from svcd.visible_text import visible

PAGES: Final = Path(__file__).with_name("docs")
"""The pages of `svc help`: a link to docs/ in a clone, a folder with its pages in an installed svcd."""

T = TypeVar("T")


class ErrorPrintingGroup(LazyGroup):
    """A group that prints the failure of a command as one sentence and exits with status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; raises click.ClickException."""
        try:
            return super().invoke(ctx)
        except UnknownNetwork as error:
            advice = "name the file of that network with --network or SVC_NETWORK"
            raise click.ClickException(f"{visible(str(error))}: {advice}") from error
        except (CommandError, KeyfileError, RuleViolation) as error:
            raise click.ClickException(visible(str(error))) from error


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
@click.option(
    "--network",
    metavar="NETWORK",
    type=options.NETWORK,
    envvar="SVC_NETWORK",
    show_envvar=True,
    help="mainnet, devnet, or the file of another network.",
)
@click.version_option(package_name="svcd")
@click.pass_context
def svc(context: click.Context, url: str, data_dir: str, network: NetworkParams | None) -> None:
    """Read the chain from a node, keep a wallet, watch for payments, and operate a node.

    Every command has --help with an example, and all but `svc devnet` and `svc help` have --json for programs. The exit
    status is 0 if the command succeeded, 1 if it failed, and 2 if it was called incorrectly.

    \b
    Example:
      svc devnet
      svc status
      svc wallet new --network devnet
    """
    runtime = context.find_object(Runtime) or system_runtime()
    context.obj = Session(runtime, url, data_dir=data_dir, network=network)


@svc.group(cls=LazyGroup)
@click.pass_obj
def wallet(session: Session) -> None:
    """Keep a key in a file on this computer, and send coins with it.

    The key is encrypted with a password and never leaves this computer. Nobody can restore it for you: keep the 24
    words that it is derived from, or a copy of the file and the password.

    \b
    Example:
      svc wallet new --network devnet
      svc wallet address
      svc wallet send svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc 2.5 --reference order-17
      svc wallet balance
      svc wallet history
    """
    session.runtime.forbid_core_dumps()


@svc.group(cls=LazyGroup)
def webhook() -> None:
    """Have a node notify a shop of payments, and receive its callbacks.

    A watch is for one order: the node calls a URL whenever the state of the order's payment changes. All commands
    except `listen` need a token that the node has for the merchant: `show`, `watch`, `list` and `events` the
    management token or the read-only token, the others the management token.

    \b
    Example:
      svc webhook listen --secret-file devnet/signing-secret
      svc webhook show order-17 --token-file devnet/manage-token
    """


@svc.group(cls=LazyGroup)
def node() -> None:
    """Operate a node on this computer, over the socket in its data directory.

    `mine`, `faucet` and `reorganise` work on devnet only.

    \b
    Example:
      svc node status --data-dir /var/lib/svcd
      svc node backup /var/lib/svcd/backup-1 --data-dir /var/lib/svcd
      svc node mine 10 --data-dir devnet
    """


@svc.group("network", cls=LazyGroup)
def network_group() -> None:
    """Create the file of a network of your own, show the rules of a network, and invite members.

    \b
    Example:
      svc network new festival
      svc network show festival.toml
      svc network invite festival.toml
    """


@svc.group(cls=LazyGroup)
def db() -> None:
    """Check, verify, rebuild and compact the databases of a stopped node.

    The exit status is 0 if there is no problem, 1 if there is one, and 2 if the command was called incorrectly.

    \b
    Example:
      svc db check data
      svc db rebuild data
    """


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


_COMMANDS: Final[Mapping[click.Group, Mapping[str, tuple[str, str]]]] = {
    svc: {
        "status": ("chain_commands:status", "Show the node's network, height and sync state."),
        "block": ("chain_commands:block", "Show the block at HEIGHT and its transfers."),
        "balance": ("chain_commands:balance", "Show the balance of ADDRESS and how many transfers it has sent."),
        "tx": ("chain_commands:tx", "Show the transfer TXID: recipient, amount, reference, block and confirmations."),
        "export": (
            "export:export",
            "Print every change of the balance of ADDRESS, oldest first: transfers, fees, and rewards of its blocks.",
        ),
        "pay-request": (
            "merchant.payments:pay_request",
            "Create a request to pay AMOUNT coins to RECIPIENT, to be given to the payer.",
        ),
        "verify": (
            "merchant.payments:verify",
            "Show whether AMOUNT coins were paid to RECIPIENT under REFERENCE, and the confirmations of that payment.",
        ),
        "confirmations": (
            "merchant.payments:confirmations",
            "Show how many confirmations make undoing a payment of AMOUNT coins cost more than it is worth.",
        ),
        "devnet": (
            "operator.devnet:devnet",
            "Run a private chain for tests until Ctrl-C: one node, which makes a block when `svc node mine` asks for "
            "it.",
        ),
    },
    wallet: {
        "new": ("wallet.keys:new", "Generate 24 random words, derive a key from them, and write the key to a keyfile."),
        "import": (
            "wallet.keys:import_",
            "Create a keyfile from 24 words, from a node's key, or from a keyfile of the browser wallet or another "
            "computer.",
        ),
        "export": (
            "wallet.keys:export",
            "Print the keyfile, or copy it, to open the wallet elsewhere with the same password.",
        ),
        "address": ("wallet.keys:address", "Print the address of the wallet."),
        "send": ("wallet.send:send", "Send AMOUNT coins to RECIPIENT."),
        "pay": ("wallet.send:pay_uri", "Pay a payment URI or the link to a checkout."),
        "refund": ("wallet.refund:refund", "Send the payment TXID back to its sender."),
        "balance": (
            "wallet.history:balance",
            "Show the balance of the wallet and how many transfers it has sent, as `svc balance` does for any address.",
        ),
        "history": (
            "wallet.history:history",
            "Show what the wallet sent and received, newest first, and its pending transfers.",
        ),
        "page-check": (
            "wallet.page_check:page_check",
            "Compare the wallet's page at URL, and its files, with the hashes that a release lists.",
        ),
    },
    webhook: {
        "register": (
            "merchant.webhooks:register",
            "Watch for the payment of AMOUNT coins to RECIPIENT under REFERENCE.",
        ),
        "show": (
            "merchant.webhooks:show",
            "Show the watch of ORDER, its history and what comes next; ORDER is a reference or the id of a watch.",
        ),
        "watch": (
            "merchant.webhooks:follow",
            "Print each new event of the watches of the given ORDERs, one a line, until all of them have ended.",
        ),
        "cancel": ("merchant.webhooks:cancel", "End the watch ID; its undelivered events are dropped."),
        "list": ("merchant.webhooks:list_watches", "List the watches of the merchant, newest first."),
        "events": (
            "merchant.webhooks:list_events",
            "List the newest events of the watch of ORDER and how they were delivered, newest first.",
        ),
        "redeliver": (
            "merchant.webhooks:redeliver",
            "Send the event EVENT of the watch ID again, with the same id and body.",
        ),
        "trigger": (
            "merchant.webhooks:trigger",
            "Make an EVENT happen, and fail unless the receiver at the callback URL answers it with 2xx.",
        ),
        "listen": (
            "merchant.listener:listen",
            "Receive callbacks, verify their signatures, and print one line for each event, until Ctrl-C.",
        ),
        "move": ("operator.database:move", "Move the webhooks of a stopped node in DATA_DIR to PostgreSQL, or back."),
        "restored": (
            "operator.database:restored",
            "Tell the nodes that the PostgreSQL at URI was restored from a copy of its files.",
        ),
    },
    node: {
        "status": ("operator.node:status", "Show the status of the node, in more detail than its public status."),
        "mine": ("operator.node:mine", "Produce BLOCKS blocks at once, which include the pending transfers."),
        "faucet": ("operator.node:faucet", "Send AMOUNT coins from the public faucet to RECIPIENT, in the next block."),
        "reorganise": ("operator.node:reorganise", "Replace the newest DEPTH blocks by DEPTH + 1 empty ones."),
        "participation": ("operator.node:participation", "Turn block production of a running node on or off."),
        "limits": (
            "operator.node:limits",
            "Show every limit of a running node, the setting that changes it, and the attack that it prevents.",
        ),
        "peers": ("operator.peers:peers", "Show the peers and bans of the node, or change them."),
        "backup": ("operator.backup:backup", "Copy the databases of a running node into the new folder FOLDER."),
        "reload": (
            "operator.reload:reload_configuration",
            "Read the configuration and the certificates again, and apply what can change without a restart.",
        ),
        "merchants": ("operator.reload:merchants", "Change the merchants of the node without a restart."),
        "key": (
            "operator.key:key",
            "Make, encrypt, import or show the key that signs a node's blocks and receives their rewards.",
        ),
    },
    network_group: {
        "new": ("network:new", "Write the rules of the new network NAME to the file NAME.toml."),
        "show": ("network:show", "Show the rules of NETWORK: its hashes, its money over the years, and its producers."),
        "invite": ("invite:invite", "Print an invitation to the network of FILE, to be sent by mail or chat."),
    },
    db: {
        "check": (
            "operator.database:check",
            "Check the databases in DATA_DIR: the files, every block, all derived data, and the keys beside them.",
        ),
        "verify": (
            "operator.database:verify",
            "Verify the participation work of the chain in DATA_DIR again, on all cores.",
        ),
        "compact": (
            "operator.database:compact",
            "Give the free space in the chain database in DATA_DIR back to the system.",
        ),
        "rebuild": ("operator.database:rebuild_", "Rebuild the chain database in DATA_DIR from its blocks."),
    },
}
"""By group, its commands: where each is defined, and the first sentence of its help, for the help of the group."""

svc.add_command(show_help)
for group, commands in _COMMANDS.items():
    for name, (path, summary) in commands.items():
        group.add_command(LazyCommand(name, path, summary))


def main() -> None:
    """Run ``svc`` and end the process with its exit status."""
    with checked_output():
        svc(prog_name="svc")


def system_runtime() -> Runtime:
    """The real network, clocks, randomness and terminal."""
    return Runtime(
        connect=connect,
        clock=SystemClock(),
        run=_run_in_reactor,
        run_twistd=_run_twistd,
        random=os.urandom,
        hash_rate=_hash_rate,
        environ=os.environ,
        stderr_is_terminal=sys.stderr.isatty,
        interactive=_is_interactive,
        forbid_core_dumps=forbid_core_dumps,
        terminal_width=_terminal_width,
    )


def _run_in_reactor(work: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
    # Only the commands that serve need Twisted, and importing it takes longer than most commands.
    from svcd.cli.reactor import run_in_reactor

    return run_in_reactor(work)


def _run_twistd(arguments: Sequence[str]) -> None:
    from svcd.cli.reactor import run_twistd

    run_twistd(arguments)


def _hash_rate(memory_kib: int) -> float:
    from svcd.cli.hash_rate import hash_rate

    return hash_rate(memory_kib, time.perf_counter)


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
