"""`svc node …`: the operator's requests to a running node, over the socket in its data directory."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

import click

from svcd.chain.params import DEVNET
from svcd.chain.units import format_amount, format_coins, parse_amount
from svcd.cli import options
from svcd.cli.answers import ResponseObject
from svcd.cli.chain_commands import is_alone, sync_state
from svcd.cli.errors import CommandError
from svcd.cli.http_client import ask_devnet
from svcd.cli.rendering import format_time, property_table
from svcd.cli.session import Session
from svcd.quantities import counted, duration

CHUNK: Final = 32
"""Blocks per request: few enough to show progress and to fit into the timeout."""
PROGRESS_SECONDS: Final = 10.0
"""The time between two lines about progress, where there is no terminal for a bar."""
_DIGITS: Final = re.compile("[0-9]{1,20}")
DEVNET_TIMEOUT: Final = 630.0
"""Seconds; longer than the node takes to respond, with 503 at the latest."""


@click.command()
@options.operator_option
@options.json_option
@click.pass_obj
def status(session: Session) -> None:
    """Show the status of the node, in more detail than its public status.

    \b
    Example:
      svc node status --data-dir /var/lib/svcd
    """
    response = session.operator().get("/operator/status").object("status")
    alone = {"syncState": sync_state(response), "alone": None} if is_alone(response) else {}
    session.print_result(response, status_text({**response.shown(), **alone}))


@click.command(cls=options.NumericCommand)
@click.argument("blocks", callback=options.validated(options.integer(1)))
@click.option(
    "--producer",
    metavar="SEED",
    callback=options.validated(options.seed),
    help="Seed of the devnet key that signs the blocks and earns their rewards.  [default: the node's key]",
)
@options.operator_option
@options.json_option
@click.pass_obj
def mine(session: Session, blocks: int, producer: str | None) -> None:
    """Produce BLOCKS blocks at once, which include the pending transfers. Devnet only.

    \b
    Example:
      svc node mine 1
      svc node mine 1000 --data-dir devnet
    """
    body: dict[str, object] = {} if producer is None else {"producer": producer}
    hashes = _mine(session, blocks, body)
    session.print_result({"hashes": hashes}, f"made {counted(len(hashes), 'block')}; the tip is {hashes[-1]}")


def _mine(session: Session, blocks: int, body: dict[str, object]) -> list[str]:
    operator, clock = session.operator(timeout=DEVNET_TIMEOUT), session.runtime.clock
    hashes: list[str] = []
    told = clock.monotonic()
    with session.progress_bar(blocks, "Making blocks", hidden=blocks <= CHUNK) as bar:
        while len(hashes) < blocks:
            count = min(CHUNK, blocks - len(hashes))
            try:
                # So that the first block is so early that all of them fit before the present.
                following = blocks - len(hashes) - count
                response = ask_devnet(operator, "/operator/mine", {**body, "blocks": count, "following": following})
            except CommandError as error:
                if hashes:
                    raise CommandError(f"{len(hashes):,} of {blocks:,} blocks were made, then: {error}") from None
                raise
            made = _hashes(response, count)
            hashes += made
            bar.update(len(made))
            if not (session.as_json or session.shows_progress) and clock.monotonic() - told >= PROGRESS_SECONDS:
                told = clock.monotonic()
                click.echo(f"made {len(hashes):,} of {blocks:,} blocks", err=True)
    return hashes


@click.command(cls=options.NumericCommand)
@click.argument("recipient", callback=options.address)
@click.argument("amount", callback=options.validated(parse_amount))
@options.operator_option
@options.json_option
@click.pass_obj
def faucet(session: Session, recipient: str, amount: int) -> None:
    """Send AMOUNT coins from the public faucet to RECIPIENT, in the next block. Devnet only.

    \b
    Example:
      svc node faucet "$(svc wallet address)" 100
      svc node mine 1
    """
    body = {"recipient": recipient, "amount": format_amount(amount)}
    response = ask_devnet(session.operator(), "/operator/faucet", body)
    txid = response.hash("txid")
    rows = [("txid", txid), ("amount", format_coins(amount, DEVNET.unit)), ("recipient", recipient)]
    session.print_result({"txid": txid}, property_table(rows))


@click.command(cls=options.NumericCommand)
@click.argument("depth", callback=options.validated(options.integer(1)))
@click.option("--drop-transactions", is_flag=True, help="Drop the transfers of the replaced blocks too.")
@options.operator_option
@options.json_option
@click.pass_obj
def reorganise(session: Session, depth: int, drop_transactions: bool) -> None:
    """Replace the newest DEPTH blocks by DEPTH + 1 empty ones. Devnet only.

    This shows a shop what happens in a chain reorganisation. The transfers of the replaced blocks are pending again,
    and the next block may include them; with --drop-transactions they are gone.

    \b
    Example:
      svc node reorganise 3
    """
    body = {"depth": depth, "dropTransactions": drop_transactions}
    response = ask_devnet(session.operator(timeout=DEVNET_TIMEOUT), "/operator/reorganise", body)
    hashes = _hashes(response, depth + 1)
    session.print_result(
        {"hashes": hashes},
        f"replaced {counted(depth, 'block')} by {len(hashes):,} empty ones; the tip is {hashes[-1]}",
    )


def _hashes(response: ResponseObject, count: int) -> list[str]:
    hashes = response.texts("hashes")
    if len(hashes) != count:
        raise CommandError(f"the node answers that it made {counted(len(hashes), 'block')} of {count:,}")
    return hashes


@click.command()
@click.argument("state", type=click.Choice(["on", "off"]))
@options.operator_option
@options.json_option
@click.pass_obj
def participation(session: Session, state: str) -> None:
    """Turn block production of a running node on or off.

    This lasts until the node is restarted: then `[participation] enabled` in its configuration applies.

    \b
    Example:
      svc node participation off
      svc node participation on --data-dir /var/lib/svcd
    """
    body = {"enabled": state == "on"}
    response = session.operator().post("/operator/participation", body)
    enabled = response.flag("enabled")
    if enabled is not (state == "on"):
        raise CommandError(f"the node does not confirm that participation is {state}")
    waits = f", but not yet: {response.text('waitsFor')}" if "waitsFor" in response else ""
    text = f"the node makes blocks{waits}" if enabled else "the node makes no blocks"
    session.print_result({"enabled": enabled, "waitsFor": response.verbatim("waitsFor")}, text)


@click.command()
@options.operator_option
@options.json_option
@click.pass_obj
def limits(session: Session) -> None:
    """Show every limit of a running node, the setting that changes it, and the attack that it prevents.

    \b
    Example:
      svc node limits
    """
    response = session.operator().get("/operator/limits")
    text = "\n\n".join(_limit_text(limit) for limit in response.objects("limits"))
    session.print_result({"limits": response.verbatim("limits")}, text)


def _limit_text(limit: ResponseObject) -> str:
    value = limit.quantity("value")
    setting = f", set by {limit.text('setting')}" if "setting" in limit else ""
    shown = "none" if value == 0 else f"{value} {limit.text('unit')}"
    return f"{limit.text('name')}: {shown}{setting}\n  stops: {limit.text('stops')}"


_FIRST: Final = "syncState behind alarms height hash time participation peers mempool webhooks".split()
"""What people look for first."""
_LABELS: Final = {
    "syncState": "state",
    "hash": "tip",
    "secondsLeft": "time left",
    "secondsExpected": "time expected",
    "leaseAgeSeconds": "lease age",
}
_TIMES: Final = frozenset(("time", "oldestWaitingSince"))
_DURATIONS: Final = frozenset(("secondsLeft", "secondsExpected", "leaseAgeSeconds"))


def status_text(members: Mapping[str, object]) -> str:
    """The visible members of an operator's status for people: the important ones first, times as times."""
    shown = {name: value for name, value in members.items() if value is not None}
    order = [name for name in _FIRST if name in shown]
    return object_text({name: shown[name] for name in dict.fromkeys([*order, *shown])})


