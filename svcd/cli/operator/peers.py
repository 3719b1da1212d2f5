"""`svc node peers …`: the peers and bans of a running node, over the socket in its data directory."""

import re
from collections.abc import Iterator
from typing import Final

import click

from svcd.cli import options
from svcd.cli.answers import ResponseObject
from svcd.cli.rendering import format_time
from svcd.cli.session import Session
from svcd.quantities import counted
from svcd.visible_text import visible

MAX_SECONDS: Final = 10 * 365 * 24 * 3_600
_WORK: Final = re.compile("[0-9]{1,80}")
_KINDS: Final = {"node": "node", "endpoint": "endpoint", "address": "address", "posts": "posts from"}


def _ban_target(text: str) -> dict[str, object]:
    """The request field for an endpoint, a node id or an IP address; raises ValueError."""
    if text.lower().startswith(("http://", "https://")):
        return {"endpoint": text}
    if text.startswith("svcnode_"):
        return {"nodeId": text}
    if text and all(character in "0123456789abcdefABCDEF.:/" for character in text):
        return {"address": text}
    raise ValueError("give an endpoint (http://…), a node id (svcnode_…) or an IP address")


@click.group(invoke_without_command=True)
@options.operator_option
@options.json_option
@click.pass_context
def peers(context: click.Context) -> None:
    """Show the peers and bans of the node, or change them.

    Without a further command it lists every peer, with the IP address behind its endpoint and the state of its chain,
    and every ban, with its end and reason. The node chose its outbound peers and synchronises from them; inbound peers
    connected to it.

    \b
    Example:
      svc node peers
      svc node peers add http://192.0.2.1:8645
      svc node peers ban 192.0.2.7 --seconds 86400
    """
    if context.invoked_subcommand is None:
        session: Session = context.obj
        response = session.operator().get("/operator/peers")
        text = peers_text(response)
        session.print_result({name: response.verbatim(name) for name in ("peers", "bans")}, text)


@peers.command()
@click.argument("endpoint")
@options.operator_option
@options.json_option
@click.pass_obj
def add(session: Session, endpoint: str) -> None:
    """Add the peer at ENDPOINT to the node's address book, and connect to it now.

    If the connection fails, the node keeps the endpoint and tries again later. To have an endpoint known at every
    start, add it to `[p2p] seeds`.

    \b
    Example:
      svc node peers add http://192.0.2.1:8645
      svc node peers add https://node.example
    """
    response = session.operator().post("/operator/peers/add", {"endpoint": endpoint})
    if "peer" in response:
        text = "\n".join(["connected", *_peer_lines(response.object("peer"))])
    else:
        text = f"{visible(endpoint)} is added, but is not a peer yet: {response.text('why')}"
    session.print_result({name: response.verbatim(name) for name in ("peer", "why")}, text)


@peers.command()
@click.argument("target", callback=options.validated(_ban_target))
@click.option(
    "--seconds",
    metavar="N",
    callback=options.validated(options.integer(1, MAX_SECONDS)),
    help="Duration of the ban.  [default: permanent]",
)
@options.operator_option
@options.json_option
@click.pass_obj
def ban(session: Session, target: dict[str, object], seconds: int | None) -> None:
    """Ban TARGET, and drop the peers that it matches.

    TARGET is an endpoint, which is not called any more; a node id, at any address; or an IP address, with which
    the node does not communicate any more. An IPv6 address stands for its /64. Bans survive a restart of the node.

    \b
    Example:
      svc node peers ban http://192.0.2.7:8645
      svc node peers ban svcnode_773b63a2de4a437c36d424150c560f07
      svc node peers ban 192.0.2.7 --seconds 86400
    """
    body = target if seconds is None else {**target, "seconds": seconds}
    response = session.operator().post("/operator/peers/ban", body)
    banned, dropped = response.object("ban"), response.texts("dropped")
    effect = f"dropped: {', '.join(dropped)}" if dropped else "no peer was dropped"
    text = "\n".join(["banned", *_ban_lines(banned), f"  {effect}"])
    session.print_result({"ban": banned, "dropped": response.verbatim("dropped")}, text)


@peers.command()
@click.argument("target", callback=options.validated(_ban_target))
@options.operator_option
@options.json_option
@click.pass_obj
def unban(session: Session, target: dict[str, object]) -> None:
    """Remove every ban of TARGET, whether set by you or by the node.

    TARGET is what `svc node peers` shows: an endpoint, a node id or an IP address.

    \b
    Example:
      svc node peers unban 192.0.2.7
    """
    session.operator().post("/operator/peers/unban", target)
    (name,) = target.values()
    session.print_result({"unbanned": name}, f"{visible(str(name))} is no longer banned")


def peers_text(response: ResponseObject) -> str:
    """Peers and bans as text; raises CommandError."""
    return "\n".join([*_section("peer", response.objects("peers")), "", *_section("ban", response.objects("bans"))])


def _section(noun: str, items: list[ResponseObject]) -> Iterator[str]:
    yield counted(len(items), noun)
    for item in items:
        yield ""
        yield from _peer_lines(item) if noun == "peer" else _ban_lines(item)


def _peer_lines(peer: ResponseObject) -> Iterator[str]:
    address = f" at {peer.text('address')}" if "address" in peer else ""
    yield f"  {peer.text('endpoint')}{address}"
    yield f"    {peer.text('nodeId')}, {peer.text('direction')}"
    chain = "chain unknown yet"
    if "height" in peer:
        chain = f"height {peer.number('height')}, work {peer.identifier('work', _WORK, 'a number')}"
    failures = counted(peer.count("failures"), "failure")
    yield f"    {chain}, last seen {format_time(peer.number('lastSeen'))}, {failures} since"
    if "otherChanges" in peer and peer.flag("otherChanges"):
        yield "    has other changes of the producers than this node: all nodes need the newest file of the network"


def _ban_lines(ban: ResponseObject) -> Iterator[str]:
    yield f"  {_KINDS.get(ban.text('kind'), 'something')} {ban.text('name')}"
    end = f"until {format_time(ban.number('until'))}" if "until" in ban else "permanent"
    reason = f": {ban.text('reason')}" if "reason" in ban else ""
    yield f"    {end}, {'by the operator' if ban.flag('own') else 'by the node'}{reason}"
