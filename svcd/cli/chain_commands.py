"""`svc status`, `svc block`, `svc balance` and `svc tx`: reading the chain from a node."""

from collections.abc import Iterable, Iterator
from typing import Final

import click

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.units import format_coins
from svcd.cli import options
from svcd.cli.answers import ResponseObject, invalid_response
from svcd.cli.http_client import NodeClient
from svcd.cli.rendering import format_time, property_table
from svcd.cli.session import Session, check_names
from svcd.quantities import counted

ALONE: Final = "alone: makes its own chain; nothing compares it"
"""The state of such a node, in the words of its log and its pages."""


@click.command()
@options.node_option
@options.json_option
@click.pass_obj
def status(session: Session) -> None:
    """Show the node's network, height and sync state.

    \b
    Example:
      svc status
      svc status --url https://node.example.org
    """
    response = session.node().get("/rpc/status").object("status")
    check_names(response, session.networks)
    session.print_result(response, status_text(response))


@click.command(cls=options.NumericCommand)
@click.argument("height", callback=options.validated(options.integer(0)))
@options.node_option
@options.json_option
@click.pass_obj
def block(session: Session, height: int) -> None:
    """Show the block at HEIGHT and its transfers.

    The genesis block has height 0. With --json the whole block is printed.

    \b
    Example:
      svc block 120
      svc block 120 --json
    """
    response = session.node().get(f"/rpc/block/{height}").object("block")
    response.check(height=str(height))
    session.print_result(response, block_text(response, session.meant))


@click.command()
@click.argument("address", callback=options.address)
@options.nodes_option
@options.json_option
@click.pass_obj
def balance(session: Session, address: str, *, trustless: bool, minimum_work: int | None) -> None:
    """Show the balance of ADDRESS and how many transfers it has sent.

    An address that is not on the chain has a balance of 0. With --trustless no node is trusted: the balance is checked
    against the chain with the most work that the nodes given by --url can prove.

    \b
    Example:
      svc balance svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc
      svc balance "$(svc wallet address)"
      svc balance svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc --trustless
    """
    show_balance(session, address, trustless=trustless, minimum_work=minimum_work)


def show_balance(session: Session, address: str, *, trustless: bool, minimum_work: int | None) -> None:
    """Print the balance of an address, as the options of `svc balance` ask for it; raises CommandError."""
    options.check_one_node(session, trustless=trustless)
    if trustless:
        # Only here are Argon2 and the checks of proofs needed.
        from svcd.cli.proven_balance import show_proven_balance

        show_proven_balance(session, address, minimum_work or 0)
        return
    if minimum_work is not None:
        raise click.UsageError("--minimum-work needs --trustless")
    response = account(session.node(), address)
    session.print_result(response, account_text(response, session.unit))


@click.command()
@click.argument("txid", callback=options.validated(options.txid))
@options.node_option
@options.json_option
@click.pass_obj
def tx(session: Session, txid: str) -> None:
    """Show the transfer TXID: recipient, amount, reference, block and confirmations.

    A transfer is found once a block includes it; until then the command fails and says whether the transfer is pending.

    \b
    Example:
      svc tx 979f69a6855b36464938f51370d863aead9ccd677d84973b4628427d4bae7f70
    """
    response = transaction(session.node(), txid)
    transfer_of(response, txid, response.network(session.meant))
    session.print_result(response, transaction_text(response, session.unit))


def account(node: NodeClient, address: str) -> ResponseObject:
    """The account of an address as a node shows it; raises CommandError, even if it shows another one."""
    shown = node.get(f"/rpc/balance/{address}").object("account")
    shown.check(address=address)
    return shown


def transaction(node: NodeClient, txid: str) -> ResponseObject:
    """The transfer with a txid as a node shows it in a block; raises CommandError, even if it shows another one."""
    shown = node.get(f"/rpc/transaction/{txid}").object("transaction")
    shown.check(txid=txid)
    return shown


def transfer_of(record: ResponseObject, txid: str, params: NetworkParams) -> Transfer:
    """The transfer in a record, whose fields have this txid; raises CommandError.

    The txid proves sender, recipient, amount and reference: a node cannot name others.
    """
    transfer = record.transfer(params)
    if transfer.txid.hex() != txid:
        raise invalid_response(f"it returns the transfer {transfer.txid.hex()} for {txid}")
    return transfer


def _blocks_here(status: ResponseObject) -> list[tuple[str, str]]:
    # The specification does not ask a node to have it.
    first = status.number("pruneHeight") if "pruneHeight" in status else 0
    return [("blocks", f"only those from height {first} on")] if first else []


