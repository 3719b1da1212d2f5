"""`svc status`, `svc block`, `svc balance` and `svc tx`: reading the chain from a node."""

import click

from svcd.wallet import options, show
from svcd.wallet.session import Session


@click.command()
@options.node_option
@options.json_option
@click.pass_obj
def status(session: Session) -> None:
    """Show which network the node is on and how far it has come.

    \b
    Example:
      svc status
      svc status --url https://node.example.org
    """
    answer = session.ask("/rpc/status", "status")
    session.show(answer.members, show.status_text(answer))


@click.command(cls=options.WithNumbers)
@click.argument("height", callback=options.judged(options.integer(0)))
@options.node_option
@options.json_option
@click.pass_obj
def block(session: Session, height: int) -> None:
    """Show the block at HEIGHT and the transfers in it.

    The first block, the genesis, has height 0. With --json the block comes whole.

    \b
    Example:
      svc block 120
      svc block 120 --json
    """
    answer = session.ask(f"/rpc/block/{height}", "block")
    session.show(answer.members, show.block_text(answer))


@click.command()
@click.argument("address", callback=options.judged(options.address))
@options.node_option
@options.json_option
@click.pass_obj
def balance(session: Session, address: str) -> None:
    """Show what the account of ADDRESS holds and how many transfers it has sent.

    An address that the chain has never seen has a balance of 0.

    \b
    Example:
      svc balance svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc
      svc balance "$(svc wallet address)"
    """
    answer = session.ask(f"/rpc/balance/{address}", "account")
    session.show(answer.members, show.account_text(answer))


@click.command()
@click.argument("txid", callback=options.judged(options.txid))
@options.node_option
@options.json_option
@click.pass_obj
def tx(session: Session, txid: str) -> None:
    """Show the transfer TXID: recipient, amount, reference, block and confirmations.

    A transfer is found once a block holds it; until then the command fails and says whether it waits.

    \b
    Example:
      svc tx 5194ff917fb80a356d55af48ff836e54ef70a163d0dae402e19afa384e29f946
    """
    answer = session.ask(f"/rpc/transaction/{txid}", "transaction")
    session.show(answer.members, show.transaction_text(answer))