def object_text(members: Mapping[str, object]) -> str:
    """Visible members of an object as indented text; names such as ``syncState`` become ``sync state``."""
    return "\n".join(_object_lines(members))


def _object_lines(members: Mapping[str, object]) -> Iterator[str]:
    width = max((len(_label(name)) for name, value in members.items() if not _is_nested(value)), default=0)
    for name, value in members.items():
        if _is_nested(value):
            yield f"{_label(name)}:"
            yield from (f"  {line}" for line in _value_lines(value))
        else:
            yield f"{_label(name):<{width}}  {_known(name, value)}"


def _value_lines(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield from _object_lines(value)
    elif isinstance(value, list) and value:
        for item in value:
            prefix = "- "
            for line in _value_lines(item):
                yield prefix + line
                prefix = "  "
    else:
        yield _scalar(value)


def _known(name: str, value: object) -> str:
    """A time or a duration, by the name of its member, or any other value."""
    if name in _TIMES and isinstance(value, str) and _DIGITS.fullmatch(value):
        return format_time(int(value))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return duration(cast(float, value)) if name in _DURATIONS and is_number else _scalar(value)


def _is_nested(value: object) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value in ([], {}) else str(value)


def _label(name: str) -> str:
    return _LABELS.get(name) or "".join(f" {c.lower()}" if c.isupper() else c for c in name)
