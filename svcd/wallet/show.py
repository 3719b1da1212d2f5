"""Answers as text for people: functions of values, so that they can be read and tested without a node.

Whatever a node says is hostile until shown: control and other non-ASCII characters come out as escapes.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from svcd.chain.address import encode_address, key_hash
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.chain.units import format_amount
from svcd.wallet.answer import Answer, wrong

Rows = Sequence[tuple[str, str]]

_LAST_MOMENT: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the last one that datetime knows."""


def plain(text: str) -> str:
    """``text`` in printable ASCII; everything else is escaped, so that no answer can drive a terminal."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode("ascii") for c in text)


def table(rows: Rows) -> str:
    """Names and values in two columns."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{plain(name):<{width}}  {plain(value)}".rstrip() for name, value in rows)


def coins(units: int) -> str:
    """An amount of base units in words: ``"25 coins"``."""
    text = format_amount(units)
    return "1 coin" if text == "1" else f"{text} coins"


def counted(number: int, thing: str) -> str:
    """So many of something: ``"1 block"``, ``"2 blocks"``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def moment(milliseconds: int) -> str:
    """A Unix time in UTC, to the second."""
    if milliseconds > _LAST_MOMENT:
        return f"{milliseconds} ms after 1970-01-01 00:00:00 UTC"
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def status_text(status: Answer) -> str:
    """What `svc status` says; raises Failed."""
    rows = [
        ("network", f"{status.text('chainId')} (network id {status.count('networkId')})"),
        ("state", _sync_state(status)),
        ("height", str(status.number("height"))),
        ("tip", status.text("hash")),
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
    rows.append(("time", moment(status.number("time"))))
    return table(rows)


def _sync_state(status: Answer) -> str:
    behind = status.number("syncLagBlocks") if "syncLagBlocks" in status else 0
    return f"{status.text('syncState')}, {counted(behind, 'block')} behind" if behind else status.text("syncState")


def account_text(account: Answer) -> str:
    """What `svc balance` says; raises Failed."""
    nonce, pending = account.number("nonce"), account.number("pendingNonce")
    held = f"slot {account.number('heldSince')}" if "heldSince" in account else "none"
    return table(
        [
            ("address", account.text("address")),
            ("balance", coins(account.number("balance"))),
            ("base units", str(account.number("balance"))),
            ("next nonce", str(nonce)),
            ("waiting", f"{counted(pending - nonce, 'transfer')} from here in no block yet"),
            ("held since", held),
        ]
    )


def transaction_text(record: Answer) -> str:
    """What `svc tx` says; raises Failed."""
    payload = record.object("payload")
    reference = payload.text("paymentReference") if "paymentReference" in payload else "none"
    return table(
        [
            ("txid", record.text("txid")),
            ("recipient", payload.text("recipient")),
            ("amount", coins(payload.number("amount"))),
            ("reference", reference),
            ("confirmations", str(record.count("confirmations"))),
            ("block", f"{record.number('blockHeight')}, {record.text('blockHash')}"),
            ("block time", moment(record.number("blockTime"))),
            ("sender", record.text("senderAddress")),
            ("fee", coins(record.number("fee"))),
            ("nonce", str(record.number("nonce"))),
            ("signed", moment(record.number("timestamp"))),
        ]
    )


def block_text(block: Answer) -> str:
    """What `svc block` says: a summary and the transfers; raises Failed."""
    params = _network(block)
    transfers = [_transfer(item, params) for item in block.objects("transactions")]
    slot = block.number("slot")
    rows = [
        ("block", str(block.number("height"))),
        ("hash", block.text("hash")),
        ("parent", block.text("parentHash")),
        ("confirmations", str(block.count("confirmations"))),
        ("time", f"{moment(params.slot_time(slot))}, slot {slot}"),
        ("producer", _producer(block, params)),
        ("multiplier", f"{block.count('multiplier')} basis points"),
        ("transfers", str(len(transfers))),
    ]
    return "\n".join([table(rows), *(line for transfer in transfers for line in _transfer_lines(transfer, params))])


def _network(block: Answer) -> NetworkParams:
    number = block.count("networkId")
    for params in NETWORKS.values():
        if params.network_id == number:
            return params
    raise wrong(f"the block is of the network {number}, which svc does not know")


def _producer(block: Answer, params: NetworkParams) -> str:
    try:
        key = bytes.fromhex(block.text("producerPublicKey"))
    except ValueError:
        raise wrong("block.producerPublicKey must be hex") from None
    return encode_address(key_hash(key), params.address_prefix) if any(key) else "nobody: it is the genesis"


def _transfer(item: Answer, params: NetworkParams) -> Transfer:
    try:
        return parse_transfer(dict(item.members), params)
    except RuleViolation as violation:
        raise wrong(f"{item.name}: {violation.detail}") from None


def _transfer_lines(transfer: Transfer, params: NetworkParams) -> Iterator[str]:
    sender, recipient = (encode_address(key, params.address_prefix) for key in (transfer.sender, transfer.recipient))
    reference = f" for {transfer.reference}" if transfer.reference else ""
    yield ""
    yield f"  {transfer.txid.hex()}"
    yield f"    {coins(transfer.amount)} from {sender}"
    yield f"    to {recipient}{reference}, fee {coins(transfer.fee)}"


def report_text(report: Answer) -> str:
    """Any object, with its objects and arrays indented; names such as ``syncState`` become ``sync state``."""
    return "\n".join(_members(report.members))


def _members(members: Mapping[str, object]) -> Iterator[str]:
    width = max((len(_words(name)) for name, value in members.items() if not _has_parts(value)), default=0)
    for name, value in members.items():
        if _has_parts(value):
            yield f"{_words(name)}:"
            yield from (f"  {line}" for line in _lines_of(value))
        else:
            yield f"{_words(name):<{width}}  {_simple(value)}"


def _lines_of(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield from _members(value)
    elif isinstance(value, list) and value:
        for item in value:
            mark = "- "
            for line in _lines_of(item):
                yield mark + line
                mark = "  "
    else:
        yield _simple(value)


def _has_parts(value: object) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _simple(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value in ([], {}) else plain(str(value))


def _words(name: str) -> str:
    return plain("".join(f" {c.lower()}" if c.isupper() else c for c in name))