def status_text(status: ResponseObject) -> str:
    """A status object as text; raises CommandError."""
    rows = [
        ("network", f"{status.text('chainId')} (network id {status.count('networkId')})"),
        ("state", sync_state(status)),
        ("height", str(status.number("height"))),
        ("tip", status.text("hash")),
        *_blocks_here(status),
        ("slot", str(status.number("slot"))),
        ("node", status.text("nodeId")),
        ("version", f"{status.text('softwareVersion')} (protocol {status.text('protocolVersion')})"),
    ]
    if "endpoint" in status:
        rows.append(("endpoint", status.text("endpoint")))
    if "knownPeerCount" in status:
        rows.append(("peers", str(status.count("knownPeerCount"))))
    if "stateRoot" in status:
        rows.append(("state root", status.text("stateRoot")))
    rows.append(("time", format_time(status.number("time"))))
    return property_table(rows)


def is_alone(status: ResponseObject) -> bool:
    """Whether a node makes its own chain; the specification does not ask a node to say so."""
    return "alone" in status and status.flag("alone")


def sync_state(status: ResponseObject) -> str:
    """In what relation to the network a node is; raises CommandError."""
    if is_alone(status):
        return ALONE
    behind = status.number("syncLagBlocks") if "syncLagBlocks" in status else 0
    return f"{status.text('syncState')}, {counted(behind, 'block')} behind" if behind else status.text("syncState")


def account_text(account: ResponseObject, unit: str) -> str:
    """An account object as text, with its coins called ``unit``; raises CommandError."""
    nonce, pending = account.number("nonce"), account.number("pendingNonce")
    held = f"slot {account.number('heldSince')}" if "heldSince" in account else "none"
    return property_table(
        [
            ("address", account.text("address")),
            ("balance", format_coins(account.number("balance"), unit)),
            ("base units", str(account.number("balance"))),
            ("next nonce", str(nonce)),
            ("pending", f"{counted(pending - nonce, 'outgoing transfer')}"),
            ("held since", held),
        ]
    )


def transaction_text(record: ResponseObject, unit: str) -> str:
    """A transaction object as text, with its coins called ``unit``; raises CommandError."""
    payload = record.object("payload")
    reference = payload.text("paymentReference") if "paymentReference" in payload else "none"
    return property_table(
        [
            ("txid", record.text("txid")),
            ("recipient", payload.text("recipient")),
            ("amount", format_coins(payload.number("amount"), unit)),
            ("reference", reference),
            ("confirmations", str(record.count("confirmations"))),
            ("block", f"{record.number('blockHeight')}, {record.text('blockHash')}"),
            ("block time", format_time(record.number("blockTime"))),
            ("sender", record.text("senderAddress")),
            ("fee", format_coins(record.number("fee"), unit)),
            ("nonce", str(record.number("nonce"))),
            ("signed", format_time(record.number("timestamp"))),
        ]
    )


def block_text(block: ResponseObject, networks: Iterable[NetworkParams]) -> str:
    """A block object as text: a summary and its transfers; raises CommandError."""
    params = block.network(networks)
    transfers = [item.transfer(params) for item in block.objects("transactions")]
    slot = block.number("slot")
    rows = [
        ("block", str(block.number("height"))),
        ("hash", block.text("hash")),
        ("parent", block.text("parentHash")),
        ("confirmations", str(block.count("confirmations"))),
        ("time", f"{format_time(params.slot_time(slot))}, slot {slot}"),
        ("producer", _producer(block, params)),
        ("multiplier", f"{block.count('multiplier')} basis points"),
        ("transfers", str(len(transfers))),
    ]
    lines = [line for transfer in transfers for line in _transfer_lines(transfer, params)]
    return "\n".join([property_table(rows), *lines])


def _producer(block: ResponseObject, params: NetworkParams) -> str:
    key = bytes.fromhex(block.hash("producerPublicKey"))
    return encode_address(key_hash(key), params.address_prefix) if any(key) else "none (genesis)"


def _transfer_lines(transfer: Transfer, params: NetworkParams) -> Iterator[str]:
    sender, recipient = (encode_address(key, params.address_prefix) for key in (transfer.sender, transfer.recipient))
    reference = f" for {transfer.reference}" if transfer.reference else ""
    yield ""
    yield f"  {transfer.txid.hex()}"
    yield f"    {format_coins(transfer.amount, params.unit)} from {sender}"
    yield f"    to {recipient}{reference}, fee {format_coins(transfer.fee, params.unit)}"
