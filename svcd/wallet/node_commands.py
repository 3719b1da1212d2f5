"""`svc node …`: what an operator asks of a node, over the socket in its data directory."""

import sys
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import click

from svcd.chain.units import format_amount, parse_amount
from svcd.wallet import options, show
from svcd.wallet.answer import Answer
from svcd.wallet.client import Node
from svcd.wallet.failed import Failed, Refused
from svcd.wallet.session import Session

CHUNK: Final = 100
DEVNET_SECONDS: Final = 630.0
"""For making blocks: longer than the node takes to answer, with 503 at the latest."""
"""Blocks asked for at once: few enough to show progress, and to be made within the deadline of a request."""

T = TypeVar("T")


@click.group()
def node() -> None:
    """Look after a node on this computer, over the socket in its data directory.

    `mine`, `faucet` and `reorganise` work on devnet only.

    \b
    Example:
      svc node status --data-dir /var/lib/svcd
      svc node backup /var/lib/svcd/backup-1 --data-dir /var/lib/svcd
      svc node mine 10 --data-dir devnet
    """


@node.command()
@options.operator_option
@options.json_option
@click.pass_obj
def status(session: Session) -> None:
    """Show how the node fares, in more detail than it tells the public.

    \b
    Example:
      svc node status --data-dir /var/lib/svcd
    """

    async def ask(operator: Node) -> Answer:
        return (await operator.get("/operator/status")).object("status")

    answer = session.with_operator(ask)
    session.show(answer.members, show.report_text(answer))


@node.command(cls=options.WithNumbers)
@click.argument("blocks", callback=options.judged(options.integer(1)))
@click.option(
    "--producer",
    metavar="SEED",
    callback=options.judged(options.seed),
    help="Seed of the devnet key that signs the blocks and earns their rewards; the node's own if absent.",
)
@options.operator_option
@options.json_option
@click.pass_obj
def mine(session: Session, blocks: int, producer: str | None) -> None:
    """Make BLOCKS blocks at once, with the transfers that wait. Devnet only.

    \b
    Example:
      svc node mine 1
      svc node mine 1000 --data-dir devnet
    """
    body: dict[str, object] = {} if producer is None else {"producer": producer}
    hidden = session.as_json or blocks <= CHUNK or not session.outside.watched()
    hashes = session.with_operator(
        lambda operator: _mine(operator, blocks, body, hidden=hidden), seconds=DEVNET_SECONDS
    )
    session.show({"hashes": hashes}, f"made {show.counted(len(hashes), 'block')}; the tip is {show.plain(hashes[-1])}")


async def _mine(operator: Node, blocks: int, body: dict[str, object], *, hidden: bool) -> list[str]:
    hashes: list[str] = []
    with click.progressbar(length=blocks, label="Making blocks", file=sys.stderr, hidden=hidden) as bar:
        while len(hashes) < blocks:
            count = min(CHUNK, blocks - len(hashes))
            try:
                answer = await _on_devnet(operator.post("/operator/mine", {**body, "blocks": count}))
            except Failed as failed:
                if hashes:
                    raise Failed(f"{len(hashes)} of {blocks} blocks were made, then: {failed}") from None
                raise
            made = _hashes(answer)
            hashes += made
            bar.update(len(made))
    return hashes


@node.command(cls=options.WithNumbers)
@click.argument("recipient", callback=options.judged(options.address))
@click.argument("amount", callback=options.judged(parse_amount))
@options.operator_option
@options.json_option
@click.pass_obj
def faucet(session: Session, recipient: str, amount: int) -> None:
    """Send AMOUNT coins of the public faucet to RECIPIENT; the next block holds the transfer. Devnet only.

    \b
    Example:
      svc node faucet "$(svc wallet address)" 100
      svc node mine 1
    """
    body = {"recipient": recipient, "amount": format_amount(amount)}
    answer = session.with_operator(lambda operator: _on_devnet(operator.post("/operator/faucet", body)))
    txid = answer.text("txid")
    session.show(
        {"txid": txid},
        show.table([("txid", txid), ("amount", show.coins(amount)), ("recipient", recipient)]),
    )


@node.command(cls=options.WithNumbers)
@click.argument("depth", callback=options.judged(options.integer(1)))
@click.option("--drop-transactions", is_flag=True, help="Forget the transfers of the replaced blocks as well.")
@options.operator_option
@options.json_option
@click.pass_obj
def reorganise(session: Session, depth: int, drop_transactions: bool) -> None:
    """Replace the newest DEPTH blocks by DEPTH + 1 empty ones. Devnet only.

    This shows a shop what happens when the chain changes its mind. The transfers of the replaced blocks wait
    again, and the next block may hold them; with --drop-transactions they are gone.

    \b
    Example:
      svc node reorganise 3
    """
    body = {"depth": depth, "dropTransactions": drop_transactions}
    answer = session.with_operator(
        lambda operator: _on_devnet(operator.post("/operator/reorganise", body)), seconds=DEVNET_SECONDS
    )
    hashes = _hashes(answer)
    session.show(
        {"hashes": hashes},
        f"replaced {show.counted(depth, 'block')} by {len(hashes)} empty ones; the tip is {show.plain(hashes[-1])}",
    )


async def _on_devnet(asking: Coroutine[Any, Any, T]) -> T:
    try:
        return await asking
    except Refused as refused:
        if refused.status == 404:
            raise Failed("the node does not take this order: only a node on devnet does") from None
        raise


def _hashes(answer: Answer) -> list[str]:
    hashes = answer.texts("hashes")
    if not hashes:
        raise Failed("the node answers that it made no blocks")
    return hashes
