"""The command ``svc``: a tree of commands, and how their failures are told."""

from typing import Any

import click

from svcd.chain.errors import RuleViolation
from svcd.wallet import options
from svcd.wallet.backup_commands import backup
from svcd.wallet.chain_commands import balance, block, status, tx
from svcd.wallet.failed import Failed
from svcd.wallet.history_commands import history
from svcd.wallet.node_commands import node
from svcd.wallet.participation_commands import limits, participation
from svcd.wallet.payment_commands import pay_request, verify
from svcd.wallet.peer_commands import peers
from svcd.wallet.running import outside
from svcd.wallet.session import DEFAULT_DATA_DIR, DEFAULT_URL, Outside, Session
from svcd.wallet.show import plain
from svcd.wallet.spending_commands import pay_uri, send
from svcd.wallet.wallet_commands import wallet
from svcd.wallet.webhook_commands import webhook


class Sentences(click.Group):
    """A group whose commands may fail: the reason is printed as one sentence, and the exit status is 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; raises click.ClickException."""
        try:
            return super().invoke(ctx)
        except (Failed, RuleViolation) as failure:
            raise click.ClickException(plain(str(failure))) from failure


@click.group(cls=Sentences, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--url",
    metavar="URL",
    default=DEFAULT_URL,
    envvar="SVCD_URL",
    show_envvar=True,
    show_default=True,
    callback=options.judged(options.url),
    help="The node to ask.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    default=DEFAULT_DATA_DIR,
    envvar="SVCD_DATA_DIR",
    show_envvar=True,
    show_default=True,
    help="The data directory of a node on this computer, for `svc node`.",
)
@click.version_option(package_name="svcd")
@click.pass_context
def svc(context: click.Context, url: str, data_dir: str) -> None:
    """Read the chain from a node, keep a wallet, watch for payments, and look after a node.

    Every command has --help with an example, and --json for programs. The exit status is 0 when the command did what
    it was asked, 1 when it failed and 2 when it was called wrongly.

    \b
    Example:
      svc status
      svc wallet new --network devnet
      svc node faucet "$(svc wallet address)" 100 --data-dir devnet
    """
    given = context.find_object(Outside)
    context.obj = Session(given or outside(), url, data_dir)


for command in (status, block, balance, tx, pay_request, verify, wallet, webhook, node):
    svc.add_command(command)
node.add_command(peers)
node.add_command(backup)
node.add_command(participation)
node.add_command(limits)
for command in (send, pay_uri, history):
    wallet.add_command(command)
